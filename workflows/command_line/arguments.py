"""Arguments of `run`, `sweep` and `theory`: files and flags become the runs of a study."""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import tomli_w
from pydantic import TypeAdapter, ValidationError

from fnbandit.config import FIELDS, Config
from fnbandit.config.combinations import explain_idle
from fnbandit.config.fields import Count, refusal, settings
from fnbandit.config.registry import BOUNDS, unknown
from workflows.command_line.defaults import describe_defaults
from workflows.command_line.flags import Positional, build_arguments, flag_types, parse_values, printable
from workflows.studies.composition import compose, resolve_checkpoint
from workflows.studies.settings import Settings, idle_settings
from workflows.studies.study import RunSpec

log = logging.getLogger("fnbandit")


@settings
class Display:
    """How much a command prints."""

    quiet: bool = False
    """Print nothing but warnings and errors."""
    verbose: bool = False
    """Print details, too: layout, checkpoints, actors that were lost and rebuilt."""

    def __post_init__(self) -> None:
        if self.quiet and self.verbose:
            raise ValueError("quiet=True, verbose=True: at most one of them")


@settings
class ConfigArguments:
    """A simulation: a settings file, a preset, and every field of Config as a flag."""

    file: Positional[Path | None] = None
    """A TOML file with any of the fields below; flags override it."""
    preset: Literal["tuned", "exact", "paper", "theory"] = "tuned"
    """Where the defaults come from: ours, the paper's Sec. 5, or Algorithms 1 and 2 to the letter."""
    config: Config = field(default_factory=Config)


@settings
class StudyArguments(ConfigArguments):
    """Runs: a simulation, with one or several seeds, and how it is carried out."""

    seeds: Count = 1
    """Runs with this many seeds, from `seed` on."""
    dry_run: bool = False
    """Show what would run, its layout, the memory and the time it takes, and stop."""
    json: bool = False
    """Print the dry run as JSON, for scripts."""
    print_config: bool = False
    """Print the fields that have an effect, as TOML that `fnbandit run FILE.toml` takes, and stop."""
    overwrite: bool = False
    """Remove the study in --out, and begin anew."""
    settings: Settings = field(default_factory=Settings)
    display: Display = field(default_factory=Display)


@settings
class SweepArguments(StudyArguments):
    """The product of lists of values, with one or several seeds. Every field of a run takes a list: --agents 1,2,5.

    A range stands for its values: --agents 1:1000:log4 is 1,10,100,1000, --ramp 0:300:lin4 is 0,100,200,300. A number
    may depend on N: --threshold "25/N".
    """

    zip: str | None = None
    """Fields whose lists vary together, not as a product: --agents 1,10,100 --threshold 25,2.5,1 --zip
    agents,threshold."""


Kind = TypeVar("Kind", bound=ConfigArguments)


@dataclass(frozen=True)
class Request(Generic[Kind]):
    """The runs that a command line asks for, and all its other arguments."""

    points: list[RunSpec]
    arguments: Kind
    notes: list[str]
    """Lines about values that the runs have by their task, algorithm or depth"""


def parse_request(program: str, argv: Sequence[str], lists: bool, kind: type[Kind]) -> Request[Kind]:
    """Return the runs of a command line: flags override the file, the file overrides the preset.

    A field that has no effect in any of the runs is an error if it is a flag, and a warning if it is in a file, which
    several studies may share.
    """
    flags = parse_values(kind, program, argv, FIELDS)
    (path,) = flags.pop("file", [None])
    file = read_settings(path) if path is not None else {}
    check_overridden(path, {name: several for name, several in file.items() if name in flags})
    values = file | flags
    for name, several in values.items():
        if len(several) > 1 and not lists:
            raise ValueError(f"{name}: has several values; `fnbandit sweep` takes lists")
    fields = {name: several for name, several in values.items() if name in FIELDS}
    others = {name: several[0] for name, several in values.items() if name not in FIELDS}
    arguments = build_arguments(kind, resolve_checkpoint(others))
    seeds = arguments.seeds if isinstance(arguments, StudyArguments) else 1
    zipped = arguments.zip.split(",") if isinstance(arguments, SweepArguments) and arguments.zip else []
    points, idle = compose(arguments.preset, fields, seeds, list(map(_field, zipped)))
    if isinstance(arguments, StudyArguments):
        idle |= idle_settings(arguments.settings)
    for name, reason in idle.items():
        if name in BOUNDS and not issubclass(kind, StudyArguments):
            continue  # `theory` shows what they lead to
        if name in flags:
            raise ValueError(explain_idle(name, reason, "--{} {}"))
        log.warning("fnbandit: %s: %s has no effect with %s", path, name, reason)
    return Request(points, arguments, describe_defaults(arguments.preset, points, fields))


def check_overridden(path: Path | None, values: dict[str, list[Any]]) -> None:
    """Raise where a file has a wrong value for a key that a flag overrides; the others are checked where they count."""
    types = flag_types(SweepArguments)
    for name, several in values.items():
        adapter: TypeAdapter[Any] = TypeAdapter(types[name])
        for value in several:
            try:
                adapter.validate_python(value, strict=True)
            except ValidationError as error:
                fault = error.errors()[0]
                text = fault["msg"].removeprefix("Value error, ") if fault["type"] == "value_error" else ""
                raise ValueError(f"{path}: {text or refusal(name, value, types[name])}") from None


def _field(word: str) -> str:
    return word.strip().removeprefix("--").replace("-", "_")


def format_config(request: Request[StudyArguments]) -> str:
    """Return the settings of a request's runs as TOML; raise a ValueError if several runs differ in more than seeds."""
    first, seeds = request.points[0].config, [point.config.seed for point in request.points]
    if any(point.config.replace(seed=first.seed) != first for point in request.points):
        raise ValueError(f"print_config=True: expected one run, with one or several seeds; these are {len(seeds)} runs")
    return tomli_w.dumps(first.effective | ({"seeds": len(seeds)} if len(seeds) > 1 else {}))


def read_settings(path: Path) -> dict[str, list[Any]]:
    """Return the values of a settings file, a list for every key; raise a ValueError of one line on a bad file."""
    name = printable(str(path))
    if path.suffix != ".toml":
        raise ValueError(f"{name}: is no settings file (NAME.toml) and no flag's value; lists are written 1,2,5")
    try:
        file = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise ValueError(f"{name}: no such file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{name}: is no TOML ({error})") from None
    known = flag_types(SweepArguments)
    for key in file:
        if key not in known:
            raise ValueError(f"{name}: {unknown('key', key, known)}")
    return {key: value if isinstance(value, list) and key in FIELDS else [value] for key, value in file.items()}
