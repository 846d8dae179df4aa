"""What a communication round is made of: when, what, in which form, and how the server combines it."""
