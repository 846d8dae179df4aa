"""What a study.json, which may be somebody else's, asks for beyond its own folder."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path
from typing import Any

from fnbandit.places import is_uri
from fnbandit.registry import KINDS, is_table
from workflows.secrets import HIDDEN, masked
from workflows.stores import is_own
from workflows.study import Study

PLACES = {
    "out": "copies its records to",
    "checkpoint": "writes checkpoints to",
    "tracking_uri": "sends its results to",
    "address": "joins the Ray cluster at",
}
"""Settings that reach beyond the folder, and what they do"""
VARIABLES = {"tracking_uri": "MLFLOW_TRACKING_URI", "address": "RAY_ADDRESS"}


def with_places(study: Study, given: dict[str, str]) -> Study:
    """The study with the places that a command line names; those whose password was not kept must be named."""
    places: dict[str, Any] = dict(given)
    for name in PLACES:
        kept = getattr(study.settings, name)
        if name in places or kept is None or kept != masked(kept) or HIDDEN not in kept:
            continue
        variable = VARIABLES.get(name, "")
        value = os.environ.get(variable)
        if value is None:
            raise ValueError(
                f"{name}={kept!r}: its password is not kept; give it again as --{name.replace('_', '-')}"
                + (f" or in {variable}" if variable else "")
            )
        places[name] = value
    return dataclasses.replace(study, settings=dataclasses.replace(study.settings, **places))


def requests(study: Study, given: dict[str, str]) -> list[str]:
    """What a study does beyond its own folder, except with places that a command line names."""
    found: dict[str, None] = {}
    for point in study.points:
        for kind in KINDS:
            name = getattr(point.config, kind)
            if name not in KINDS[kind] and not (kind == "environment" and is_table(name)):
                found[f"imports {kind}={name}"] = None
    for name, does in PLACES.items():
        value = getattr(study.settings, name)
        if value is not None and name not in given and value != os.environ.get(VARIABLES.get(name, "")):
            inside = name == "out" and not is_uri(value)
            inside |= name == "checkpoint" and not is_uri(value) and is_inside(Path(value), study.directory)
            if not inside and not (name == "tracking_uri" and is_own(value, study.directory)):
                found[f"{does} {masked(value)}"] = None
    for folder, folders, _ in os.walk(study.directory):
        for link in (Path(folder) / name for name in folders if (Path(folder) / name).is_symlink()):
            if not is_inside(link, study.directory):
                found[f"writes to {link.resolve()}, where {link} points"] = None
    return list(found)


def confirm_runs(study: Study, asked: Study) -> None:
    """Raise where a study with the runs that stood in its folder does what the runs that were asked for do not do."""
    named = dict.fromkeys(PLACES, "")
    known = requests(asked, named)
    others = [what for what in requests(study, named) if what not in known]
    if others and study.points != asked.points:
        raise ValueError(
            f"{study.directory / 'study.json'}: holds other runs, too: {'; '.join(others)}; "
            "`fnbandit resume` with --trust carries them out, another --out keeps them apart"
        )


def is_inside(path: Path, directory: Path) -> bool:
    """Whether a path stays in a directory, links followed."""
    return path.resolve().is_relative_to(directory.resolve())


def confirm(study: Study, given: dict[str, str], trust: bool) -> None:
    """Go on if a study stays in its folder, or the user trusts it: by a flag, or asked on a terminal."""
    asked = requests(study, given)
    if not asked or trust:
        return
    what = f"{study.directory / 'study.json'}: {'; '.join(asked)}"
    if sys.stdin.isatty() and sys.stderr.isatty():
        print(f"{what}\nGo on? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() in ("y", "yes"):
            return
    raise ValueError(f"{what}; --trust allows it")
