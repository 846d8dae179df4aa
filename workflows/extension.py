"""A second command for a study's folder: it goes on, adds runs, or is told what differs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from fnbandit.config import FIELDS, Config
from fnbandit.registry import without_effect
from workflows.settings import Settings
from workflows.study import Point, Study

PRESET_FIELDS = ("environment", "algorithm", "hidden_layers")
"""Fields on which a preset's other values depend."""
LEFT_BEHIND = ("config.toml", "summary.json", "log.txt", "report.html", "table.csv", "mlflow.json")


def extended(earlier: Study, asked: Study) -> Study:
    """The study in a folder with the runs that are asked for, too; a ValueError says what differs."""
    way_out = "another --out keeps both, --overwrite begins anew"
    place = f"out={str(asked.directory)!r}"
    before, now = axes(earlier.points), axes(asked.points)
    if before != now:
        raise ValueError(f"{place}: holds {_over(before)}, and this would be {_over(now)}; {way_out}")
    there = {point.path: point for point in earlier.points}
    for point in asked.points:
        other = there.get(point.path) or _like(point, earlier.points, now)
        if other is None:
            continue
        left_out = set() if other.path == point.path else set(now)
        if changed := differences(other.config, point.config, left_out):
            raise ValueError(f"{place}: holds runs with {', '.join(changed)}; {way_out}")
    points = there | {point.path: point for point in asked.points}
    return dataclasses.replace(asked, name=earlier.name, points=list(points.values()))


def axes(points: Iterable[Point]) -> list[str]:
    """The keys of the runs' folders, in order: what their study varies."""
    parts = [part for point in points for part in point.path.split("/")]
    return list(dict.fromkeys(part.partition("=")[0] for part in parts if "=" in part))


def _over(names: list[str]) -> str:
    return f"a study over {', '.join(names)}" if names else "a single run"


def _like(point: Point, others: list[Point], names: list[str]) -> Point | None:
    """A run that should agree with a new one in all that is not varied; None where labels stand for whole configs."""
    if any(name not in FIELDS for name in names):
        return None
    key = [getattr(point.config, name) for name in PRESET_FIELDS]
    return next((other for other in others if [getattr(other.config, name) for name in PRESET_FIELDS] == key), None)


def differences(earlier: Config, now: Config, leave_out: set[str]) -> list[str]:
    """In words, the fields with an effect in which two configs differ: "width=20 instead of 10"."""
    one, other = dataclasses.asdict(earlier), dataclasses.asdict(now)
    idle = without_effect(one).keys() & without_effect(other).keys()
    names = [name for name in FIELDS if one[name] != other[name] and name not in idle and name not in leave_out]
    return [f"{name}={one[name]} instead of {other[name]}" for name in names]


def is_drawn(path: Path) -> bool:
    """Whether a picture is one of ours: its metadata says so."""
    from workflows.figures import MAKER

    return path.is_file() and MAKER.encode() in path.read_bytes()


def clear(study: Study, settings: Settings) -> None:
    """Remove what a study has left behind, and nothing else that may stand in its folder.

    Checkpoints elsewhere go if the new study's `settings` name the same place: a study.json may be anybody's.
    """
    from fnbandit.checkpoints import CheckpointStore

    if study.settings.checkpoint in (None, settings.checkpoint):
        for point in study.points:
            location = study.settings.checkpointing(study.directory, point.path).location
            assert location is not None
            CheckpointStore(location).clear()
    for folder in [study.directory, *(study.directory / point.path for point in study.points)]:
        tables = [
            folder / f"{name}.{kind}" for name in ("trace", "rounds") for kind in ("parquet", "arrows", "parquet.part")
        ]
        figures = [path for path in (folder / "figures").glob("*.p[nd][gf]") if is_drawn(path)]
        for path in [*tables, *figures, *(folder / name for name in LEFT_BEHIND)]:
            path.unlink(missing_ok=True)
        with suppress(OSError):  # somebody else's files keep them
            (folder / "figures").rmdir()
            if folder != study.directory:
                folder.rmdir()
    (study.directory / "study.json").unlink()
