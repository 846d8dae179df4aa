"""The loop of a simulation: agents advance, the schedule admits uploads, the server answers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from fnbandit.config import Config
from fnbandit.core import Download, Round, Schedule, Segment, Upload
from fnbandit.environments import Environment
from fnbandit.federation.first_come import FirstComeServer
from fnbandit.federation.server import BarrierServer
from fnbandit.numerics.device import read_values
from fnbandit.numerics.state import State, add_prefix, remove_prefix
from fnbandit.simulation.clock import Clock
from fnbandit.simulation.population import LocalPopulation
from fnbandit.simulation.schedule import Barrier, FirstCome


class Simulation:
    """A population, a schedule and a server. After a segment with `is_boundary`, `state` can be saved."""

    def __init__(self, config: Config, population: Any, schedule: Schedule, server: Any) -> None:
        self._horizon = config.horizon
        self._population, self._schedule, self._server = population, schedule, server
        self._downloads: list[Download] = []
        """Downloads that agents have not received yet"""

    def segments(self) -> Iterator[Segment]:
        """Run to the horizon, segment by segment."""
        schedule, population = self._schedule, self._population
        rounds, began = 0 if self._server is None else self._server.rounds, time.perf_counter()
        while not schedule.is_finished:
            downloads, self._downloads = self._downloads, []
            advances = population.advance(downloads, schedule.start, schedule.limit)
            barrier = schedule.barrier(advances)
            if barrier is not None:
                advances = population.settle(schedule.start, barrier)
            for uploads in schedule.admit(advances):
                self._downloads.append(schedule.answer(*self._run_round(uploads)))
            segment = schedule.finish(advances)
            advances, uploads = [], []  # frees memory: as large as all agents' rows of an epoch
            if segment is not None:
                theta = self._theta() if segment.end == self._horizon else None
                yield replace(segment, seconds=time.perf_counter() - began, theta=theta, before=rounds)
                rounds, began = rounds + len(segment.rounds), time.perf_counter()

    def _run_round(self, uploads: Sequence[Upload]) -> tuple[Download, Round]:
        """Exchange uploads and downloads until the round ends; return its last download and its record."""
        sent, download = [uploads], self._server.exchange(uploads)
        while not download.is_last:
            sent.append(self._population.exchange(download))
            download = self._server.exchange(sent[-1])
        return download, self._server.record(sent, download)

    def _theta(self) -> Any:
        """Return theta_sync after the last round; None without networks."""
        theta = self._downloads[-1].theta if self._downloads else getattr(self._server, "theta", None)
        return None if theta is None else read_values(theta)

    def deliver(self) -> None:
        """Deliver the downloads of the last round, as the next epoch would."""
        downloads, self._downloads = self._downloads, []
        self._population.receive(downloads)

    def state(self) -> tuple[State, State]:
        """Return the states of the agents and of the server with its schedule."""
        downloads, self._downloads = self._downloads, []
        agents = self._population.state(downloads)
        server = {} if self._server is None else self._server.state()
        return agents, server | add_prefix("schedule", self._schedule.state())

    def load(self, iteration: int, server: State) -> None:
        """Continue from a server's state at an iteration; the population loads its own."""
        if self._server is not None:
            self._server.load(server)
        self._schedule.load(iteration, remove_prefix("schedule", server))


def make_simulation(config: Config, clock: Clock, population: Any) -> Simulation:
    """Make the simulation of a population, with the schedule of its algorithm."""
    replica = population.replica
    if replica is None:
        return Simulation(config, population, Barrier(config, has_rounds=False), None)
    if replica.is_versioned:
        schedule = FirstCome(config, clock, replica.cost(1, 0).bytes_up)
        return Simulation(config, population, schedule, FirstComeServer(config, replica))
    return Simulation(config, population, Barrier(config, has_rounds=True), BarrierServer(config, replica))


def make_local(config: Config, environment: Environment, clock: Clock, batches: int = 1) -> Any:
    """Make the population and simulation of a run in this process; the number of batches does not change the bits."""
    population = LocalPopulation(config, environment, clock, batches)
    return population, make_simulation(config, clock, population)
