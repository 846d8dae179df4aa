"""Facts about an algorithm that other modules read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Traits:
    """Facts about an algorithm as a whole, the same for every config. A subclass inherits those of its base.

    A subclass that differs replaces them:

        class Mine(FNUCB):
            traits = dataclasses.replace(FNUCB.traits, averages_inverses=True)
    """

    schedule: Literal["none", "barrier", "first-come"] = "none"
    """When agents communicate: never, all in the same iteration, or each on its own without waiting for the others"""
    features: Literal["", "context", "tangent"] = ""
    """Feature vectors in which the estimates are linear: raw contexts, or tangent features of a network; "" for none"""
    uses_alpha: bool = False
    """True where agents combine UCB^a and UCB^b with alpha, as FN-UCB does"""
    averages_inverses: bool = False
    """True where the server sends the mean of the local inverses instead of all of them (Sec. 3.4)"""
    runs_in_one_group: bool = False
    """True where one learner serves all agents, so that they share one group and one process"""

    releases: tuple[Literal["networks", "statistics"], ...] = ()
    """Quantities that agents can send with differential privacy: networks or gradients, W and B; () for none"""

    @property
    def communicates(self) -> bool:
        """True where agents send messages to the server."""
        return self.schedule != "none"

    @property
    def is_asynchronous(self) -> bool:
        """True where agents communicate without waiting for each other."""
        return self.schedule == "first-come"

    @property
    def has_network(self) -> bool:
        """True where agents have a network; tangent features are its gradients."""
        return self.features == "tangent"
