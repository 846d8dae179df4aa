"""MLflow: the window on runs. The records are the truth; a tracking server that is down never costs a run.

A study of several runs is a run of MLflow with a child for each of its own. A folder's mlflow.json says which run of
MLflow is its window, so that a resumed run or study goes on in it.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fnbandit.records import write_json
from workflows.secrets import masked
from workflows.stores import EXPERIMENT_TAGS, IDENTITY, artifact_location, make_store

BATCH = 90
"""Steps per request: the server takes 1000 metrics, and a step has about ten"""
PATIENCE, SHORT_PATIENCE = 15.0, 3.0
"""Seconds without an answer after which a server is given up at the end of a study, and of one that is interrupted"""
STATUS = {"finished": "FINISHED", "interrupted": "KILLED"}
"""MLflow's word for a run's; any other is FAILED"""

log = logging.getLogger("fnbandit")


@dataclass(frozen=True)
class Content:
    """What MLflow is told of a run when its window opens."""

    name: str
    params: Mapping[str, Any]
    tags: Mapping[str, str]
    dataset: tuple[str, str, str, str] | None = None
    """Name, digest, kind of source and source of what is learned on"""


class Tracker:
    """Sends one study's runs to MLflow from a thread of its own, so that no run waits for it."""

    def __init__(self, uri: str, experiment: str, study: Content | None, folder: Path) -> None:
        """`study` is what MLflow is told of the parent run; None: a study of one run, which needs none."""
        self.uri, self.experiment = uri, experiment
        self._queue: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self._down = False
        self._closing = False
        self._requests = 0
        self.lacking: list[str] = []
        """Names of runs that have not arrived as a whole"""
        self._experiment_id: str | None = None
        self.parent = None if study is None else Window(self, study, folder)
        self._thread = threading.Thread(target=self._work, name="fnbandit-tracking", daemon=True)
        self._thread.start()

    def run(self, content: Content, folder: Path) -> Window:
        """Begin to track a run, whose records are in `folder`."""
        return Window(self, content, folder)

    def put(self, task: Callable[[], None]) -> None:
        self._queue.put(task)

    def close(self, status: str, left: Outcome | None = None) -> None:
        """Wait until everything has been sent, what the study has come to to its parent run, or nothing gets on."""
        if self.parent is not None:
            self.parent.finish(status, left or Outcome())
        self._closing = True
        self._queue.put(None)
        seen = -1
        # Importing MLflow and making a store take their time on a busy machine; that is nobody's silence.
        while self._thread.is_alive() and (seen != self._requests or not hasattr(self, "_client")):
            seen = self._requests
            self._thread.join(SHORT_PATIENCE if status == "interrupted" else PATIENCE)
        if self.lacking:
            what = self.lacking[0] if len(self.lacking) == 1 else f"{len(self.lacking)} runs"
            log.warning("MLflow at %s did not take everything of %s; the records are complete", masked(self.uri), what)

    # All below runs in the tracking thread.

    def _work(self) -> None:
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "5")
        os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "ERROR")
        while (task := self._queue.get()) is not None:
            try:
                task()
            except Exception as error:
                if not self._down:
                    first = (str(error).splitlines() or [""])[0][:200]
                    again = "" if self._closing else "; trying again at the end"
                    log.warning("MLflow at %s: %s%s", masked(self.uri), masked(first), again)
                self._down = True
                if self._closing:
                    return  # Every further request would take its time to fail, too.

    @property
    def client(self) -> Any:
        """The MLflow client, made when first needed: importing it and opening its store takes seconds.

        Whoever asks for it anew has had an answer to the request before.
        """
        self._requests += 1
        if not hasattr(self, "_client"):
            from mlflow import MlflowClient

            make_store(self.uri)
            self._client = MlflowClient(self.uri)
        return self._client

    def experiment_id(self) -> str:
        """The experiment's, which is made if need be, with the views that its page offers."""
        if self._experiment_id is None:
            found = self.client.get_experiment_by_name(self.experiment) or self._new_experiment()
            identity, tags = found.experiment_id, found.tags
            for key, value in EXPERIMENT_TAGS.items():
                if key not in tags:
                    self.client.set_experiment_tag(identity, key, value)
            self._experiment_id = identity
        return self._experiment_id

    def _new_experiment(self) -> Any:
        from mlflow.exceptions import MlflowException

        try:
            self.client.create_experiment(self.experiment, artifact_location(self.uri))
        except MlflowException as error:
            # Another study may have been faster.
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        return self.client.get_experiment_by_name(self.experiment)

    def settled(self, name: str) -> None:
        """All of a run has arrived."""
        self.lacking.remove(name)
        self._down = False


@dataclass(frozen=True)
class Outcome:
    """What a run or study leaves in MLflow at its end."""

    artifacts: Sequence[Path] = ()
    metrics: Sequence[tuple[int, dict[str, float]]] = ()
    """By step"""
    note: str | None = None
    """Markdown that its page shows"""


