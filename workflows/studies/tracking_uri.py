"""Resolves the URI of the MLflow store that a study uses, without importing MLflow."""

from __future__ import annotations

import dataclasses
import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from fnbandit.storage.files import MLFLOW_FILE
from workflows.studies.settings import Settings


def store_uri(uri: str | None = None) -> str:
    """Return the absolute URI of a store; without one, MLFLOW_TRACKING_URI or sqlite in this directory."""
    uri = uri or os.environ.get("MLFLOW_TRACKING_URI") or "sqlite:///mlflow.db"
    path = sqlite_path(uri)
    return uri if path is None else f"sqlite:///{path.absolute()}"


def with_absolute_store(settings: Settings) -> Settings:
    """Return settings with the absolute path of an sqlite store, so that a study can be resumed from anywhere."""
    uri = store_uri(settings.tracking_uri)
    return settings if sqlite_path(uri) is None else dataclasses.replace(settings, tracking_uri=uri)


def sqlite_path(uri: str) -> Path | None:
    """Return the file of an sqlite store; None for any other."""
    return Path(uri.removeprefix("sqlite:///")) if uri.startswith("sqlite:///") else None


def is_own(uri: str, folder: Path) -> bool:
    """Return True for this directory's store, and for an sqlite file that has the run of a folder's mlflow.json.

    Run ids are random: a folder that names one comes from a person who can read the file.
    """
    path = sqlite_path(uri)
    if uri == store_uri() or path is None:
        return uri == store_uri()
    try:
        run_id = json.loads((folder / MLFLOW_FILE).read_text())["run_id"]
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as store:
            return store.execute("select 1 from runs where run_uuid = ?", (run_id,)).fetchone() is not None
    except (OSError, ValueError, KeyError, TypeError, sqlite3.Error):
        return False
