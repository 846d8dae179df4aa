"""How the runs of a study are carried out and recorded."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from actors.options import Options
from fnbandit.places import below, is_uri
from fnbandit.validation import Positive, settings

if TYPE_CHECKING:
    from fnbandit.runs import Checkpointing


@settings
class Settings(Options):
    """How runs are carried out and recorded: the layout on Ray, and what each run leaves behind."""

    engine: Literal["ray", "local"] = "ray"
    """ray: agents and server in Ray actors; local: all in this process."""
    out: str | None = None
    """Directory or URI (s3://BUCKET/NAME) in which the records go; runs/NAME without it."""
    trace: Literal["agents", "mean", "none"] = "agents"
    """Detail of trace.parquet: every agent, the mean over agents, or nothing."""
    checkpoint: str | None = None
    """Directory or URI in which fnbandit-checkpoints is made; without it beside the records."""
    checkpoint_seconds: Positive = 30.0
    """Seconds between checkpoints."""
    tracking_uri: str | None = None
    """MLflow server or store; without it MLFLOW_TRACKING_URI, or sqlite in the working directory."""
    experiment: str = "fnbandit"
    """MLflow's experiment, which the runs go to."""
    tracking: bool = True
    """Whether to track in MLflow."""

    def options(self) -> Options:
        """The part that concerns Ray."""
        return Options(**{name: getattr(self, name) for name in OPTIONS})

    def checkpointing(self, directory: Path, path: str) -> Checkpointing:
        """Where and how often one run saves its checkpoints."""
        from fnbandit.runs import Checkpointing

        beside = self.out if self.out and is_uri(self.out) else str(directory)
        return Checkpointing(below(self.checkpoint or beside, path), self.checkpoint_seconds)


OPTIONS = tuple(field.name for field in dataclasses.fields(Options))
SETTINGS = tuple(field.name for field in dataclasses.fields(Settings))
