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
from fnbandit.config.registry import is_table, without_effect, without_theory
from workflows.studies.study import RunSpec, check_size, folder_for, folder_of, with_seeds
from workflows.studies.values import evaluate, expand_axes, is_expression


def compose(
    base: Config | str, fields: Mapping[str, Sequence[Any]], seeds: int = 1, zipped: Sequence[str] = ()
) -> tuple[list[RunSpec], dict[str, str]]:
    """Return a run for every combination of the fields' values and seed, and the fields without effect with the reason.

    `base` is a config, or the name of a preset, whose values depend on a run's environment, algorithm and depth; runs
    of several environments have the first one's N. Runs that differ only in a field without effect are one run, in
    which the field has the base's value: in {"trigger": ["always", "logdet"], "threshold": [1.0, 5.0]} there is one run
    with trigger=always. The lists of `zipped` fields vary together. A number may be an expression of N, as "25/N".
    """
    check_fields([*fields, *zipped])
    for name, values in fields.items():
        if name not in zipped:
            _check_values(name, values)
    axes = [name for name, values in fields.items() if len(values) > 1]
    if "environment" in axes and "agents" not in fields:
        first = _evaluate(base, {name: values[0] for name, values in fields.items()})
        fields = {**fields, "agents": [_make_config(base, first).agents]}
    groups = expand_axes(dict(fields), zipped)
    check_size(math.prod(len(values) for _, values in groups))
    points: dict[RunSpec, None] = {}
    reasons: list[dict[str, str]] = []
    for values in itertools.product(*(values for _, values in groups)):
        pairs = zip(groups, values, strict=True)
        given = {name: value for (names, _), some in pairs for name, value in zip(names, some, strict=True)}
        chosen = _evaluate(base, {name: given[name] for name in fields})
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


def _evaluate(base: Config | str, chosen: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a run's fields with a number in place of each expression of N."""
    texts = {name: value for name, value in chosen.items() if is_expression(name, value)}
    if not texts:
        return chosen
    if "agents" in texts:
        raise ValueError(f"agents={texts['agents']!r}: expected a whole number; N is the number of agents")
    agents = _make_config(base, {name: value for name, value in chosen.items() if name not in texts}).agents
    return chosen | {name: evaluate(name, text, agents) for name, text in texts.items()}


def resolve_checkpoint(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by name with the path of the checkpoints' folder from the root on."""
    place = settings.get("checkpoint")
    if isinstance(place, str) and "://" not in place:
        return {**settings, "checkpoint": os.path.abspath(place)}
    return dict(settings)


@contextmanager
def claimed_folder(out: str | None, config: Config, dry_run: bool = False) -> Iterator[Path]:
    """Yield the folder of a study: `out`, or a new one in runs/; remove it at the end if it is new and empty."""
    name = f"{Path(config.environment).stem}-{config.algorithm}-{time.strftime('%Y%m%d-%H%M%S')}"
    folder = folder_for(out, Path("runs") / name)
    if dry_run:
        yield folder
        return
    new = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    if out is None:
        folder = _make_folder(folder)
        new = [folder, *new[1:]]
    else:
        folder.mkdir(parents=True, exist_ok=True)  # before anything is started: it may be impossible
    try:
        yield folder
    finally:
        with suppress(OSError):  # it is not empty
            for made in new:
                made.rmdir()


def _make_folder(folder: Path) -> Path:
    """Make a folder with this name, or with a number after it if there is one already."""
    names = itertools.chain([folder.name], (f"{folder.name}-{number}" for number in itertools.count(2)))
    for candidate in map(folder.with_name, names):
        with suppress(FileExistsError):
            candidate.mkdir(parents=True)
            break
    return candidate


def _make_config(base: Config | str, changes: dict[str, Any]) -> Config:
    return Config.build(base, "cosine", changes) if isinstance(base, str) else base.replace(**changes)


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
