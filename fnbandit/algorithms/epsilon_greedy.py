"""Neural epsilon-greedy: the arm that a network predicts to be best, or with probability epsilon a random one."""

from __future__ import annotations

import torch
from torch import Tensor

from fnbandit.algorithms.base import Scored
from fnbandit.algorithms.neural import NetworkLearners
from fnbandit.numerics.device import put_values
from fnbandit.numerics.randomness import Purpose, uniforms


class NeuralEpsilonGreedy(NetworkLearners):
    """n independent learners: the arm with the largest f(x; theta), or with probability epsilon a uniform one."""

    def scores(self, iteration: int, contexts: Tensor) -> Scored:
        arms = contexts.shape[1]
        numbers = uniforms(self.config.seed, Purpose.EXPLORATION, self.agents, iteration + self.ahead, 1 + arms)
        draws = put_values(numbers, self.device, self.dtype)
        explores = draws[:, :1] < self.config.epsilon
        return Scored(torch.where(explores, draws[:, 1:], self.predict(contexts)))
