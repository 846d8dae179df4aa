"""The asynchronous schedule: a discrete-event simulation with lookahead.

An agent's way to its next upload depends on nothing but its last download. So a host runs its agents ahead, all that
are under way together, one iteration at a time; the server takes uploads in the order of (simulated time, agent), and
may take one as soon as no agent that is still under way can have an earlier one. Who runs how far ahead is a matter of
speed only: the same uploads come in the same order however agents are spread over hosts.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Iterator
from typing import Protocol

import numpy as np
import torch

from fnbandit.algorithms.base import Trace
from fnbandit.clock import Clock
from fnbandit.config import Config
from fnbandit.environments import Environment
from fnbandit.hosts import NEVER, Ahead, Answer, Event, Host, Moment, event_of, event_state
from fnbandit.registry import find
from fnbandit.results import QUANTITIES, Round, Segment, Times
from fnbandit.rounds.exchange import ExchangeServer
from fnbandit.simulation import split
from fnbandit.state import State, prefixed, unprefixed


class Hosts(Protocol):
    """All agents of a simulation, wherever they live."""

    def advance(self, answers: list[Answer]) -> list[Ahead]:
        """Hand every agent its answer, and let all hosts run ahead; in agent order."""
        ...

    def states(self, answers: list[Answer]) -> State:
        """Hand every agent its answer; all agents' states then."""
        ...


class LocalHosts:
    """Hosts that live in this process and share one copy of the server's statistics."""

    def __init__(self, hosts: list[Host]) -> None:
        self.hosts = hosts

    def _hear(self, answers: list[Answer]) -> None:
        for host in self.hosts:
            host.hear([answer for answer in answers if answer.download.agent in host.group.agents])
        groups = [host.group for host in self.hosts]
        groups[0].statistics.keep(
            np.concatenate([group.versions for group in groups]),
            np.concatenate([group.inverse_versions for group in groups]),
        )

    def advance(self, answers: list[Answer]) -> list[Ahead]:
        self._hear(answers)
        return [host.advance() for host in self.hosts]

    def states(self, answers: list[Answer]) -> State:
        self._hear(answers)
        return {name: tensor for host in self.hosts for name, tensor in host.state().items()}


