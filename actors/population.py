"""All agents of a simulation in actors, one call per actor and exchange."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import ray
from ray.dag import InputNode, MultiOutputNode
from ray.exceptions import GetTimeoutError, RayActorError, RayChannelTimeoutError, RayError

from actors.events import ActorFailure, Died, Failed, Stuck
from actors.transport import Order, to_arrays, to_tensors
from actors.waiting import sleep_while_waiting
from actors.watchdog import ACTOR_START_TIMEOUT, PROCESS_SECONDS, RAYLET, NotStarted, limit_seconds
from fnbandit.core import Advance, Download, Upload
from fnbandit.numerics.state import State, join_states


class RayPopulation:
    """All agents, in actors. Downloads travel with the next call.

    Calls use a compiled graph, whose channels stay open: they take a fifth of the time of calls that Ray
    schedules one by one, and a message is written once for all actors of a node.
    """

    def __init__(self, handles: list[Any]) -> None:
        sleep_while_waiting()
        self._handles = handles
        self._graph: Any = None
        """Compiled in the first run, reused in later ones"""

    def start(self, order: Order, replica: Any, states: list[Any] | None, server: Any) -> list[tuple[int, str]]:
        """Make all batches of a run; return every actor's process id and device."""
        self._parts, self._timeout, self.replica = order.parts, order.timeout, replica
        self.calls = 0
        parts = zip(self._handles, order.parts, states or [None] * len(self._handles), strict=True)
        # Put once, because a user's environment may be large.
        shared = ray.put(order)
        self._wait_for_processes()
        refs = [handle.start.remote(shared, agents, state, server) for handle, agents, state in parts]
        answers = self._collect(refs, max(self._timeout, ACTOR_START_TIMEOUT))
        if self._graph is None:
            try:
                self._graph = limit_seconds(self._compile, PROCESS_SECONDS)
            except Exception as error:
                raise ActorFailure(self._find_dead(error)) from None
        return answers

    def _wait_for_processes(self) -> None:
        try:
            ray.get([handle.busy.remote() for handle in self._handles], timeout=PROCESS_SECONDS)
        except GetTimeoutError:
            missing = [index for index, answer in enumerate(self._ask_busy()) if isinstance(answer, RayError)]
            who = self._name(missing[0]) if missing else "an actor"
            raise ActorFailure(Died(who, str(NotStarted()))) from None
        except Exception as error:
            raise ActorFailure(self._find_dead(error)) from None

    def _compile(self) -> Any:
        with InputNode() as message:
            calls = [handle.call.bind(message) for handle in self._handles]
        # One call at a time: by default every channel allocates memory for ten.
        return MultiOutputNode(calls).experimental_compile(_max_inflight_executions=1)

    def advance(self, downloads: Sequence[Download], start: int, limit: int) -> list[Advance]:
        return self._call("advance", self._encode(downloads), start, limit)

    def settle(self, start: int, iteration: int) -> list[Advance]:
        return self._call("settle", start, iteration)

    def exchange(self, download: Download) -> list[Upload]:
        return self._call("exchange", self._encode([download]))

    def state(self, downloads: Sequence[Download]) -> State:
        return join_states(self._call("state", self._encode(downloads)))

    def _encode(self, downloads: Sequence[Download]) -> Any:
        """Apply downloads to the server's replica; return the message for the actors' replicas."""
        if self.replica is None:
            return None
        self.replica.apply(downloads, own=range(0))
        return to_arrays(self.replica.encode(downloads))

    def _call(self, method: str, *args: Any) -> list[Any]:
        """Call all actors and wait for all answers."""
        self.calls += len(self._handles)
        try:
            refs = self._graph.execute((method, args))
        except Exception as error:
            raise ActorFailure(self._find_dead(error)) from None
        return [to_tensors(answer) for answer in self._collect(refs, self._timeout)]

    def _collect(self, refs: list[Any], timeout: float) -> list[Any]:
        try:
            try:
                answers = ray.get(refs, timeout=timeout)
            except (GetTimeoutError, RayChannelTimeoutError):
                if who := self._find_stuck():
                    raise ActorFailure(Stuck(who, timeout)) from None
                answers = ray.get(refs, timeout=timeout)
        except (GetTimeoutError, RayChannelTimeoutError):
            raise ActorFailure(Stuck(RAYLET, timeout)) from None
        except ActorFailure:
            raise
        except Exception as error:  # Ray raises built-in exceptions where it cannot name the lost actor in time.
            raise ActorFailure(self._find_dead(error)) from None
        for answer in answers:
            if isinstance(answer, Failed):
                raise ActorFailure(answer)
        # The arrays occupy the channels' memory, which the next call needs.
        return copy.deepcopy(answers)

    def _find_stuck(self) -> str | None:
        """Return the name of the first actor that is busy or silent; None where none is. A graph does not name it."""
        for index, answer in enumerate(self._ask_busy()):
            if answer is not False:
                return self._name(index)
        return None

    def _find_dead(self, error: Exception) -> Died:
        """Return the actor that Ray reports lost. A graph does not name it."""
        for index, answer in enumerate(self._ask_busy()):
            if isinstance(answer, RayActorError):
                return Died(self._name(index), str(answer))
        return Died("an actor", str(error))

    def _ask_busy(self) -> Iterator[bool | RayError]:
        """Ask every actor whether it is busy; yield its answer, or the error instead."""
        for handle in self._handles:
            try:
                yield ray.get(handle.busy.remote(), timeout=1)
            except RayError as error:
                yield error

    def _name(self, index: int) -> str:
        part = self._parts[index]
        return f"actor {index} (agents {part.start} to {part.stop - 1})"
