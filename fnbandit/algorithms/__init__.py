"""What agents can run, one file per algorithm: a subclass of `base.Group`, and a line in the registry."""
