"""Creates MLflow stores, with the views that an experiment's page offers."""

from __future__ import annotations

import fcntl
import json
import os
from urllib.parse import urlencode

from workflows.studies.tracking_uri import sqlite_path

TABLE_COLUMNS = {
    "attributes.`Run Name`": 160, "runDateAndNestInfo": 132, "metrics.`regret`": 66, "metrics.`rounds`": 62,
    "metrics.`MB`": 70, "params.`agents`": 60, "params.`threshold`": 72, "params.`horizon`": 62,
    "params.`environment`": 88, "params.`algorithm`": 124, "params.`trigger`": 70, "params.`seed`": 50,
}  # fmt: skip
"""Columns of the table of runs, with widths in pixels: at 1440 all fit beside the menu, MLflow's assistant closed"""
RUNS, STUDIES = "fnbandit-runs", "fnbandit-studies"


def _view(name: str, **state: object) -> str:
    """Encode a saved view of MLflow's table of runs, in the format of an experiment's tag."""
    shown = [column for column in TABLE_COLUMNS if column.startswith(("metrics", "params"))]
    state |= {"selectedColumns": shown, "columnOrder": list(TABLE_COLUMNS), "columnWidths": TABLE_COLUMNS}
    return json.dumps({"name": name, "createdAt": 0, "state": json.dumps(state)})


EXPERIMENT_TAGS = {
    "mlflow.note.content": "Runs of `fnbandit`. A study is a run with a child for each of its runs. regret: mean over "
    "agents, summed over iterations; MB: 10^6 bytes that agents sent and received; an empty threshold: the trigger has "
    "none. The records in each run's folder are complete; MLflow shows at most 500 values of a metric.",
    "mlflow.experimentKind": "custom_model_development",
    f"mlflow.sharedViewState.{RUNS}": _view(
        "runs, best first", orderByKey="metrics.`regret`", orderByAsc=True, searchFilter="params.seed != ''"
    ),
    f"mlflow.sharedViewState.{STUDIES}": _view(
        "studies, latest first", orderByKey="attributes.start_time", orderByAsc=False
    ),
}
"""Tags of an experiment: its kind, and the views of its page"""


def make_store(uri: str) -> None:
    """Create a missing sqlite store under a lock, in a temporary file: other processes wait, and see it whole."""
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
    """Return the place of a new experiment's files: beside an sqlite store, else None: the server decides."""
    path = sqlite_path(uri)
    return None if path is None else (path.absolute().parent / "mlartifacts").as_uri()


def page(server: str, experiment_id: str) -> str:
    """Return the address of an experiment's runs on a server's page."""
    query = urlencode({"workflowType": "machine_learning", "viewStateShareKey": RUNS})
    return f"{server.rstrip('/')}/#/experiments/{experiment_id}/runs?{query}"
