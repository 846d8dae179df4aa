"""Settings of a study: how its runs are executed and recorded."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, model_validator

from actors.options import Options
from fnbandit.config.fields import Positive, settings
from fnbandit.config.registry import unknown
from fnbandit.storage.locations import below, is_uri
from workflows.terminal.secrets import check_uri

if TYPE_CHECKING:
    from fnbandit.runs import Checkpointing

TRACKERS = {
    "mlflow": "workflows.tracking.mlflow_tracker:MlflowTracker",
    "jsonl": "workflows.tracking.jsonl_tracker:JsonlTracker",
    "none": "workflows.tracking.base:Tracker",
}
"""The trackers by name, each imported when a study uses it"""


def _check_tracker(name: str) -> str:
    if name not in TRACKERS and ":" not in name:
        raise ValueError(unknown("tracking", name, [*TRACKERS, "package.module:Name"]))
    return name


TrackerName = Annotated[str, AfterValidator(_check_tracker)]
SCHEMES = ("http", "https", "sqlite", "postgresql", "mysql", "mssql", "file", "databricks", "databricks-uc", "uc")
"""Of the stores that MLflow knows; a database's may name its driver, postgresql+psycopg2"""


def _forbid_empty(name: str) -> AfterValidator:
    def check(text: str) -> str:
        if not text.strip():
            raise ValueError(f"{name}={text!r}: expected a text that is not empty (an unset variable?)")
        return text

    return AfterValidator(check)


def _check_store(uri: str) -> str:
    scheme, found, _ = uri.partition("://")
    if found and scheme.partition("+")[0] not in SCHEMES:
        raise ValueError(f"tracking_uri={scheme + '://...'!r}: MLflow knows no such store; accepted: "
                         f"{', '.join(SCHEMES)}, or a folder")  # fmt: skip
    return uri


Out = Annotated[str, _forbid_empty("out")]
CheckpointPlace = Annotated[str, _forbid_empty("checkpoint")]
StoreUri = Annotated[str, _forbid_empty("tracking_uri"), AfterValidator(_check_store)]
ExperimentName = Annotated[str, _forbid_empty("experiment")]


@settings
class Settings(Options):
    """How runs are executed and recorded: the layout on Ray, the files, the tracker."""

    engine: Literal["ray", "local"] = "ray"
    """ray: agents and server in Ray actors; local: all in this process."""
    out: Out | None = None
    """Directory or URI (s3://BUCKET/NAME) in which the records go; runs/NAME without it."""
    trace: Literal["agents", "mean", "none"] = "agents"
    """Detail of trace.parquet: every agent, the mean over agents, or nothing."""
    checkpoint: CheckpointPlace | None = None
    """Directory or URI in which fnbandit-checkpoints is made; without it beside the records."""
    checkpoint_seconds: Positive = 30.0
    """Seconds between checkpoints."""
    figures: bool = True
    """Draw figures at the end, and for several runs write table.csv and report.html; `fnbandit report` does, too."""
    tracking: TrackerName = "mlflow"
    """Where to watch runs: mlflow, jsonl (tracking.jsonl beside the records), none, or package.module:Name."""
    tracking_uri: StoreUri | None = None
    """MLflow server or store; without it MLFLOW_TRACKING_URI, or sqlite in the working directory."""
    experiment: ExperimentName = "fnbandit"
    """MLflow's experiment, which the runs go to."""

    @model_validator(mode="after")
    def _check_places(self) -> Settings:
        for name in ("address", "out", "checkpoint", "tracking_uri"):
            check_uri(name, getattr(self, name))
        return self

    @property
    def uses_mlflow(self) -> bool:
        return self.tracking == "mlflow"

    def options(self) -> Options:
        """Return the fields that concern Ray."""
        return Options(**{name: getattr(self, name) for name in OPTIONS})

    def choose_checkpointing(self, directory: Path, path: str) -> Checkpointing:
        """Return where and how often one run saves its checkpoints."""
        from fnbandit.runs import Checkpointing

        beside = self.out if self.out and is_uri(self.out) else str(directory)
        return Checkpointing(below(self.checkpoint or beside, path), self.checkpoint_seconds)


OPTIONS = tuple(field.name for field in dataclasses.fields(Options))
SETTINGS = tuple(field.name for field in dataclasses.fields(Settings))


def idle_settings(settings: Settings) -> dict[str, str]:
    """Return the settings that are not the defaults and have no effect with the others, each with the reason."""
    idle: dict[str, str] = {}
    if settings.engine == "local":
        idle |= dict.fromkeys(OPTIONS, "engine=local")
    if not settings.uses_mlflow and settings.tracking in TRACKERS:
        idle |= dict.fromkeys(("tracking_uri", "experiment"), f"tracking={settings.tracking}")
    defaults = {field.name: field.default for field in dataclasses.fields(Settings)}
    return {name: reason for name, reason in idle.items() if getattr(settings, name) != defaults[name]}
