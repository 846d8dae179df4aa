"""Distributes N agents over Ray actors, and checks that they fit, before anything starts."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from actors.options import Options
from fnbandit.config import Config
from fnbandit.config.registry import resolve_part
from fnbandit.config.words import count_things
from fnbandit.environments import Environment
from fnbandit.numerics.memory import readable
from fnbandit.planning.arithmetic import Rates
from fnbandit.planning.capacity import PROCESS_BYTES, advise_diagonal, memory
from fnbandit.planning.duration import TYPICAL, expect_rounds, group_seconds
from fnbandit.simulation.partition import split_at_subtrees, split_evenly
from fnbandit.simulation.schedule import LONGEST_PART

ACTOR_SECONDS = 2.0
"""Seconds of a core to start the process of another actor"""
SHARES = 10_000
"""Ray counts CPUs and GPUs in ten-thousandths."""
CALL_SECONDS = 1.5e-3
"""Seconds of a call from the server to its actors and back."""
EXTRA_ACTORS_START_COST = 3.0
"""Additional seconds to start and connect the actors of a run that has more than one."""


@dataclass(frozen=True)
class Node:
    """Resources of a node; memory in bytes."""

    cpus: float
    gpus: float
    memory: float

    def actors(self, cpus: float, gpus: float, size: float = 0.0) -> int:
        """Return the number of actors that fit, each with these CPUs, GPUs and bytes."""
        resources = ((self.cpus, cpus), (self.gpus, gpus), (self.memory, size))
        return int(min(((total + 1e-9) // needed for total, needed in resources if needed), default=0))


@dataclass(frozen=True)
class Layout:
    """The agents of every actor, and the CPUs and GPUs reserved for each. A single actor hosts the server, too."""

    parts: tuple[range, ...]
    cpus: float
    gpus: float

    @property
    def shape(self) -> tuple[int, float, float]:
        """Number of actors, CPUs and GPUs; idle actors of the same shape can serve this layout."""
        return len(self.parts), self.cpus, self.gpus

    @property
    def processes(self) -> int:
        """Processes that hold a replica of the statistics: the actors, and the server's where it has its own."""
        return 1 if len(self.parts) == 1 else len(self.parts) + 1

    def __str__(self) -> str:
        reserved = describe_resources(self.cpus, self.gpus)
        if len(self.parts) == 1:
            return f"1 actor with the server and {count_things(len(self.parts[0]), 'agent')}, {reserved}"
        return f"{len(self.parts)} actors x {count_things(max(map(len, self.parts)), 'agent')}, {reserved} each"


def describe_resources(cpus: float, gpus: float) -> str:
    """Describe the CPUs and GPUs of an actor in words."""
    return " and ".join(f"{count:.4g} {unit}" for count, unit in ((cpus, "CPU"), (gpus, "GPU")) if count)


def nodes_of(described: list[dict[str, Any]]) -> list[Node]:
    """Return the live nodes of `ray.nodes()`."""
    return [
        Node(
            cpus=node["Resources"].get("CPU", 0.0),
            gpus=node["Resources"].get("GPU", 0.0),
            memory=node["Resources"].get("memory", 0.0),
        )
        for node in described
        if node["Alive"]
    ]


def reserve_resources(config: Config, options: Options) -> tuple[float, float]:
    """Return CPUs and GPUs of an actor on a large enough cluster; auto: one CPU, and one GPU with device=cuda."""
    cpus, gpus = options.cpus_per_actor, options.gpus_per_actor
    return 1.0 if cpus == "auto" else cpus, float(config.device == "cuda") if gpus == "auto" else gpus


def actor_bytes(config: Config, environment: Environment, actors: int) -> int:
    """Return the memory of each actor where the agents are spread over `actors` of them."""
    return PROCESS_BYTES + memory(config, environment).of(math.ceil(config.agents / actors))


def count_requested_actors(config: Config, options: Options) -> int | None:
    """Return the number of actors of a run; None where it depends on the cluster."""
    if resolve_part("algorithm", config.algorithm).traits.runs_in_one_group:
        return 1
    return None if options.agents_per_actor == "auto" else math.ceil(config.agents / options.agents_per_actor)


def choose_layout(config: Config, options: Options) -> Layout:
    """Return the layout to wait for where the current nodes do not suffice."""
    return Layout(
        tuple(split_evenly(config.agents, count_requested_actors(config, options) or 1)),
        *reserve_resources(config, options),
    )


