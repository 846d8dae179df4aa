"""How a simulation is laid out on Ray, as a user asks for it."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from fnbandit.validation import Count, NotNegative, Positive, settings


@settings
class Options:
    """How a simulation runs on Ray."""

    agents_per_actor: Count | Literal["auto"] = "auto"
    """Agents in one actor; auto: one while the cluster has a CPU (or GPU share) per agent, else as many as needed."""
    cpus_per_actor: NotNegative = 1.0
    """CPUs (fractions allowed) that Ray reserves for an actor; it computes on one thread."""
    gpus_per_actor: NotNegative = 0.0
    """GPUs (fractions allowed) that Ray reserves for an actor."""
    address: str | None = None
    """A running cluster's address; without it RAY_ADDRESS, or else a cluster of this machine's own."""
    actor_timeout: Positive = 600.0
    """Seconds after which an actor that does not answer is called stuck."""

    @model_validator(mode="after")
    def _check_together(self) -> Options:
        if self.cpus_per_actor == 0 == self.gpus_per_actor:
            raise ValueError("cpus_per_actor=0, gpus_per_actor=0: one of them must be above 0")
        return self
