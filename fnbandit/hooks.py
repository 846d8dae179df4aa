"""Functions of higher layers that lower layers call.

`fnbandit/__init__.py`, which may name every layer, registers their addresses; `load_hook` imports them.
"""

from __future__ import annotations

import importlib
from typing import Any

HOOKS: dict[str, str] = {}
"""Name -> "package.module:function\""""


def load_hook(name: str) -> Any:
    """Import and return the function that is registered under a name."""
    module, _, attribute = HOOKS[name].partition(":")
    return getattr(importlib.import_module(module), attribute)
