"""MLflow: the window on runs. The records are the truth; a tracking server that is down never costs a run."""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fnbandit.config import Config
from fnbandit.registry import is_table, part_of

EXPERIMENT = "fnbandit"
BATCH = 900
"""Metrics per request; the server takes 1000."""

log = logging.getLogger("fnbandit")


def default_uri() -> str:
    """The store of this directory: MLFLOW_TRACKING_URI, or sqlite."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{Path.cwd() / 'mlflow.db'}"


@dataclass(frozen=True)
class Metric:
    """One value of one metric."""

    key: str
    value: float
    step: int
    milliseconds: int


class Tracker:
    """Sends one study's runs to MLflow from a thread of its own, so that no run waits for it."""

    def __init__(self, uri: str | None, name: str, parent: bool) -> None:
        self.uri = uri or default_uri()
        self._name, self._parent = name, parent
        self._parent_id: str | None = None
        self._queue: queue.Queue[Any] = queue.Queue()
        self._down = False
        self._thread = threading.Thread(target=self._work, name="fnbandit-tracking", daemon=True)
        self._thread.start()

    def run(self, name: str, config: Config, tags: dict[str, str]) -> RunTracker:
        """Begin to track a run."""
        return RunTracker(self, name, config, tags)

    def put(self, task: Any) -> None:
        self._queue.put(task)

    def close(self, figures: list[Path]) -> None:
        """Wait until everything has been sent, a study's own figures to its parent run."""
        if self._parent:
            self.put(lambda tracker: tracker.send_figures(figures))
        self._queue.put(None)
        self._thread.join()
        if self._down:
            log.warning("MLflow at %s did not take everything; the records are complete", self.uri)

    # All below runs in the tracking thread.

    def _work(self) -> None:
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "5")
        os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "ERROR")
        while (task := self._queue.get()) is not None:
            try:
                task(self)
            except Exception as error:
                if not self._down:
                    first = (str(error).splitlines() or [""])[0][:200]
                    log.warning("MLflow at %s: %s; trying again at the end", self.uri, first)
                self._down = True
        if self._parent_id is not None:
            try:
                self.client.set_terminated(self._parent_id)
            except Exception:
                self._down = True

    @property
    def client(self) -> Any:
        """The MLflow client, made when first needed: importing it and opening its store takes seconds."""
        if not hasattr(self, "_client"):
            from mlflow import MlflowClient

            self._client = MlflowClient(self.uri)
        return self._client

    def experiment_id(self) -> str:
        found = self.client.get_experiment_by_name(EXPERIMENT)
        if found is not None:
            return found.experiment_id
        local = self.uri.startswith("sqlite:///")
        location = (Path(self.uri.removeprefix("sqlite:///")).parent / "mlartifacts").as_uri() if local else None
        return self.client.create_experiment(EXPERIMENT, artifact_location=location)

    def parent_id(self) -> str | None:
        if self._parent and self._parent_id is None:
            run = self.client.create_run(self.experiment_id(), run_name=self._name)
            self._parent_id = run.info.run_id
        return self._parent_id

    def send_figures(self, figures: list[Path]) -> None:
        for path in figures:
            self.client.log_artifact(self.parent_id(), str(path), "figures")

    def settled(self) -> None:
        """What had failed has been sent."""
        self._down = False


class RunTracker:
    """One run's window. Every value is kept until the end, when what has not arrived is sent again."""

    def __init__(self, tracker: Tracker, name: str, config: Config, tags: dict[str, str]) -> None:
        self._tracker, self._name, self._config, self._tags = tracker, name, config, tags
        self._run_id: str | None = None
        self._metrics: list[Metric] = []
        self._sent = 0
        self._last: float | None = None

    def log(self, due: list[tuple[int, dict[str, float]]]) -> None:
        """Metrics of some iterations; sent every other second."""
        now = int(time.time() * 1000)
        self._metrics += [Metric(k, v, step, now) for step, values in due for k, v in values.items()]
        if self._last is None:
            # Not before the run is under way: importing MLflow would hold up actors that are starting.
            self._tracker.put(lambda tracker: self._begin())
        elif not due or time.monotonic() - self._last <= 2:
            return
        else:
            self._tracker.put(lambda tracker: self._send())
        self._last = time.monotonic()

    def finish(self, status: str, artifacts: list[Path]) -> None:
        """Everything that is left, then the files."""
        self._tracker.put(lambda tracker: self._end(status, artifacts))

    def _begin(self) -> None:
        if self._run_id is not None:
            return
        from mlflow.entities import Dataset, DatasetInput, Param, RunTag

        client, config = self._tracker.client, self._config
        tags = dict(self._tags)
        parent = self._tracker.parent_id()
        if parent is not None:
            tags["mlflow.parentRunId"] = parent
        run = client.create_run(self._tracker.experiment_id(), run_name=self._name)
        params = [Param(key, str(value)) for key, value in vars(config).items()]
        client.log_batch(run.info.run_id, params=params, tags=[RunTag(k, v) for k, v in tags.items()])
        part = part_of("environment", config.environment)
        kind = "table" if part.path.startswith("fnbandit.environments.tables:") else "function"
        source = config.environment if is_table(config.environment) else part.path.partition(":")[0]
        name = Path(config.environment).name
        data = Dataset(name=name, digest=f"seed-{config.seed}", source_type=kind, source=source)
        client.log_inputs(run.info.run_id, [DatasetInput(data)])
        self._run_id = run.info.run_id

    def _send(self) -> None:
        from mlflow.entities import Metric as MlflowMetric

        self._begin()
        while self._sent < len(self._metrics):
            part = self._metrics[self._sent : self._sent + BATCH]
            values = [MlflowMetric(m.key, m.value, m.milliseconds, m.step) for m in part]
            self._tracker.client.log_batch(self._run_id, metrics=values)
            self._sent += len(part)

    def _end(self, status: str, artifacts: list[Path]) -> None:
        self._send()
        for path in artifacts:
            folder = "figures" if path.suffix in (".png", ".pdf") else None
            self._tracker.client.log_artifact(self._run_id, str(path), folder)
        self._tracker.client.set_terminated(self._run_id, status)
        self._tracker.settled()
