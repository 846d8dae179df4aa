"""What a person sees on the terminal: output, progress, secrets, stopping."""
