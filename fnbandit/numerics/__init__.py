"""Numbers whose bits do not depend on the layout: products, tree sums, randomness, state, memory, devices."""
