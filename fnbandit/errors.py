"""What can go wrong although the input is good, and whose fault it is; bad input is a ValueError."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

PACKAGES = ("fnbandit", "actors", "workflows")
OWN: dict[str, str] = {}
"""Modules of users' own parts that this process has imported, and what the config says: "environment='mine:reward'" """


class SimulationError(RuntimeError):
    """A run that cannot go on; the text says why, with the remote traceback where there is one."""


class Interrupted(Exception):  # noqa: N818
    """The user has asked to stop; what is there can be resumed."""


def call_own(part: str, function: Callable[..., Any], *args: Any) -> Any:
    """Call what may be a user's own code. An exception keeps its kind; `own_fault` finds this frame and the part."""
    return function(*args)


def own_fault(error: BaseException) -> str | None:
    """If a user's own part raised this: a line that names it, then the traceback from its first frame on; else None."""
    part, own = None, error.__traceback__
    while own is not None:
        if own.tb_frame.f_code is call_own.__code__:
            part, own = own.tb_frame.f_locals["part"], own.tb_next
            break
        if part := OWN.get(own.tb_frame.f_globals.get("__name__", "")):
            break
        own = own.tb_next
    if part is None and isinstance(error, AttributeError):
        # It is asked for what parts of its kind have.
        part = OWN.get(type(error.obj).__module__)
    frames = [frame for frame, _ in traceback.walk_tb(own)]
    ours = bool(frames) and frames[-1].f_globals.get("__name__", "").split(".")[0] in PACKAGES
    if part is None or (ours and isinstance(error, ValueError)):
        return None
    told = traceback.TracebackException(type(error), error, own)
    told.stack = traceback.StackSummary.from_list([f for f in told.stack if "importlib" not in f.filename])
    return f"{part} raised {type(error).__name__}\n{''.join(told.format(chain=False)).rstrip()}"
