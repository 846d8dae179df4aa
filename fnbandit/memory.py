"""Bytes, counted before anything is started."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch

from fnbandit.config import Config
from fnbandit.randomness import BLOCK


def readable(count: float) -> str:
    """Bytes as people write them."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def available() -> int:
    """Bytes of memory that nobody uses."""
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def check_contexts(arms: int, dim: int) -> None:
    """Raise one line where one agent's contexts of a block do not fit into this machine's memory."""
    needed = 8 * BLOCK * arms * dim
    if needed > available():
        raise ValueError(
            f"arms={arms}, dim={dim}: the contexts of {BLOCK} iterations are {BLOCK} x {arms} x {dim} numbers = "
            f"{readable(needed)} of memory, {readable(available())} available"
        )


@dataclass(frozen=True)
class Memory:
    """Bytes per agent, and bytes that the agents of a process share."""

    per_agent: float
    shared: float = 0.0

    def __add__(self, other: Memory) -> Memory:
        return Memory(self.per_agent + other.per_agent, self.shared + other.shared)

    def of(self, agents: int) -> int:
        """Bytes of a process with some agents."""
        return int(self.shared + agents * self.per_agent)


def precisions(config: Config) -> tuple[int, int]:
    """Bytes of a number of the statistics, and of the networks."""
    return getattr(torch, config.statistics_dtype).itemsize, getattr(torch, config.network_dtype).itemsize
