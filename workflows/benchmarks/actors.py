"""Lines of `make bench` on one actor per agent: seconds, processor seconds, calls and memory against `auto`."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

import ray

from actors import Options, RayRun
from actors.agent import AgentActor
from actors.cluster import cluster
from actors.transport import Order
from fnbandit import Config
from workflows.benchmarks.measures import Line

REPEATS = 3
"""Runs of each layout, in turn; the fastest counts"""


@dataclass(frozen=True)
class Spent:
    """What a run on Ray took, with the start of its cluster and actors."""

    seconds: float
    processor: float
    """Seconds of this process and all of Ray's"""
    loop: float
    """Seconds from the first iteration to the last"""
    calls: float
    """Calls of agent actors per round"""


def measure_processes() -> dict[int, float]:
    """Return the processor seconds so far of this process and of each that it has started, by process id."""
    import psutil  # type: ignore[import-untyped]  # Ray brings it.

    found = {}
    for process in (own := psutil.Process(), *own.children(recursive=True)):
        try:
            times = process.cpu_times()
            found[process.pid] = times.user + times.system
        except psutil.Error:  # it has ended
            continue
    return found


def measure_run(agents: int, horizon: int, agents_per_actor: Any) -> Spent:
    """Run the default config on a local cluster of its own."""
    began, before, rounds, after = time.perf_counter(), measure_processes(), 0, {}
    run = RayRun(Config(agents=agents, horizon=horizon), Options(agents_per_actor=agents_per_actor))
    loop = 0.0
    for segment in run.segments():
        rounds += len(segment.rounds)
        loop += segment.seconds
        after = measure_processes()  # The actors are alive.
    processor = sum(seconds - before.get(pid, 0.0) for pid, seconds in after.items())
    return Spent(time.perf_counter() - began, processor, loop, run.calls / rounds)


def actor_each(agents: int, horizon: int, target: float) -> Line:
    """Divide the time of a run with one actor per agent by that with `auto`, start included."""
    pairs = [(measure_run(agents, horizon, 1), measure_run(agents, horizon, "auto")) for _ in range(REPEATS)]
    each, auto = (min(spent, key=lambda one: one.seconds) for spent in zip(*pairs, strict=True))
    ratio = each.seconds / auto.seconds
    note = (
        f"{each.seconds:.1f} s against {auto.seconds:.1f} s; iterations {each.loop:.1f} and {auto.loop:.1f} s; "
        f"processor {each.processor:.0f} and {auto.processor:.0f} s; {each.calls:.1f} calls a round; "
        f"{os.cpu_count()} cores"
    )
    name = f"one actor per agent over auto, N={agents}, T={horizon}"
    return Line(name, ratio, f"at most {target:g}", ratio <= target, note)


def idle_memory() -> Line:
    """Divide the memory of an agent's actor by that of a Ray worker that has imported torch; both without sharing."""

    def own_bytes(_: Any) -> int:
        import psutil
        import torch  # noqa: F401

        return int(psutil.Process().memory_full_info().uss)

    with cluster(Options()):
        bare = ray.remote(own_bytes).options(num_cpus=0).remote(None)
        kind: Any = AgentActor
        actor = kind.options(num_cpus=0).remote()
        order = Order(Config(agents=8, horizon=300), None, (range(1),), 0, 60.0, 0.0, 0)
        ray.get(actor.start.remote(order, range(1), None, None))
        one, other = ray.get([actor.__ray_call__.remote(own_bytes), bare])
    note = f"{one / 1e6:.0f} MB against {other / 1e6:.0f} MB"
    return Line("memory of an agent's actor over a Ray worker with torch", one / other, "at most 1.5",
                one <= 1.5 * other, note)  # fmt: skip
