"""Side by side with other simulators of federated learning, each in an environment of its own: `make bench-peers`."""
