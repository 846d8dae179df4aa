"""Waits for messages of compiled graphs without occupying a core.

Ray waits for a channel in a loop that yields the core and returns at once. Where more actors than cores wait, they take
most of the time of those that compute. Here a process sleeps between two looks into its channel.
"""

from __future__ import annotations

import time
from typing import Any

from ray.exceptions import RayChannelTimeoutError
from ray.experimental.channel.shared_memory_channel import Channel

SHORTEST_SLEEP, LONGEST_SLEEP = 50e-6, 2e-3
"""Seconds between two looks"""
SLEEP_SHARE = 1 / 8
"""Seconds of sleep per second of waiting so far: a message is read late by at most this share of its time"""

_read = Channel.read


def read_sleeping(channel: Channel, timeout: float | None = None) -> Any:
    """Read a channel as `Channel.read` does; None and -1 mean no time limit."""
    began = time.monotonic()
    end = float("inf") if timeout is None or timeout < 0 else began + timeout
    while True:
        try:
            return _read(channel, 0)
        except RayChannelTimeoutError:
            now = time.monotonic()
            if now >= end:
                raise
        time.sleep(min(LONGEST_SLEEP, max(SHORTEST_SLEEP, SLEEP_SHARE * (now - began)), end - now))


def sleep_while_waiting() -> None:
    """Let this process sleep while it waits for a message of a compiled graph."""
    setattr(Channel, "read", read_sleeping)  # noqa: B010  (mypy lets no method be assigned)
