"""A study: the runs that one command stands for, and how the command line and files describe them."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import io
import itertools
import json
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import tyro

from actors.engine import Checkpointing
from actors.layout import Options
from fnbandit.config import CHOICES, FIELDS, PRESETS, Config, unknown
from fnbandit.records import TraceDetail, write_json


@dataclass(frozen=True)
class Settings:
    """How runs are carried out and recorded."""

    engine: Literal["ray", "local"] = "ray"
    """ray: agents and server in Ray actors; local: all in this process."""
    seeds: int = 1
    """Runs with this many seeds, from `seed` on."""
    agents_per_actor: str = "auto"
    """Agents in one actor: auto, or a number."""
    cpus_per_actor: float = 1.0
    """CPUs (fractions allowed) that Ray reserves for an actor."""
    gpus_per_actor: float = 0.0
    """GPUs (fractions allowed) that Ray reserves for an actor."""
    address: str | None = None
    """A running cluster's address; without it RAY_ADDRESS, or a cluster of this machine's own."""
    actor_timeout: float = 600.0
    """Seconds after which an actor that does not answer is called stuck."""
    out: Path | None = None
    """Where the records go; runs/NAME without it."""
    trace: TraceDetail = "agents"
    """Detail of trace.parquet: every agent, the mean over agents, or nothing."""
    checkpoint: str | None = None
    """Directory or URI of the checkpoints; without it they stand beside the records."""
    checkpoint_seconds: float = 30.0
    """Seconds between checkpoints."""
    tracking_uri: str | None = None
    """MLflow server or store; without it MLFLOW_TRACKING_URI, or sqlite in the working directory."""
    tracking: bool = True
    """Whether to track in MLflow."""
    dry_run: bool = False
    """Show the resolved config, the layout and the memory it takes, and stop."""

    def __post_init__(self) -> None:
        if self.seeds < 1:
            raise ValueError(f"seeds={self.seeds!r}: expected a whole number, at least 1")
        if self.checkpoint_seconds <= 0:
            raise ValueError(f"checkpoint_seconds={self.checkpoint_seconds!r}: expected a number above 0")
        self.options()

    def options(self) -> Options:
        """The layout asked of Ray."""
        text = self.agents_per_actor
        if text != "auto" and not text.isdecimal():
            raise ValueError(f"agents_per_actor={text!r}: expected auto or a whole number, at least 1")
        return Options(
            agents_per_actor="auto" if text == "auto" else int(text),
            cpus_per_actor=self.cpus_per_actor,
            gpus_per_actor=self.gpus_per_actor,
            address=self.address,
            actor_timeout=self.actor_timeout,
        )

    def checkpointing(self, directory: Path, path: str) -> Checkpointing:
        """Where and how often one run saves."""
        location = f"{self.checkpoint.rstrip('/')}/{path}" if self.checkpoint else str(directory / path / "checkpoints")
        return Checkpointing(location, self.checkpoint_seconds)


SETTINGS = tuple(f.name for f in dataclasses.fields(Settings))


@dataclass(frozen=True)
class Point:
    """One run of a study."""

    path: str
    """Its folder below the study's, as key=value parts; "." for a study of one run"""
    config: Config
    label: str | None = None
    published: float | None = None


@dataclass(frozen=True)
class Study:
    """Runs that belong together: what they are, and where their records go."""

    name: str
    directory: Path
    points: list[Point]
    settings: Settings
    title: str | None = None

    def save(self) -> None:
        """Write study.json, from which `resume` goes on; an earlier, different study there is refused."""
        body = {
            "version": 1,
            "name": self.name,
            "title": self.title,
            "settings": {k: str(v) if isinstance(v, Path) else v for k, v in dataclasses.asdict(self.settings).items()},
            "points": [dataclasses.asdict(point) for point in self.points],
        }
        path = self.directory / "study.json"
        if path.exists():
            earlier = load_study(self.directory)
            if [p.config for p in earlier.points] != [p.config for p in self.points]:
                raise ValueError(f"out={str(self.directory)!r}: holds another study; choose another directory")
        self.directory.mkdir(parents=True, exist_ok=True)
        write_json(path, body)


