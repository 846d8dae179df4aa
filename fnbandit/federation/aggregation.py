"""Rules by which the server combines the agents' networks (Alg. 2, line 4)."""

from __future__ import annotations

import torch
from torch import Tensor

from fnbandit.config import Config
from fnbandit.config.registry import build
from fnbandit.numerics.state import State

WEISZFELD_STEPS = 50
"""Iterations of Weiszfeld's method: from the mean they converge to single precision unless agents coincide."""


class Aggregation:
    """Base class: a function from the theta of all agents, [N, p], to one theta, [p]."""

    linear = False
    """True where the aggregate depends only on the mean over agents, [1, p]"""

    def __init__(self, config: Config) -> None:
        self._config = config

    def __call__(self, values: Tensor, last: Tensor) -> Tensor:
        """Return the aggregate [p] of values [N, p], or [1, p]; `last` [p] is the aggregate of the round before."""
        raise NotImplementedError

    def state(self) -> State:
        """Return all that `load` needs to continue with the same bits."""
        return {}

    def load(self, state: State) -> None:
        """Continue from a `state`."""


class Mean(Aggregation):
    """The average over agents."""

    linear = True

    def __call__(self, values: Tensor, last: Tensor) -> Tensor:
        return values.mean(0)


class Median(Aggregation):
    """The median of every coordinate; of an even number of agents, the mean of the middle two."""

    def __call__(self, values: Tensor, last: Tensor) -> Tensor:
        ordered = values.sort(dim=0).values
        return (ordered[(len(values) - 1) // 2] + ordered[len(values) // 2]) / 2


class TrimmedMean(Aggregation):
    """The mean of every coordinate without its floor(trim N) smallest and as many largest values."""

    def __call__(self, values: Tensor, last: Tensor) -> Tensor:
        left_out = int(self._config.trim * len(values))
        return values.sort(dim=0).values[left_out : len(values) - left_out].mean(0)


class GeometricMedian(Aggregation):
    """The point with the least sum of distances to all agents' parameters, by Weiszfeld's iteration

    z <- (sum_i theta_i / d_i) / (sum_i 1 / d_i),  d_i = ||theta_i - z||,  from the mean,
    with distances kept above a millionth of their mean, which avoids a division by 0 where z equals some theta_i.
    """

    def __call__(self, values: Tensor, last: Tensor) -> Tensor:
        point = values.mean(0)
        for _ in range(WEISZFELD_STEPS):
            distances = (values - point).norm(dim=1)
            least = 1e-6 * distances.mean() + torch.finfo(values.dtype).tiny
            shares = 1 / distances.clamp(min=least)
            point = (shares[:, None] * values).sum(0) / shares.sum()
        return point


class Momentum(Aggregation):
    """Server momentum on top of another rule: m <- beta m + (aggregate - last), theta <- last + m."""

    def __init__(self, config: Config, rule: Aggregation) -> None:
        super().__init__(config)
        self.linear = rule.linear
        self._rule = rule
        self._momentum: Tensor | None = None

    def __call__(self, values: Tensor, last: Tensor) -> Tensor:
        step = self._rule(values, last) - last
        if self._momentum is not None:
            step = step + self._config.server_momentum * self._momentum
        self._momentum = step
        return last + step

    def state(self) -> State:
        return self._rule.state() | ({} if self._momentum is None else {"momentum": self._momentum})

    def load(self, state: State) -> None:
        self._rule.load(state)
        self._momentum = state.get("momentum")


def make_aggregation(config: Config) -> Aggregation:
    """Make the rule that a config names, with server momentum where it is set."""
    rule = build("aggregation", config.aggregation, config)
    return Momentum(config, rule) if config.server_momentum else rule
