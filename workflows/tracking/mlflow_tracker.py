"""Tracks studies in MLflow. A server that is down never costs a run: the records on disk are complete without it.

A study of several runs is an MLflow run with a child for each of its runs. A folder's mlflow.json names its MLflow run,
so that a resumed run or study continues in it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fnbandit.core import Status
from fnbandit.storage.files import FIGURES_FOLDER, MLFLOW_FILE
from fnbandit.storage.records import write_json
from workflows.studies.settings import Settings
from workflows.studies.tracking_uri import store_uri
from workflows.terminal.secrets import mask_secrets
from workflows.tracking.base import RunArtifacts, RunMetadata, TrackedRun, Tracker
from workflows.tracking.mlflow_names import OVERVIEW, choose_overview, name_by_axis, reduce_picture, shorten
from workflows.tracking.mlflow_store import EXPERIMENT_TAGS, artifact_location, make_store

METRICS_PER_REQUEST = 90
"""Steps per request: the server accepts 1000 metrics, and a step has about ten"""
SEND_PATIENCE, SHORT_PATIENCE = 15.0, 3.0
"""Seconds without an answer after which a study that ends, or is interrupted, stops waiting for the server"""
STATUS = {"finished": "FINISHED", "interrupted": "KILLED"}
"""MLflow's names; any other status is FAILED"""

log = logging.getLogger("fnbandit")


class MlflowTracker(Tracker):
    """Sends one study's runs to MLflow from a thread of its own, so that no run waits for it."""

    def __init__(self, study: RunMetadata | None, folder: Path, settings: Settings) -> None:
        self.uri, self.experiment = store_uri(settings.tracking_uri), settings.experiment
        self._queue: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self._down = False
        self._closing = self._began = False
        self._requests = 0
        self.lacking: list[str] = []
        """Names of runs that are not completely sent"""
        self._experiment_id: str | None = None
        self.command: str | None = None
        """Command that made the study, where this one resumes it"""
        self.parent = None if study is None else MlflowRun(self, study, folder)
        self._thread = threading.Thread(target=self._work, name="fnbandit-tracking", daemon=True)
        self._thread.start()

    def start_run(self, run: RunMetadata, folder: Path) -> MlflowRun:
        self._began = True
        return MlflowRun(self, run, folder)

    def put(self, task: Callable[[], None]) -> None:
        """Let the tracking thread call a function."""
        self._queue.put(task)

    def has_received(self, folder: Path) -> bool:
        body = read_identity(folder)
        place = (mask_secrets(self.uri), self.experiment)
        return body.get("sent") == "finished" and (body.get("store"), body.get("experiment")) == place

    def finish(self, status: Status, artifacts: RunArtifacts) -> None:
        """Log the study's results, then wait until the queue is empty or the server stops responding.

        Ask nothing of MLflow where it has the finished study already.
        """
        if self.parent is not None:
            if self._began or not self.parent.has_all(status):
                self.parent.finish(status, artifacts)
            else:
                self.lacking.remove(self.parent.name)
        elif not self._began:
            self._queue.put(None)
            return
        self._closing = True
        self._queue.put(None)
        seen = -1
        # Importing MLflow and making a store take long on a busy machine: do not count that as an unresponsive server.
        while self._thread.is_alive() and (seen != self._requests or not hasattr(self, "_client")):
            seen = self._requests
            self._thread.join(SHORT_PATIENCE if status == "interrupted" else SEND_PATIENCE)
        if self.lacking:
            what = self.lacking[0] if len(self.lacking) == 1 else f"{len(self.lacking)} runs"
            log.warning(
                "MLflow at %s did not take everything of %s; the records are complete", mask_secrets(self.uri), what
            )

    # The methods below run in the tracking thread.

    def _work(self) -> None:
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "5")
        os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "ERROR")
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        while (task := self._queue.get()) is not None:
            try:
                task()
            except Exception as error:
                if not self._down:
                    first = (str(error).splitlines() or [""])[0][:200]
                    again = "" if self._closing else "; trying again at the end"
                    log.warning("MLflow at %s: %s%s", mask_secrets(self.uri), mask_secrets(first), again)
                self._down = True
                if self._closing:
                    return  # Every further request would wait for its timeout, too.

    @property
    def client(self) -> Any:
        """Return the MLflow client, made on first use: importing it and opening its store takes seconds.

        Counts the requests, each of which asks for the client anew: `finish` waits as long as the count grows.
        """
        self._requests += 1
        if not hasattr(self, "_client"):
            from mlflow import MlflowClient

            make_store(self.uri)
            self._client = MlflowClient(self.uri)
        return self._client

    def experiment_id(self) -> str:
        """Return the id of the experiment, which is created on first use, with the views of its page."""
        if self._experiment_id is None:
            found = self.client.get_experiment_by_name(self.experiment) or self._new_experiment()
            identity, tags = found.experiment_id, found.tags
            for key, value in EXPERIMENT_TAGS.items():
                if tags.get(key) != value:
                    self.client.set_experiment_tag(identity, key, value)
            self._experiment_id = identity
        return self._experiment_id

    def _new_experiment(self) -> Any:
        from mlflow.exceptions import MlflowException

        try:
            self.client.create_experiment(self.experiment, artifact_location(self.uri))
        except MlflowException as error:
            # Another study may have created it in the meantime.
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        return self.client.get_experiment_by_name(self.experiment)

    def mark_complete(self, name: str) -> None:
        """Note that a run is completely sent."""
        self.lacking.remove(name)
        self._down = False


