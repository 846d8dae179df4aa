"""User options for a simulation on Ray."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from fnbandit.config.fields import Count, NotNegative, Positive, settings


@settings
class Options:
    """Actors, resources and cluster of a simulation on Ray."""

    agents_per_actor: Count | Literal["auto"] = "auto"
    """Agents in one actor; auto: the fastest number for the study, from N, the waiting runs and the CPUs."""
    cpus_per_actor: NotNegative | Literal["auto"] = "auto"
    """CPUs (fractions allowed) that Ray reserves for an actor; auto: one, or the largest fraction that fits."""
    gpus_per_actor: NotNegative | Literal["auto"] = "auto"
    """GPUs (fractions allowed) that Ray reserves for an actor; auto: with device=cuda one or a fraction that fits."""
    address: str | None = None
    """Address of a running cluster; default: RAY_ADDRESS, or a local cluster on this machine."""
    actor_timeout: Positive = 600.0
    """Seconds after which a silent actor counts as stuck."""

    @model_validator(mode="after")
    def _check_together(self) -> Options:
        if self.cpus_per_actor == 0 and self.gpus_per_actor in (0, "auto"):
            raise ValueError(
                f"cpus_per_actor=0, gpus_per_actor={self.gpus_per_actor or 0}: one of them must be above 0"
            )
        return self
