"""Lines of `make bench` on many agents: growth with N, the server's share of a round, memory, the cost model."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence
from typing import Any

from fnbandit import Config, simulate
from fnbandit.core import Advance, Download, Upload
from fnbandit.environments import make_environment
from fnbandit.federation.server import BarrierServer
from fnbandit.numerics.device import one_thread
from fnbandit.planning.duration import group_seconds, measure_rates, process_seconds
from fnbandit.planning.work import ideal_seconds, iteration_work
from fnbandit.simulation.clock import make_clock
from fnbandit.simulation.loop import Simulation
from fnbandit.simulation.population import LocalPopulation
from fnbandit.simulation.schedule import Barrier
from workflows.benchmarks.measures import Line, in_a_process, plain_config, segments_of

SPARSE_TRIGGER: dict[str, Any] = {"trigger": "logdet", "threshold": 5.0}


def growth() -> Line:
    """Divide the time per agent and iteration at N=1000 by that at N=100."""
    times = []
    for agents in (100, 1000):
        config = plain_config(agents=agents, horizon=200, **SPARSE_TRIGGER)
        times.append(sum(segment.seconds for segment in segments_of(config)) / agents / 200)
    note = f"{times[1] * 1e6:.0f} us against {times[0] * 1e6:.0f} us"
    ratio = times[1] / times[0]
    return Line("time per agent and iteration, N=1000 over N=100", ratio, "at most 1.1", ratio <= 1.1, note)


class TimedServer(BarrierServer):
    """Measures the processor time of the server."""

    seconds = 0.0

    def exchange(self, uploads: Sequence[Upload]) -> Download:
        began = time.process_time()
        download = super().exchange(uploads)
        self.seconds += time.process_time() - began
        return download


class TimedPopulation(LocalPopulation):
    """Measures the processor time of the agents' work in rounds, and of applying downloads."""

    uploading = receiving = 0.0

    def settle(self, start: int, iteration: int) -> list[Advance]:
        began = time.process_time()
        found = super().settle(start, iteration)
        self.uploading += time.process_time() - began
        return found

    def receive(self, downloads: Sequence[Download]) -> None:
        self.receiving += process_seconds(lambda: super(TimedPopulation, self).receive(downloads))


def servers_part(agents: int = 10_000, horizon: int = 30) -> Line:
    """Divide the serial part of a round by its whole time, from the trigger to the next epoch.

    All agents wait for the serial part: sums, inverses, applying the download. Sums inside a batch count as the
    agents' work, because batches compute them in parallel on Ray.
    """
    config = plain_config(agents=agents, horizon=horizon, **SPARSE_TRIGGER)
    with one_thread():
        population = TimedPopulation(config, make_environment(config), make_clock(config))
        server = TimedServer(config, population.replica)
        simulation = Simulation(config, population, Barrier(config, has_rounds=True), server)
        rounds = sum(len(segment.rounds) for segment in simulation.segments())
    part = server.seconds + population.receiving
    share = part / (part + population.uploading)
    note = f"{part / rounds * 1e3:.1f} ms of {(part + population.uploading) / rounds:.2f} s, {rounds} rounds"
    return Line(f"the server's part of a round, N={agents:,}, full", share, "under 0.1", share < 0.1, note)


def in_epoch(agents: int = 2000) -> Line:
    """Divide the time of an iteration inside an epoch, with both bounds, by the least time of its work."""
    config = plain_config(agents=agents, horizon=63, trigger="period", period=32)
    # The second epoch ends with the horizon, before its round; contexts are drawn for 32 iterations at a time.
    _, second = segments_of(config)
    measured = second.seconds / (second.end - second.start)
    environment = make_environment(config)
    ideal = iteration_work(config, environment.arms, environment.dim, agents, t=48, k=16).seconds(measure_rates(8))
    note = f"{measured * 1e3:.0f} ms over {ideal * 1e3:.0f} ms, iterations {second.start + 1}-{second.end}"
    ratio = measured / ideal
    return Line(f"time over ideal inside an epoch, N={agents:,}", ratio, "at most 2.5", ratio <= 2.5, note)


def prediction(agents: int = 10_000, reference: int = 1000, horizon: int = 40) -> Line:
    """Divide a run's time by its prediction: the cost model, scaled by measured over modelled time for fewer agents."""
    over = []
    machine = measure_rates(8)
    for count in (reference, agents):
        config = plain_config(agents=count, horizon=horizon, **SPARSE_TRIGGER)
        environment = make_environment(config)
        segments = list(segments_of(config))
        rounds = [segment.end for segment in segments if segment.rounds]
        ideal = ideal_seconds(config, environment.arms, environment.dim, rounds, machine)
        over.append((sum(segment.seconds for segment in segments), ideal))
    (few, few_ideal), (many, many_ideal) = over
    ratio = many / (many_ideal * few / few_ideal)
    note = f"{many:.1f} s, {many_ideal * few / few_ideal:.1f} s predicted: {few / few_ideal:.2g} times the ideal"
    name = f"N={agents:,} over the cost model's prediction from N={reference:,}"
    return Line(name, ratio, "0.67 to 1.5", 1 / 1.5 <= ratio <= 1.5, note)


