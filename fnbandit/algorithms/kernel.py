"""Kernelised UCB and Thompson sampling with k(x, x') = exp(-||x - x'||), as Zhang et al. (2021) set them up."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from fnbandit.algorithms.base import Group, Scored
from fnbandit.algorithms.sampling import Normals, joint_sample
from fnbandit.config import Config
from fnbandit.environments import Environment
from fnbandit.memory import Memory, precisions
from fnbandit.rounds.shared import Shared
from fnbandit.state import State

BLOCK = 256
"""Rows of a Cholesky factor that are settled at once"""


def kernel(left: Tensor, right: Tensor) -> Tensor:
    """exp(-||x - x'||) for x [n, a, d], x' [n, b, d] -> [n, a, b]."""
    return torch.exp(-torch.cdist(left, right, compute_mode="donot_use_mm_for_euclid_dist"))


class KernelGroup(Group):
    """n independent Gaussian-process learners: with C C^T = K + lambda I and w = C^-1 k(x),

    mean = w^T C^-1 y,  variance = k(x, x) - w^T w.
    C grows by one row per iteration. torch copies a matrix that it solves with, unless it stands alone and column by
    column, so most of C does; its last rows, fewer than BLOCK, wait to be settled there.
    """

    def __init__(self, config: Config, environment: Environment, agents: range, shared: Shared | None = None) -> None:
        super().__init__(config, environment, agents, shared)
        self._scale = config.number("exploration_global")
        self._regularization = config.number("regularization")
        n = len(agents)
        self._contexts = self.like.new_empty(n, config.horizon, environment.dim)
        self._solved = self.like.new_empty(n, config.horizon)
        """C^-1 y"""
        self._settled = self.like.new_zeros(n, 0, 0)
        """The first rows of C, [n, s, s], column by column"""
        self._rows = self.like.new_zeros(n, BLOCK, BLOCK)
        """The rows after them, [n, BLOCK, s + BLOCK]"""

    def saved(self) -> dict[str, int | None]:
        return super().saved() | {"_contexts": 1, "_solved": 1}

    def load(self, iteration: int, state: State) -> None:
        super().load(iteration, state)
        factor, settled = state["_factor"].to(self.like), iteration // BLOCK * BLOCK
        self._settled = factor[:, :settled, :settled].mT.contiguous().mT
        self._rows = factor.new_zeros(len(factor), BLOCK, settled + BLOCK)
        self._rows[:, : iteration - settled, :iteration] = factor[:, settled:]

    def state(self) -> State:
        return super().state() | {"_factor": self._factor(self.iteration)}

    def _factor(self, seen: int) -> Tensor:
        """C after so many iterations, [n, seen, seen]."""
        settled = self._settled.shape[1]
        whole = self.like.new_zeros(len(self._settled), seen, seen)
        whole[:, :settled, :settled] = self._settled
        whole[:, settled:] = self._rows[:, : seen - settled, :seen]
        return whole

    def _solve(self, right: Tensor) -> Tensor:
        """C^-1 right for right [n, seen, arms]."""
        settled, seen = self._settled.shape[1], right.shape[1]
        rows = self._rows[:, : seen - settled]
        first, rest = right.split([settled, seen - settled], dim=1)
        if settled:
            first = torch.linalg.solve_triangular(self._settled, first, upper=False)
            rest = rest - torch.bmm(rows[:, :, :settled], first)
        last = torch.linalg.solve_triangular(rows[:, :, settled:seen], rest, upper=False)
        return torch.cat([first, last], dim=1)

    def scores(self, iteration: int, contexts: Tensor) -> Scored:
        seen = iteration - 1
        cross = self._solve(kernel(self._contexts[:, :seen], contexts))
        mean = torch.bmm(self._solved[:, None, :seen], cross).squeeze(1)
        return Scored(mean + self._scale * self.spread(iteration, contexts, cross), cross)

    @abstractmethod
    def spread(self, iteration: int, contexts: Tensor, cross: Tensor) -> Tensor:
        """What is added to the means, [n, arms], before it is scaled by nu; cross [n, seen, arms] is w."""

    def learn(self, iteration: int, contexts: Tensor, arms: Tensor, rewards: Tensor, evidence: Tensor) -> None:
        seen = iteration - 1
        place = seen - self._settled.shape[1]
        row = evidence[self.index, :, arms]
        corner = (1 + self._regularization - row.square().sum(1)).sqrt()
        self._rows[:, place, :seen] = row
        self._rows[:, place, seen] = corner
        self._contexts[:, seen] = self.chosen(contexts, arms)
        self._solved[:, seen] = (rewards - (row * self._solved[:, :seen]).sum(1)) / corner
        if place + 1 == BLOCK:
            self._settled = self._factor(iteration).mT.contiguous().mT
            self._rows = self.like.new_zeros(len(arms), BLOCK, iteration + BLOCK)

    @classmethod
    def memory(cls, config: Config, environment: Environment) -> Memory:
        horizon, real = config.horizon, precisions(config)[0]
        own = horizon * (environment.dim + 1) + 3 * horizon * horizon + BLOCK * (horizon + BLOCK)
        return super().memory(config, environment) + Memory(own * real)


class KernelUCB(KernelGroup):
    """mean + nu sqrt(variance)"""

    def spread(self, iteration: int, contexts: Tensor, cross: Tensor) -> Tensor:
        return (1 - cross.square().sum(1)).clamp_(min=0).sqrt_()


class KernelTS(KernelGroup):
    """A joint draw over an agent's contexts with nu^2 times the posterior covariance."""

    def __init__(self, config: Config, environment: Environment, agents: range, shared: Shared | None = None) -> None:
        super().__init__(config, environment, agents, shared)
        self._normals = Normals(config.seed, agents, environment.arms, self.like)

    def spread(self, iteration: int, contexts: Tensor, cross: Tensor) -> Tensor:
        covariance = kernel(contexts, contexts) - torch.bmm(cross.mT, cross)
        return joint_sample(covariance, self._normals.at(iteration))
