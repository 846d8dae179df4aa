"""MLflow's stores: which one a study uses, how its URI is shown, and the page that its runs have there."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote, urlencode

from workflows.settings import Settings

COLUMNS = {
    "attributes.`Run Name`": 180, "runDateAndNestInfo": 112, "metrics.`regret`": 78, "metrics.`rounds`": 68,
    "metrics.`bytes`": 100, "params.`agents`": 66, "params.`threshold`": 76, "params.`seed`": 56,
}  # fmt: skip
"""What the table of runs shows, with widths in pixels that leave room for MLflow's side panels at 1440"""
IDENTITY = "mlflow.json"
"""The file in a folder that says which run of MLflow is its window"""
RUNS, STUDIES = "fnbandit-runs", "fnbandit-studies"


def _view(name: str, **state: object) -> str:
    """A saved view of MLflow's table of runs, as its page stores one in an experiment's tag."""
    shown = [column for column in COLUMNS if column.startswith(("metrics", "params"))]
    state |= {"selectedColumns": shown, "columnOrder": list(COLUMNS), "columnWidths": COLUMNS}
    return json.dumps({"name": name, "createdAt": 0, "state": json.dumps(state)})


EXPERIMENT_TAGS = {
    "mlflow.experimentKind": "custom_model_development",
    f"mlflow.sharedViewState.{RUNS}": _view(
        "runs, best first", orderByKey="metrics.`regret`", orderByAsc=True, searchFilter="params.seed != ''"
    ),
    f"mlflow.sharedViewState.{STUDIES}": _view(
        "studies, latest first", orderByKey="attributes.start_time", orderByAsc=False
    ),
}
"""Of an experiment: it is about training, and its page offers these views"""


def store_uri(uri: str | None = None) -> str:
    """The store that a URI means: without one MLFLOW_TRACKING_URI, or sqlite in this directory; never relative."""
    uri = uri or os.environ.get("MLFLOW_TRACKING_URI") or "sqlite:///mlflow.db"
    path = sqlite_path(uri)
    return uri if path is None else f"sqlite:///{path.absolute()}"


def located(settings: Settings) -> Settings:
    """Settings that name an sqlite store by its place, so that a study is resumed and opened from anywhere."""
    uri = store_uri(settings.tracking_uri)
    return settings if sqlite_path(uri) is None else dataclasses.replace(settings, tracking_uri=uri)


def sqlite_path(uri: str) -> Path | None:
    """The file of an sqlite store; None for any other."""
    return Path(uri.removeprefix("sqlite:///")) if uri.startswith("sqlite:///") else None


def is_own(uri: str, folder: Path) -> bool:
    """Whether a store is this directory's, or the sqlite file that has the run which a folder's mlflow.json names.

    Nobody who has not seen the file knows the ids of the runs in it.
    """
    path = sqlite_path(uri)
    if uri == store_uri() or path is None:
        return uri == store_uri()
    try:
        run_id = json.loads((folder / IDENTITY).read_text())["run_id"]
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as store:
            return store.execute("select 1 from runs where run_uuid = ?", (run_id,)).fetchone() is not None
    except (OSError, ValueError, KeyError, TypeError, sqlite3.Error):
        return False


def make_store(uri: str) -> None:
    """Make an sqlite store that is not there yet: one process does, aside, and others wait; nobody sees half of it."""
    path = sqlite_path(uri)
    if path is None or path.exists():
        return
    from mlflow import MlflowClient

    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        if not path.exists():
            part = path.with_name(f"{path.name}.part")
            part.unlink(missing_ok=True)
            MlflowClient(f"sqlite:///{part}").search_experiments(max_results=1)
            part.replace(path)
    finally:
        os.close(folder)


def artifact_location(uri: str) -> str | None:
    """Where a new experiment's files go: beside an sqlite store; elsewhere the server knows."""
    path = sqlite_path(uri)
    return None if path is None else (path.absolute().parent / "mlartifacts").as_uri()


def page(server: str, experiment_id: str) -> str:
    """The address of an experiment's runs on a server's page."""
    query = urlencode({"workflowType": "machine_learning", "viewStateShareKey": RUNS})
    return f"{server.rstrip('/')}/#/experiments/{experiment_id}/runs?{query}"
