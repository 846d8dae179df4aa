"""Tracks a study in files of JSON lines: tracking.jsonl in its folder and in the folder of every run."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fnbandit.core import Status
from fnbandit.storage.files import JSONL_FILE, check_inside
from workflows.studies.settings import Settings
from workflows.tracking.base import RunArtifacts, RunMetadata, TrackedRun, Tracker


class JsonlRun(TrackedRun):
    """A file that begins with the metadata, has a line per logged step, and ends with the status."""

    def __init__(self, run: RunMetadata, folder: Path) -> None:
        self._path = folder / JSONL_FILE
        check_inside(self._path)
        self._path.unlink(missing_ok=True)  # a resumed run logs all steps again
        self._write({"event": "start", **dataclasses.asdict(run)})

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._write({"event": "metrics", "step": step, **metrics})

    def finish(self, status: Status, artifacts: RunArtifacts) -> None:
        for step, metrics in artifacts.metrics:
            self.log(step, metrics)
        self._write({"event": "end", "status": status, "files": list(map(str, artifacts.files))})

    def _write(self, line: dict[str, Any]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


class JsonlTracker(Tracker):
    """A file for the study, if it has several runs, and one for each run."""

    def __init__(self, study: RunMetadata | None, folder: Path, settings: Settings) -> None:
        self._study = TrackedRun() if study is None else JsonlRun(study, folder)

    def start_run(self, run: RunMetadata, folder: Path) -> JsonlRun:
        return JsonlRun(run, folder)

    def finish(self, status: Status, artifacts: RunArtifacts) -> None:
        self._study.finish(status, artifacts)
