"""Bytes, counted before anything is started."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fnbandit.config import Config


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
