"""Linear UCB (Abbasi-Yadkori et al. 2011) and linear Thompson sampling on raw contexts."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from torch import Tensor

from fnbandit.algorithms.base import Group, Scored
from fnbandit.algorithms.sampling import Normals, joint_sample
from fnbandit.algorithms.traits import Traits
from fnbandit.config import Config
from fnbandit.covariance.full import Full
from fnbandit.environments import Environment
from fnbandit.federation.replica import Replica
from fnbandit.numerics.memory import Memory, precisions
from fnbandit.numerics.products import multiply


class LinearGroup(Group):
    """n independent learners with V = lambda I + sum x x^T and theta = V^-1 sum y x."""

    traits = Traits(features="context")

    def __init__(self, config: Config, environment: Environment, agents: range, replica: Replica | None = None) -> None:
        super().__init__(config, environment, agents, replica)
        regularization = config.number("regularization")
        self._scale = config.number("exploration_global") * regularization**0.5
        self._covariance = Full(len(agents), environment.dim, regularization, self.like)
        self._moments = self.like.new_zeros(len(agents), 1, environment.dim)

    def list_state(self) -> dict[str, int | None]:
        return super().list_state() | {"_covariance": None, "_moments": None}

    def scores(self, iteration: int, contexts: Tensor) -> Scored:
        solved = self._covariance.solve(contexts)
        mean = multiply(self._moments, solved.mT).squeeze(1)
        return Scored(mean + self._scale * self.spread(iteration, contexts, solved))

    @abstractmethod
    def spread(self, iteration: int, contexts: Tensor, solved: Tensor) -> Tensor:
        """Return the unscaled exploration term of every context, [n, arms]; solved [n, arms, d] is V^-1 x."""

    def learn(self, iteration: int, contexts: Tensor, arms: Tensor, rewards: Tensor, evidence: Any) -> None:
        row = self.select_pulled(contexts, arms)[:, None]
        self._covariance.absorb(row)
        self._moments += rewards[:, None, None] * row

    def policy_parts(self, index: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
        solved = self._covariance.subset(slice(index, index + 1))
        solution = solved.solve(self._moments[index : index + 1])[0, 0]
        return {"global_scale": self._scale}, {"solution": solution, "inverse": solved.inverse[0]}

    @classmethod
    def memory(cls, config: Config, environment: Environment) -> Memory:
        return super().memory(config, environment) + Memory(environment.dim**2 * precisions(config)[0])


class LinearUCB(LinearGroup):
    """<x, theta> + nu sqrt(lambda) ||x||_{V^-1}"""

    def spread(self, iteration: int, contexts: Tensor, solved: Tensor) -> Tensor:
        return (solved * contexts).sum(-1).clamp_(min=0).sqrt_()


class LinearTS(LinearGroup):
    """A joint draw from N(<x, theta>, nu^2 lambda x^T V^-1 x') over an agent's contexts,

    which is <x, theta~> for one draw theta~ of the posterior.
    """

    def __init__(self, config: Config, environment: Environment, agents: range, replica: Replica | None = None) -> None:
        super().__init__(config, environment, agents, replica)
        self._normals = Normals(config.seed, agents, environment.arms, self.like)

    def policy_parts(self, index: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
        return Group.policy_parts(self, index)

    def spread(self, iteration: int, contexts: Tensor, solved: Tensor) -> Tensor:
        return joint_sample(multiply(solved, contexts.mT), self._normals.at(iteration + self.ahead))
