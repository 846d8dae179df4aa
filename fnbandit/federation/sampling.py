"""The observations that agents evaluate in the exchanges of a round: all of them, or a sample."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fnbandit.config import Config
from fnbandit.numerics.device import put_values
from fnbandit.numerics.randomness import Purpose, uniforms

LEAST_SAMPLE = 4000
"""Smallest limit with training_sample=auto"""
PER_PARAMETER = 4
"""Observations per network parameter with training_sample=auto"""
OF_AGENTS = 2**32
"""Added to the number of a round in the draw of the agents that evaluate one more observation than others"""


def sample_limit(config: Config, parameters: int) -> int:
    """Return the largest number of observations of all agents together in one exchange."""
    if config.training_sample == "auto":
        return max(LEAST_SAMPLE, PER_PARAMETER * parameters)
    return int(config.training_sample) or config.agents * config.horizon


class Sample:
    """At most `limit` of the t observations of each of the participants of a round, the same in all its exchanges.

    Every participant evaluates the same number of observations, but for a remainder: agents drawn by (seed, round)
    evaluate one more. An agent draws its observations without replacement, by (seed, agent, round). So the cost of an
    exchange depends neither on N nor on t. A sample loses precision: sums over m of n observations, multiplied by
    n / m, have a relative error of about m^-1/2, and a network cannot fit what few of the observations show.
    """

    def __init__(self, config: Config, participants: np.ndarray, rounds: int, iteration: int, limit: int) -> None:
        self._config, self._participants, self._rounds, self._iteration = config, participants, rounds, iteration
        count = int(participants.sum())
        self.observations = count * iteration
        """Observations of all participants"""
        self.size = min(self.observations, limit)
        """Observations in the sample"""
        self._quota, self._more = divmod(self.size, count)
        self.slots = self._quota + bool(self._more)
        """Observations of the agent that evaluates most"""

    @property
    def factor(self) -> float:
        """Observations for each one in the sample."""
        return self.observations / self.size

    def counts(self) -> np.ndarray:
        """Return the number of observations of every agent, [N]."""
        counts = np.where(self._participants, self._quota, 0)
        if self._more:
            everyone = range(len(self._participants))
            draws = uniforms(self._config.seed, Purpose.SAMPLE, everyone, OF_AGENTS + self._rounds, 1)[:, 0]
            order = np.argsort(np.where(self._participants, draws, 2.0), kind="stable")
            counts[order[: self._more]] += 1
        return counts

    def select(self, agents: range, device: torch.device) -> tuple[Tensor | None, Tensor | None]:
        """Return the observations of some agents as indices [n, slots], and 1 for each that counts, else 0.

        None stands for indices of all observations, and for all of them counting.
        """
        counts = self.counts()[agents.start : agents.stop]
        mask = None
        if (counts < self.slots).any() or not self._participants.all():
            mask = put_values(np.arange(self.slots) < counts[:, None], device)
        if self.size == self.observations:
            return None, mask
        index = np.zeros((len(agents), self.slots), dtype=np.int64)
        some = np.flatnonzero(counts)
        numbers = np.arange(agents.start, agents.stop)[some]
        draws = uniforms(self._config.seed, Purpose.SAMPLE, numbers, self._rounds, self._iteration)
        index[some] = np.argsort(draws, axis=1, kind="stable")[:, : self.slots]
        return put_values(index, device), mask
