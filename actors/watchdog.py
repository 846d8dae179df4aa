"""Receives the events of a server actor, and finds the process that does not answer.

Ray's calls have time limits, but some of them block forever on a stopped raylet. This module makes them in background
threads, so that the driver can always give up.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import GetTimeoutError

from fnbandit.errors import SimulationError

ACTOR_START_TIMEOUT = 60.0
"""Least number of seconds for the first event of a run, which builds the environment and restores a state."""
PROCESS_SECONDS = 120.0
"""Seconds in which an actor's process must have started; Ray may wait forever for a worker that was killed."""
LARGE = 200_000
"""Bytes of an answer that passes the object stores, as results do; Ray sends small answers directly."""
RAYLET = "a raylet"
STOP_CHECK_SECONDS = 0.2
"""Seconds between two checks for a request to stop."""
DIRECT_SECONDS = 3.0
"""Seconds that a live process may take for a small answer."""


class NotStarted(Exception):  # noqa: N818
    """An actor's process has not started in time; the run can continue in other actors."""

    def __init__(self) -> None:
        super().__init__(f"its process has not started within {PROCESS_SECONDS:g} seconds")


class Listener:
    """Receives the events of a server actor, which errors call `name`.

    After `timeout` seconds without an event the actor counts as stuck. Where `busy` is True (its agents live in other
    actors), it is pinged first and has `timeout` seconds to answer: an actor that computes still answers. `check` is
    called a few times per second, and ends the wait with the exception that it raises.
    """

    def __init__(self, server: Any, name: str, timeout: float, busy: bool, check: Callable[[], None]) -> None:
        self._server, self._name, self._timeout, self._busy, self._check = server, name, timeout, busy, check

    def events(self, begin: Callable[[], Any]) -> Iterator[Any]:
        """Yield the values of the stream of references that `begin` requests.

        Raise RayError if the server is lost, NotStarted if its process does not start.
        """
        self._wait_for_process()
        events: queue.Queue[Any] = queue.Queue()
        background(lambda: read(begin, events))
        timeout = max(self._timeout, ACTOR_START_TIMEOUT)
        while (event := self._next(events, timeout)) is not None:
            if isinstance(event, Exception):
                raise event
            yield event
            timeout = self._timeout

    def _wait_for_process(self) -> None:
        answer, deadline = self._probe(0, PROCESS_SECONDS), time.monotonic() + PROCESS_SECONDS
        while time.monotonic() < deadline:
            self._check()
            with suppress(queue.Empty):
                found = answer.get(timeout=STOP_CHECK_SECONDS)
                if isinstance(found, Exception):
                    raise found
                return
        raise NotStarted

    def _next(self, events: queue.Queue[Any], timeout: float) -> Any:
        since, answer = time.monotonic(), None
        while True:
            self._check()
            try:
                return events.get(timeout=STOP_CHECK_SECONDS)
            except queue.Empty:
                pass
            if answer is not None and not answer.empty():
                since, answer = time.monotonic(), None
            elif time.monotonic() - since > timeout:
                if answer is not None or not self._busy:
                    raise SimulationError(f"{self._find_silent()} has not answered for {timeout:g} seconds")
                since, answer = time.monotonic(), self._probe(LARGE, timeout)

    def _probe(self, size: int, seconds: float) -> queue.Queue[Any]:
        """Ping the server actor. The returned queue receives an item if it answers, or if Ray reports it lost."""
        answer: queue.Queue[Any] = queue.Queue()

        def send() -> None:
            try:
                answer.put(ray.get(self._server.here.remote(size), timeout=seconds))
            except GetTimeoutError:
                pass
            except Exception as error:
                answer.put(error)

        background(send)
        return answer

    def _find_silent(self) -> str:
        """Name the silent process: the raylet if small answers arrive, but not large ones, via its object store."""
        small, large = self._probe(0, DIRECT_SECONDS), self._probe(LARGE, DIRECT_SECONDS)
        time.sleep(DIRECT_SECONDS)
        return RAYLET if large.empty() and not small.empty() else self._name


def background(function: Callable[[], None]) -> threading.Thread:
    """Run a function in a daemon thread."""
    thread = threading.Thread(target=function, name="fnbandit-listener", daemon=True)
    thread.start()
    return thread


def limit_seconds(function: Callable[[], Any], seconds: float) -> Any:
    """Return what a function returns, or raise what it raises; raise NotStarted where it takes longer."""
    answer: queue.Queue[Any] = queue.Queue()

    def call() -> None:
        try:
            answer.put((function(), None))
        except Exception as error:
            answer.put((None, error))

    background(call)
    try:
        value, error = answer.get(timeout=seconds)
    except queue.Empty:
        raise NotStarted from None
    if error is not None:
        raise error
    return value


def read(begin: Callable[[], Any], events: queue.Queue[Any]) -> None:
    """Put the values of a stream into a queue, then None; an exception where the stream fails."""
    try:
        for reference in begin():
            events.put(ray.get(reference))
        events.put(None)
    except Exception as error:
        events.put(error)
