"""List the effects of a study.json beyond its own folder, and ask the user: it may come from another person."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path
from typing import Any

from fnbandit.config.registry import KINDS, is_table
from fnbandit.storage.files import STUDY_FILE
from fnbandit.storage.locations import is_uri
from workflows.studies.settings import TRACKERS
from workflows.studies.study import StudyPlan
from workflows.studies.tracking_uri import is_own
from workflows.terminal.secrets import HIDDEN, mask_secrets

PLACES = {
    "out": "copies its records to",
    "checkpoint": "writes checkpoints to",
    "tracking_uri": "sends its results to",
    "address": "joins the Ray cluster at",
}
"""Settings that reach beyond the folder, with their effect"""
VARIABLES = {"tracking_uri": "MLFLOW_TRACKING_URI", "address": "RAY_ADDRESS"}


def with_places(study: StudyPlan, given: dict[str, str]) -> StudyPlan:
    """Replace places of a study by those of a command line; a place whose password is not stored must be given."""
    places: dict[str, Any] = dict(given)
    for name in PLACES:
        kept = getattr(study.settings, name)
        if name in places or kept is None or kept != mask_secrets(kept) or HIDDEN not in kept:
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


def list_requests(study: StudyPlan, given: dict[str, str]) -> list[str]:
    """List the effects of a study beyond its own folder, except on places that the command line names."""
    found: dict[str, None] = {}
    for point in study.points:
        for kind in KINDS:
            name = getattr(point.config, kind)
            if name not in KINDS[kind] and not (kind == "environment" and is_table(name)):
                found[f"imports {kind}={name}"] = None
    if study.settings.tracking not in TRACKERS:
        found[f"imports tracking={study.settings.tracking}"] = None
    for name, does in PLACES.items():
        value = getattr(study.settings, name)
        if value is not None and name not in given and value != os.environ.get(VARIABLES.get(name, "")):
            inside = name == "out" and not is_uri(value)
            inside |= name == "checkpoint" and not is_uri(value) and is_inside(Path(value), study.directory)
            if not inside and not (name == "tracking_uri" and is_own(value, study.directory)):
                found[f"{does} {mask_secrets(value)}"] = None
    return list(found)


def confirm_runs(study: StudyPlan, asked: StudyPlan) -> None:
    """Raise if the runs already in a folder do anything beyond it that the requested runs do not do."""
    named = dict.fromkeys(PLACES, "")
    known = list_requests(asked, named)
    others = [what for what in list_requests(study, named) if what not in known]
    if others and study.points != asked.points:
        raise ValueError(
            f"{study.directory / STUDY_FILE}: holds other runs, too: {'; '.join(others)}; "
            "`fnbandit resume` with --trust runs them, another --out keeps them apart"
        )


def is_inside(path: Path, directory: Path) -> bool:
    """Return True if a path, with links followed, is in a directory."""
    return path.resolve().is_relative_to(directory.resolve())


def confirm(study: StudyPlan, given: dict[str, str], trust: bool) -> None:
    """Raise unless a study stays in its folder or the user trusts it, by a flag or by an answer on a terminal."""
    asked = list_requests(study, given)
    if not asked or trust:
        return
    what = f"{study.directory / STUDY_FILE}: {'; '.join(asked)}"
    if sys.stdin.isatty() and sys.stderr.isatty():
        print(f"{what}\nGo on? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() in ("y", "yes"):
            return
    raise ValueError(f"{what}; --trust allows it")
