"""Rules by which the server combines the agents' networks (Alg. 2, line 4), or their gradients.

Some withstand agents that lie; `statistics_rules` has those for W and B.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fnbandit.config import Config
from fnbandit.config.registry import build
from fnbandit.numerics.state import State

WEISZFELD_STEPS = 50
"""Iterations of Weiszfeld's method: from the mean they converge to single precision unless agents coincide."""
CLIPPINGS = 3
"""Steps of centered clipping"""


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
        return median_of(values)


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
        return minimize_distances(values)


class Krum(Aggregation):
    """The agent's value with the least sum of squared distances to its n - f - 1 nearest others.

    Blanchard et al. 2017; f = floor(trim n) is the assumed number of liars among n agents.
    """

    def __call__(self, values: Tensor, last: Tensor) -> Tensor:
        return values[int(self._scores(values).argmin())]

    def _liars(self, values: Tensor) -> int:
        return int(self._config.trim * len(values))

    def _scores(self, values: Tensor) -> Tensor:
        """Return the sum of squared distances of every value to its nearest others, [n]."""
        nearest = distances_between(values).square().sort(dim=1).values
        return nearest[:, 1 : len(values) - self._liars(values)].sum(1)


class MultiKrum(Krum):
    """The mean of the n - f agents' values with the least scores of Krum."""

    def __call__(self, values: Tensor, last: Tensor) -> Tensor:
        best = self._scores(values).argsort(stable=True)[: len(values) - self._liars(values)]
        return values[best.sort().values].mean(0)


class CenteredClipping(Aggregation):
    """v <- v + mean of (x_i - v) min(1, tau / ||x_i - v||), three times from the last aggregate (Karimireddy 2021).

    tau is `clipping_radius`; auto: the median over agents of ||x_i - v|| at the start.
    """

    def __call__(self, values: Tensor, last: Tensor) -> Tensor:
        point, radius = last, self._config.clipping_radius
        limit: Tensor | float = median_of((values - point).norm(dim=1)) if radius == "auto" else float(radius)
        for _ in range(CLIPPINGS):
            change = values - point
            lengths = change.norm(dim=1, keepdim=True).clamp(min=torch.finfo(values.dtype).tiny)
            point = point + (change * (limit / lengths).clamp(max=1)).mean(0)
        return point


class NeighbourMixing(TrimmedMean):
    """The trimmed mean of values that are each replaced by the mean of the n - f nearest (Allouah et al. 2023).

    An agent is one of its own neighbours, and f = floor(trim n) is the assumed number of liars among n agents.
    """

    def __call__(self, values: Tensor, last: Tensor) -> Tensor:
        count = len(values) - int(self._config.trim * len(values))
        nearest = distances_between(values).argsort(dim=1, stable=True)[:, :count].sort(dim=1).values
        return super().__call__(torch.stack([values[own].mean(0) for own in nearest]), last)


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


def median_of(values: Tensor) -> Tensor:
    """Return the median over the first dimension; of an even number of values, the mean of the middle two."""
    ordered = values.sort(dim=0).values
    return (ordered[(len(values) - 1) // 2] + ordered[len(values) // 2]) / 2


def minimize_distances(values: Tensor) -> Tensor:
    """Return the geometric median [p] of values [n, p], as `GeometricMedian` describes."""
    point = values.mean(0)
    for _ in range(WEISZFELD_STEPS):
        distances = (values - point).norm(dim=1)
        least = 1e-6 * distances.mean() + torch.finfo(values.dtype).tiny
        shares = 1 / distances.clamp(min=least)
        point = (shares[:, None] * values).sum(0) / shares.sum()
    return point


def distances_between(values: Tensor) -> Tensor:
    """Return the distances between all pairs of values [n, p], [n, n]; without a product of matrices, which cancels."""
    return torch.stack([(values - one).norm(dim=1) for one in values])


def make_aggregation(config: Config) -> Aggregation:
    """Make the rule that a config names, with server momentum where it is set."""
    rule = build("aggregation", config.aggregation, config)
    return Momentum(config, rule) if config.server_momentum else rule
