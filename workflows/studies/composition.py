"""Compose the runs of a study from a base and the values of fields, for the command line and for `fnbandit.Study`.

A field with several values is an axis of a sweep, which has a run for every element of the axes' product.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fnbandit.config import Config, check_fields
from fnbandit.config.registry import KINDS, is_table, without_effect, without_theory
from workflows.studies.study import RunSpec, check_size, folder_for, folder_of, with_seeds


def compose(
    base: Config | str, fields: Mapping[str, Sequence[Any]], seeds: int = 1
) -> tuple[list[RunSpec], dict[str, str]]:
    """Return a run for every combination of the fields' values and seed, and the fields without effect with the reason.

    `base` is a config, or the name of a preset, whose values depend on a run's environment, algorithm and depth; runs
    of several environments have the first one's N. Runs that differ only in a field without effect are one run, in
    which the field has the base's value: in {"trigger": ["always", "logdet"], "threshold": [1.0, 5.0]} there is one run
    with trigger=always.
    """
    check_fields(fields)
    for name, values in fields.items():
        _check_values(name, values)
    axes = [name for name, values in fields.items() if len(values) > 1]
    if "environment" in axes and "agents" not in fields:
        first = {name: values[0] for name, values in fields.items()}
        fields = {**fields, "agents": [_make_config(base, first).agents]}
    check_size(math.prod(map(len, fields.values())))
    points: dict[RunSpec, None] = {}
    reasons: list[dict[str, str]] = []
    for values in itertools.product(*fields.values()):
        chosen = dict(zip(fields, values, strict=True))
        whole = dataclasses.asdict(_make_config(base, chosen))
        idle = without_effect(whole) | without_theory(whole)
        matters = {name: value for name, value in chosen.items() if name not in axes or name not in idle}
        config = _make_config(base, matters)
        folder = folder_of({name: getattr(config, name) for name in axes if name in matters and name != "seed"})
        points[RunSpec(folder if axes else ".", _with_absolute_paths(config))] = None
        reasons.append(idle)
    never = [name for name in fields if all(name in idle for idle in reasons)]
    idle = {name: ", ".join(dict.fromkeys(idle[name] for idle in reasons)) for name in never}
    return with_seeds(points, seeds) if seeds > 1 or axes else list(points), idle


def explain_idle(name: str, reason: str, form: str = "{}={}") -> str:
    """Return the error for a field without effect, with the choices that would give it one, written in a form."""
    kind = reason.partition("=")[0]
    parts = [choice for choice in KINDS.get(kind, {}) if name not in without_effect({kind: choice})][:3]
    remedy = f"; {form.format(kind, ' or '.join(parts))} uses it" if parts else ""
    return f"{name}: has no effect with {reason}{remedy}"


def resolve_checkpoint(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by name with the path of the checkpoints' folder from the root on."""
    place = settings.get("checkpoint")
    if isinstance(place, str) and "://" not in place:
        return {**settings, "checkpoint": os.path.abspath(place)}
    return dict(settings)


@contextmanager
def claimed_folder(out: str | None, config: Config, dry_run: bool = False) -> Iterator[Path]:
    """Yield the folder of a study: `out`, or a new one in runs/, which is removed if it is empty at the end."""
    name = f"{Path(config.environment).stem}-{config.algorithm}-{time.strftime('%Y%m%d-%H%M%S')}"
    otherwise = Path("runs") / name
    if out is not None or dry_run:
        yield folder_for(out, otherwise)
        return
    is_new = not otherwise.parent.exists()
    folder = _make_folder(otherwise)
    try:
        yield folder
    finally:
        with suppress(OSError):  # it is not empty
            folder.rmdir()
            if is_new:
                folder.parent.rmdir()


def _make_folder(folder: Path) -> Path:
    """Make a folder with this name, or with a number after it if there is one already."""
    names = itertools.chain([folder.name], (f"{folder.name}-{number}" for number in itertools.count(2)))
    for candidate in map(folder.with_name, names):
        with suppress(FileExistsError):
            candidate.mkdir(parents=True)
            break
    return candidate


def _make_config(base: Config | str, changes: dict[str, Any]) -> Config:
    return Config.preset(base, **changes) if isinstance(base, str) else base.replace(**changes)


def _with_absolute_paths(config: Config) -> Config:
    """Return a config with the paths of tables from the root on: a study is resumed from any folder."""
    tables = {name: getattr(config, name) for name in ("environment", "clock_table")}
    return config.replace(**{name: os.path.abspath(path) for name, path in tables.items() if path and is_table(path)})


def _check_values(name: str, values: Sequence[Any]) -> None:
    """Raise on an empty list and on a duplicate."""
    if not values:
        raise ValueError(f"{name}=[]: expected at least one value")
    for place, value in enumerate(values):
        if value in values[:place]:
            raise ValueError(f"{name}={value}: duplicate value")
