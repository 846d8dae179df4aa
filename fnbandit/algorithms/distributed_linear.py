"""DisLinUCB (Wang et al. 2019): UCB^a alone, on raw contexts, with the same rounds."""

from __future__ import annotations

from torch import Tensor

from fnbandit.algorithms.federated import FederatedGroup
from fnbandit.config import Config
from fnbandit.environments import Environment
from fnbandit.rounds.messages import Contents
from fnbandit.rounds.shared import Shared


class DisLinUCB(FederatedGroup):
    """n agents whose features are the contexts themselves."""

    learns_on = "contexts"

    @classmethod
    def make_shared(cls, config: Config, environment: Environment, like: Tensor) -> Shared:
        both_ways = Contents(covariances=1, vectors=1)
        return Shared(config, lambda contexts: contexts, environment.dim, like, both_ways, both_ways)
