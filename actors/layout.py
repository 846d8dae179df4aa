"""How N agents sit in Ray actors, and whether they fit, before anything starts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from actors.options import Options
from fnbandit.capacity import memory, readable
from fnbandit.config import Config
from fnbandit.environments import Environment
from fnbandit.registry import find
from fnbandit.simulation import aligned, split

ACTOR_BYTES = 250_000_000
"""What an actor that has imported torch takes for itself."""


@dataclass(frozen=True)
class Node:
    """What a node has for actors."""

    cpus: float
    gpus: float
    memory: float

    def actors(self, options: Options, size: float = 0.0) -> int:
        """How many actors of a size fit."""
        fits = [float("inf")]
        if options.cpus_per_actor:
            fits.append((self.cpus + 1e-9) // options.cpus_per_actor)
        if options.gpus_per_actor:
            fits.append((self.gpus + 1e-9) // options.gpus_per_actor)
        if size:
            fits.append(self.memory // size)
        return int(min(fits))


def nodes_of(described: list[dict[str, Any]]) -> list[Node]:
    """The living nodes of `ray.nodes()`."""
    return [
        Node(
            cpus=node["Resources"].get("CPU", 0.0),
            gpus=node["Resources"].get("GPU", 0.0),
            memory=node["Resources"].get("memory", 0.0),
        )
        for node in described
        if node["Alive"]
    ]


def plan(config: Config, environment: Environment, options: Options, nodes: list[Node]) -> list[range]:
    """The agents of every actor; a ValueError with the arithmetic where the cluster cannot hold them."""
    slots = sum(node.actors(options) for node in nodes)
    asked = f"{options.cpus_per_actor:g} CPU"
    if options.gpus_per_actor:
        asked += f" and {options.gpus_per_actor:g} GPU"
    has = f"{sum(n.cpus for n in nodes):g} CPU, {sum(n.gpus for n in nodes):g} GPU"
    needs = memory(config, environment)

    def size(actors: int) -> int:
        return ACTOR_BYTES + needs.of(math.ceil(config.agents / actors))

    def room(actors: int) -> int:
        return sum(node.actors(options, size(actors)) for node in nodes)

    if find("algorithm", config.algorithm).one_group:
        actors = 1
    elif options.agents_per_actor == "auto":
        most = min(config.agents, slots)
        # Fewer actors take less memory, because each has a process and the shared statistics of its own.
        actors = next((n for n in range(most, 0, -1) if room(n) >= n), min(most, len(nodes)))
    else:
        actors = math.ceil(config.agents / options.agents_per_actor)
    if actors > slots or not slots:
        way_out = f"agents_per_actor={math.ceil(config.agents / slots)}" if slots else "no node has what one asks for"
        raise ValueError(
            f"agents_per_actor={options.agents_per_actor}: {max(actors, 1)} actors x {asked} do not fit "
            f"on {len(nodes)} nodes with {has}; {slots} actors fit: {way_out}"
        )
    if room(actors) < actors:
        total = sum(node.memory for node in nodes)
        fits = max(0, int((total / actors - ACTOR_BYTES - needs.shared) / needs.per_agent)) * actors
        raise ValueError(
            f"agents={config.agents}: {actors} actors x ({readable(ACTOR_BYTES)} + {readable(needs.shared)} shared + "
            f"{math.ceil(config.agents / actors)} agents x {readable(needs.per_agent)}) = "
            f"{readable(actors * size(actors))} of memory, "
            f"the {len(nodes)} nodes have {readable(total)}; about {fits} agents fit"
            + ("" if config.diagonal else ", or use diagonal=true")
        )
    if options.agents_per_actor == "auto":
        return aligned(config.agents, actors)
    return split(config.agents, actors)
