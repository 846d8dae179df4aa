"""Memory of a simulation, estimated before it starts."""

from __future__ import annotations

from fnbandit.config import Config
from fnbandit.config.registry import resolve_part
from fnbandit.config.words import count_things
from fnbandit.environments import Environment
from fnbandit.numerics.memory import Memory, available, readable

MARGIN = 1.1
"""Safety factor for allocations that the estimate omits"""
PROCESS_BYTES = 270_000_000
"""Memory of a process that has imported torch and the science, without agents"""


def memory(config: Config, environment: Environment) -> Memory:
    """Return the memory of an algorithm's state, history and work space, with a margin."""
    needs = resolve_part("algorithm", config.algorithm).memory(config, environment)
    return Memory(MARGIN * needs.per_agent, MARGIN * needs.shared)


def check_local(config: Config, environment: Environment) -> None:
    """Raise a one-line ValueError, with the calculation, where the agents do not fit into this process."""
    needs = memory(config, environment)
    free = available()
    if needs.of(config.agents) > free:
        fits = max(0, int((free - needs.shared) / needs.per_agent))
        raise ValueError(
            f"agents={config.agents}: {config.agents} x {readable(needs.per_agent)} + {readable(needs.shared)} shared "
            f"= {readable(needs.of(config.agents))} of memory, {readable(free)} available; "
            f"{count_things(fits, 'agent')} fit at most{advise_diagonal(config, environment)}"
        )


def advise_diagonal(config: Config, environment: Environment) -> str:
    """Return the end of an error on memory: diagonal matrices, where these are accepted and need less; else ""."""
    try:
        smaller = memory(config.replace(diagonal=True), environment)
    except ValueError:
        return ""
    total = smaller.of(config.agents)
    is_less = total < memory(config, environment).of(config.agents)
    return f", or use --diagonal, which needs {readable(total)}" if is_less else ""
