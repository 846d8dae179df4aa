"""The actor that hosts a group of agents."""

from __future__ import annotations

import dataclasses
import os
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import ray
import torch

from actors.checkpoints import as_arrays, as_tensors
from fnbandit.agents import AgentGroup
from fnbandit.config import Config
from fnbandit.environments import make_environment
from fnbandit.groups import Trace
from fnbandit.messages import Broadcast, Upload
from fnbandit.simulation import make_group


@dataclass(frozen=True)
class Failed:
    """An exception inside an actor, with its own traceback."""

    kind: str
    message: str
    text: str
    plain: bool
    """Whether the message says all: a ValueError that this project raised, not a user's own function"""


@dataclass(frozen=True)
class Advanced:
    """Where a group stands after running ahead, and what happened on the way."""

    iteration: int
    fired: bool
    trace: Trace | None
    upload: dict[str, Any] | None


News = dict[str, Any] | None
"""What the server tells with a call: a broadcast's rows ("rows") or the statistics themselves ("state")."""


def failed(error: Exception) -> Failed:
    """The exception, with the traceback below the frame that caught it."""
    own = error.__traceback__.tb_next if error.__traceback__ else None
    frames = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(own)]
    return Failed(
        kind=type(error).__name__,
        message=str(error),
        text="".join(traceback.format_exception(type(error), error, own)),
        plain=isinstance(error, ValueError) and bool(frames) and frames[-1].split(".")[0] in ("fnbandit", "actors"),
    )


def guarded(method: Callable[..., Any]) -> Callable[..., Any]:
    """Hand an exception back as a value: Ray would wrap its traceback in its own."""

    def call(self: Any, *args: Any) -> Any:
        try:
            return method(self, *args)
        except Exception as error:
            return failed(error)

    call.__name__ = method.__name__
    return call


@ray.remote
class AgentActor:
    """A group of agents: covariance, network and history live here, on the actor's device."""

    def __init__(self, config: Config, agents: range) -> None:
        self._config = config
        self._agents = agents
        self._busy = False

    def busy(self) -> bool:
        """Whether a call of the server's is under way; answered by the main thread."""
        return self._busy

    def call(self, message: tuple[str, tuple[Any, ...]]) -> Any:
        """One of the methods below by name: what the server's compiled graph calls, in a thread of its own."""
        torch.set_num_threads(1)
        method, args = message
        self._busy = True
        answer = getattr(self, method)(*args)
        self._busy = False
        return answer

    @guarded
    def start(self, iteration: int, agents: dict[str, np.ndarray] | None, server: dict[str, np.ndarray] | None) -> int:
        """Make the group, from a checkpoint's state where there is one; the process's id."""
        torch.set_num_threads(1)
        self.group = make_group(self._config, make_environment(self._config), self._agents)
        if agents is not None:
            if isinstance(self.group, AgentGroup) and server:
                self.group.statistics.load(as_tensors(server))
            self.group.load(iteration, as_tensors(agents))
        return os.getpid()

    @guarded
    def advance(self, start: int, limit: int, news: News) -> Advanced:
        """Take in the last round, run to `limit` or to the first trigger; upload where a round is certain."""
        self._hear(news)
        fired = self.group.advance(limit)
        end = self.group.iteration
        upload = None
        if fired and self._config.trigger in ("always", "period"):
            upload = self._upload()
        known = not fired or upload is not None
        return Advanced(end, fired, self.group.trace(start, end) if known else None, upload)

    @guarded
    def finish(self, start: int, iteration: int) -> Advanced:
        """Go back to the iteration of a round, train, and upload."""
        assert isinstance(self.group, AgentGroup)
        self.group.rewind(iteration)
        upload = self._upload()
        return Advanced(iteration, True, self.group.trace(start, iteration), upload)

    @guarded
    def state(self, news: News) -> dict[str, np.ndarray]:
        """The group's state between two epochs."""
        self._hear(news)
        return as_arrays(self.group.state())

    def _hear(self, news: News) -> None:
        if news is None:
            return
        assert isinstance(self.group, AgentGroup)
        if "state" in news:
            self.group.statistics.load(as_tensors(news["state"]))
        else:
            self.group.statistics.apply(unpacked(Broadcast, news["rows"], self.group.device), own=self._agents)
        self.group.start_epoch()

    def _upload(self) -> dict[str, Any]:
        assert isinstance(self.group, AgentGroup)
        return packed(self.group.upload())


def packed(message: Upload | Broadcast) -> dict[str, Any]:
    """A message with its tensors as numpy arrays, which Ray moves without pickling."""
    fields = {field.name: getattr(message, field.name) for field in dataclasses.fields(message)}
    return {name: v.cpu().contiguous().numpy() if isinstance(v, torch.Tensor) else v for name, v in fields.items()}


def unpacked(kind: type, message: dict[str, Any], device: torch.device | str = "cpu") -> Any:
    """The way back; what is still read-only lies in a channel's memory, and is copied."""

    def tensor(array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array if array.flags.writeable else array.copy()).to(device)

    return kind(**{name: tensor(v) if isinstance(v, np.ndarray) else v for name, v in message.items()})
