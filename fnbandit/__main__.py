"""`python -m fnbandit`: the default simulation and its summary."""

from fnbandit import Config, simulate

print(simulate(Config(horizon=500)).summary())
