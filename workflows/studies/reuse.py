"""Copies runs that several studies of one command have in common, so that each is executed once."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from fnbandit.config import Config
from fnbandit.storage.files import REUSED_FILES, SUMMARY_FILE, check_inside
from fnbandit.storage.records import read_summary, write_summary
from workflows.studies.progress_on_disk import list_unfinished
from workflows.studies.study import StudyPlan


def copy_finished(study: StudyPlan, others: Sequence[StudyPlan]) -> int:
    """Copy finished runs of other studies that a study needs, with its own label; return their number."""
    if not others:
        return 0
    finished: dict[Config, Path] = {}
    for other in others:
        left = {point.path for point in list_unfinished(other)}
        finished |= {point.config: other.directory / point.path for point in other.points if point.path not in left}
    taken = 0
    for point in list_unfinished(study):
        source, folder = finished.get(point.config), study.directory / point.path
        # A run that has begun continues: its checkpoint and its MLflow run are its own.
        if source is None or folder.exists():
            continue
        check_inside(folder / SUMMARY_FILE)
        folder.mkdir(parents=True)
        for name in REUSED_FILES:
            if (source / name).exists():
                shutil.copyfile(source / name, folder / name)
        write_summary(folder, read_summary(source) | {"label": point.label})
        taken += 1
    return taken
