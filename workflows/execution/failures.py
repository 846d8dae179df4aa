"""Explains errors and failed runs, with the command that tries them again."""

from __future__ import annotations

import errno
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from fnbandit.errors import SimulationError, describe_user_error
from workflows.studies.study import RunSpec, StudyPlan
from workflows.studies.trust import list_requests
from workflows.terminal.output import command_name, errors
from workflows.terminal.secrets import mask_secrets

DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130


def explain_error(error: BaseException) -> tuple[int, str] | None:
    """Return the exit code and the message for an error that ends a command; None for a bug of our own."""
    if (fault := describe_user_error(error)) is not None:
        return FAILED, mask_secrets(fault)
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED, str(error) or "interrupted"
    if isinstance(error, OSError):
        return FAILED, mask_secrets(_describe_os_error(error))
    text = (str(error).splitlines() or [""])[0]
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "can't allocate memory" in text):
        return BAD_INPUT, f"there is not enough memory ({text})"
    if isinstance(error, ValueError | SimulationError):
        return BAD_INPUT if isinstance(error, ValueError) else FAILED, mask_secrets(str(error))
    return None


def _describe_os_error(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{where}no space left on the device; make room, then `{command_name()} resume DIR` goes on"
    return f"{where}{error.strerror}" if where and error.strerror else str(error)


@dataclass(frozen=True)
class Failure:
    """A run that ended with an error."""

    spec: RunSpec
    error: BaseException


def print_failures(study: StudyPlan, failures: Sequence[Failure]) -> None:
    """Print the runs that failed, grouped by reason, and the command that tries them again."""
    reasons: dict[str, list[str]] = {}
    for failure in failures:
        _, text = explain_error(failure.error) or (FAILED, f"{type(failure.error).__name__}: {failure.error}")
        reasons.setdefault((text.splitlines() or [""])[0], []).append(failure.spec.path)
    for reason, paths in reasons.items():
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        errors().print(f"fnbandit: {paths[0]}{more}: {reason}", markup=False)
    count = f"{len(failures)} of {len(study.points)} runs failed"
    errors().print(f"fnbandit: {count}, see their log.txt; `{resume_command(study)}` tries them again", markup=False)


def resume_command(study: StudyPlan) -> str:
    """Return the command that continues a study."""
    # The person who started the study trusts its imports and places.
    trust = " --trust" if list_requests(study, {"out": study.uri} if study.uri else {}) else ""
    return f"{command_name()} resume {shlex.quote(study.uri or str(study.directory))}{trust}"
