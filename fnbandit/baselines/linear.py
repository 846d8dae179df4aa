"""Linear UCB (Abbasi-Yadkori et al. 2011) and linear Thompson sampling on raw contexts."""

from __future__ import annotations

import torch
from torch import Tensor

from fnbandit.baselines.sampling import Normals, joint_sample
from fnbandit.config import Config
from fnbandit.covariance import Full
from fnbandit.environments import Environment
from fnbandit.groups import Group


class LinearGroup(Group):
    """n independent learners with V = lambda I + sum x x^T and theta = V^-1 sum y x.

    UCB  <x, theta> + nu sqrt(lambda) ||x||_{V^-1}
    TS   a joint draw from N(<x, theta>, nu^2 lambda x^T V^-1 x') over an agent's contexts,
         which is <x, theta~> for one draw theta~ of the posterior
    """

    def __init__(self, config: Config, environment: Environment, agents: range) -> None:
        super().__init__(config, environment, agents)
        regularization = config.number("regularization")
        self._scale = config.number("exploration_global") * regularization**0.5
        self._covariance = Full(len(agents), environment.dim, regularization, self.like)
        self._moments = self.like.new_zeros(len(agents), 1, environment.dim)
        self._normals = Normals(config.seed, agents, environment.arms, self.like)

    def saved(self) -> dict[str, int | None]:
        return super().saved() | {"_covariance": None, "_moments": None}

    def choose(self, iteration: int, contexts: Tensor) -> Tensor:
        return self.scores(iteration, contexts).argmax(dim=1)

    def scores(self, iteration: int, contexts: Tensor) -> Tensor:
        """[n, arms]"""
        solved = self._covariance.solve(contexts)
        mean = torch.bmm(self._moments, solved.mT).squeeze(1)
        if self.config.algorithm == "linear-ucb":
            return mean + self._scale * (solved * contexts).sum(-1).clamp_(min=0).sqrt_()
        spread = joint_sample(torch.bmm(solved, contexts.mT), self._normals.at(iteration))
        return mean + self._scale * spread

    def learn(self, iteration: int, contexts: Tensor, arms: Tensor, rewards: Tensor) -> None:
        row = self.chosen(contexts, arms)[:, None]
        self._covariance.absorb(row)
        self._moments += rewards[:, None, None] * row
