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


def kernel(left: Tensor, right: Tensor) -> Tensor:
    """exp(-||x - x'||) for x [n, a, d], x' [n, b, d] -> [n, a, b]."""
    return torch.exp(-torch.cdist(left, right, compute_mode="donot_use_mm_for_euclid_dist"))


class KernelGroup(Group):
    """n independent Gaussian-process learners: with C C^T = K + lambda I and w = C^-1 k(x),

    mean = w^T C^-1 y,  variance = k(x, x) - w^T w.
    C grows by one row per iteration.
    """

    def __init__(self, config: Config, environment: Environment, agents: range, shared: Shared | None = None) -> None:
        super().__init__(config, environment, agents, shared)
        self._scale = config.number("exploration_global")
        self._regularization = config.number("regularization")
        n = len(agents)
        self._contexts = self.like.new_empty(n, config.horizon, environment.dim)
        self._solved = self.like.new_empty(n, config.horizon)
        """C^-1 y"""
        self._factor = self.like.new_zeros(n, 0, 0)

    def saved(self) -> dict[str, int | None]:
        return super().saved() | {"_contexts": 1, "_solved": 1}

    def load(self, iteration: int, state: State) -> None:
        super().load(iteration, state)
        self._factor = state["_factor"].to(self.like)

    def state(self) -> State:
        return super().state() | {"_factor": self._factor[:, : self.iteration, : self.iteration].clone()}

    def scores(self, iteration: int, contexts: Tensor) -> Scored:
        seen = iteration - 1
        cross = self._factor.new_zeros(len(contexts), 0, contexts.shape[1])
        if seen:
            against = kernel(self._contexts[:, :seen], contexts)
            factor = self._factor[:, :seen, :seen]
            cross = torch.linalg.solve_triangular(factor, against, upper=False)
        mean = torch.bmm(self._solved[:, None, :seen], cross).squeeze(1)
        return Scored(mean + self._scale * self.spread(iteration, contexts, cross), cross)

    @abstractmethod
    def spread(self, iteration: int, contexts: Tensor, cross: Tensor) -> Tensor:
        """What is added to the means, [n, arms], before it is scaled by nu; cross [n, seen, arms] is w."""

    def learn(self, iteration: int, contexts: Tensor, arms: Tensor, rewards: Tensor, evidence: Tensor) -> None:
        seen = iteration - 1
        if seen == self._factor.shape[1]:
            larger = self._factor.new_zeros(len(arms), max(64, 2 * seen), max(64, 2 * seen))
            larger[:, :seen, :seen] = self._factor
            self._factor = larger
        row = evidence[self.index, :, arms]
        corner = (1 + self._regularization - row.square().sum(1)).sqrt()
        self._factor[:, seen, :seen] = row
        self._factor[:, seen, seen] = corner
        self._contexts[:, seen] = self.chosen(contexts, arms)
        self._solved[:, seen] = (rewards - (row * self._solved[:, :seen]).sum(1)) / corner

    @classmethod
    def memory(cls, config: Config, environment: Environment) -> Memory:
        horizon, real = config.horizon, precisions(config)[0]
        own = horizon * (environment.dim + 1) * real + 4 * horizon * horizon * real
        return super().memory(config, environment) + Memory(own)


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
