"""How much memory a simulation will take, reckoned before it starts."""

from __future__ import annotations

import os

from fnbandit.config import Config
from fnbandit.environments import Environment
from fnbandit.memory import Memory
from fnbandit.registry import find

MARGIN = 1.1
"""For what is forgotten"""


def memory(config: Config, environment: Environment) -> Memory:
    """What the state, the history and the work space of an algorithm take, with a margin."""
    needs = find("algorithm", config.algorithm).memory(config, environment)
    return Memory(MARGIN * needs.per_agent, MARGIN * needs.shared)


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
        fits = max(0, int((available - needs.shared) / needs.per_agent))
        raise ValueError(
            f"agents={config.agents}: {config.agents} x {readable(needs.per_agent)} + {readable(needs.shared)} shared "
            f"= {readable(needs.of(config.agents))} of memory, {readable(available)} available; "
            f"at most {fits} agents fit, or use diagonal=true"
        )
