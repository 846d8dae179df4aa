"""DisLinUCB (Wang et al. 2019): UCB^a alone, on raw contexts, with the rounds of FN-UCB."""

from __future__ import annotations

from torch import Tensor

from fnbandit.algorithms.federated import FederatedGroup
from fnbandit.algorithms.traits import Traits
from fnbandit.config import Config
from fnbandit.environments import Environment
from fnbandit.federation.messages import Contents
from fnbandit.federation.replica import Replica


class DisLinUCB(FederatedGroup):
    """n agents whose features are the contexts themselves."""

    traits = Traits(schedule="barrier", features="context")

    @classmethod
    def make_replica(cls, config: Config, environment: Environment, like: Tensor) -> Replica:
        both_ways = Contents(covariances=1, vectors=1)
        return Replica(config, lambda contexts: contexts, environment.dim, like, both_ways, both_ways)
