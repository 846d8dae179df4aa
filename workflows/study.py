"""A study: the runs that one command stands for, and the file from which `resume` goes on."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote, urlsplit

from fnbandit.config import Config
from fnbandit.places import below, is_uri
from workflows.secrets import masked
from workflows.settings import Settings

VERSION = 2
"""Of study.json; version 1 had the number of seeds among the settings"""


MOST_RUNS = 100_000
"""Of one study"""


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
    caption: str | None = None

    @cached_property
    def names(self) -> dict[str, str]:
        """What every run is called, by its path."""
        from workflows.naming import run_names

        return run_names(self.points)

    @property
    def uri(self) -> str | None:
        """Where the records are copied to, if that is asked for."""
        out = self.settings.out
        return out if out is not None and is_uri(out) else None

    def place(self, path: str = ".") -> str:
        """Where the records of a run, or of all runs, can be found by others."""
        return below(self.uri, path) if self.uri else str((self.directory / path).absolute())

    def save(self) -> None:
        """Write study.json, from which `resume` goes on."""
        from fnbandit.records import write_json

        settings = dataclasses.asdict(self.settings)
        body = {
            "version": VERSION,
            "name": self.name,
            "title": self.title,
            "caption": self.caption,
            "settings": {name: _kept(value) for name, value in settings.items() if name != "out" or self.uri},
            "points": [dataclasses.asdict(point) for point in self.points],
        }
        path = self.directory / "study.json"
        self.directory.mkdir(parents=True, exist_ok=True)
        write_json(path, body)


def load_study(directory: Path) -> Study:
    """Read the study that was begun in a directory."""
    path = directory / "study.json"
    try:
        body = json.loads(path.read_text())
    except FileNotFoundError:
        raise ValueError(f"{directory}: has no study.json; expected the directory of a run, sweep or figure") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: is damaged ({error})") from None
    try:
        if body["version"] != VERSION:
            raise ValueError(f"version {body['version']}, expected {VERSION}")
        settings = Settings(**{"out": str(directory)} | body["settings"])
        points = [_point(**point) for point in body["points"]]
        if not points or len({point.path for point in points}) < len(points):
            raise ValueError("expected runs, each in a folder of its own")
        return Study(_text(body["name"]), directory, points, settings, _text(body["title"]), _text(body.get("caption")))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: cannot be read ({error})") from None


def _point(path: Any, config: Any, label: Any = None, published: Any = None) -> Point:
    """A run as study.json has it. Whoever wrote that: the run stays in the study's folder."""
    if isinstance(path, str) and path and not {"\0", "\\"} & set(path):
        parts = PurePosixPath(path)
        if not parts.is_absolute() and ".." not in parts.parts and parts.as_posix() == path:
            number = None if published is None else float(published)
            return Point(path, Config(**config), _text(label), number)
    raise ValueError(f"path={path!r}: expected a folder below the study's")


def _text(value: Any) -> Any:
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{value!r}: expected a text")
    return value


def _kept(value: Any) -> Any:
    """A setting as study.json keeps it: without passwords."""
    return masked(value) if isinstance(value, str) else value


def local_folder(uri: str) -> Path:
    """The folder in which a study is written whose records go to a URI: runs/NAME, with the last word of the URI."""
    if masked(uri) != uri:
        raise ValueError(
            f"out={masked(uri)!r}: has a password in it; give it in the object store's own variables, "
            "as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    parts = urlsplit(uri)
    return Path("runs") / (PurePosixPath(parts.path).name or parts.netloc or parts.scheme)


def folder_for(out: str | None, otherwise: Path) -> Path:
    """Where a study is written: in the folder asked for, or one that stands for the URI asked for."""
    return otherwise if out is None else local_folder(out) if is_uri(out) else Path(out)


def folder_of(values: Mapping[str, Any]) -> str:
    """The folder of a run: "agents=2/threshold=4.0". What a path cannot hold is quoted as in a URL."""
    return "/".join(f"{name}={quote(str(value), safe=':')}" for name, value in values.items())


def check_size(runs: int) -> None:
    """Raise one line on more runs than a study can have."""
    if runs > MOST_RUNS:
        raise ValueError(f"a study of {runs:,} runs is asked for; at most {MOST_RUNS:,} fit into one")


def with_seeds(points: Iterable[Point], seeds: int) -> list[Point]:
    """Every run with `seeds` seeds, from its own on, in a folder per seed; a run twice is a ValueError."""
    points = list(points)
    check_size(len(points) * seeds)
    result: dict[str, Point] = {}
    for point in points:
        for seed in range(point.config.seed, point.config.seed + seeds):
            path = (Path(point.path) / f"seed={seed}").as_posix()
            if path in result:
                raise ValueError(f"{path}: stands twice in the study")
            result[path] = dataclasses.replace(point, path=path, config=point.config.replace(seed=seed))
    return list(result.values())
