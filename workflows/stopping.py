"""Ctrl-C, SIGTERM as clusters send it, SIGHUP of a terminal that closes: a study ends in order, and once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Self

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop(AbstractContextManager["Stop"]):
    """Turns the first signal into a KeyboardInterrupt of the main thread; more of them change nothing.

    What follows the first one, to the end of the process, takes a few seconds, and a second one in its midst would
    leave a run that still says "running".
    """

    def __init__(self) -> None:
        self.event = threading.Event()
        """Set when the runs of a study shall stop"""
        self._asked = self._raised = False
        self._held = 0
        self._earlier: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if in_main_thread():
            # What is ignored stays so, as nohup has it.
            heard = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
            self._earlier = {number: signal.signal(number, self._hear) for number in heard}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._earlier.items():
            # Python forgets other handlers than this one when it ends, which takes a moment.
            signal.signal(number, signal.SIG_IGN if self._raised else handler)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let what must not be cut in two come to its end first."""
        if not in_main_thread():  # Signals arrive in the main thread only.
            yield
            return
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
            self._act()

    def _hear(self, number: int, frame: Any) -> None:
        self._asked = True
        self.event.set()
        self._act()

    def _act(self) -> None:
        if self._asked and not self._held and not self._raised:
            self._raised = True
            raise KeyboardInterrupt


def in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
