"""Finds the runs of a study that are not finished in its folder."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from fnbandit.config import FIELDS, Config
from fnbandit.config.registry import is_table
from fnbandit.runs import resolve_like
from fnbandit.storage.files import SUMMARY_FILE, TABLE_FILES
from fnbandit.storage.records import file_digest, read_summary
from workflows.studies.study import RunSpec, StudyPlan

log = logging.getLogger("fnbandit")


def list_unfinished(study: StudyPlan) -> list[RunSpec]:
    """List the runs of a study that are not finished; a ValueError if its folder holds a run with another config."""
    data: dict[str, str] = {}
    todo = []
    for point in study.points:
        directory = study.directory / point.path
        if not (directory / SUMMARY_FILE).exists():
            todo.append(point)
            continue
        summary = read_summary(directory)
        _check_config(directory, summary, point.config)
        environment = point.config.environment
        if is_table(environment):
            if environment not in data:
                data[environment] = file_digest(Path(environment))
            if summary["data"] != data[environment]:
                raise ValueError(
                    f"environment={environment!r}: the table has changed since {directory} was begun; "
                    "bring the earlier one back, or choose another directory"
                )
        if summary["status"] != "finished":
            todo.append(point)
            continue
        missing = [name for name in TABLE_FILES if not (directory / name).exists()]
        if missing:
            log.warning(
                "fnbandit: %s: is missing, although the run is finished: it is run again", directory / missing[0]
            )
            todo.append(point)
    return todo


def _check_config(directory: Path, summary: dict[str, Any], config: Config) -> None:
    """Raise a ValueError if the run in a folder has another config."""
    try:
        found = Config.from_record(summary["config"])
    except (TypeError, ValueError) as error:
        raise ValueError(f"{directory / SUMMARY_FILE}: its config cannot be read ({error})") from None
    asked = resolve_like(config, found)
    for name in FIELDS:
        one, other = getattr(found, name), getattr(asked, name)
        if name != "device" and one != other:
            raise ValueError(
                f"out={str(directory)!r}: holds a run with {name}={one!r}, not {other!r}; choose another directory"
            )
