"""Users' own parts: imported by name, or given as objects."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from fnbandit.errors import USER_MODULES, call_user_code

OWN_OBJECTS: dict[str, Any] = {}
"""Parts that were given as objects and cannot be imported by name, by "module:Name"; never read from a file"""


def name_object(kind: str, value: Any) -> str:
    """Return the name of a class or function that is given as an object, and remember the object if it needs that."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    if not callable(value) or not module or not name or "<lambda>" in name:
        raise ValueError(f"{kind}={value!r}: expected a name, a class, or a function that has a name")
    if module == "__main__" or getattr(sys.modules.get(module), name, None) is not value:
        OWN_OBJECTS[f"{module}:{name}"] = value
    return f"{module}:{name}"


def import_user_part(kind: str, name: str) -> Any:
    """Import a user's part, "package.module:Name"; raise a one-line ValueError where it does not exist."""
    if name in OWN_OBJECTS:
        USER_MODULES[name.partition(":")[0]] = f"{kind}={name!r}"
        return _check_user_part(kind, name, OWN_OBJECTS[name])
    here = str(Path.cwd())
    # Added here only: a file in that folder could shadow a module that some library imports.
    if here not in sys.path:
        sys.path.append(here)
    module_name, _, attribute = name.partition(":")
    fault = None
    try:
        if all(part.isidentifier() for part in module_name.split(".")):
            module = call_user_code(f"{kind}={name!r}", importlib.import_module, module_name)
        else:
            fault = f"{module_name!r} is not a module name"
    except ImportError as error:
        fault = str(error)
    if fault is None and not hasattr(module, attribute):
        fault = f"module {module_name!r} has no {attribute!r}"
    if fault is not None:
        raise ValueError(f"{kind}={name!r}: cannot import it ({fault}); expected package.module:Name")
    USER_MODULES[module_name] = f"{kind}={name!r}"
    return _check_user_part(kind, name, getattr(module, attribute))


def _check_user_part(kind: str, name: str, found: Any) -> Any:
    if not callable(found):
        raise ValueError(f"{kind}={name!r}: not a class or a function; expected package.module:Name")
    if kind == "algorithm" and not hasattr(found, "memory"):
        raise ValueError(f"{kind}={name!r}: not an algorithm; expected a class that extends fnbandit.Group")
    return found