def load_study(directory: Path) -> Study:
    """The study that was begun in a directory."""
    path = directory / "study.json"
    try:
        body = json.loads(path.read_text())
        settings = body["settings"]
        settings["out"] = directory
        points = [Point(**{**point, "config": Config(**point["config"])}) for point in body["points"]]
        return Study(body["name"], directory, points, Settings(**settings), body["title"])
    except FileNotFoundError:
        raise ValueError(f"{directory}: has no study.json; expected the directory of a run, sweep or figure") from None
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: is damaged ({error})") from None


# Files


def read_toml(path: Path) -> dict[str, Any]:
    """A settings file; a ValueError names what is wrong with it."""
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: is no TOML ({error})") from None


def check_keys(keys: Iterable[str], where: str, extra: Sequence[str] = ()) -> None:
    """Raise on the first key of a file that means nothing."""
    known = [*FIELDS, *SETTINGS, *extra]
    for key in keys:
        if key not in known:
            raise ValueError(f"{where}: {unknown('key', key, known)}")


# Command lines


@dataclass(frozen=True)
class Arguments:
    """What `run` and `sweep` take: a settings file, and every field of Config and Settings as a flag."""

    file: tyro.conf.Positional[Path | None] = None
    """A TOML file with any of the fields below; flags override it."""
    preset: Literal["tuned", "paper", "theory"] = "tuned"
    """Where the defaults come from: ours, the paper's Sec. 5, or Algorithms 1 and 2 to the letter."""
    config: Annotated[Config, tyro.conf.arg(name="")] = field(default_factory=Config)
    settings: Annotated[Settings, tyro.conf.arg(name="")] = field(default_factory=Settings)


T = TypeVar("T")


def parse(kind: type[T], program: str, argv: Sequence[str], default: T | None = None) -> T:
    """One command line, typed; what is wrong with it is a ValueError of one line."""
    settings: dict[str, Any] = {"prog": program, "args": list(argv), "config": (tyro.conf.OmitArgPrefixes,)}
    if default is not None:
        settings["default"] = default
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(kind, **settings)
    except SystemExit as end:
        if not end.code:
            raise
        # A framed text: its title, then the message.
        lines = [line.strip("│╭╮╰╯─|+- ") for line in said.getvalue().splitlines()]
        words = [line for line in lines if any(c.isalpha() for c in line)]
        raise ValueError((words[1:] or words or ["the command line cannot be read; see --help"])[0]) from None


def split_flags(argv: Sequence[str]) -> list[str]:
    """Flags as `--name value`, never `--name=value`; unknown names are refused with the nearest known one."""
    known = {name.replace("_", "-") for name in (*FIELDS, *SETTINGS, "preset")} | {"help"}
    result: list[str] = []
    for word in argv:
        if word.startswith("--"):
            flag, equals, value = word.partition("=")
            name = flag[2:].replace("_", "-")
            if name.removeprefix("no-") not in known and name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f" (did you mean --{near[0]}?)" if near else ""
                raise ValueError(f"--{name} is no option{hint}; --help lists them")
            result += [f"--{name}", value] if equals else [f"--{name}"]
        else:
            result.append(word)
    return result


def given(argv: Sequence[str], name: str) -> str | None:
    """The value that a flag has on a command line, None where it is not there."""
    flag = f"--{name.replace('_', '-')}"
    positions = [i for i, word in enumerate(argv[:-1]) if word == flag]
    return argv[positions[-1] + 1] if positions else None


