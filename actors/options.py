"""How a simulation is laid out on Ray, as a user asks for it."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from fnbandit.validation import Count, NotNegative, Positive, settings


@settings
class Options:
    """How a simulation runs on Ray."""

    agents_per_actor: Count | Literal["auto"] = "auto"
    """Agents in one actor; auto: as many as finish the study first, by N, the runs that wait and the CPUs."""
    cpus_per_actor: NotNegative | Literal["auto"] = "auto"
    """CPUs (fractions allowed) that Ray reserves for an actor; auto: one, or the share that fits where that is less."""
    gpus_per_actor: NotNegative | Literal["auto"] = "auto"
    """GPUs (fractions allowed) that Ray reserves for an actor; auto: with device=cuda one or the share that fits."""
    address: str | None = None
    """A running cluster's address; without it RAY_ADDRESS, or else a cluster of this machine's own."""
    actor_timeout: Positive = 600.0
    """Seconds after which an actor that does not answer is called stuck."""

    @model_validator(mode="after")
    def _check_together(self) -> Options:
        if self.cpus_per_actor == 0 and self.gpus_per_actor in (0, "auto"):
            raise ValueError(
                f"cpus_per_actor=0, gpus_per_actor={self.gpus_per_actor or 0}: one of them must be above 0"
            )
        return self
