"""The actor that hosts a batch of agents."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import ray
import torch

from actors.events import describe_exception
from actors.transport import Arrays, Order, to_arrays, to_tensors
from actors.waiting import sleep_while_waiting
from fnbandit.core import Advance, Upload
from fnbandit.numerics.state import as_tensors, loading
from fnbandit.simulation.clock import make_clock
from fnbandit.simulation.population import deliver, make_batch


def return_exceptions(method: Callable[..., Any]) -> Callable[..., Any]:
    """Make a method return its exception as a value, and tensors as arrays: Ray would wrap the traceback in its own."""

    def call(self: Any, *args: Any) -> Any:
        try:
            return to_arrays(method(self, *args))
        except (Exception, SystemExit) as error:
            return describe_exception(error)

    call.__name__ = method.__name__
    return call


@ray.remote
class AgentActor:
    """A batch of agents, with covariance, network and history on the actor's device."""

    def __init__(self) -> None:
        sleep_while_waiting()
        self._busy = False

    def busy(self) -> bool:
        """Return True while a call of the server runs; the main thread answers."""
        return self._busy

    def call(self, message: tuple[str, tuple[Any, ...]]) -> Any:
        """Call one of the methods below by name, in the thread of the server's compiled graph."""
        torch.set_num_threads(1)
        method, args = message
        self._busy = True
        answer = getattr(self, method)(*args)
        self._busy = False
        return answer

    @return_exceptions
    def start(self, order: Order, agents: range, state: Arrays | None, server: Arrays | None) -> tuple[int, str]:
        """Make the batch of a run, from a checkpoint's state where there is one; return process id and device."""
        torch.set_num_threads(1)
        self.batch: Any = None  # Free the memory of the last run before allocating this one's.
        environment = order.make_environment()
        self.batch = make_batch(order.config, environment, make_clock(order.config), agents)
        if state is not None:
            with loading():
                if self.batch.replica is not None and not self.batch.replica.is_versioned and server:
                    self.batch.replica.load(as_tensors(server))
                self.batch.load(order.iteration, as_tensors(state))
        return os.getpid(), str(self.batch.group.device)

    @return_exceptions
    def advance(self, message: Any, start: int, limit: int) -> Advance:
        """Receive the last round, and run to `limit` or to the first uploads; upload at once where all trigger."""
        self._receive(message)
        advance = self.batch.advance(start, limit)
        return self.batch.settle(start, int(advance.bound[0])) if advance.is_certain else advance

    @return_exceptions
    def settle(self, start: int, iteration: int) -> Advance:
        """Go back to the iteration of a round, train, and upload."""
        return self.batch.settle(start, iteration)

    @return_exceptions
    def exchange(self, message: Any) -> Upload:
        """Receive a download that does not end its round, and upload once more."""
        (download,) = self._receive(message)
        return self.batch.exchange(download)

    @return_exceptions
    def state(self, message: Any) -> Any:
        """Receive the last round, and return the state of the batch between two epochs."""
        self._receive(message)
        return self.batch.state()

    def _receive(self, message: Any) -> list[Any]:
        if message is None:
            return []
        replica = self.batch.replica
        downloads = replica.decode(to_tensors(message, self.batch.group.device), self.batch.agents)
        deliver(replica, [self.batch], downloads)
        return downloads
