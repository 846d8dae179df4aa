"""The agents and the server of fnbandit, living in Ray actors; layout, recovery.

What this package offers is imported when it is asked for, so that `import actors` waits for neither torch nor Ray.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from actors.engine import RayRun, simulate
    from actors.options import Options

__all__ = ["Options", "RayRun", "simulate"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("actors.options" if name == "Options" else "actors.engine"), name)
