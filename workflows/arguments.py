"""What `run`, `sweep` and `theory` are given: files and flags become the runs of a study."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import math
import os
import tomllib
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

import tyro

from fnbandit.config import FIELDS, Config
from fnbandit.registry import BOUNDS, is_table, unknown, without_effect, without_theory
from fnbandit.validation import Count, settings
from workflows.flags import composed, flag_types, parse_lists
from workflows.output import Display
from workflows.settings import Settings
from workflows.study import Point, check_size, folder_of, with_seeds

log = logging.getLogger("fnbandit")


@settings
class ConfigArguments:
    """A simulation: a settings file, a preset, and every field of Config as a flag."""

    file: tyro.conf.Positional[Path | None] = None
    """A TOML file with any of the fields below; flags override it."""
    preset: Literal["tuned", "paper", "theory"] = "tuned"
    """Where the defaults come from: ours, the paper's Sec. 5, or Algorithms 1 and 2 to the letter."""
    config: Annotated[Config, tyro.conf.arg(name="")] = field(default_factory=Config)


@settings
class Arguments(ConfigArguments):
    """Runs: a simulation, with one or several seeds, and how it is carried out."""

    seeds: Count = 1
    """Runs with this many seeds, from `seed` on."""
    dry_run: bool = False
    """Show what would run, its layout, the memory and the time it takes, and stop."""
    overwrite: bool = False
    """Remove the study that stands in --out, and begin anew."""
    settings: Annotated[Settings, tyro.conf.arg(name="")] = field(default_factory=Settings)
    display: Annotated[Display, tyro.conf.arg(name="")] = field(default_factory=Display)


Kind = TypeVar("Kind", bound=ConfigArguments)


@dataclasses.dataclass(frozen=True)
class Request(Generic[Kind]):
    """What a command line asks for: its runs, and all else that it says."""

    points: list[Point]
    asked: Kind


def requested(program: str, argv: Sequence[str], lists: bool, kind: type[Kind]) -> Request[Kind]:
    """The runs that a command line stands for: the preset's values < the file's < the flags'.

    A list of values is an axis of a sweep, which has a run for every element of the axes' product. A field that has no
    effect in any of the runs is refused if it is a flag, and warned about if it is in a file, which others may share.
    """
    parsed, flags = parse_lists(kind, program, argv, FIELDS)
    file = read_settings(parsed.file) if parsed.file is not None else {}
    values = file | flags
    for name, several in values.items():
        _check_values(name, several, lists)
    fields = {name: several for name, several in values.items() if name in FIELDS}
    others = {name: several[0] for name, several in values.items() if name not in FIELDS}
    if isinstance(checkpoint := others.get("checkpoint"), str) and "://" not in checkpoint:
        others["checkpoint"] = os.path.abspath(checkpoint)
    asked = composed(kind, others)
    seeds = asked.seeds if isinstance(asked, Arguments) else 1
    points, idle = product(asked.preset, fields)
    for name, reason in idle.items():
        if name in BOUNDS and not issubclass(kind, Arguments):
            continue  # `theory` shows what they lead to
        if name in flags:
            raise ValueError(f"{name}: has no effect with {reason}")
        log.warning("fnbandit: %s: %s has no effect with %s", parsed.file, name, reason)
    if seeds > 1 or any(len(several) > 1 for several in fields.values()):
        points = with_seeds(points, seeds)
    return Request(points, asked)


def product(preset: str, fields: dict[str, list[Any]]) -> tuple[list[Point], dict[str, str]]:
    """A run for every combination of the fields' values, and the fields that have no effect in any, with the reason.

    Runs that differ only in a field without effect are one run, in which the field has its default: in
    {"trigger": ["always", "logdet"], "threshold": [1.0, 5.0]} there is one run with trigger=always.
    """
    axes = [name for name, several in fields.items() if len(several) > 1]
    check_size(math.prod(map(len, fields.values())))
    points: dict[Point, None] = {}
    reasons: list[dict[str, str]] = []
    for values in itertools.product(*fields.values()):
        chosen = dict(zip(fields, values, strict=True))
        whole = dataclasses.asdict(Config.preset(preset, **chosen))
        idle = without_effect(whole) | without_theory(whole)
        matters = {name: value for name, value in chosen.items() if name not in axes or name not in idle}
        config = Config.preset(preset, **matters)
        folder = folder_of({name: getattr(config, name) for name in axes if name in matters and name != "seed"})
        points[Point(folder if axes else ".", absolute(config))] = None
        reasons.append(idle)
    never = [name for name in fields if all(name in idle for idle in reasons)]
    return list(points), {name: ", ".join(dict.fromkeys(idle[name] for idle in reasons)) for name in never}


def absolute(config: Config) -> Config:
    """With the tables' paths from the root on: a study is resumed from anywhere."""
    tables = {name: getattr(config, name) for name in ("environment", "clock_table")}
    return config.replace(**{name: os.path.abspath(path) for name, path in tables.items() if path and is_table(path)})


def read_settings(path: Path) -> dict[str, list[Any]]:
    """The values of a settings file, a list for every key; a ValueError says what is wrong with the file."""
    if path.suffix != ".toml":
        raise ValueError(f"{path}: is no settings file (NAME.toml) and no flag's value; lists are written 1,2,5")
    try:
        file = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: is no TOML ({error})") from None
    known = flag_types(Arguments)
    for key in file:
        if key not in known:
            raise ValueError(f"{path}: {unknown('key', key, known)}")
    return {key: value if isinstance(value, list) and key in FIELDS else [value] for key, value in file.items()}


def _check_values(name: str, values: list[Any], lists: bool) -> None:
    """Raise on a list where one value is expected, an empty list, and a value that stands twice."""
    if not values:
        raise ValueError(f"{name}=[]: expected at least one value")
    if len(values) > 1 and not lists:
        raise ValueError(f"{name}: has several values; `fnbandit sweep` takes lists")
    for place, value in enumerate(values):
        if value in values[:place]:
            raise ValueError(f"{name}={value}: stands twice in the sweep")
