"""Single-agent learners, N of them side by side, and the learner that pools all raw data."""

from __future__ import annotations

from fnbandit.baselines.kernel import KernelGroup
from fnbandit.baselines.linear import LinearGroup
from fnbandit.baselines.neural import NeuralGroup, PooledNeuralGroup
from fnbandit.config import Config
from fnbandit.environments import Environment
from fnbandit.groups import Group


def make_baseline(config: Config, environment: Environment, agents: range) -> Group:
    """The group of learners that `config.algorithm` names."""
    kinds: dict[str, type[Group]] = {
        "linear-ucb": LinearGroup,
        "linear-ts": LinearGroup,
        "kernel-ucb": KernelGroup,
        "kernel-ts": KernelGroup,
        "neural-ucb": NeuralGroup,
        "neural-ts": NeuralGroup,
        "pooled-neural-ucb": PooledNeuralGroup,
    }
    return kinds[config.algorithm](config, environment, agents)
