"""The actor that hosts a group of agents."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import ray
import torch

from actors.exchanges import ahead_packed, hear, make_host
from actors.messages import Arrays, Order, packed, unpacked
from fnbandit.algorithms.base import Trace
from fnbandit.algorithms.federated import FederatedGroup
from fnbandit.environments import make_environment
from fnbandit.errors import PACKAGES, own_fault
from fnbandit.registry import find
from fnbandit.rounds.messages import Broadcast
from fnbandit.simulation import make_group, round_of
from fnbandit.state import as_arrays, as_tensors, loading


@dataclass(frozen=True)
class Failed:
    """An exception inside an actor, with its own traceback."""

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


def failed(error: BaseException) -> Failed:
    """The exception, with the traceback below the frame that caught it, or from a user's own part on."""
    below = error.__traceback__.tb_next if error.__traceback__ else None
    frames = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(below)]
    plain = isinstance(error, ValueError) and bool(frames) and frames[-1].split(".")[0] in PACKAGES
    text = own_fault(error)
    if text is None:
        told = "".join(traceback.format_exception(type(error), error, below))
        text = f"{type(error).__name__}: {error}\n\n{told}"
    return Failed(message=str(error), text=text, plain=plain)


def guarded(method: Callable[..., Any]) -> Callable[..., Any]:
    """Hand an exception back as a value: Ray would wrap its traceback in its own."""

    def call(self: Any, *args: Any) -> Any:
        try:
            return method(self, *args)
        except (Exception, SystemExit) as error:
            return failed(error)

    call.__name__ = method.__name__
    return call


@ray.remote
class AgentActor:
    """A group of agents: covariance, network and history live here, on the actor's device."""

    def __init__(self) -> None:
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
    def start(self, order: Order, agents: range, state: Arrays | None, server: Arrays | None) -> tuple[int, str]:
        """Make the group of a run, from a checkpoint's state where there is one; the process's id and its device."""
        torch.set_num_threads(1)
        self.group: Any = None  # The last run's goes before this one's comes.
        self.host: Any = None
        environment = order.environment or make_environment(order.config)
        if find("algorithm", order.config.algorithm).asynchronous:
            self.host = make_host(order, environment, agents, state)
            return os.getpid(), str(self.host.group.device)
        self._agents, self.group = agents, make_group(order.config, environment, agents)
        if state is not None:
            with loading():
                if isinstance(self.group, FederatedGroup) and server:
                    self.group.shared.load(as_tensors(server))
                self.group.load(order.iteration, as_tensors(state))
        return os.getpid(), str(self.group.device)

    @guarded
    def advance(self, start: int, limit: int, news: News) -> Advanced:
        """Take in the last round, run to `limit` or to the first trigger; upload where a round is certain."""
        self._hear(news)
        fired = self.group.advance(limit)
        end = self.group.iteration
        if not fired:
            return Advanced(end, fired, self.group.trace(start, end), None)
        if self._group.shared.trigger.next_round(self._group.shared.last_round) == end:
            return self._round(start, end)
        return Advanced(end, fired, None, None)

    @guarded
    def finish(self, start: int, iteration: int) -> Advanced:
        """Go back to the iteration of a round, train, and upload."""
        return self._round(start, iteration)

    @guarded
    def state(self, news: News) -> dict[str, np.ndarray]:
        """The group's state between two epochs."""
        self._hear(news)
        return as_arrays(self.group.state())

    @guarded
    def ahead(self, news: dict[str, Any]) -> dict[str, Any]:
        """Asynchronous runs: take in answers, and run ahead to the next uploads."""
        hear(self.host, news)
        return ahead_packed(self.host.advance())

    @guarded
    def host_state(self, news: dict[str, Any]) -> Arrays:
        """Asynchronous runs: take in answers; the agents' states then."""
        hear(self.host, news)
        return as_arrays(self.host.state())

    @property
    def _group(self) -> FederatedGroup:
        assert isinstance(self.group, FederatedGroup)
        return self.group

    def _round(self, start: int, iteration: int) -> Advanced:
        upload = packed(round_of(self.group, iteration))
        return Advanced(iteration, True, self.group.trace(start, iteration), upload)

    def _hear(self, news: News) -> None:
        if news is None:
            return
        if "state" in news:
            self._group.shared.load(as_tensors(news["state"]))
        else:
            self._group.shared.apply(unpacked(Broadcast, news["rows"], self.group.device), own=self._agents)
        self._group.start_epoch()
