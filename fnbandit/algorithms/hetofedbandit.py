"""HetoFedBandit (Blaser, Li and Wang 2024): linear UCB on the observations of the agents with the same parameters.

It is the data-dependent variant of the paper's experiments: no phase of random exploration, and every round finds the
clusters anew, as maximal cliques of the graph of agents that the test of homogeneity does not tell apart
(`federation.clusters`). A cluster asks for a round by log det, as in Alg. 1, line 11, on its own V. The paper's server
answers one cluster in an iteration, and keeps a queue of the others; here a round is of all agents, and answers all
clusters. The paper knows the variance of the noise, which is estimated here, and its test is a non-central one with a
parameter that vanishes with N^2.

Fed-PE (Huang et al. 2021), another algorithm for agents that differ, is left out. There each agent has one fixed
context for its whole life, arms have parameters of their own, and phases of elimination follow an optimal design over
these fixed contexts; contexts that change in every iteration have no such design.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fnbandit.algorithms.base import Scored
from fnbandit.algorithms.federated import FederatedGroup
from fnbandit.algorithms.traits import Traits
from fnbandit.config import Config
from fnbandit.core import Upload
from fnbandit.covariance.ridges import RidgeEvaluation, Ridges, invert_all
from fnbandit.environments import Environment
from fnbandit.federation.clusters import find_cliques, pack_sums, unpack_sums
from fnbandit.federation.messages import Contents
from fnbandit.federation.replica import Replica
from fnbandit.numerics.memory import Memory, precisions
from fnbandit.numerics.products import multiply


class HetoFedBandit(FederatedGroup):
    """n agents with UCB on V = lambda I + W and B of their clusters: those of the last round, and own rows since.

    An agent sends W_new, B_new, the number of new observations and their sum of squares; the server adds these up by
    agent, and sends the sums of the agent's cluster.
    """

    traits = Traits(schedule="barrier", features="context")

    def __init__(self, config: Config, environment: Environment, agents: range, replica: Replica | None = None) -> None:
        super().__init__(config, environment, agents, replica)
        self._regularization = config.number("regularization")
        n, p = len(agents), environment.dim
        self.ridges = Ridges(n, [self._regularization], p, self.like)
        self._eye = torch.eye(p, dtype=self.dtype, device=self.device)
        self.covariance = self.like.new_zeros(n, p, p)
        """W_i of all observations that the agent has sent, [n, p, p]"""
        self.moments = self.like.new_zeros(n, p)
        """B_i of these, [n, p]"""
        self._rows: list[Tensor] = []
        """Contexts of the arms pulled since the last round, [n, p] each"""
        self._gains: list[Tensor] = []
        """log det V less that after the last round, after every iteration since, [n] each"""

    @classmethod
    def make_replica(cls, config: Config, environment: Environment, like: Tensor) -> Replica:
        p, contents = cls.parameter_count(config, environment), Contents(covariances=1, vectors=1, scalars=2)
        return Replica(config, lambda rows: rows, p, like, contents, contents, clusters=find_cliques)

    def list_state(self) -> dict[str, int | None]:
        return super().list_state() | {"covariance": None, "moments": None}

    def scores(self, iteration: int, contexts: Tensor) -> Scored:
        found = self.ridges.evaluate(contexts)
        return Scored((found.mean + self._global_scale * found.variance.sqrt())[:, 0], found)

    def learn(self, iteration: int, contexts: Tensor, arms: Tensor, rewards: Tensor, evidence: Any) -> None:
        found: RidgeEvaluation = evidence
        gain = torch.log1p(self.select_pulled(found.variance[:, 0], arms))
        self._gains.append(self._gains[-1] + gain if self._gains else gain)
        self._rows.append(self.select_pulled(contexts, arms))
        self.ridges.append(contexts, arms, rewards, found)

    def gain(self) -> Tensor:
        """Return log det V less that after the last round, [n], which triggers read of an epoch."""
        return self._gains[-1]

    def measure(self) -> Tensor:
        trigger: Any = self.replica.trigger
        return trigger.measure(self, self.replica.counters(self.iteration))

    def rewind(self, iteration: int) -> None:
        length = iteration - self.replica.last_round
        self.iteration = iteration
        self.ridges.truncate(length)
        del self._rows[length:], self._gains[length:]

    def train(self) -> None:
        """Do nothing: there are no networks."""

    def upload(self) -> Upload:
        """Return the sums of all observations so far; the server has those up to the last round already."""
        t, last = self.iteration, self.replica.last_round
        rows, rewards = torch.stack(self._rows, dim=1), self.rewards[:, last:t]
        self.covariance = self.covariance + multiply(rows.mT, rows)
        self.moments = self.moments + multiply(rewards[:, None], rows)[:, 0]
        own = pack_sums(self.covariance, self.moments, t, self.rewards[:, :t].square().sum(1))
        return self.send(Upload(self.agents, t, last, self.measure(), own=own))

    def start_epoch(self) -> None:
        clusters = self.replica.clusters
        if clusters is not None:
            covariance, moments = unpack_sums(clusters.sums, len(self._eye))
            member = clusters.member[self.agents.start : self.agents.stop]
            self.ridges.inverse = invert_all(covariance + self._regularization * self._eye)[member][:, None]
            self.ridges.moments = moments[member][:, None]
        self.ridges.start(torch.zeros_like(self.ridges.moments))
        self._rows, self._gains = [], []

    def policy_parts(self, index: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
        facts = {"global_scale": self._global_scale}
        return facts, {"solution": self.ridges.solution[index, 0], "inverse": self.ridges.inverse[index, 0]}

    @classmethod
    def memory(cls, config: Config, environment: Environment) -> Memory:
        numbers = 4 * cls.parameter_count(config, environment) ** 2
        shared = config.agents * numbers
        real = precisions(config)[0]
        return super(FederatedGroup, cls).memory(config, environment) + Memory(numbers * real, shared * real)
