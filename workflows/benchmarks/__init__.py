"""Measurements of speed and memory against targets: `make bench`."""
