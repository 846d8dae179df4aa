"""Ends a study in order on Ctrl-C, SIGTERM (clusters) and SIGHUP (a terminal that closes)."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NoReturn, Self

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


STOP_ASKED = threading.Event()
"""Set by a signal that arrived before a `Stop` began"""


def defer_signals() -> None:
    """Note SIGTERM and SIGHUP from now on, for `raise_if_asked`.

    An exception in the middle of an import, while a thread imports torch, may leave both waiting for each other.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, lambda *_: STOP_ASKED.set())


def raise_if_asked() -> None:
    """Raise KeyboardInterrupt where a signal has been noted."""
    if STOP_ASKED.is_set():
        raise KeyboardInterrupt


class Stop(AbstractContextManager["Stop"]):
    """Turns the first signal into a KeyboardInterrupt of the main thread; further signals have no effect.

    The shutdown takes a few seconds; a second KeyboardInterrupt in it would leave a run with the status "running".
    """

    def __init__(self) -> None:
        self.event = threading.Event()
        """Set when the runs of a study must stop"""
        self._asked = self._raised = False
        self._held = 0
        self._earlier: dict[int, Any] = {}

    def __enter__(self) -> Self:
        raise_if_asked()
        if in_main_thread():
            # Ignored signals stay ignored, as under nohup.
            handled = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
            self._earlier = {number: signal.signal(number, self._handle) for number in handled}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._earlier.items():
            # Python forgets other handlers than this one when it ends, which takes a moment.
            signal.signal(number, signal.SIG_IGN if self._raised else handler)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Delay the KeyboardInterrupt until the end of a block that must not be interrupted."""
        if not in_main_thread():  # Signals arrive in the main thread only.
            yield
            return
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
            self._act()

    def _handle(self, number: int, frame: Any) -> None:
        self._asked = True
        self.event.set()
        self._act()

    def _act(self) -> None:
        if self._asked and not self._held and not self._raised:
            self._raised = True
            raise KeyboardInterrupt


@contextmanager
def exits_refused() -> Iterator[None]:
    """Let os._exit in a user's own part raise SystemExit, as sys.exit does: the command would end as if finished."""
    leave, process = os._exit, os.getpid()

    def refuse(status: int) -> NoReturn:
        if os.getpid() != process:
            leave(status)  # a forked process
        raise SystemExit(f"os._exit({status})")

    os._exit = refuse
    try:
        yield
    finally:
        os._exit = leave


def in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
