"""How much memory a simulation will take, reckoned before it starts."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch

from fnbandit.config import FEDERATED, Config
from fnbandit.covariance import WORKSPACE
from fnbandit.environments import Environment
from fnbandit.network import Network
from fnbandit.randomness import BLOCK
from fnbandit.training import CACHE

ROWS = 64
"""Rows of an epoch that are reckoned with."""


@dataclass(frozen=True)
class Memory:
    """Bytes per agent, and bytes that the agents of a process share."""

    per_agent: int
    shared: int

    def of(self, agents: int) -> int:
        """Bytes of a process with some agents."""
        return self.shared + agents * self.per_agent


def memory(config: Config, environment: Environment) -> Memory:
    """What state, history and the work space of a simulation take; a little is added for what is forgotten."""
    real = torch.empty((), dtype=getattr(torch, config.statistics_dtype)).itemsize
    single = torch.empty((), dtype=getattr(torch, config.network_dtype)).itemsize
    d, k, horizon = environment.dim, environment.arms, config.horizon
    linear = config.algorithm.startswith(("linear", "kernel", "dislinucb"))
    p = d if linear else Network(config, d).parameters
    matrix = p if config.diagonal else p * p
    history = horizon * 3 * 8
    stream = BLOCK * k * (d + 2) * 8
    contexts = 4 * k * p * real
    per_agent = history + stream + contexts
    shared = 0
    if config.algorithm.startswith("kernel"):
        per_agent += horizon * (d + 1) * real + 4 * horizon * horizon * real
    elif config.algorithm in FEDERATED:
        per_agent += (6 if config.diagonal else 4 * min(ROWS, horizon)) * p * real
        shared = 4 * matrix * real
        if config.networked and config.algorithm == "fn-ucb":
            shared += config.agents * matrix * real
        elif config.networked:
            per_agent += matrix * real if config.diagonal else 2 * p * min(horizon, 3 * p // 4) * real
    else:
        per_agent += matrix * real
    if not linear:
        per_agent += horizon * (Network(config, d).padded_dim + 1) * single + 6 * p * single
        shared += 3 * CACHE + 4 * WORKSPACE
        if config.algorithm.startswith("pooled"):
            per_agent += horizon * 2 * config.hidden_layers * config.width * single
    return Memory(per_agent=int(1.1 * per_agent), shared=int(1.1 * shared))


def readable(count: float) -> str:
    """Bytes as people write them."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def check_local(config: Config, environment: Environment) -> None:
    """Raise one line with the arithmetic where this process cannot hold all agents."""
    needs = memory(config, environment)
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needs.of(config.agents) > available:
        fits = max(0, (available - needs.shared) // needs.per_agent)
        raise ValueError(
            f"agents={config.agents}: {config.agents} x {readable(needs.per_agent)} + {readable(needs.shared)} shared "
            f"= {readable(needs.of(config.agents))} of memory, {readable(available)} available; "
            f"at most {fits} agents fit, or use diagonal=true"
        )
