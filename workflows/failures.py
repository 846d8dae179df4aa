"""Runs that have ended with an error: what is said of them, and how to try them again."""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fnbandit.errors import SimulationError, own_fault
from workflows.output import errors
from workflows.secrets import masked
from workflows.study import Point, Study
from workflows.trust import requests

DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130


def explained(error: BaseException) -> tuple[int, str] | None:
    """The exit code of a command that ended with an error, and what to say; None for a mistake of our own."""
    if (fault := own_fault(error)) is not None:
        return FAILED, masked(fault)
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED, str(error) or "interrupted"
    if isinstance(error, OSError):
        return FAILED, masked(_of_the_file_system(error))
    text = (str(error).splitlines() or [""])[0]
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "can't allocate memory" in text):
        return BAD_INPUT, f"there is not enough memory ({text})"
    if isinstance(error, ValueError | SimulationError):
        return BAD_INPUT if isinstance(error, ValueError) else FAILED, masked(str(error))
    return None


def _of_the_file_system(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{where}no space left on the device; make room, then `{command()} resume DIR` goes on"
    return f"{where}{error.strerror}" if where and error.strerror else str(error)


@dataclass(frozen=True)
class Failure:
    """A run that has ended with an error."""

    point: Point
    error: BaseException


def tell(study: Study, failures: Sequence[Failure]) -> None:
    """Name the runs that have failed, those with the same reason together, and how to try them again."""
    reasons: dict[str, list[str]] = {}
    for failure in failures:
        _, text = explained(failure.error) or (FAILED, f"{type(failure.error).__name__}: {failure.error}")
        reasons.setdefault((text.splitlines() or [""])[0], []).append(failure.point.path)
    for reason, paths in reasons.items():
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        errors().print(f"fnbandit: {paths[0]}{more}: {reason}", markup=False)
    count = f"{len(failures)} of {len(study.points)} runs failed"
    errors().print(f"fnbandit: {count}, see their log.txt; `{resume_command(study)}` tries them again", markup=False)


def resume_command(study: Study) -> str:
    """What to type to go on with a study."""
    # Whoever has begun it trusts what it imports and where it writes.
    trust = " --trust" if requests(study, {"out": study.uri} if study.uri else {}) else ""
    return f"{command()} resume {shlex.quote(study.uri or str(study.directory))}{trust}"


def command() -> str:
    """What to type for `fnbandit` here: a fresh checkout's environment may not be on the path."""
    if shutil.which("fnbandit"):
        return "fnbandit"
    return os.path.relpath(Path(sys.executable).with_name("fnbandit"))
