"""A study that was submitted as a Ray job: which job it is, and whether what it leaves outlives it."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from urllib.parse import unquote

from workflows.secrets import masked
from workflows.stores import sqlite_path, store_uri
from workflows.study import Study

DESCRIPTION = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Ray's variable with the config of the job that a process was started for"""
TAGS = {"job_submission_id": "submission_id", "job_name": "job_name"}
"""What is told of a job. The rest stays untold: its environment and the user's metadata may have secrets in them"""


def job_tags() -> dict[str, str]:
    """Which job this process belongs to; nothing outside of one."""
    try:
        metadata = json.loads(os.environ.get(DESCRIPTION, "{}")).get("metadata") or {}
    except (ValueError, AttributeError):
        metadata = {}
    tags = {tag: masked(str(metadata[key])) for key, tag in TAGS.items() if key in metadata}
    if "RAY_JOB_ID" in os.environ:
        tags["job_id"] = os.environ["RAY_JOB_ID"]
    return tags


def place_lines(study: Study) -> list[str]:
    """Where a study's records are; in a job, where all that it leaves is, by names that hold elsewhere, too."""
    if not job_tags():
        return [f"folder   {study.directory}", *([f"records  {study.uri}"] if study.uri else [])]
    lines = [f"job      {', '.join(f'{name} {value}' for name, value in job_tags().items())}"]
    lines.append(f"records  {study.place()}")
    lines.append(f"checkpoints in {masked(study.settings.checkpoint or study.place())}")
    store = masked(store_uri(study.settings.tracking_uri)) if study.settings.tracking else "none"
    return [*lines, f"MLflow   {store}"]


def check_places(study: Study) -> None:
    """Raise where something would go into a job's working directory: Ray deletes it when the job has ended."""
    settings = study.settings
    lost, cures = [], []
    if not study.uri and passing(study.directory):
        lost.append(f"out={str(study.directory)!r}")
        cures.append("--out a directory that outlives it, or a URI")
    if settings.checkpoint and passing(_folder(settings.checkpoint)):
        lost.append(f"checkpoint={settings.checkpoint!r}")
        cures.append("--checkpoint such a directory, or a URI")
    store = store_uri(settings.tracking_uri)
    if settings.tracking and passing(_folder(store)):
        lost.append(f"tracking_uri={store!r}")
        cures.append("--tracking-uri a server or sqlite:////PATH of such a directory (or say --no-tracking)")
    if lost:
        raise ValueError(
            f"{', '.join(lost)}: would be deleted with the job's working directory; give {' and '.join(cures)}"
        )


def _folder(place: str) -> Path | None:
    """The folder or file of this machine that a place is; None where it is elsewhere."""
    if (file := sqlite_path(place)) is not None:
        return file
    if place.startswith("file:"):
        return Path(unquote(place.removeprefix("file:").removeprefix("//")))
    return None if "://" in place else Path(place)


def passing(folder: Path | None) -> bool:
    """Whether a folder is in a working directory that Ray made for a job."""
    parts = () if folder is None else folder.resolve().parts
    return ("runtime_resources", "working_dir_files") in itertools.pairwise(parts)