def from_command_line(program: str, argv: Sequence[str], lists: bool) -> tuple[Arguments, list[Point]]:
    """The arguments, and the runs they stand for: defaults < file < flags; a list of values is an axis."""
    argv = split_flags(argv)
    if "--help" in argv or "-h" in argv:
        parse(Arguments, program, ["--help"])
    axes: dict[str, list[Any]] = {}
    words = list(argv)
    for index, word in enumerate(argv):
        name = word[2:].replace("-", "_")
        if word.startswith("--") and name in FIELDS and index + 1 < len(argv) and "," in argv[index + 1]:
            axes[name] = argv[index + 1].split(",")
    file = {}
    path = next(
        (w for i, w in enumerate(argv) if w.endswith(".toml") and (i == 0 or not argv[i - 1].startswith("--"))), None
    )
    if path is not None:
        file = read_toml(Path(path))
        check_keys(file, path, extra=("preset",))
    file_axes = {k: v for k, v in file.items() if isinstance(v, list) and k not in axes}
    if not lists and (axes or file_axes):
        name = next(iter([*axes, *file_axes]))
        raise ValueError(f"{name}: has several values; `fnbandit sweep` takes lists")
    names = [*file_axes, *axes]
    points, arguments = [], None
    for values in itertools.product(*file_axes.values(), *axes.values()):
        chosen = dict(zip(names, values, strict=True))
        from_file = file | {name: chosen[name] for name in file_axes}
        combination = list(words)
        for name in axes:
            flag = f"--{name.replace('_', '-')}"
            for i, word in enumerate(combination[:-1]):
                if word == flag:
                    combination[i + 1] = str(chosen[name])
        one = parse(Arguments, program, combination, _default(combination, from_file))
        arguments = arguments or one
        parts = [f"{name}={getattr(one.config, name)}" for name in names]
        points += with_seeds(Point("/".join(parts) or ".", one.config), one.settings.seeds)
    assert arguments is not None
    duplicates = [path for path, count in itertools.groupby(sorted(p.path for p in points)) if len(list(count)) > 1]
    if duplicates:
        raise ValueError(f"{duplicates[0]}: stands twice in the sweep")
    return arguments, points


def with_seeds(point: Point, seeds: int) -> list[Point]:
    """The run with several seeds, or alone."""
    if seeds == 1 and point.path == ".":
        return [point]
    base = "" if point.path == "." else f"{point.path}/"
    first = point.config.seed
    return [
        dataclasses.replace(point, path=f"{base}seed={seed}", config=point.config.replace(seed=seed))
        for seed in range(first, first + seeds)
    ]


def _default(argv: Sequence[str], file: dict[str, Any]) -> Arguments:
    """What the flags override: the preset's values, then the file's."""
    preset: Any = given(argv, "preset") or file.get("preset", "tuned")
    if preset not in PRESETS:
        raise ValueError(unknown("preset", preset, PRESETS))
    for name in (*CHOICES, "environment", "algorithm"):
        value = given(argv, name)
        if value is not None and name in CHOICES and value not in CHOICES[name]:
            raise ValueError(unknown(name, value, CHOICES[name]))
    fields = {key: value for key, value in file.items() if key in FIELDS}
    for name in ("environment", "algorithm"):
        if given(argv, name) is not None:
            fields[name] = given(argv, name)
    config = Config.preset(preset, **({"environment": "cosine"} | fields))
    settings = {key: value for key, value in file.items() if key in SETTINGS}
    if "agents_per_actor" in settings:
        settings["agents_per_actor"] = str(settings["agents_per_actor"])
    if "out" in settings:
        settings["out"] = Path(settings["out"])
    return Arguments(preset=preset, config=config, settings=Settings(**settings))


# The paper's figures


def experiment_names() -> list[str]:
    """The experiments shipped with the package."""
    folder = resources.files("workflows") / "experiments"
    return sorted(item.name.removesuffix(".toml") for item in folder.iterdir() if item.name.endswith(".toml"))


def experiment(name: str, quick: bool, settings: Settings) -> Study:
    """One of the shipped experiments as a study in runs/NAME."""
    if name not in experiment_names():
        raise ValueError(unknown("figure", name, experiment_names()))
    text = (resources.files("workflows") / "experiments" / f"{name}.toml").read_text()
    file = tomllib.loads(text)
    smaller = file.pop("quick", {}) if quick else {}
    file.pop("quick", None)
    curves = file.pop("curve")
    title = file.pop("title")
    file.pop("caption", None)
    points: list[Point] = []
    for curve in curves:
        settings_of = file | curve | smaller
        label, published = settings_of.pop("label"), settings_of.pop("published", None)
        seeds, preset = settings_of.pop("seeds", 1), settings_of.pop("preset", "tuned")
        config = Config.preset(preset, **settings_of)
        folder = "".join(c if c.isalnum() or c in ".-" else "_" for c in label).strip("_")
        points += with_seeds(Point(f"curve={folder}", config, label, None if quick else published), seeds)
    full = f"{name}-quick" if quick else name
    return Study(full, settings.out or Path("runs") / full, points, settings, title)
