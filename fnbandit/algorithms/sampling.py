"""Random draws of Thompson sampling: standard normals as a function of (seed, agent, iteration)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fnbandit.numerics.device import put_values
from fnbandit.numerics.products import multiply
from fnbandit.numerics.randomness import BLOCK, Purpose, generator


class Normals:
    """One standard normal per agent and arm in every iteration."""

    def __init__(self, seed: int, agents: range, arms: int, like: Tensor) -> None:
        self._seed, self._agents, self._arms, self._like = seed, agents, arms, like
        self._index = -1

    def at(self, iteration: int) -> Tensor:
        """Return the normals of an iteration, [agents, arms]."""
        index, offset = divmod(iteration - 1, BLOCK)
        if index != self._index:
            draws = [
                generator(self._seed, Purpose.THOMPSON, agent, index).standard_normal((BLOCK, self._arms))
                for agent in self._agents
            ]
            self._draws = put_values(np.stack(draws, axis=1), self._like.device, self._like.dtype)
            self._index = index
        return self._draws[offset]


def joint_sample(covariance: Tensor, normals: Tensor) -> Tensor:
    """Return a joint draw [n, k]: the symmetric square root of covariances [n, k, k] times normals [n, k]."""
    values, vectors = torch.linalg.eigh(covariance)
    rotated = multiply(normals[:, None], vectors) * values.clamp(min=0).sqrt()[:, None]
    return multiply(rotated, vectors.mT).squeeze(1)
