"""Runs that several studies of one command have in common are carried out once."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from fnbandit.config import Config
from fnbandit.records import read_summary, write_summary
from workflows.standing import unfinished
from workflows.study import Study

FILES = ("config.toml", "trace.parquet", "rounds.parquet", "log.txt")


def take_finished(study: Study, others: Sequence[Study]) -> int:
    """Copy what a study lacks and others have, with its own label; how many runs those are."""
    if not others:
        return 0
    finished: dict[Config, Path] = {}
    for other in others:
        left = {point.path for point in unfinished(other)}
        finished |= {point.config: other.directory / point.path for point in other.points if point.path not in left}
    taken = 0
    for point in unfinished(study):
        source, folder = finished.get(point.config), study.directory / point.path
        # What has begun goes on: its checkpoint and its MLflow run are its own.
        if source is None or folder.exists():
            continue
        folder.mkdir(parents=True)
        for name in FILES:
            if (source / name).exists():
                shutil.copyfile(source / name, folder / name)
        write_summary(folder, read_summary(source) | {"label": point.label})
        taken += 1
    return taken
