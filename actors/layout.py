"""How N agents sit in Ray actors, and whether they fit, before anything starts."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from actors.options import Options
from fnbandit.capacity import memory
from fnbandit.config import Config
from fnbandit.costs import Rates, iteration_work, round_work
from fnbandit.environments import Environment
from fnbandit.memory import readable
from fnbandit.registry import find, part_of
from fnbandit.simulation import LONGEST_PART, aligned, split

ACTOR_BYTES = 250_000_000
"""What an actor that has imported torch takes for itself."""
SHARES = 10_000
"""Ray counts CPUs and GPUs in ten-thousandths."""
CORE = Rates(double=2e10, single=4e10, stream=1e10)
"""What an ordinary core does in a second."""
OVER_IDEAL = 3.0
"""How many times its least time the work of an iteration takes."""
AGENT_SECONDS = 5e-5
"""Of an agent's iteration, where the cost model has no formula for its algorithm."""
CALL_SECONDS = 1.5e-3
"""Of a call from the server to its actors and back."""
START_SECONDS = 3.0
"""What actors for parts of a run take to start and to connect, beyond one that hosts all of it."""


@dataclass(frozen=True)
class Node:
    """What a node has for actors."""

    cpus: float
    gpus: float
    memory: float

    def actors(self, cpus: float, gpus: float, size: float = 0.0) -> int:
        """How many actors that ask for these CPUs, GPUs and bytes fit."""
        asked = ((self.cpus, cpus), (self.gpus, gpus), (self.memory, size))
        return int(min(((has + 1e-9) // wants for has, wants in asked if wants), default=0))


@dataclass(frozen=True)
class Layout:
    """The agents of every actor, and what Ray reserves for each. The one actor of a run hosts its server, too."""

    parts: tuple[range, ...]
    cpus: float
    gpus: float

    @property
    def shape(self) -> tuple[int, float, float]:
        """What actors that are there already must have in common with it to serve it."""
        return len(self.parts), self.cpus, self.gpus

    def __str__(self) -> str:
        reserved = asked(self.cpus, self.gpus)
        if len(self.parts) == 1:
            return f"1 actor with the server and {len(self.parts[0])} agents, {reserved}"
        return f"{len(self.parts)} actors x {max(map(len, self.parts))} agents, {reserved} each"


def asked(cpus: float, gpus: float) -> str:
    """What an actor asks for, in words."""
    return " and ".join(f"{count:.4g} {unit}" for count, unit in ((cpus, "CPU"), (gpus, "GPU")) if count)


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


def reserved(config: Config, options: Options) -> tuple[float, float]:
    """CPUs and GPUs of an actor where the cluster has enough: with auto one CPU, and one GPU for device=cuda."""
    cpus, gpus = options.cpus_per_actor, options.gpus_per_actor
    return 1.0 if cpus == "auto" else cpus, float(config.device == "cuda") if gpus == "auto" else gpus


def actor_bytes(config: Config, environment: Environment, actors: int) -> int:
    """What each of so many actors takes."""
    return ACTOR_BYTES + memory(config, environment).of(math.ceil(config.agents / actors))


def asked_actors(config: Config, options: Options) -> int | None:
    """The actors of a run, where that does not depend on the cluster."""
    if find("algorithm", config.algorithm).one_group:
        return 1
    return None if options.agents_per_actor == "auto" else math.ceil(config.agents / options.agents_per_actor)


def wanted(config: Config, options: Options) -> Layout:
    """What to wait for where the nodes that are there do not suffice."""
    return Layout(tuple(split(config.agents, asked_actors(config, options) or 1)), *reserved(config, options))


def plan(config: Config, environment: Environment, options: Options, nodes: list[Node], runs: int = 1) -> Layout:
    """The actors of a run that shares the nodes with others, `runs` in all.

    A ValueError with the arithmetic where the nodes cannot hold them.
    """
    cpus, gpus = reserved(config, options)
    slots = sum(node.actors(cpus, gpus) for node in nodes)

    def fits(actors: int, cpus: float, gpus: float) -> bool:
        size = actor_bytes(config, environment, actors)
        return sum(node.actors(cpus, gpus, size) for node in nodes) >= actors

    actors = asked_actors(config, options)
    if actors is None:
        most = max(1, min(config.agents, slots))
        best = fastest(config, environment, max(1, min(most, slots // runs)))
        # Fewer actors take less memory, because each has a process and the shared statistics of its own; but where
        # no node can hold so many agents, only more actors help.
        actors = next((n for n in (*range(best, 0, -1), *range(best + 1, most + 1)) if fits(n, cpus, gpus)), best)
    if actors > slots:
        if options.gpus_per_actor == "auto" and gpus:
            gpus = largest_share(lambda share: sum(node.actors(0, share) for node in nodes) >= actors) or gpus
        if options.cpus_per_actor == "auto":
            cpus = largest_share(lambda share: sum(node.actors(share, gpus) for node in nodes) >= actors) or cpus
        slots = sum(node.actors(cpus, gpus) for node in nodes)
    if actors > slots:
        has = f"{sum(n.cpus for n in nodes):g} CPU, {sum(n.gpus for n in nodes):g} GPU"
        way_out = f"agents_per_actor={math.ceil(config.agents / slots)}" if slots else "no node has what one asks for"
        raise ValueError(
            f"agents_per_actor={options.agents_per_actor}: {actors} actors x {asked(cpus, gpus)} do not fit "
            f"on {len(nodes)} nodes with {has}; {slots} actors fit: {way_out}"
        )
    # Where the nodes differ in memory, a smaller share lets those with more of it hold more actors.
    if not fits(actors, cpus, gpus) and options.cpus_per_actor == "auto":
        cpus = largest_share(lambda share: fits(actors, share, gpus)) or cpus
    if not fits(actors, cpus, gpus):
        needs, total = memory(config, environment), sum(node.memory for node in nodes)
        most_agents = max(0, int((total / actors - ACTOR_BYTES - needs.shared) / needs.per_agent)) * actors
        raise ValueError(
            f"agents={config.agents}: {actors} actors x ({readable(ACTOR_BYTES)} + {readable(needs.shared)} shared + "
            f"{math.ceil(config.agents / actors)} agents x {readable(needs.per_agent)}) = "
            f"{readable(actors * actor_bytes(config, environment, actors))} of memory, "
            f"the {len(nodes)} nodes have {readable(total)}; about {most_agents} agents fit"
            + ("" if config.diagonal else ", or use diagonal=true")
        )
    divided = aligned if options.agents_per_actor == "auto" else split
    return Layout(tuple(divided(config.agents, actors)), cpus, gpus)


def largest_share(fits: Callable[[float], bool]) -> float | None:
    """The largest share of a CPU or GPU, at most one, for which it fits; None where none is small enough."""
    low, high = 0, SHARES
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle / SHARES) else (low, middle - 1)
    return low / SHARES or None


def fastest(config: Config, environment: Environment, most: int) -> int:
    """How many actors, at most so many, finish a run first, by the cost model (`fnbandit/costs.py`).

    More actors share the work of its agents; but beyond one they have to be started and to be called in every round.
    Agents that do not wait for each other are slower in two (`make bench`): their actors wait, for each other.
    """
    if find("algorithm", config.algorithm).asynchronous:
        return 1
    return min(range(1, most + 1), key=lambda actors: run_seconds(config, environment, actors))


def run_seconds(config: Config, environment: Environment, actors: int) -> float:
    """What depends on the number of actors in the time of a run."""
    agents, length, half = math.ceil(config.agents / actors), epoch_length(config), max(1, config.horizon // 2)
    if "weight" in part_of("algorithm", config.algorithm).fields:
        rounds = round_work(config, environment.dim, agents, half, length).seconds(CORE) / length
        step = iteration_work(config, environment.arms, environment.dim, agents, half, length).seconds(CORE)
        seconds = OVER_IDEAL * (step + rounds)
    else:
        seconds = AGENT_SECONDS * agents
    calls = START_SECONDS + config.horizon / length * 2 * CALL_SECONDS if actors > 1 else 0.0
    return config.horizon * seconds + calls


def epoch_length(config: Config) -> int:
    """Iterations between two rounds, as far as a config tells; with a trigger that measures, a few."""
    kind = find("algorithm", config.algorithm)
    if not kind.communicates:
        return LONGEST_PART
    return {"always": 1, "period": config.period}.get(config.trigger, 4)
