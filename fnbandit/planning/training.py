"""Trainings of the network in rounds at a barrier: how often, in how many exchanges, with how much work.

    each agent on its own history     J n t flops(network), in the network's precision
    by sums, an exchange              s flops(network) for gradients; 2 s p^2 more for the sum of g g^T, and p^3 / 3 for
                                      the step that follows, on the server
    W on new features                 2 s q^2, where they are not those of the last exchange; q^3 for V^-1 in every
                                      process

p counts the parameters of the network, q the features of a row (`FNExact`: q = p, `FNLinear`: q = m + 1), s the
observations that n agents of a process evaluate in an exchange. `federation.sampling` limits s, so that it grows
neither with N nor with t.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fnbandit.config import Config
from fnbandit.config.registry import build
from fnbandit.core import Content
from fnbandit.covariance import FULL, matrices
from fnbandit.federation.network_training import NetworkTraining
from fnbandit.federation.sampling import sample_limit
from fnbandit.networks.network import Network
from fnbandit.networks.training import MATURE
from fnbandit.planning.arithmetic import Work


@dataclass(frozen=True)
class RoundTraining:
    """The expected training of the rounds around an iteration."""

    share: float
    """Share of the rounds that train"""
    steps: float
    """J in these"""
    is_local: bool
    """True where every agent trains a network of its own before its first upload"""
    contents: tuple[tuple[Content, float], ...]
    """Content of the further exchanges in these, and the number of each"""

    @property
    def exchanges(self) -> float:
        """Further exchanges of a round, on average over all rounds."""
        return self.share * sum(number for _, number in self.contents)


NO_TRAINING = RoundTraining(0.0, 0.0, True, ())


def expect_training(config: Config, dim: int, features: int | None, t: int, k: int) -> RoundTraining:
    """Return the training of rounds around iteration t with k iterations each.

    `features` is q where the rows of W are features of the network that rounds train, else None.
    """
    share = share_of_trainings(config, t, k)
    if not share:
        return NO_TRAINING
    steps = steps_of_training(config, t, round(k / share))
    rule: NetworkTraining = build("federation", config.federation, config)
    network = Network(config, dim)
    content, number = rule.expect_exchanges(steps, has_full_matrices(config), network.parameter_count)
    contents = [(content, number)] if number else []
    keeps_curvature = content == "curvature" and features == network.parameter_count and network.output_scale == 1
    if features is not None and not keeps_curvature:
        contents.append(("statistics", 1.0))
    return RoundTraining(share, steps, rule.trains_locally, tuple(contents))


def has_full_matrices(config: Config) -> bool:
    """Return True where a matrix has more numbers than a row."""
    return matrices(config) is FULL


def share_of_trainings(config: Config, t: int, k: int) -> float:
    """Return the share of rounds around iteration t, with k iterations each, in which a training is due."""
    if config.stop_training_after is not None and t > config.stop_training_after:
        return 0.0
    if config.training_steps != "auto":
        return float(config.number("training_steps") > 0)
    # Due are C log(t / u) steps since iteration u: fewer than the least number wait for the next round.
    wait = t * -math.expm1(-config.training_least / config.training_effort)
    return 1 / max(1, math.ceil(wait / k))


def steps_of_training(config: Config, t: int, k: int) -> float:
    """Return the training steps before an upload around iteration t, k iterations after the last one."""
    if config.stop_training_after is not None and t > config.stop_training_after:
        return 0.0
    if config.training_steps != "auto":
        return config.number("training_steps")
    return min(config.training_cap, config.training_effort * k / t)


def count_training_passes(config: Config, t: int, k: int) -> float:
    """Return the passes over the history in a training step: more than one while agents also train on a part of it.

    They do this in the first MATURE rounds (`training.train_debiased`) where epochs have several iterations.
    """
    return 1 + config.training_subsample if k > 1 and t <= MATURE * k else 1.0


def work_of_training(config: Config, dim: int, features: int | None, n: int, t: int, k: int) -> Work:
    """Return the work of training in a round of n agents in a process, on average over rounds that train and others."""
    training = expect_training(config, dim, features, t, k)
    network = Network(config, dim)
    p, q = network.parameter_count, features or 0
    local = Work(single=training.steps * n * t * network.flops)
    work = local * count_training_passes(config, t, k) if training.is_local else Work()
    s = min(config.agents * t, sample_limit(config, p)) * n / config.agents
    gradient = Work(single=s * network.flops)
    for content, number in training.contents:
        if content == "network":
            work += local * number
        elif content == "gradient":
            work += gradient * number
        elif content == "curvature":
            # Rows are written and read, and the matrix is packed, unpacked, damped and factored.
            sums = Work(double=2 * s * p * p + p**3 / 3, traffic=8 * (2 * s * p + 8 * p * p))
            work += (gradient + sums) * number
        else:
            work += Work(double=2 * s * q * q, traffic=8 * (2 * s * q + 8 * q * q)) * number
    if features is not None and has_full_matrices(config):
        work += Work(double=q**3)
    return work * training.share
