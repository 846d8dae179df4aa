"""Checks of users' own parts: a method that returns something else than its contract says is one line.

`check_methods` makes a subclass of a user's class, whose methods check what the user's methods return. Methods that
the user's class inherits from this package are not checked.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fnbandit.errors import PACKAGES

ContractCheck = Callable[..., str | None]
"""Of an object, the value that its method returned, and the method's arguments: what was expected, or None if it was"""


def describe_returned(value: Any) -> str:
    """Return the type of a value in a few words, with its shape and type of numbers if it has them."""
    if isinstance(value, Tensor | np.ndarray):
        kind = "a Tensor" if isinstance(value, Tensor) else "an array"
        return f"{kind} {list(value.shape)} of {str(value.dtype).removeprefix('torch.')}"
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        inside = ", ".join(f"{name}: {describe_returned(getattr(value, name))}" for name in value._fields[:1])
        return f"{type(value).__name__}({inside})"
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def check_methods(part: str, found: Any, kind: str) -> Any:
    """Return a class of which objects check what their methods return; `part` names the user's part in an error."""
    if not isinstance(found, type):
        return found
    return _subclass(part, found, kind)


@functools.cache
def _subclass(part: str, found: type, kind: str) -> type:
    made = type(found.__name__, (found,), {"__module__": found.__module__, "__qualname__": found.__qualname__})
    for method, check in CHECKS.get(kind, {}).items():
        home = next((base for base in found.__mro__ if method in vars(base)), None)
        if home is not None and home.__module__.split(".")[0] not in PACKAGES:
            setattr(made, method, _wrap_method(part, getattr(found, method), method, check))
    return made


def _wrap_method(part: str, function: Any, method: str, check: ContractCheck) -> Any:
    @functools.wraps(function)
    def call(self: Any, *args: Any, **more: Any) -> Any:
        returned = function(self, *args, **more)
        expected = check(self, returned, *args, *more.values())
        if expected is not None:
            shown = method.strip("_")
            raise ValueError(f"{part}: {shown} returned {describe_returned(returned)}; expected {expected}")
        return returned

    return call


# Checks


def _is_number(value: Any) -> bool:
    if isinstance(value, Tensor | np.ndarray):
        return value.size == 1 if isinstance(value, np.ndarray) else value.numel() == 1 and not value.is_complex()
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def _is_tensor(value: Any, shape: tuple[int, ...]) -> bool:
    return isinstance(value, Tensor) and tuple(value.shape) == shape and value.is_floating_point()


def check_scores(group: Any, scored: Any, iteration: Any, contexts: Any) -> str | None:
    """Expect Scored(values [n, arms]) of real numbers that are not NaN."""
    shape = tuple(contexts.shape[:2])
    values = getattr(scored, "values", None) if isinstance(scored, tuple) else None
    if not isinstance(values, Tensor) or tuple(values.shape) != shape or not _is_real(values):
        return f"Scored(values {list(shape)} of real numbers)"
    wrong = values.isnan()
    if wrong.any():
        agent, arm = (int(place) for place in wrong.nonzero()[0])
        return f"numbers, but in iteration {iteration} the score of arm {arm} of agent {group.agents[agent]} is NaN"
    return None


def _is_real(values: Tensor) -> bool:
    return not values.is_complex() and values.dtype != torch.bool


def check_state_names(owner: Any, names: Any) -> str | None:
    """Expect names of attributes whose first dimension is the agents."""
    if not isinstance(names, dict):
        return "a dict of attribute -> axis that grows with iterations, or None"
    for name in names:
        value = getattr(owner, name.partition(".")[0], None)
        if value is None:
            return f"names of attributes; {name!r} is none"
        rows = len(owner.agents)
        if isinstance(value, Tensor) and not owner.traits.runs_in_one_group and value.shape[:1] != (rows,):
            return f"attributes whose first dimension is the {rows} agents; {name!r} is {describe_returned(value)}"
    return None


def check_next_round(trigger: Any, found: Any, last_round: Any) -> str | None:
    """Expect None, or a later iteration."""
    is_later = isinstance(found, int) and not isinstance(found, bool) and found > last_round
    return None if found is None or is_later else f"None or a whole number above {last_round}"


def check_measure(trigger: Any, found: Any, epoch: Any, counters: Any) -> str | None:
    """Expect a number of every agent that is not NaN."""
    if not isinstance(found, Tensor) or found.ndim != 1 or not _is_real(found):
        return "a Tensor [n] of real numbers, one per agent"
    return "numbers, but one is NaN" if found.isnan().any() else None


def check_gap(trigger: Any, found: Any, *args: Any) -> str | None:
    """Expect a positive number."""
    return None if _is_number(found) and float(found) > 0 else "a number of iterations above 0"


