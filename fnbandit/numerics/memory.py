"""Estimates of memory in bytes, made before a run starts."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch

from fnbandit.config import Config
from fnbandit.numerics.randomness import BLOCK


def readable(count: float) -> str:
    """Return a number of bytes as text with a unit: "1.5 GB"."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def available() -> int:
    """Return the bytes of free memory of this machine."""
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def check_contexts(arms: int, dim: int) -> None:
    """Raise a one-line ValueError if one agent's contexts of a block do not fit into free memory."""
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
        """Return the bytes of a process with a number of agents."""
        return int(self.shared + agents * self.per_agent)


def precisions(config: Config) -> tuple[int, int]:
    """Return the bytes of one number of the statistics, and of one number of the networks."""
    return getattr(torch, config.statistics_dtype).itemsize, getattr(torch, config.network_dtype).itemsize
