"""What travels between the driver, the server's actor and the agents' actors."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fnbandit.config import Config
from fnbandit.environments import Environment


@dataclass(frozen=True)
class Order:
    """A run for actors to host."""

    config: Config
    environment: Environment | None
    """The user's own, where it has no name"""
    parts: tuple[range, ...]
    """The agents of every actor"""
    iteration: int
    """From where on"""
    timeout: float
    """Seconds after which an actor that does not answer is called stuck"""
    seconds: float
    rounds: int
    """Seconds and rounds between two checkpoints; none where both are 0"""


Arrays = dict[str, np.ndarray]
"""A state as it travels"""


def packed(message: Any) -> dict[str, Any]:
    """A message with its tensors as numpy arrays, which Ray moves without pickling."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: plain(part) for name, part in value.items()}
        if isinstance(value, list):
            return [plain(part) for part in value]
        return value.cpu().contiguous().numpy() if isinstance(value, torch.Tensor) else value

    return {field.name: plain(getattr(message, field.name)) for field in dataclasses.fields(message)}


def unpacked(kind: type, message: dict[str, Any], device: torch.device | str = "cpu") -> Any:
    """The way back; what is still read-only lies in a channel's memory, and is copied."""

    def tensors(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: tensors(part) for name, part in value.items()}
        if isinstance(value, list):
            return [tensors(part) for part in value]
        if not isinstance(value, np.ndarray):
            return value
        return torch.from_numpy(value if value.flags.writeable else value.copy()).to(device)

    return kind(**tensors(message))