def check_alpha(rule: Any, found: Any, *args: Any) -> str | None:
    """Expect a number from 0 to 1."""
    return None if _is_number(found) and 0 <= float(found) <= 1 else "a number from 0 to 1"


def check_uploaded_alpha(rule: Any, found: Any) -> str | None:
    """Expect None or a value of every agent, [n] or [n, numbers]."""
    shape = ["n"] if rule.numbers == 1 else ["n", rule.numbers]
    good = isinstance(found, Tensor) and found.ndim == len(shape) and (rule.numbers == 1 or found.shape[1] == shape[1])
    return None if found is None or good else f"None or a Tensor [{', '.join(map(str, shape))}]"


def check_aggregate(rule: Any, found: Any, values: Any, last: Any) -> str | None:
    """Expect one theta of the values' length and precision."""
    if not _is_tensor(found, tuple(values.shape[1:])) or found.dtype != values.dtype:
        return f"a Tensor {list(values.shape[1:])} of {str(values.dtype).removeprefix('torch.')}, as each agent's theta"
    return "numbers, but one is NaN" if found.isnan().any() else None


def check_upload(channel: Any, found: Any, upload: Any, *args: Any) -> str | None:
    """Expect an Upload with the same fields, of the same shapes."""
    if type(found) is not type(upload):
        return "an Upload (dataclasses.replace(upload, theta=...))"
    for name in ("moments", "theta", "alpha", "inverse", "measure"):
        before, after = getattr(upload, name), getattr(found, name)
        if isinstance(before, Tensor) and not (isinstance(after, Tensor) and after.shape == before.shape):
            return f"an Upload whose {name} is {describe_returned(before)}; it is {describe_returned(after)}"
        if isinstance(before, Tensor) and after.isnan().any() and not before.isnan().any():
            return f"an Upload of numbers; its {name} has a NaN"
    return None


def check_sizes(channel: Any, found: Any, sizes: Any, *args: Any) -> str | None:
    """Expect the sizes of a message."""
    return None if type(found) is type(sizes) else "Sizes (dataclasses.replace(sizes, real_bits=...))"


def check_share(rule: Any, found: Any, *args: Any) -> str | None:
    """Expect a positive, finite weight."""
    return None if _is_number(found) and 0 < float(found) < math.inf else "a number above 0"


def check_participants(rule: Any, found: Any, *args: Any) -> str | None:
    """Expect a truth value per agent, one of them True."""
    good = isinstance(found, np.ndarray) and found.dtype == bool and found.ndim == 1
    return None if good and found.any() else "a NumPy array [N] of bool with a True in it"


def check_seconds(clock: Any, found: Any, *args: Any) -> str | None:
    """Expect durations, at least 0."""
    parts = found if isinstance(found, tuple) else (found,)
    good = all(isinstance(one, np.ndarray) and one.ndim == 1 and (one >= 0).all() for one in parts)
    return None if good else "seconds as NumPy arrays [n], at least 0"


def check_mix(difference: Any, found: Any, *args: Any) -> str | None:
    """Expect variants of the task, each with its factor."""
    good = isinstance(found, list | tuple) and len(found) > 0 and all(map(_is_share_of_variant, found))
    return None if good else "a list of (factor, variant): a finite number and a whole number, at least 0"


def _is_share_of_variant(pair: Any) -> bool:
    if not isinstance(pair, tuple) or len(pair) != 2 or not _is_number(pair[0]):
        return False
    return bool(math.isfinite(pair[0]) and isinstance(pair[1], int | np.integer) and pair[1] >= 0)


def check_angles(drift: Any, found: Any, iterations: Any) -> str | None:
    """Expect a finite number of every iteration."""
    good = isinstance(found, np.ndarray) and found.shape == (len(iterations),) and found.dtype.kind in "iuf"
    return None if good and np.isfinite(found).all() else f"a NumPy array [{len(iterations)}] of finite numbers"


CHECKS: dict[str, dict[str, ContractCheck]] = {
    "algorithm": {"scores": check_scores, "list_state": check_state_names},
    "trigger": {"next_round": check_next_round, "measure": check_measure, "expect_gap": check_gap},
    "weight": {"at": check_alpha, "upload": check_uploaded_alpha, "combine": check_alpha},
    "aggregation": {"__call__": check_aggregate},
    "messages": {
        "send": check_upload, "send_statistics": check_upload,
        "resize_upload": check_sizes, "resize_download": check_sizes,
    },
    "staleness": {"__call__": check_share},
    "participation": {"draw": check_participants},
    "heterogeneity": {"mix": check_mix},
    "drift": {"angles": check_angles},
    "clock": {
        "iterations": check_seconds, "time_training": check_seconds,
        "time_upload": check_seconds, "time_download": check_seconds,
    },
}  # fmt: skip
"""Checked methods by kind of part"""
