"""A random arm in every iteration: the baseline for learning."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fnbandit.algorithms.base import Group, Scored
from fnbandit.numerics.device import put_values
from fnbandit.numerics.randomness import Purpose, uniforms


class RandomArms(Group):
    """n agents that learn nothing."""

    def scores(self, iteration: int, contexts: Tensor) -> Scored:
        t, arms = iteration + self.ahead, contexts.shape[1]
        draws = uniforms(self.config.seed, Purpose.EXPLORATION, self.agents, t, arms)
        return Scored(put_values(draws, self.device, self.dtype))

    def learn(self, iteration: int, contexts: Tensor, arms: Tensor, rewards: Tensor, evidence: Any) -> None:
        pass