def plan(config: Config, environment: Environment, options: Options, nodes: list[Node], runs: int = 1) -> Layout:
    """Return the layout of one of `runs` runs that share the nodes.

    Raise ValueError with the arithmetic where the nodes cannot hold it.
    """
    cpus, gpus = reserve_resources(config, options)
    slots = sum(node.actors(cpus, gpus) for node in nodes)

    def fits(actors: int, cpus: float, gpus: float) -> bool:
        size = actor_bytes(config, environment, actors)
        return sum(node.actors(cpus, gpus, size) for node in nodes) >= actors

    actors = count_requested_actors(config, options)
    if actors is None:
        most = max(1, min(config.agents, slots))
        best = fastest(config, environment, max(1, min(most, slots // runs)))
        # Fewer actors need less memory, because each has its own process and replica of the statistics; but where
        # no node can hold one actor's agents, only more actors help.
        actors = next((n for n in (*range(best, 0, -1), *range(best + 1, most + 1)) if fits(n, cpus, gpus)), best)
    if actors > slots:
        if options.gpus_per_actor == "auto" and gpus:
            gpus = largest_share(lambda share: sum(node.actors(0, share) for node in nodes) >= actors) or gpus
        if options.cpus_per_actor == "auto":
            cpus = largest_share(lambda share: sum(node.actors(share, gpus) for node in nodes) >= actors) or cpus
        slots = sum(node.actors(cpus, gpus) for node in nodes)
    if actors > slots:
        has = f"{sum(n.cpus for n in nodes):g} CPU, {sum(n.gpus for n in nodes):g} GPU"
        on = f"{count_things(len(nodes), 'node')} with {has}"
        if not slots:
            asked = describe_resources(cpus, gpus)
            raise ValueError(f"{_name_cause(config, options, nodes)}: no node has {asked} for one actor; {on}")
        raise ValueError(
            f"agents_per_actor={options.agents_per_actor}: {count_things(actors, 'actor')} x "
            f"{describe_resources(cpus, gpus)} do not fit on {on}; {count_things(slots, 'actor')} fit: "
            f"agents_per_actor={math.ceil(config.agents / slots)}"
        )
    # Where nodes differ in memory, a smaller CPU share lets the nodes with more memory hold more actors.
    if not fits(actors, cpus, gpus) and options.cpus_per_actor == "auto":
        cpus = largest_share(lambda share: fits(actors, share, gpus)) or cpus
    if not fits(actors, cpus, gpus):
        needs, total = memory(config, environment), sum(node.memory for node in nodes)
        most_agents = max(0, int((total / actors - PROCESS_BYTES - needs.shared) / needs.per_agent)) * actors
        raise ValueError(
            f"agents={config.agents}: {count_things(actors, 'actor')} x "
            f"({readable(PROCESS_BYTES)} + {readable(needs.shared)} shared + "
            f"{math.ceil(config.agents / actors)} agents x {readable(needs.per_agent)}) = "
            f"{readable(actors * actor_bytes(config, environment, actors))} of memory, "
            f"{count_things(len(nodes), 'node')} in all with {readable(total)}; about {most_agents:,} agents fit"
            + advise_diagonal(config, environment)
        )
    divided = split_at_subtrees if options.agents_per_actor == "auto" else split_evenly
    return Layout(tuple(divided(config.agents, actors)), cpus, gpus)


def _name_cause(config: Config, options: Options, nodes: list[Node]) -> str:
    """Return the option by which an actor does not fit on any node."""
    cpus, gpus = reserve_resources(config, options)
    if gpus > max((node.gpus for node in nodes), default=0.0):
        is_given = options.gpus_per_actor != "auto"
        return f"gpus_per_actor={gpus:g}" if is_given else f"device={config.device!r}"
    return f"cpus_per_actor={cpus:g}"


def largest_share(fits: Callable[[float], bool]) -> float | None:
    """Return the largest share of a CPU or GPU, at most one, that `fits`; None where no share does."""
    low, high = 0, SHARES
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle / SHARES) else (low, middle - 1)
    return low / SHARES or None


def fastest(config: Config, environment: Environment, most: int) -> int:
    """Return the fastest number of actors, at most `most`, for a run (`fnbandit/planning/duration.py`).

    More actors share the work of the agents, but each must be started, and called in every round. Agents that do not
    wait for each other are slower in two actors (`make bench`), because the actors wait for each other.
    """
    if resolve_part("algorithm", config.algorithm).traits.is_asynchronous:
        return 1
    # The least of the numbers of actors with the same largest part.
    numbers = {math.ceil(config.agents / actors): actors for actors in range(most, 0, -1)}
    return min(sorted(numbers.values()), key=lambda actors: layout_seconds(config, environment, actors))


def layout_seconds(
    config: Config, environment: Environment, actors: int, rates: Rates = TYPICAL, cores: int | None = None
) -> float:
    """Return the expected seconds of a run in this number of actors: those of the largest one, and of the calls.

    Where fewer `cores` than actors share the machine, actors wait for each other's work; each call costs a core.
    """
    seconds = group_seconds(config, environment, math.ceil(config.agents / actors), rates)
    if actors == 1:
        return seconds
    calls = expect_rounds(config, environment) or config.horizon / LONGEST_PART
    crowd = 1.0 if cores is None else max(1.0, actors / cores)
    return seconds * crowd + EXTRA_ACTORS_START_COST + calls * 2 * CALL_SECONDS * crowd
