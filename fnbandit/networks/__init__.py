"""The networks, their tangent features and their training."""