class Exchanges:
    """The server's side of a simulation: takes uploads in order, and hands finished iterations over."""

    def __init__(self, config: Config, clock: Clock, server: ExchangeServer) -> None:
        self._config, self._clock, self.server = config, clock, server
        self.delivered = 0
        """Iterations that all agents have finished, and that have been handed over"""
        self._queue: list[Event] = []
        """Uploads that have arrived and cannot be taken yet"""
        self._answers: list[Answer] = []
        everyone = np.arange(config.agents)
        self._least = clock.sending(everyone, float(server.statistics.cost(1, 0).bytes_up))
        """Seconds of an upload of one row: none takes less"""
        self._versions = np.zeros(config.agents, dtype=np.int64)
        """Of V, as every agent has downloaded it last"""

    def segments(self, hosts: Hosts) -> Iterator[Segment]:
        """Run to the horizon. After every segment `state` can be saved; the last one has all exchanges to the end."""
        told: list[Trace] = []
        records: list[Round] = []
        began = time.perf_counter()
        while True:
            answers, self._answers = self._answers, []
            ahead = hosts.advance(answers)
            told = (
                [after(*traces) for traces in zip(told, (one.trace for one in ahead), strict=True)]
                if told
                else [one.trace for one in ahead]
            )
            for one in ahead:
                for event in one.events:
                    heapq.heappush(self._queue, event)
            bound = min(one.bound for one in ahead)
            records += self._take(bound)
            finished = bound == NEVER and not self._queue and not self._answers
            count = min(len(trace.arms) for trace in told)
            if not finished:
                count = min(count, self._config.horizon - 1 - self.delivered)
            if count > 0:
                start, self.delivered = self.delivered, self.delivered + count
                theta = self.server.theta.cpu().numpy() if finished and self.server.theta is not None else None
                trace = side_by_side([part(trace, 0, count) for trace in told], self._clock.shown)
                told = [part(trace, count, None) for trace in told]
                before = self.server.exchanges - len(records)
                seconds = time.perf_counter() - began
                yield Segment(start, self.delivered, trace, None, seconds, theta, tuple(records), before)
                records, began = [], time.perf_counter()
            if finished:
                return

    def _take(self, bound: Moment) -> list[Round]:
        """Take all uploads before which no other can come."""
        records = []
        while self._queue and self._queue[0].moment < bound:
            event = heapq.heappop(self._queue)
            answer, record = self._exchange(event)
            self._answers.append(answer)
            records.append(record)
            if event.iteration < self._config.horizon:
                one, then = np.array([event.agent]), np.array([event.iteration + 1])
                soonest = answer.time + sum(self._clock.iterations(one, then)) + self._least[one]
                bound = min(bound, (float(soonest[0]), event.agent))
        return records

    def _exchange(self, event: Event) -> tuple[Answer, Round]:
        agent, server, clock = event.agent, self.server, self._clock
        staleness = server.staleness(agent)
        download = server.take(agent, event.upload, event.iteration, event.iteration - event.length)
        cost = server.statistics.cost(event.length, download.version - int(self._versions[agent]))
        self._versions[agent] = download.version
        receiving = float(clock.receiving(np.array([agent]), float(cost.bytes_down))[0])
        quantities = {quantity.name: event.upload.report.get(quantity.name, math.nan) for quantity in QUANTITIES}
        if isinstance(download.weight, torch.Tensor):
            quantities["broadcast_alpha"] = float(download.weight)
        times = Times(event.time, event.computing, 0.0, event.sending + receiving, event.away)
        record = Round(
            iteration=event.iteration,
            length=event.length,
            triggered=(agent,),
            measure=event.upload.measure,
            level=server.statistics.trigger.level,
            cost=cost,
            quantities=quantities,
            times=times if clock.shown else None,
            staleness=staleness,
        )
        return Answer(event.time + receiving, download), record

    def states(self, hosts: Hosts) -> tuple[State, State]:
        """The agents' and the server's state after a segment."""
        answers, self._answers = self._answers, []
        agents = hosts.states(answers)
        state = self.server.state() | {"versions": torch.from_numpy(self._versions)}
        for event in self._queue:
            state |= prefixed(f"queue.{event.agent}", event_state(event))
        return agents, state

    def load(self, delivered: int, state: State) -> None:
        """Take over a server's state after so many iterations were handed over."""
        self.delivered = delivered
        self.server.load(state)
        self._versions = state["versions"].numpy().copy()
        waiting = {name.split(".")[1] for name in state if name.startswith("queue.")}
        self._queue = [event_of(unprefixed(f"queue.{agent}", state)) for agent in waiting]
        heapq.heapify(self._queue)


def local_exchanges(
    config: Config, environment: Environment, clock: Clock, groups: int = 1
) -> tuple[LocalHosts, Exchanges]:
    """A simulation in this process, its agents in some groups (the same bits for any number)."""
    kind = find("algorithm", config.algorithm)
    first, *others = split(config.agents, groups)
    group = kind(config, environment, first)
    rest = [kind(config, environment, agents, group.statistics) for agents in others]
    hosts = LocalHosts([Host(config, clock, one) for one in (group, *rest)])
    return hosts, Exchanges(config, clock, ExchangeServer(config, group.statistics))


def part(trace: Trace, start: int, end: int | None) -> Trace:
    """Some iterations of a trace."""
    return Trace(*(values[start:end] for values in vars(trace).values()))


def after(one: Trace, other: Trace) -> Trace:
    """Two traces, one after the other."""
    return Trace(*(np.concatenate(both) for both in zip(vars(one).values(), vars(other).values(), strict=True)))


def side_by_side(traces: list[Trace], clocked: bool) -> Trace:
    """Traces of hosts in agent order; alpha is the mean over agents, each of which has its own."""
    columns = [np.concatenate(all_, axis=1) for all_ in zip(*(vars(trace).values() for trace in traces), strict=True)]
    arms, rewards, regret, weight, times = columns
    return Trace(arms, rewards, regret, weight.mean(1), times if clocked else None)
