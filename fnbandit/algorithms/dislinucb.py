"""DisLinUCB (Wang et al. 2019): UCB^a alone, on raw contexts, with the rounds of FN-UCB."""

from __future__ import annotations

from fnbandit.algorithms.federated import FederatedGroup
from fnbandit.algorithms.traits import Traits


class DisLinUCB(FederatedGroup):
    """n agents whose features are the contexts themselves."""

    traits = Traits(schedule="barrier", features="context", releases=("statistics",))
