"""Hearing a server's actor, and knowing who it is that does not answer.

Ray's calls have time limits, but some of them wait without end for a raylet that has stopped. They are made in threads
of their own here, so that whoever waits for a run can always give up.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import ray
from ray.exceptions import GetTimeoutError

from fnbandit.errors import Interrupted, SimulationError

START_SECONDS = 60.0
"""How long an actor's process may take to start, at least, before it is called stuck."""
LARGE = 200_000
"""Bytes of an answer that goes through the object stores, as results do; Ray sends small ones directly."""
RAYLET = "a raylet"
SLICE = 0.2
"""Seconds between two looks at whether a run has been asked to stop."""
DIRECT_SECONDS = 3.0
"""How long a process that is there may take for a small answer."""


class Listener:
    """Hears the events of a server's actor, which errors call `name`.

    After `timeout` seconds of silence it is stuck; or, if it is `busy` with agents in other actors, it is asked whether
    it is there, and has as long to answer: one that computes does. A set `stopped` ends the wait with Interrupted.
    """

    def __init__(self, server: Any, name: str, timeout: float, busy: bool, stopped: threading.Event) -> None:
        self._server, self._name, self._timeout, self._busy, self._stopped = server, name, timeout, busy, stopped

    def events(self, begin: Callable[[], Any]) -> Iterator[Any]:
        """The values of a stream of references, which `begin` asks the server for; a RayError where it is gone."""
        heard: queue.Queue[Any] = queue.Queue()
        background(lambda: read(begin, heard))
        timeout = max(self._timeout, START_SECONDS)
        while (event := self._next(heard, timeout)) is not None:
            if isinstance(event, Exception):
                raise event
            yield event
            timeout = self._timeout

    def _next(self, heard: queue.Queue[Any], timeout: float) -> Any:
        since, answer = time.monotonic(), None
        while True:
            if self._stopped.is_set():
                raise Interrupted
            try:
                return heard.get(timeout=SLICE)
            except queue.Empty:
                pass
            if answer is not None and not answer.empty():
                since, answer = time.monotonic(), None
            elif time.monotonic() - since > timeout:
                if answer is not None or not self._busy:
                    raise SimulationError(f"{self._who()} has not answered for {timeout:g} seconds")
                since, answer = time.monotonic(), self._ask(LARGE, timeout)

    def _ask(self, size: int, seconds: float) -> queue.Queue[Any]:
        """A queue that gets an item if the server's actor answers, or if Ray knows that it is gone."""
        answer: queue.Queue[Any] = queue.Queue()

        def ask() -> None:
            try:
                answer.put(ray.get(self._server.here.remote(size), timeout=seconds))
            except GetTimeoutError:
                pass
            except Exception as error:
                answer.put(error)

        background(ask)
        return answer

    def _who(self) -> str:
        """Who does not answer. An actor that gives small answers only lacks its object store, a part of the raylet."""
        small, large = self._ask(0, DIRECT_SECONDS), self._ask(LARGE, DIRECT_SECONDS)
        time.sleep(DIRECT_SECONDS)
        return RAYLET if large.empty() and not small.empty() else self._name


def background(function: Callable[[], None]) -> threading.Thread:
    """Run a function in a thread that nobody needs to wait for."""
    thread = threading.Thread(target=function, name="fnbandit-listener", daemon=True)
    thread.start()
    return thread


def read(begin: Callable[[], Any], heard: queue.Queue[Any]) -> None:
    """Put the values of a stream into a queue: None after the last, an exception where it breaks off."""
    try:
        for reference in begin():
            heard.put(ray.get(reference))
        heard.put(None)
    except Exception as error:
        heard.put(error)
