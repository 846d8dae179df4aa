"""Describes the Ray job that executes a study, and checks that its results outlive the job."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from urllib.parse import unquote

from workflows.studies.study import StudyPlan
from workflows.studies.tracking_uri import sqlite_path, store_uri
from workflows.terminal.secrets import mask_secrets

DESCRIPTION = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Ray's variable with the config of the job that a process was started for"""
TAGS = {"job_submission_id": "submission_id", "job_name": "job_name"}
"""Metadata of a job that is recorded; its environment and the user's metadata may hold secrets, so they are not"""


def job_tags() -> dict[str, str]:
    """Return the ids of the job that this process belongs to; empty outside of a job."""
    try:
        metadata = json.loads(os.environ.get(DESCRIPTION, "{}")).get("metadata") or {}
    except (ValueError, AttributeError):
        metadata = {}
    tags = {tag: mask_secrets(str(metadata[key])) for key, tag in TAGS.items() if key in metadata}
    if "RAY_JOB_ID" in os.environ:
        tags["job_id"] = os.environ["RAY_JOB_ID"]
    return tags


def place_lines(study: StudyPlan) -> list[str]:
    """Describe where a study's records go; in a job also the checkpoints and the store, by absolute names."""
    if not job_tags():
        return [f"folder   {study.directory}", *([f"records  {study.uri}"] if study.uri else [])]
    lines = [f"job      {', '.join(f'{name} {value}' for name, value in job_tags().items())}"]
    lines.append(f"records  {study.place()}")
    lines.append(f"checkpoints in {mask_secrets(study.settings.checkpoint or study.place())}")
    if not study.settings.uses_mlflow:
        return [*lines, f"tracking {study.settings.tracking}"]
    return [*lines, f"MLflow   {mask_secrets(store_uri(study.settings.tracking_uri))}"]


def check_places(study: StudyPlan) -> None:
    """Raise if files would go into a job's working directory, which Ray deletes when the job ends."""
    settings = study.settings
    lost, cures = [], []
    if not study.uri and is_temporary(study.directory):
        lost.append(f"out={str(study.directory)!r}")
        cures.append("--out a directory that outlives it, or a URI")
    if settings.checkpoint and is_temporary(_folder(settings.checkpoint)):
        lost.append(f"checkpoint={settings.checkpoint!r}")
        cures.append("--checkpoint such a directory, or a URI")
    store = store_uri(settings.tracking_uri)
    if settings.uses_mlflow and is_temporary(_folder(store)):
        lost.append(f"tracking_uri={store!r}")
        cures.append("--tracking-uri a server or sqlite:////PATH of such a directory (or --tracking none)")
    if lost:
        raise ValueError(
            f"{', '.join(lost)}: would be deleted with the job's working directory; give {' and '.join(cures)}"
        )


def _folder(place: str) -> Path | None:
    """Return the local path of a place; None for a remote one."""
    if (file := sqlite_path(place)) is not None:
        return file
    if place.startswith("file:"):
        return Path(unquote(place.removeprefix("file:").removeprefix("//")))
    return None if "://" in place else Path(place)


def is_temporary(folder: Path | None) -> bool:
    """Return True for a folder in a working directory that Ray made for a job."""
    parts = () if folder is None else folder.resolve().parts
    return ("runtime_resources", "working_dir_files") in itertools.pairwise(parts)