class Window:
    """One run of MLflow. Every value is kept until the end, when what has not arrived is sent again."""

    def __init__(self, tracker: Tracker, content: Content, folder: Path) -> None:
        self._tracker, self._content = tracker, content
        self._identity = folder / IDENTITY
        self._run_id: str | None = None
        self._began = milliseconds()
        self._rows: list[tuple[int, dict[str, float], int]] = []
        """Step, values and time"""
        self._sent = 0
        self._there: set[int] = set()
        """Steps that an earlier session has sent: a resumed run goes through its iterations from the first on"""
        self._last: float | None = None
        self._waiting = False
        """Whether a request to send is in the queue: a server that is slow gets one after another"""
        tracker.lacking.append(content.name)

    def log(self, due: Sequence[tuple[int, dict[str, float]]]) -> None:
        """Metrics of some steps; sent every other second."""
        now = milliseconds()
        self._rows += [(step, values, now) for step, values in due]
        if self._last is None:
            # Not before the run is under way: importing MLflow would hold up actors that are starting.
            self._tracker.put(self._begin)
        elif not due or self._waiting or time.monotonic() - self._last <= 2:
            return
        else:
            self._waiting = True
            self._tracker.put(self._send)
        self._last = time.monotonic()

    def finish(self, status: str, left: Outcome) -> None:
        """Everything that is left, then the files; `status` is a run's: finished, interrupted, failed."""
        ended = milliseconds()
        self._tracker.put(lambda: self._end(status, left, ended))

    # All below runs in the tracking thread.

    def _begin(self) -> None:
        if self._run_id is not None:
            return
        from mlflow.entities import Param, RunTag

        client, tags = self._tracker.client, dict(self._content.tags)
        parent = self._tracker.parent
        if parent is not None and parent is not self:
            parent._begin()
            tags["mlflow.parentRunId"] = str(parent._run_id)
        run_id, params = self._earlier(), []
        if run_id is None:
            experiment = self._tracker.experiment_id()
            run_id = client.create_run(experiment, start_time=self._began, run_name=self._content.name).info.run_id
            params = [Param(key, str(value)) for key, value in self._content.params.items()]
            self._log_dataset(run_id)
        client.log_batch(run_id, params=params, tags=[RunTag(key, value) for key, value in tags.items()])
        self._identity.parent.mkdir(parents=True, exist_ok=True)
        write_json(self._identity, {**self._place, "run_id": run_id})
        self._run_id = run_id

    @property
    def _place(self) -> dict[str, str]:
        return {"store": masked(self._tracker.uri), "experiment": self._tracker.experiment}

    def _earlier(self) -> str | None:
        """The run that an earlier session began, taken up again; None where there is none in this store."""
        try:
            body = json.loads(self._identity.read_text())
            run_id = str(body.pop("run_id"))
        except (OSError, ValueError, KeyError, AttributeError):
            return None
        if body != self._place:
            return None
        from mlflow.exceptions import MlflowException

        client = self._tracker.client
        try:
            info = client.get_run(run_id).info
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return None
            raise
        if info.lifecycle_stage != "active":
            return None
        client.update_run(run_id, status="RUNNING")
        self._began = info.start_time
        if self is not self._tracker.parent:
            self._there = {metric.step for metric in client.get_metric_history(run_id, "regret")}
        return run_id

    def _log_dataset(self, run_id: str) -> None:
        if self._content.dataset is None:
            return
        from mlflow.entities import Dataset, DatasetInput

        name, digest, kind, source = self._content.dataset
        data = Dataset(name=name, digest=digest, source_type=kind, source=source)
        self._tracker.client.log_inputs(run_id, [DatasetInput(data)])

    def _send(self) -> None:
        from mlflow.entities import Metric

        self._waiting = False
        self._begin()
        while self._sent < len(self._rows):
            part = self._rows[self._sent : self._sent + BATCH]
            new = [row for row in part if row[0] not in self._there]
            values = [Metric(key, value, when, step) for step, row, when in new for key, value in row.items()]
            if values:
                self._tracker.client.log_batch(self._run_id, metrics=values)
            self._sent += len(part)

    def _end(self, status: str, left: Outcome, ended: int) -> None:
        self._begin()
        # A study's values have the time of its beginning: those that a later session sends again are the same rows.
        self._rows += [(step, values, self._began) for step, values in left.metrics]
        self._send()
        if left.note is not None:
            self._tracker.client.set_tag(self._run_id, "mlflow.note.content", left.note)
        for path in left.artifacts:
            folder = "figures" if path.suffix in (".png", ".pdf") else None
            self._tracker.client.log_artifact(self._run_id, str(path), folder)
        self._tracker.client.set_terminated(self._run_id, STATUS.get(status, "FAILED"), ended)
        self._tracker.settled(self._content.name)


def milliseconds() -> int:
    """Now, as MLflow counts."""
    return int(time.time() * 1000)
