"""The interface of trackers: where people watch a study. The records on disk are complete without any.

An own tracker is a class that extends `Tracker`, named as --tracking package.module:Name; `jsonl_tracker.py` is the
shortest example. Its methods must return soon, because runs wait for them. On Ray several runs call it from threads.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fnbandit.config import Config
from fnbandit.config.registry import import_user_part
from fnbandit.core import Segment, Status
from fnbandit.errors import call_user_code
from fnbandit.storage.files import FIGURES_FOLDER, LOG_FILE, RESULT_FILES
from fnbandit.storage.totals import RunTotals
from workflows.studies.settings import TRACKERS, Settings
from workflows.terminal.secrets import mask_secrets

log = logging.getLogger("fnbandit")


@dataclass(frozen=True)
class RunMetadata:
    """A run or a study as a tracker receives it at the start."""

    name: str
    params: Mapping[str, Any]
    """The config of a run; the fields that a study varies, with their values"""
    tags: Mapping[str, str]
    """Folder, command, host, user, commit, versions, job"""
    dataset: tuple[str, str, str, str] | None = None
    """Name, digest, kind of source and source of the task"""


@dataclass(frozen=True)
class RunArtifacts:
    """The results of a run or a study, as a tracker receives them at the end."""

    files: Sequence[Path] = ()
    metrics: Sequence[tuple[int, dict[str, float]]] = ()
    """Totals by step, which is N or the first field that a study varies; empty for a run"""
    note: str | None = None
    """Markdown"""
    axis: str = ""
    """Field that the steps of a study's totals are values of; empty for a run"""
    best: Mapping[str, float] = field(default_factory=dict)
    """Totals of the setting of a study with the least regret"""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Facts that are known only at the end"""


class TrackedRun:
    """One run in a tracker; the methods of this base class do nothing."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Receive the metrics of an iteration. A resumed run sends those of earlier sessions again."""

    def finish(self, status: Status, artifacts: RunArtifacts) -> None:
        """Receive how the run ended, and its files."""


class Tracker:
    """A tracker of one study. This base class tracks nothing: it is `--tracking none`."""

    def __init__(self, study: RunMetadata | None, folder: Path, settings: Settings) -> None:
        """Start to track the study in a folder; `study` is None for a study of one run."""

    def start_run(self, run: RunMetadata, folder: Path) -> TrackedRun:
        """Start to track a run, whose records are in `folder`."""
        return TrackedRun()

    def has_received(self, folder: Path) -> bool:
        """Return True where nothing of the finished run in a folder has to be sent again."""
        return True

    def finish(self, status: Status, artifacts: RunArtifacts) -> None:
        """Receive how the study ended, and its results, after all runs have finished."""


def find_tracker(name: str) -> type[Tracker]:
    """Import the class of a tracker; a one-line ValueError if it is none."""
    module, _, attribute = TRACKERS.get(name, "").partition(":")
    found = getattr(importlib.import_module(module), attribute) if module else import_user_part("tracking", name)
    if not (isinstance(found, type) and issubclass(found, Tracker)):
        raise ValueError(f"tracking={name!r}: not a tracker; expected a class that extends {__name__}.Tracker")
    return found


def make_tracker(study: RunMetadata | None, folder: Path, settings: Settings) -> Tracker:
    """Build the tracker that settings name."""
    tracker: Tracker = call_user_code(
        f"tracking={settings.tracking!r}", find_tracker(settings.tracking), study, folder, settings
    )
    return tracker


class TrackerObserver:
    """An observer that passes the metrics of a run to a tracker; a run whose tracker raises goes on without it."""

    def __init__(
        self, tracker: Tracker, run: RunMetadata, folder: Path, totals: RunTotals, tags: Callable[[], dict[str, str]]
    ) -> None:
        """Read the metrics from `totals`, an observer that comes before this one, and at the end the tags."""
        self._tracker, self._run, self._folder, self._totals, self._tags = tracker, run, folder, totals, tags
        self._tracked = TrackedRun()

    def begin(self, config: Config) -> None:
        with tolerated(self._run.name):
            self._tracked = self._tracker.start_run(self._run, self._folder)

    def segment(self, segment: Segment) -> None:
        tracked, self._tracked = self._tracked, TrackedRun()
        with tolerated(self._run.name):
            for step, metrics in self._totals.due:
                tracked.log(step, metrics)
            self._tracked = tracked

    def end(self, status: Status) -> None:
        with tolerated(self._run.name):
            self._tracked.finish(status, RunArtifacts(list_run_files(self._folder), tags=self._tags()))


def list_run_files(folder: Path) -> list[Path]:
    """Return the files of a run that trackers attach to it: its figures, results and log."""
    files = [path for name in (*RESULT_FILES, LOG_FILE) if (path := folder / name).exists()]
    return [*sorted((folder / FIGURES_FOLDER).glob("*.png")), *files]


@contextmanager
def tolerated(name: str) -> Iterator[None]:
    """Turn an exception of a tracker into a warning: it never costs a run."""
    try:
        yield
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        log.warning("fnbandit: %s is not tracked any more (%s: %s)", name, type(error).__name__, mask_secrets(first))
