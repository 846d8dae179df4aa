"""A study: the runs of one command, and study.json, from which `resume` continues."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote, urlsplit

from fnbandit.config import Config
from fnbandit.storage.files import STUDY_FILE
from fnbandit.storage.locations import below, is_uri
from workflows.studies.settings import Settings
from workflows.terminal.secrets import mask_secrets

STUDY_VERSION = 3
"""Of study.json; in version 2, which is read too, `tracking` is true or false"""


MOST_RUNS = 100_000
"""Of one study"""


@dataclass(frozen=True)
class RunSpec:
    """One run of a study."""

    path: str
    """Its folder below the study's, as key=value parts; "." for a study of one run"""
    config: Config
    label: str | None = None
    published: float | None = None


@dataclass(frozen=True)
class StudyPlan:
    """Runs that belong together, with the folder of their records."""

    name: str
    directory: Path
    points: list[RunSpec]
    settings: Settings
    title: str | None = None
    caption: str | None = None

    @property
    def uri(self) -> str | None:
        """The URI that the records are copied to, if any."""
        out = self.settings.out
        return out if out is not None and is_uri(out) else None

    @property
    def published(self) -> dict[str, float]:
        """The final regret that the paper publishes, by curve."""
        return {run.label: run.published for run in self.points if run.label and run.published is not None}

    def place(self, path: str = ".") -> str:
        """Return the place of a run's records, or of all, by a name that holds elsewhere."""
        return below(self.uri, path) if self.uri else str((self.directory / path).absolute())

    def save(self) -> None:
        """Write study.json, from which `resume` continues."""
        from fnbandit.storage.records import write_json

        settings = dataclasses.asdict(self.settings)
        body = {
            "version": STUDY_VERSION,
            "name": self.name,
            "title": self.title,
            "caption": self.caption,
            "settings": {name: _mask(value) for name, value in settings.items() if name != "out" or self.uri},
            "points": [dataclasses.asdict(point) for point in self.points],
        }
        path = self.directory / STUDY_FILE
        self.directory.mkdir(parents=True, exist_ok=True)
        write_json(path, body)


def load_study(directory: Path) -> StudyPlan:
    """Read the study that was begun in a directory."""
    path = directory / STUDY_FILE
    try:
        body = json.loads(path.read_text())
    except FileNotFoundError:
        raise ValueError(
            f"{directory}: has no {STUDY_FILE}; expected the directory of a run, sweep or figure"
        ) from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: is damaged ({error})") from None
    try:
        if body["version"] not in (2, STUDY_VERSION):
            raise ValueError(f"version {body['version']}, expected {STUDY_VERSION}")
        settings = {"out": str(directory)} | body["settings"]
        if body["version"] == 2:
            settings["tracking"] = "mlflow" if settings.get("tracking", True) else "none"
        points = [_point(**point) for point in body["points"]]
        if not points or len({point.path for point in points}) < len(points):
            raise ValueError("expected runs, each in a folder of its own")
        name, title, caption = _text(body["name"]), _text(body["title"]), _text(body.get("caption"))
        return StudyPlan(name, directory, points, Settings(**settings), title, caption)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: cannot be read ({error})") from None


def _point(path: Any, config: Any, label: Any = None, published: Any = None) -> RunSpec:
    """Read a run from study.json; a path that leads out of the study's folder is a ValueError."""
    if isinstance(path, str) and path and not {"\0", "\\"} & set(path):
        parts = PurePosixPath(path)
        if not parts.is_absolute() and ".." not in parts.parts and parts.as_posix() == path:
            number = None if published is None else float(published)
            return RunSpec(path, Config.from_record(config), _text(label), number)
    raise ValueError(f"path={path!r}: expected a folder below the study's")


def _text(value: Any) -> Any:
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{value!r}: expected a text")
    return value


def _mask(value: Any) -> Any:
    """Return a setting without passwords, for study.json."""
    return mask_secrets(value) if isinstance(value, str) else value


def local_folder(uri: str) -> Path:
    """Return the local folder of a study whose records go to a URI: runs/NAME, with the last word of the URI."""
    if mask_secrets(uri) != uri:
        raise ValueError(
            f"out={mask_secrets(uri)!r}: has a password in it; give it in the object store's own variables, "
            "as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    parts = urlsplit(uri)
    return Path("runs") / (PurePosixPath(parts.path).name or parts.netloc or parts.scheme)


def folder_for(out: str | None, otherwise: Path) -> Path:
    """Return the folder of a study: `out` itself, or the local folder of a URI."""
    return otherwise if out is None else local_folder(out) if is_uri(out) else Path(out)


def folder_of(values: Mapping[str, Any]) -> str:
    """Return the folder of a run: "agents=2/threshold=4.0", with special characters quoted as in a URL."""
    return "/".join(f"{name}={quote(str(value), safe=':')}" for name, value in values.items())


def check_size(runs: int) -> None:
    """Raise a one-line ValueError on more runs than a study can have."""
    if runs > MOST_RUNS:
        raise ValueError(f"{runs:,} runs: a study has at most {MOST_RUNS:,}")


def with_seeds(points: Iterable[RunSpec], seeds: int) -> list[RunSpec]:
    """Repeat every run with `seeds` seeds, from its own on, in a folder per seed; a duplicate is a ValueError."""
    points = list(points)
    check_size(len(points) * seeds)
    result: dict[str, RunSpec] = {}
    for point in points:
        for seed in range(point.config.seed, point.config.seed + seeds):
            path = (Path(point.path) / f"seed={seed}").as_posix()
            if path in result:
                raise ValueError(f"{path}: duplicate run in the study")
            result[path] = dataclasses.replace(point, path=path, config=point.config.replace(seed=seed))
    return list(result.values())
