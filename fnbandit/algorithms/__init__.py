"""Algorithms, one file each: a subclass of `base.Group`, and a line in the registry."""