def exact_prediction(agents: int = 10_000, reference: int = 1000, horizon: int = 100) -> Line:
    """Divide the time of a run with exact federation by its prediction from fewer agents, as `prediction` does."""
    over, machine = [], measure_rates(8)
    for count in (reference, agents):
        config = Config.preset("exact", environment="cosine", agents=count, horizon=horizon, threshold=5.0)
        seconds = sum(segment.seconds for segment in segments_of(config))
        over.append((seconds, group_seconds(config, make_environment(config), count, machine)))
    (few, few_modelled), (many, many_modelled) = over
    predicted = many_modelled * few / few_modelled
    ratio = many / predicted
    note = f"{many:.1f} s, {predicted:.1f} s predicted: {few / few_modelled:.2g} times the model; T={horizon}"
    name = f"exact federation, N={agents:,} over the prediction from N={reference:,}"
    return Line(name, ratio, "0.77 to 1.3", 1 / 1.3 <= ratio <= 1.3, note)


NOT_WAITING = Config.preset(
    "tuned", environment="cosine", algorithm="fn-ucb-async", agents=64, horizon=300, clock="lognormal"
)
"""Agents of different speeds that do not wait for each other"""


def not_waiting() -> Line:
    """Divide the processor time of an asynchronous run by that of synchronous rounds with about as many uploads."""

    def measure_ratio(config: Config) -> tuple[float, int]:
        began = time.process_time()
        uploads = simulate(config).communication.total.messages_up
        return (time.process_time() - began) / steps, uploads

    steps = NOT_WAITING.agents * NOT_WAITING.horizon
    one, uploads = measure_ratio(NOT_WAITING)
    period = max(1, round(steps / uploads))
    rounds = NOT_WAITING.replace(algorithm="fn-ucb-less-comm", trigger="period", period=period, clock="none")
    other, sent = measure_ratio(rounds)
    note = (
        f"{one * 1e6:.0f} us with {uploads} uploads against {other * 1e6:.0f} us with {sent}, per agent and iteration"
    )
    return Line("agents that do not wait over rounds, N=64", one / other, "at most 1.5", one / other <= 1.5, note)


def two_actors_not_waiting() -> Line:
    """Compare one actor with two for the same agents: seconds from the first iteration to the last."""
    from actors import Options, RayRun

    def seconds(agents_per_actor: int) -> float:
        run = RayRun(NOT_WAITING, Options(agents_per_actor=agents_per_actor, cpus_per_actor=1))
        return sum(segment.seconds for segment in run.segments())

    one, two = seconds(64), seconds(32)
    note = f"{one:.1f} s against {two:.1f} s"
    return Line("two actors against one, agents that do not wait", one / two, "at least 1.5", one / two >= 1.5, note)


def thousand_agents() -> Line:
    settings = {"agents": 1000, "horizon": 1000, **SPARSE_TRIGGER}
    seconds, peak = in_a_process(settings)
    ratio = peak / (8 * 1000 * 241**2)
    note = f"{seconds:.0f} s, {peak / 1e9:.2f} GB"
    return Line("N=1000, T=1000, full: peak memory over 8 N p^2", ratio, "at most 3", ratio <= 3, note)


def exact_run(agents: int, horizon: int, algorithm: str, limit: float, seconds: float = math.inf) -> Line:
    """Measure the peak GB of a simulation with exact federation in its own process, and its seconds (cosine, D = 5)."""
    config = Config.preset("exact", environment="cosine", agents=agents, horizon=horizon, threshold=5.0,
                           algorithm=algorithm)  # fmt: skip
    took, peak = in_a_process(dataclasses.asdict(config))
    target = f"under {limit:g}" + (f", {seconds:g} s" if seconds < math.inf else "")
    name = f"exact federation, {algorithm}, N={agents:,}, T={horizon}: peak GB"
    return Line(name, peak / 1e9, target, peak < limit * 1e9 and took < seconds, f"{took:.0f} s of a core")


def peak_memory(agents: int, horizon: int, diagonal: bool, limit: float) -> Line:
    """Measure the peak GB of a simulation in its own process."""
    seconds, peak = in_a_process({"agents": agents, "horizon": horizon, "diagonal": diagonal, **SPARSE_TRIGGER})
    name = f"N={agents:,}, T={horizon}, {'diagonal' if diagonal else 'full'}: peak GB"
    return Line(name, peak / 1e9, f"under {limit:g}", peak < limit * 1e9, f"{seconds:.0f} s")
