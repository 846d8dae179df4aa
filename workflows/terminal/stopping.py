"""Ends a study in order on Ctrl-C, SIGTERM (clusters) and SIGHUP (a terminal that closes)."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NoReturn, Self

ASKED = threading.Event()
"""Set by a signal before a study began; a library that was running then may have caught its KeyboardInterrupt"""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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
        if in_main_thread():
            # Ignored signals stay ignored, as under nohup.
            handled = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
            self._earlier = {number: signal.signal(number, self._handle) for number in handled}
        if ASKED.is_set():
            self.__exit__()
            raise KeyboardInterrupt
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


def interrupt_on_signals() -> None:
    """Let SIGTERM and SIGHUP, unless they are ignored, raise KeyboardInterrupt from now on, as SIGINT does."""

    def interrupt(number: int, frame: Any) -> None:
        ASKED.set()
        raise KeyboardInterrupt

    for number in SIGNALS[1:]:
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, interrupt)


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
