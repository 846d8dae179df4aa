"""FedLinUCB: linear agents that do not wait for each other."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fnbandit.algorithms.asynchronous import AsynchronousGroup, Outlook
from fnbandit.algorithms.base import Scored
from fnbandit.algorithms.traits import Traits
from fnbandit.config import Config
from fnbandit.environments import Environment
from fnbandit.federation.first_come import VersionedReplica
from fnbandit.federation.messages import Contents


class FedLinUCB(AsynchronousGroup):
    """FedLinUCB (He et al. 2022, Alg. 1) on raw contexts: an agent chooses by its last download alone.

    An agent pulls argmax <x, theta> + beta ||x||_{V^-1} with the V and theta = V^-1 b of its last download, and
    uploads when its own rows since then raise det(V + W_new) above 1 + gamma times det V.
    """

    traits = Traits(schedule="first-come", features="context")

    @classmethod
    def make_replica(cls, config: Config, environment: Environment, like: Tensor) -> VersionedReplica:
        both_ways = Contents(covariances=1, vectors=1)
        return VersionedReplica(config, lambda contexts: contexts, environment.dim, like, (both_ways, both_ways))

    def score_ahead(self, outlook: Outlook, index: Tensor, mean: Tensor, variance: Tensor) -> None:
        self.ahead[index] = (mean + self._scale * variance.sqrt()).unflatten(1, self.ahead.shape[1:])

    def scores(self, iteration: Any, contexts: Tensor) -> Scored:
        return Scored(self.ahead[self.index, self.places])
