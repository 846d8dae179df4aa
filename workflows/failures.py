"""Runs that have ended with an error: what is said of them, and how to try them again."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fnbandit.errors import SimulationError
from workflows.output import errors
from workflows.study import Point, Study


@dataclass(frozen=True)
class Failure:
    """A run that has ended with an error."""

    point: Point
    error: BaseException


def tell(study: Study, failures: Sequence[Failure]) -> None:
    """Name the runs that have failed, those with the same reason together, and how to try them again."""
    reasons: dict[str, list[str]] = {}
    for failure in failures:
        first = (str(failure.error).splitlines() or [""])[0]
        kind = "" if isinstance(failure.error, ValueError | SimulationError) else f"{type(failure.error).__name__}: "
        reasons.setdefault(f"{kind}{first}", []).append(failure.point.path)
    for reason, paths in reasons.items():
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        errors().print(f"fnbandit: {paths[0]}{more}: {reason}", markup=False)
    count = f"{len(failures)} of {len(study.points)} runs failed"
    errors().print(f"fnbandit: {count}, see their log.txt; `{resume_command(study)}` tries them again", markup=False)


def resume_command(study: Study) -> str:
    """What to type to go on with a study."""
    return f"{command()} resume {shlex.quote(str(study.directory))}"


def command() -> str:
    """What to type for `fnbandit` here: a fresh checkout's environment may not be on the path."""
    if shutil.which("fnbandit"):
        return "fnbandit"
    return os.path.relpath(Path(sys.executable).with_name("fnbandit"))
