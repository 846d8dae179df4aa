"""Kernelised UCB and Thompson sampling with k(x, x') = exp(-||x - x'||), as in Zhang et al. (2021)."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from fnbandit.algorithms.base import Group, Scored
from fnbandit.algorithms.sampling import Normals, joint_sample
from fnbandit.config import Config
from fnbandit.environments import Environment
from fnbandit.federation.replica import Replica
from fnbandit.numerics.memory import Memory, precisions
from fnbandit.numerics.products import multiply, solve_lower
from fnbandit.numerics.state import State

FACTOR_BLOCK = 256
"""Rows of a Cholesky factor that are copied to its contiguous part at once"""


def kernel(left: Tensor, right: Tensor) -> Tensor:
    """Return exp(-||x - x'||) for x [n, a, d], x' [n, b, d] -> [n, a, b]."""
    return torch.exp(-torch.cdist(left, right, compute_mode="donot_use_mm_for_euclid_dist"))


class KernelGroup(Group):
    """n independent Gaussian-process learners: with C C^T = K + lambda I and w = C^-1 k(x),

    mean = w^T C^-1 y,  variance = k(x, x) - w^T w.
    C grows by one row per iteration. torch copies the matrix of a solve unless it is contiguous in column-major order,
    so most of C is; its last rows, fewer than FACTOR_BLOCK, are kept apart until they fill a block.
    """

    def __init__(self, config: Config, environment: Environment, agents: range, replica: Replica | None = None) -> None:
        super().__init__(config, environment, agents, replica)
        self._scale = config.number("exploration_global")
        self._regularization = config.number("regularization")
        n = len(agents)
        self._contexts = self.like.new_zeros(n, config.horizon, environment.dim)
        self._solved = self.like.new_zeros(n, config.horizon)
        """C^-1 y"""
        self._contiguous = self.like.new_zeros(n, 0, 0)
        """The first rows of C, [n, s, s], in column-major order"""
        self._rows = self.like.new_zeros(n, FACTOR_BLOCK, FACTOR_BLOCK)
        """The rows after them, [n, FACTOR_BLOCK, s + FACTOR_BLOCK]"""

    def list_state(self) -> dict[str, int | None]:
        return super().list_state() | {"_contexts": 1, "_solved": 1}

    def load(self, iteration: int, state: State) -> None:
        super().load(iteration, state)
        count = max(0, iteration)
        factor, start = state["_factor"].to(self.like), count // FACTOR_BLOCK * FACTOR_BLOCK
        self._contiguous = factor[:, :start, :start].mT.contiguous().mT
        self._rows = factor.new_zeros(len(factor), FACTOR_BLOCK, start + FACTOR_BLOCK)
        self._rows[:, : count - start, :count] = factor[:, start:]

    def state(self) -> State:
        return super().state() | {"_factor": self._factor(max(0, self.iteration))}

    def _factor(self, count: int) -> Tensor:
        """Return C after `count` iterations, [n, count, count]."""
        start = self._contiguous.shape[1]
        whole = self.like.new_zeros(len(self._contiguous), count, count)
        whole[:, :start, :start] = self._contiguous
        whole[:, start:] = self._rows[:, : count - start, :count]
        return whole

    def _solve(self, right: Tensor) -> Tensor:
        """Return C^-1 right for right [n, count, arms]."""
        start, count = self._contiguous.shape[1], right.shape[1]
        rows = self._rows[:, : count - start]
        first, rest = right.split([start, count - start], dim=1)
        if start:
            first = solve_lower(self._contiguous, first)
            rest = rest - multiply(rows[:, :, :start], first)
        last = solve_lower(rows[:, :, start:count], rest)
        return torch.cat([first, last], dim=1)

    def scores(self, iteration: int, contexts: Tensor) -> Scored:
        count = iteration - 1
        cross = self._solve(kernel(self._contexts[:, :count], contexts))
        mean = multiply(self._solved[:, None, :count], cross).squeeze(1)
        return Scored(mean + self._scale * self.spread(iteration, contexts, cross), cross)

    @abstractmethod
    def spread(self, iteration: int, contexts: Tensor, cross: Tensor) -> Tensor:
        """Return the exploration term of every context, [n, arms], before nu scales it; cross [n, t - 1, arms] is w."""

    def learn(self, iteration: int, contexts: Tensor, arms: Tensor, rewards: Tensor, evidence: Tensor) -> None:
        count = iteration - 1
        place = count - self._contiguous.shape[1]
        row = evidence[self.index, :, arms]
        corner = (1 + self._regularization - row.square().sum(1)).sqrt()
        self._rows[:, place, :count] = row
        self._rows[:, place, count] = corner
        self._contexts[:, count] = self.select_pulled(contexts, arms)
        self._solved[:, count] = (rewards - (row * self._solved[:, :count]).sum(1)) / corner
        if place + 1 == FACTOR_BLOCK:
            self._contiguous = self._factor(iteration).mT.contiguous().mT
            self._rows = self.like.new_zeros(len(arms), FACTOR_BLOCK, iteration + FACTOR_BLOCK)

    @classmethod
    def memory(cls, config: Config, environment: Environment) -> Memory:
        horizon, real = config.horizon, precisions(config)[0]
        own = horizon * (environment.dim + 1) + 3 * horizon * horizon + FACTOR_BLOCK * (horizon + FACTOR_BLOCK)
        return super().memory(config, environment) + Memory(own * real)


class KernelUCB(KernelGroup):
    """mean + nu sqrt(variance)"""

    def spread(self, iteration: int, contexts: Tensor, cross: Tensor) -> Tensor:
        return (1 - cross.square().sum(1)).clamp_(min=0).sqrt_()


class KernelTS(KernelGroup):
    """A joint draw over an agent's contexts with nu^2 times the posterior covariance."""

    def __init__(self, config: Config, environment: Environment, agents: range, replica: Replica | None = None) -> None:
        super().__init__(config, environment, agents, replica)
        self._normals = Normals(config.seed, agents, environment.arms, self.like)

    def spread(self, iteration: int, contexts: Tensor, cross: Tensor) -> Tensor:
        covariance = kernel(contexts, contexts) - multiply(cross.mT, cross)
        return joint_sample(covariance, self._normals.at(iteration + self.ahead))
