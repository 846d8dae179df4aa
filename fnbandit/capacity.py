"""How much memory a simulation will take, reckoned before it starts."""

from __future__ import annotations

from fnbandit.config import Config
from fnbandit.environments import Environment
from fnbandit.memory import Memory, available, readable
from fnbandit.registry import find

MARGIN = 1.1
"""For what is forgotten"""


def memory(config: Config, environment: Environment) -> Memory:
    """What the state, the history and the work space of an algorithm take, with a margin."""
    needs = find("algorithm", config.algorithm).memory(config, environment)
    return Memory(MARGIN * needs.per_agent, MARGIN * needs.shared)


def check_local(config: Config, environment: Environment) -> None:
    """Raise one line with the arithmetic where this process cannot hold all agents."""
    needs = memory(config, environment)
    free = available()
    if needs.of(config.agents) > free:
        fits = max(0, int((free - needs.shared) / needs.per_agent))
        raise ValueError(
            f"agents={config.agents}: {config.agents} x {readable(needs.per_agent)} + {readable(needs.shared)} shared "
            f"= {readable(needs.of(config.agents))} of memory, {readable(free)} available; "
            f"at most {fits} agents fit, or use diagonal=true"
        )
