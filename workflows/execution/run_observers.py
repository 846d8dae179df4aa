"""Makes the observers of a run: records, totals, summary, log lines, progress, figures, tracker."""

from __future__ import annotations

import dataclasses
import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fnbandit.config import Config
from fnbandit.core import Observer, Segment, Status
from fnbandit.numerics.battery import processor
from fnbandit.planning.duration import run_seconds
from fnbandit.runs import Run
from fnbandit.storage.files import SUMMARY_FILE
from fnbandit.storage.records import RecordWriter, read_summary, write_config, write_summary
from fnbandit.storage.totals import RunTotals
from workflows.execution.engines import LocalEngine
from workflows.execution.provenance import find_commit, find_versions
from workflows.reporting.naming import short_name
from workflows.reporting.study_report import draw_run
from workflows.studies.jobs import job_tags
from workflows.studies.mirror import Mirror
from workflows.studies.study import RunSpec, StudyPlan
from workflows.terminal.progress import Bar, Progress
from workflows.terminal.stopping import Stop
from workflows.tracking.base import Tracker, TrackerObserver
from workflows.tracking.metadata import describe_run

log = logging.getLogger("fnbandit")
SUMMARY_EVERY = 10.0
"""Seconds between two summaries of a run that goes on; after a crash the last one remains"""


@dataclass(frozen=True)
class Session:
    """The parts that all runs of a study share while they are executed."""

    study: StudyPlan
    engine: LocalEngine
    tracker: Tracker
    progress: Progress
    stop: Stop
    mirror: Mirror | None


def make_observers(session: Session, spec: RunSpec, name: str, run: Run) -> list[Observer]:
    """Build the observers of a run, in the order in which they receive its segments."""
    study, settings, directory = session.study, session.study.settings, session.study.directory / spec.path
    facts = {
        "label": spec.label,
        "engine": settings.engine,
        "versions": find_versions(),
        "machine": processor(),
        "commit": find_commit(),
        "job": job_tags(),
        "data": run.fingerprint.data,
        "sources": run.fingerprint.sources,
    }
    records = RecordWriter(directory, settings.trace)
    totals = RunTotals(read_earlier_seconds(directory))
    bar = Bar(session.progress, short_name(spec), run_seconds(run.config))
    metadata = describe_run(study, spec, name, run.config, facts, run.promise)
    return [
        records,
        totals,
        SummaryWriter(directory, run, records, totals, facts),
        LogLines(name, settings.engine, run, bar, session.progress),
        bar,
        *([FigureDrawer(directory)] if len(study.points) == 1 and settings.figures else []),
        TrackerObserver(
            session.tracker, metadata, directory, totals, lambda: {"device": run.device, "layout": run.layout}
        ),
    ]


class SummaryWriter:
    """Writes config.toml and summary.json; comes after the records and the totals, which it reads."""

    def __init__(
        self, directory: Path, run: Run, records: RecordWriter, totals: RunTotals, facts: dict[str, Any]
    ) -> None:
        self._directory, self._run, self._facts = directory, run, facts
        self._records, self._totals = records, totals

    def begin(self, config: Config) -> None:
        write_config(self._directory, config)
        self._write("running")

    def segment(self, segment: Segment) -> None:
        if time.monotonic() - self._written > SUMMARY_EVERY:
            self._write("running")

    def end(self, status: Status) -> None:
        """Write the last summary; a run that is finished needs its checkpoints no longer."""
        self._write(status)
        if status == "finished":
            self._run.clear()

    def _write(self, status: str) -> None:
        config = self._totals.config
        body = {"status": status, **self._totals.summary(), "seed": config.seed, "config": dataclasses.asdict(config)}
        if self._run.promise is not None:
            body["privacy"] = self._run.promise.summary(config, self._totals.iterations)
        body |= self._facts | {"layout": self._run.layout, "device": self._run.device, "files": self._records.files}
        write_summary(self._directory, body)
        self._written = time.monotonic()


class LogLines:
    """Logs the beginning and the end of a run."""

    def __init__(self, name: str, engine: str, run: Run, bar: Bar, progress: Progress) -> None:
        self._name, self._engine, self._run, self._bar, self._progress = name, engine, run, bar, progress
        self._layout = ""

    def begin(self, config: Config) -> None:
        log.info("fnbandit: %s: begins, %s", self._name, self._engine)

    def segment(self, segment: Segment) -> None:
        """Log the layout once it is known, and again where actors were placed anew in another one."""
        if self._run.layout != self._layout:
            self._layout = self._run.layout
            log.info("fnbandit: %s: %s", self._name, self._layout)
            self._progress.say_layout(self._layout)

    def end(self, status: Status) -> None:
        log.info("fnbandit: %s: %s, %s, %s", self._name, status, self._bar.text(), self._run.layout)


class FigureDrawer:
    """Draws the figures of a study of one run; drawing those of every run would take longer than small runs."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def begin(self, config: Config) -> None:
        """Draw nothing yet."""

    def segment(self, segment: Segment) -> None:
        """Draw nothing yet."""

    def end(self, status: Status) -> None:
        if status == "finished":
            draw_run(self._directory)


def read_earlier_seconds(directory: Path) -> float:
    """Return the seconds that earlier sessions of a run took; 0 for a run that starts anew."""
    if not (directory / SUMMARY_FILE).exists():
        return 0.0
    summary = read_summary(directory)
    return 0.0 if summary["status"] == "finished" else float(summary["seconds"])
