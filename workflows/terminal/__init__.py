"""The terminal: output, progress, secrets, stopping."""