class MlflowRun(TrackedRun):
    """One run of MLflow. Every value is kept until the end, when those that are not sent are sent again."""

    def __init__(self, tracker: MlflowTracker, metadata: RunMetadata, folder: Path) -> None:
        self._tracker, self._metadata = tracker, metadata
        self._identity = folder / MLFLOW_FILE
        self._run_id: str | None = None
        self._command: str | None = None
        """Command that made the run, where an earlier session did"""
        self._superseded: str | None = None
        """Earlier run of the study that this one replaces"""
        self._began = milliseconds()
        self._rows: list[tuple[int, Mapping[str, float], int]] = []
        """Step, values and time"""
        self._sent = 0
        self._there: set[int] = set()
        """Steps that an earlier session has sent: a resumed run logs all of them again"""
        self._last: float | None = None
        self._waiting = False
        """True while a request to send is in the queue: a slow server gets one at a time"""
        self.name = metadata.name
        tracker.lacking.append(metadata.name)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Queue the metrics of a step; they are sent every other second."""
        self._rows.append((step, metrics, milliseconds()))
        if self._last is None:
            # Only once the run computes: importing MLflow would slow down the start of actors.
            self._tracker.put(self._begin)
        elif self._waiting or time.monotonic() - self._last <= 2:
            return
        else:
            self._waiting = True
            self._tracker.put(self._send)
        self._last = time.monotonic()

    def finish(self, status: Status, artifacts: RunArtifacts) -> None:
        """Queue the metrics that are not sent yet, the note, the files and the status."""
        ended = milliseconds()
        self._tracker.put(lambda: self._end(status, artifacts, ended))

    def has_all(self, status: Status) -> bool:
        """Return True where an earlier session has sent this study, with these params, and how it ended."""
        body = read_identity(self._identity.parent)
        return (body.get("sent"), body.get("params")) == (status, self._digest)

    # The methods below run in the tracking thread.

    def _begin(self) -> None:
        if self._run_id is not None:
            return
        from mlflow.entities import Param, RunTag

        client, tags = self._tracker.client, dict(self._metadata.tags)
        parent = self._tracker.parent
        if parent is not None and parent is not self:
            parent._begin()
            tags["mlflow.parentRunId"] = str(parent._run_id)
        run_id, params = self._earlier(), []
        if run_id is None:
            experiment = self._tracker.experiment_id()
            run_id = client.create_run(experiment, start_time=self._began, run_name=self.name).info.run_id
            params = [Param(key, str(value)) for key, value in self._metadata.params.items()]
            if "command" not in tags:
                tags["command"] = self._tracker.command or tags["resumed_by"]
            self._log_dataset(run_id)
        elif self._command:
            tags["command"] = self._command
        client.log_batch(run_id, params=params, tags=[RunTag(key, value) for key, value in tags.items()])
        self._identity.parent.mkdir(parents=True, exist_ok=True)
        self._run_id = run_id
        self._write_identity({})
        if self._superseded is not None:
            self._replace(self._superseded)

    def _write_identity(self, sent: dict[str, str]) -> None:
        write_json(self._identity, {**self._place, "run_id": self._run_id, **sent})

    @property
    def _place(self) -> dict[str, str]:
        return {"store": mask_secrets(self._tracker.uri), "experiment": self._tracker.experiment}

    @property
    def _digest(self) -> str:
        text = json.dumps({key: str(value) for key, value in self._metadata.params.items()}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def _earlier(self) -> str | None:
        """Reopen the run that an earlier session began; return None if this store has none that can be continued.

        A study that has totals already, or has been extended, gets a new run: MLflow keeps every value and param.
        """
        body = read_identity(self._identity.parent)
        run_id = body.get("run_id")
        if run_id is None or any(body.get(key) != value for key, value in self._place.items()):
            return None
        from mlflow.exceptions import MlflowException

        client = self._tracker.client
        try:
            run = client.get_run(run_id)
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return None
            raise
        if run.info.lifecycle_stage != "active":
            return None
        self._began = run.info.start_time
        self._command = run.data.tags.get("command")
        if self is self._tracker.parent:
            if "resumed_by" in self._metadata.tags:
                self._tracker.command = self._command
            params = {key: str(value) for key, value in self._metadata.params.items()}
            if run.data.metrics or run.data.params != params:
                self._superseded = run_id
                return None
        else:
            self._there = {metric.step for metric in client.get_metric_history(run_id, "regret")}
        client.update_run(run_id, status="RUNNING")
        return str(run_id)

    def _replace(self, old: str) -> None:
        """Move the children of an earlier run of this study to this one, and delete the earlier one."""
        client, token = self._tracker.client, None
        children = []
        while token != "":
            found = client.search_runs(
                [self._tracker.experiment_id()], f"tags.`mlflow.parentRunId` = '{old}'", page_token=token
            )
            children += [run.info.run_id for run in found]
            token = found.token or ""
        for child in children:
            self._tracker.client.set_tag(child, "mlflow.parentRunId", self._run_id)
        client.delete_run(old)
        self._superseded = None

    def _log_dataset(self, run_id: str) -> None:
        if self._metadata.dataset is None:
            return
        from mlflow.entities import Dataset, DatasetInput

        name, digest, kind, source = self._metadata.dataset
        data = Dataset(name=name, digest=digest, source_type=kind, source=source)
        self._tracker.client.log_inputs(run_id, [DatasetInput(data)])

    def _send(self) -> None:
        from mlflow.entities import Metric

        self._waiting = False
        self._begin()
        while self._sent < len(self._rows):
            part = self._rows[self._sent : self._sent + METRICS_PER_REQUEST]
            new = [row for row in part if row[0] not in self._there]
            values = [Metric(key, value, when, step) for step, row, when in new for key, value in shorten(row).items()]
            if values:
                self._tracker.client.log_batch(self._run_id, metrics=values)
            self._sent += len(part)

    def _end(self, status: Status, artifacts: RunArtifacts, ended: int) -> None:
        from mlflow.entities import RunTag

        self._begin()
        # A study's values have the time of its start: a later session that sends them again writes the same rows.
        totals = name_by_axis(artifacts.metrics, artifacts.axis) if artifacts.axis else artifacts.metrics
        self._rows += [(step, values, self._began) for step, values in totals]
        if artifacts.best:
            self._rows.append((0, artifacts.best, self._began))
        self._send()
        tags = dict(artifacts.tags)
        if artifacts.note is not None:
            tags["mlflow.note.content"] = artifacts.note
            if figure := choose_overview(artifacts.files):
                self._tracker.client.log_image(self._run_id, reduce_picture(figure), OVERVIEW)
                picture = f"![{figure.stem}](get-artifact?path={OVERVIEW}&run_uuid={self._run_id})"
                tags["mlflow.note.content"] = f"{artifacts.note}\n{picture}\n"
        if tags:  # in one request: each is a transaction of the store
            self._tracker.client.log_batch(self._run_id, tags=[RunTag(key, value) for key, value in tags.items()])
        for path in artifacts.files:
            folder = FIGURES_FOLDER if path.suffix in (".png", ".pdf") else None
            self._tracker.client.log_artifact(self._run_id, str(path), folder)
        self._tracker.client.set_terminated(self._run_id, STATUS.get(status, "FAILED"), ended)
        self._write_identity({"sent": status, "params": self._digest})
        self._tracker.mark_complete(self.name)


def read_identity(folder: Path) -> dict[str, str]:
    """Read which MLflow run a folder has, and whether it has been sent; empty without one."""
    try:
        body = json.loads((folder / MLFLOW_FILE).read_text())
        return {str(key): str(value) for key, value in body.items()}
    except (OSError, ValueError, AttributeError):
        return {}


def milliseconds() -> int:
    """Return the current time in MLflow's unit."""
    return int(time.time() * 1000)
