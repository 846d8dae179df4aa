"""Forgetting of old observations, for tasks that drift: they count less, or not at all, in what rounds compute anew.

A round that trains computes sums over the agents' whole histories: of gradients, of curvature, of W and B on the new
features, and of an agent's own rows. Observations of age a = t - s have a weight in all of these. In between, W_new
and B_new are added without a weight: epochs are short against what is remembered.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fnbandit.config import Config

LEAST_WEIGHT = 1e-3
"""Observations with a smaller weight do not count"""


class NoForgetting:
    """All observations count alike. Base class: a weight for each of the newest observations."""

    memory = math.inf
    """Sum of the weights of a long history"""

    def __init__(self, config: Config) -> None:
        self._config = config

    def count(self, iteration: int) -> int:
        """Return the number of newest observations of an agent that count in an iteration."""
        return iteration

    def weights(self, count: int, like: Tensor) -> Tensor | None:
        """Return the weights of the newest `count` observations, oldest first, [count]; None where all are 1."""
        return None

    def mean_weight(self, iteration: int) -> float:
        """Return the mean weight of the observations that count in an iteration."""
        return 1.0

    def time_since(self, last: int, iteration: int) -> tuple[int, int]:
        """Return the observations known at the iteration of the last training, and those known now.

        The more an agent forgets, the more of what it knows is new.
        """
        known = int(min(last, self.memory))
        return known, known + iteration - last


class Discounting(NoForgetting):
    """Weight discount^a for an observation of age a, 0 where that is below LEAST_WEIGHT."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.memory = 1 / (1 - config.discount)

    def count(self, iteration: int) -> int:
        return min(iteration, 1 + math.floor(math.log(LEAST_WEIGHT) / math.log(self._config.discount)))

    def mean_weight(self, iteration: int) -> float:
        count = self.count(iteration)
        return (1 - self._config.discount**count) * self.memory / count

    def weights(self, count: int, like: Tensor) -> Tensor | None:
        ages = torch.arange(count - 1, -1, -1, device=like.device)
        return (self._config.discount ** ages.double()).to(like)


class SlidingWindow(NoForgetting):
    """The newest `window` observations of every agent count, older ones do not."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.memory = config.window

    def count(self, iteration: int) -> int:
        return min(iteration, self._config.window)
