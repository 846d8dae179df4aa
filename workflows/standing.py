"""What an earlier process has left in a study's folder, and what is still to be done there."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from fnbandit.config import FIELDS, Config
from fnbandit.records import file_digest, read_summary
from fnbandit.registry import is_table
from fnbandit.runs import resolved_like
from workflows.study import Point, Study

log = logging.getLogger("fnbandit")


def unfinished(study: Study) -> list[Point]:
    """The runs of a study that have not been to their end; a ValueError where its folder holds other runs than its."""
    data: dict[str, str] = {}
    todo = []
    for point in study.points:
        directory = study.directory / point.path
        if not (directory / "summary.json").exists():
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
        missing = [name for name in ("trace.parquet", "rounds.parquet") if not (directory / name).exists()]
        if missing:
            log.warning(
                "fnbandit: %s: is missing, although the run is finished: it is run again", directory / missing[0]
            )
            todo.append(point)
    return todo


def _check_config(directory: Path, summary: dict[str, Any], config: Config) -> None:
    """Raise where a folder's run is another than the one that belongs there."""
    try:
        found = Config(**summary["config"])
    except (TypeError, ValueError) as error:
        raise ValueError(f"{directory}/summary.json: its config cannot be read ({error})") from None
    asked = resolved_like(config, found)
    for name in FIELDS:
        one, other = getattr(found, name), getattr(asked, name)
        if name != "device" and one != other:
            raise ValueError(
                f"out={str(directory)!r}: holds a run with {name}={one!r}, not {other!r}; choose another directory"
            )
