"""Lines of `make bench` on many agents: what grows with N, the server's part, memory, and what the cost model says."""

from __future__ import annotations

import time
from typing import Any

from fnbandit import Config, simulate
from fnbandit.costs import ideal_seconds, iteration_work
from fnbandit.environments import make_environment
from fnbandit.rounds.messages import Broadcast, Upload
from fnbandit.rounds.server import Server
from fnbandit.simulation import LocalCohort, one_thread, run_segments
from workflows.measures import Line, in_a_process, rates, segments_of, timed

RARE: dict[str, Any] = {"trigger": "logdet", "threshold": 5.0}


def growth() -> Line:
    """Time per agent and iteration at N=1000 over N=100."""
    times = []
    for agents in (100, 1000):
        config = Config(agents=agents, horizon=200, **RARE)
        times.append(sum(segment.seconds for segment in segments_of(config)) / agents / 200)
    note = f"{times[1] * 1e6:.0f} us against {times[0] * 1e6:.0f} us"
    ratio = times[1] / times[0]
    return Line("time per agent and iteration, N=1000 over N=100", ratio, "at most 1.1", ratio <= 1.1, note)


class TimedServer(Server):
    """A server that says how long it took."""

    seconds = 0.0

    def aggregate(self, iteration: int, uploads: list[Upload]) -> Broadcast:
        began = time.process_time()
        broadcast = super().aggregate(iteration, uploads)
        self.seconds += time.process_time() - began
        return broadcast


class TimedCohort(LocalCohort):
    """A cohort that says how long its part of rounds took, and taking in what the server has made of them."""

    uploading = receiving = 0.0

    def finish(self, start: int, end: int, fired: bool) -> Any:
        began = time.process_time()
        found = super().finish(start, end, fired)
        self.uploading += time.process_time() - began
        return found

    def receive(self, broadcast: Broadcast) -> None:
        self.receiving += timed(lambda: super(TimedCohort, self).receive(broadcast))


def servers_part(agents: int = 10_000, horizon: int = 30) -> Line:
    """What all agents wait for, adding, inverting and taking in, over a round from its trigger to the next epoch.

    What groups sum themselves counts for them: on Ray they do it side by side.
    """
    config = Config(agents=agents, horizon=horizon, **RARE)
    with one_thread():
        cohort = TimedCohort(config, make_environment(config))
        assert cohort.shared is not None
        server = TimedServer(config, cohort.shared)
        rounds = sum(segment.round is not None for segment in run_segments(config, cohort, server))
    part = server.seconds + cohort.receiving
    share = part / (part + cohort.uploading)
    note = f"{part / rounds * 1e3:.1f} ms of {(part + cohort.uploading) / rounds:.2f} s, {rounds} rounds"
    return Line(f"the server's part of a round, N={agents:,}, full", share, "under 0.1", share < 0.1, note)


def in_epoch(agents: int = 2000) -> Line:
    """An iteration inside an epoch, both bounds counting, over the least that its products and traffic take."""
    config = Config(agents=agents, horizon=63, trigger="period", period=32)
    # The second epoch ends with the horizon, before its round; contexts are drawn for 32 iterations at a time.
    _, second = segments_of(config)
    measured = second.seconds / (second.end - second.start)
    environment = make_environment(config)
    ideal = iteration_work(config, environment.arms, environment.dim, agents, t=48, k=16).seconds(rates())
    note = f"{measured * 1e3:.0f} ms over {ideal * 1e3:.0f} ms, iterations {second.start + 1}-{second.end}"
    ratio = measured / ideal
    return Line(f"time over ideal inside an epoch, N={agents:,}", ratio, "at most 2.5", ratio <= 2.5, note)


def prediction(agents: int = 10_000, reference: int = 1000, horizon: int = 40) -> Line:
    """A run's time over the cost model's, taken from its time over the model's with fewer agents."""
    over = []
    machine = rates()
    for count in (reference, agents):
        config = Config(agents=count, horizon=horizon, **RARE)
        environment = make_environment(config)
        segments = list(segments_of(config))
        rounds = [segment.end for segment in segments if segment.round is not None]
        ideal = ideal_seconds(config, environment.arms, environment.dim, rounds, machine)
        over.append((sum(segment.seconds for segment in segments), ideal))
    (few, few_ideal), (many, many_ideal) = over
    ratio = many / (many_ideal * few / few_ideal)
    note = f"{many:.1f} s, {many_ideal * few / few_ideal:.1f} s predicted: {few / few_ideal:.2g} times the ideal"
    name = f"N={agents:,} over what the cost model makes of N={reference:,}"
    return Line(name, ratio, "0.67 to 1.5", 1 / 1.5 <= ratio <= 1.5, note)


NOT_WAITING = Config.preset(
    "tuned", environment="cosine", algorithm="fn-ucb-async", agents=64, horizon=300, clock="lognormal"
)
"""Agents of different speeds that do not wait for each other"""


def not_waiting() -> Line:
    """Processor time of a run whose agents do not wait over one with synchronous rounds and about as many uploads."""

    def measured(config: Config) -> tuple[float, int]:
        began = time.process_time()
        uploads = simulate(config).communication.total.messages_up
        return (time.process_time() - began) / steps, uploads

    steps = NOT_WAITING.agents * NOT_WAITING.horizon
    one, uploads = measured(NOT_WAITING)
    period = max(1, round(steps / uploads))
    rounds = NOT_WAITING.replace(algorithm="fn-ucb-less-comm", trigger="period", period=period, clock="none")
    other, sent = measured(rounds)
    note = (
        f"{one * 1e6:.0f} us with {uploads} uploads against {other * 1e6:.0f} us with {sent}, per agent and iteration"
    )
    return Line("agents that do not wait over rounds, N=64", one / other, "at most 1.5", one / other <= 1.5, note)


def two_actors_not_waiting() -> Line:
    """The same agents in two actors against one: seconds from the first iteration to the last."""
    from actors import Options, RayRun

    def seconds(agents_per_actor: int) -> float:
        run = RayRun(NOT_WAITING, Options(agents_per_actor=agents_per_actor, cpus_per_actor=1))
        return sum(segment.seconds for segment in run.segments())

    one, two = seconds(64), seconds(32)
    note = f"{one:.1f} s against {two:.1f} s"
    return Line("two actors against one, agents that do not wait", one / two, "at least 1.5", one / two >= 1.5, note)


def thousand_agents() -> Line:
    settings = {"agents": 1000, "horizon": 1000, **RARE}
    seconds, peak = in_a_process(settings)
    ratio = peak / (8 * 1000 * 241**2)
    note = f"{seconds:.0f} s, {peak / 1e9:.2f} GB"
    return Line("N=1000, T=1000, full: peak memory over 8 N p^2", ratio, "at most 3", ratio <= 3, note)


def peak_memory(agents: int, horizon: int, diagonal: bool, limit: float) -> Line:
    """Peak GB of a simulation in a process of its own."""
    seconds, peak = in_a_process({"agents": agents, "horizon": horizon, "diagonal": diagonal, **RARE})
    name = f"N={agents:,}, T={horizon}, {'diagonal' if diagonal else 'full'}: peak GB"
    return Line(name, peak / 1e9, f"under {limit:g}", peak < limit * 1e9, f"{seconds:.0f} s")
