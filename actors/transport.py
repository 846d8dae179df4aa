"""Messages between the driver, the server actor and the agent actors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from fnbandit.config import Config
from fnbandit.config.user_parts import OWN_OBJECTS
from fnbandit.core import Trace
from fnbandit.environments import Environment, make_environment


@dataclass(frozen=True)
class Order:
    """A run for actors to host."""

    config: Config
    environment: Environment | None
    """A user's environment that has no name; None where the config names it"""
    parts: tuple[range, ...]
    """Agents of every actor"""
    iteration: int
    """Iteration to continue from; 0 for a new run"""
    timeout: float
    """Seconds after which a silent actor counts as stuck"""
    seconds: float
    rounds: int
    """Seconds and rounds between two checkpoints; no checkpoints where both are 0"""
    own_parts: dict[str, Any] = field(default_factory=dict)
    """A user's classes and functions that actors cannot import, by name: those of a notebook or a script"""

    def make_environment(self) -> Environment:
        """Register the user's own parts in this process, and make the environment."""
        OWN_OBJECTS.update(self.own_parts)
        return self.environment or make_environment(self.config)


Arrays = dict[str, np.ndarray]
"""A state inside a message"""


def to_arrays(message: Any) -> Any:
    """Return a message with numpy arrays in place of its tensors: Ray transfers them without pickling."""
    if isinstance(message, torch.Tensor):
        return message.detach().cpu().contiguous().numpy()
    return _map(message, to_arrays)


def to_tensors(message: Any, device: torch.device | str = "cpu") -> Any:
    """Inverse of `to_arrays`. Copies arrays that are in a channel's memory.

    A trace stays in numpy.
    """
    if isinstance(message, np.ndarray):
        return torch.from_numpy(message if message.flags.writeable else message.copy()).to(device)
    return message if isinstance(message, Trace) else _map(message, lambda part: to_tensors(part, device))


def _map(message: Any, convert: Callable[[Any], Any]) -> Any:
    """Convert the parts of a message."""
    if isinstance(message, dict):
        return {name: convert(part) for name, part in message.items()}
    if isinstance(message, list | tuple):
        return type(message)(convert(part) for part in message)
    if dataclasses.is_dataclass(message) and not isinstance(message, type | Trace):
        parts = {field.name: convert(getattr(message, field.name)) for field in dataclasses.fields(message)}
        return dataclasses.replace(message, **parts)
    return message
