"""Extends the study in a folder by the runs of a second command, or refuses with the differences."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from fnbandit.config import FIELDS, Config
from fnbandit.config.presets import PRESET_FIELDS
from fnbandit.config.registry import without_effect
from fnbandit.storage.files import CLEARED_FILES, FIGURES_FOLDER, MAKER, STUDY_FILE, check_inside
from workflows.studies.settings import Settings
from workflows.studies.study import RunSpec, StudyPlan


def extend(earlier: StudyPlan, asked: StudyPlan) -> StudyPlan:
    """Add the requested runs to the study in a folder; a ValueError names the fields that differ."""
    way_out = "another --out keeps both, --overwrite begins anew"
    place = f"out={str(asked.directory)!r}"
    before, now = folder_keys(earlier.points), folder_keys(asked.points)
    if before != now:
        raise ValueError(f"{place}: holds {_over(before)}, and this would be {_over(now)}; {way_out}")
    there = {point.path: point for point in earlier.points}
    for point in asked.points:
        other = there.get(point.path) or _like(point, earlier.points, now)
        if other is None:
            continue
        left_out = set() if other.path == point.path else set(now)
        if changed := name_differences(other.config, point.config, left_out):
            raise ValueError(f"{place}: holds runs with {', '.join(changed)}; {way_out}")
    points = there | {point.path: point for point in asked.points}
    return dataclasses.replace(asked, name=earlier.name, points=list(points.values()))


def folder_keys(points: Iterable[RunSpec]) -> list[str]:
    """Return the keys of the runs' folders, in order: the fields that their study varies."""
    parts = [part for point in points for part in point.path.split("/")]
    return list(dict.fromkeys(part.partition("=")[0] for part in parts if "=" in part))


def _over(names: list[str]) -> str:
    return f"a study over {', '.join(names)}" if names else "a single run"


def _like(point: RunSpec, others: list[RunSpec], names: list[str]) -> RunSpec | None:
    """Find a run that must equal a new one in all fields that are not varied; None if runs are named by labels."""
    if any(name not in FIELDS for name in names):
        return None
    key = [getattr(point.config, name) for name in PRESET_FIELDS]
    return next((other for other in others if [getattr(other.config, name) for name in PRESET_FIELDS] == key), None)


def name_differences(earlier: Config, now: Config, leave_out: set[str]) -> list[str]:
    """Describe the fields with an effect in which two configs differ: "width=20 instead of 10"."""
    one, other = dataclasses.asdict(earlier), dataclasses.asdict(now)
    idle = without_effect(one).keys() & without_effect(other).keys()
    names = [name for name in FIELDS if one[name] != other[name] and name not in idle and name not in leave_out]
    return [f"{name}={one[name]} instead of {other[name]}" for name in names]


def is_drawn(path: Path) -> bool:
    """Return True for a figure of ours, by its metadata."""
    in_pdf = MAKER.replace("(", "\\(").replace(")", "\\)")
    content = path.read_bytes() if path.is_file() else b""
    return MAKER.encode() in content or in_pdf.encode() in content


def clear(study: StudyPlan, settings: Settings) -> None:
    """Remove the files of a study from its folder, and no others.

    Checkpoints elsewhere are removed only if the new study's `settings` name the same place: a study.json may come
    from another person.
    """
    from fnbandit.storage.checkpoints import CheckpointStore

    folders = [study.directory, *(study.directory / point.path for point in study.points)]
    for folder in folders:
        check_inside(folder / FIGURES_FOLDER / "any")
    if study.settings.checkpoint in (None, settings.checkpoint):
        for point in study.points:
            location = study.settings.choose_checkpointing(study.directory, point.path).location
            assert location is not None
            CheckpointStore(location).clear()
    for folder in folders:
        figures = [path for path in (folder / FIGURES_FOLDER).glob("*.p[nd][gf]") if is_drawn(path)]
        for path in [*figures, *(folder / name for name in CLEARED_FILES)]:
            path.unlink(missing_ok=True)
        with suppress(OSError):  # a folder with other files stays
            (folder / FIGURES_FOLDER).rmdir()
            if folder != study.directory:
                folder.rmdir()
    (study.directory / STUDY_FILE).unlink()
