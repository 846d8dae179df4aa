"""Errors of runs with valid input, and the search for a user's own part that raised one; bad input is a ValueError."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

PACKAGES = ("fnbandit", "actors", "workflows")
USER_MODULES: dict[str, str] = {}
"""Imported modules of users' own parts -> the config field that names each: "environment='mine:reward'" """


class SimulationError(RuntimeError):
    """A run cannot continue; the message gives the reason, and the remote traceback where there is one."""


class ClusterGone(SimulationError):  # noqa: N818
    """The cluster that this process started has ended; its studies can be resumed."""


class Interrupted(Exception):  # noqa: N818
    """The user stopped the run; it can be resumed."""


def call_user_code(part: str, function: Callable[..., Any], *args: Any) -> Any:
    """Call code that may be a user's own, in a frame by which `describe_user_error` finds the part that raised."""
    return function(*args)


def describe_user_error(error: BaseException) -> str | None:
    """Return a line that names the user's own part that raised an error, and the traceback from its first frame on.

    Return None for any other error.
    """
    part, own = None, error.__traceback__
    while own is not None:
        if own.tb_frame.f_code is call_user_code.__code__:
            part, own = own.tb_frame.f_locals["part"], own.tb_next
            break
        if part := USER_MODULES.get(own.tb_frame.f_globals.get("__name__", "")):
            break
        own = own.tb_next
    if part is None and isinstance(error, AttributeError):
        # The part lacks an attribute that every part of its kind has.
        part = USER_MODULES.get(type(error.obj).__module__)
    frames = [frame for frame, _ in traceback.walk_tb(own)]
    ours = bool(frames) and frames[-1].f_globals.get("__name__", "").split(".")[0] in PACKAGES
    if part is None or (ours and isinstance(error, ValueError)):
        return None
    report = traceback.TracebackException(type(error), error, own)
    report.stack = traceback.StackSummary.from_list([f for f in report.stack if "importlib" not in f.filename])
    return f"{part} raised {type(error).__name__}\n{''.join(report.format(chain=False)).rstrip()}"
