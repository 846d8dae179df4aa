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
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import torch

from fnbandit.algorithms.asynchronous import AsynchronousGroup
from fnbandit.algorithms.base import Trace
from fnbandit.clock import Clock
from fnbandit.config import Config
from fnbandit.environments import Environment
from fnbandit.registry import find
from fnbandit.results import QUANTITIES, Round, Segment, Times
from fnbandit.rounds.exchange import Download, ExchangeServer
from fnbandit.rounds.messages import Upload
from fnbandit.simulation import mean_of, split
from fnbandit.state import State, prefixed, unprefixed

Moment = tuple[float, int]
"""Simulated seconds and an agent: what the server's order goes by"""
NEVER: Moment = (math.inf, 0)


@dataclass(frozen=True, order=True)
class Event:
    """An agent's upload on its arrival at the server."""

    time: float
    agent: int
    iteration: int = field(compare=False)
    length: int = field(compare=False)
    """Iterations since the agent's last exchange"""
    computing: float = field(compare=False)
    """Seconds of them, and of training"""
    away: float = field(compare=False)
    sending: float = field(compare=False)
    """Seconds of the upload"""
    upload: Upload = field(compare=False)

    @property
    def moment(self) -> Moment:
        return self.time, self.agent


@dataclass(frozen=True)
class Answer:
    """What the server sends an agent, and when it arrives."""

    time: float
    download: Download


@dataclass(frozen=True)
class Ahead:
    """How far a host has come."""

    events: list[Event]
    """Uploads, before which none of this host's agents can have another"""
    bound: Moment
    """No later upload of this host will come before"""
    trace: Trace
    """Of the iterations that all of its agents have finished since it was last told"""


class Host:
    """Agents of one group in simulated time: runs them ahead to their next uploads."""

    def __init__(self, config: Config, clock: Clock, group: AsynchronousGroup) -> None:
        self.group, self._clock, self._horizon = group, clock, config.horizon
        n = len(group.agents)
        self.numbers = np.arange(group.agents.start, group.agents.stop)
        self.now = np.zeros(n)
        """When every agent finished its last iteration, or received its last answer"""
        self.computing, self.away = np.zeros(n), np.zeros(n)
        """Seconds since every agent's last exchange"""
        self.arrival = np.full(n, math.nan)
        """When the upload of an agent will arrive that has one ready"""
        self.waiting = np.zeros(n, dtype=np.int64)
        """1 for agents whose upload the server has"""
        self.times = np.zeros((n, config.horizon))
        self.told = 0
        """Iterations whose trace has been told"""
        self._bounds = np.zeros(n)
        self._plan(np.arange(n))

    def _plan(self, agents: np.ndarray) -> None:
        """When the uploads of agents can arrive at the earliest: after one more iteration."""
        more = self.group.done[agents] < self._horizon
        computing, away = self._clock.iterations(self.numbers[agents], self.group.done[agents] + 1)
        soonest = self.now[agents] + (computing + away) + self._clock.latency[self.numbers[agents]]
        self._bounds[agents] = np.where(more, soonest, math.inf)

    @property
    def _under_way(self) -> np.ndarray:
        return np.flatnonzero(np.isnan(self.arrival) & (self.waiting == 0) & (self.group.done < self._horizon))

    def _bound(self, agents: np.ndarray, times: np.ndarray) -> Moment:
        """The first of some moments."""
        if not len(agents):
            return NEVER
        first = agents[np.lexsort((agents, times[agents]))[0]]
        return float(times[first]), int(self.numbers[first])

    def hear(self, answers: list[Answer]) -> None:
        """Hand agents the server's answers."""
        for answer in answers:
            agent = answer.download.agent - int(self.numbers[0])
            self.group.receive(agent, answer.download)
            self.now[agent] = answer.time
            self.waiting[agent] = 0
            self.computing[agent] = self.away[agent] = 0.0
            self._plan(np.array([agent]))

    def advance(self) -> Ahead:
        """Run until an upload is certain to be the next of this host, or nobody is under way."""
        while True:
            under_way = self._under_way
            bound = self._bound(under_way, self._bounds)
            ready = np.flatnonzero(~np.isnan(self.arrival))
            if not len(under_way) or self._bound(ready, self.arrival) < bound:
                break
            self._step(under_way)
        certain = [agent for agent in ready if (self.arrival[agent], self.numbers[agent]) < bound]
        events = self._events(np.array(certain, dtype=np.int64))
        left = np.flatnonzero(~np.isnan(self.arrival))
        start, end = self.told, int(self.group.done.min())
        self.told = end
        trace = replace(self.group.trace(start, end), time=self.times[:, start:end].T)
        return Ahead(events, min(bound, self._bound(left, self.arrival)), trace)

    def _step(self, agents: np.ndarray) -> None:
        group, clock, numbers = self.group, self._clock, self.numbers[agents]
        computing, away = clock.iterations(numbers, group.done[agents] + 1)
        fired = group.advance_active(agents)
        self.now[agents] += computing + away
        self.computing[agents] += computing
        self.away[agents] += away
        self.times[agents, group.done[agents] - 1] = self.now[agents]
        for agent in agents[fired]:
            training, sending = self._before(int(agent))
            self.arrival[agent] = self.now[agent] + training + sending
        self._plan(agents)

    def _before(self, agent: int) -> tuple[float, float]:
        """Seconds of training and of the upload before an agent's exchange."""
        number, group = self.numbers[[agent]], self.group
        size = group.statistics.cost(int(group.done[agent] - group.last[agent]), 0).bytes_up
        training = self._clock.training(number, float(group.steps_of(agent)))
        return float(training[0]), float(self._clock.sending(number, float(size))[0])

    def _events(self, agents: np.ndarray) -> list[Event]:
        """The uploads of agents that have one ready."""
        group, events = self.group, []
        seconds = [self._before(int(agent)) for agent in agents]
        if len(agents):
            group.train(agents)
        for agent, (training, sending) in zip(agents.tolist(), seconds, strict=True):
            done = int(group.done[agent])
            event = Event(
                time=float(self.arrival[agent]),
                agent=int(self.numbers[agent]),
                iteration=done,
                length=done - int(group.last[agent]),
                computing=float(self.computing[agent]) + training,
                away=float(self.away[agent]),
                sending=sending,
                upload=group.upload(agent),
            )
            events.append(event)
            self.arrival[agent], self.waiting[agent] = math.nan, 1
        return sorted(events)

    def state(self) -> State:
        """Everything of these agents that `load` needs to go on with the same bits, by agent."""
        state: State = {}
        for agent, number in enumerate(self.numbers):
            own = {name: torch.tensor(getattr(self, name)[agent]) for name in HOST_NUMBERS}
            own |= {"times": torch.from_numpy(self.times[agent]), **self.group.agent_state(agent)}
            state |= prefixed(str(number), {name: tensor.clone() for name, tensor in own.items()})
        return state

    def load(self, told: int, state: State) -> None:
        """Take over a `state` after `told` iterations of all agents were told; the statistics are loaded already."""
        self.told = told
        for agent, number in enumerate(self.numbers):
            own = unprefixed(str(number), state)
            self.group.load_agent(agent, own)
            for name in HOST_NUMBERS:
                getattr(self, name)[agent] = own[name].item()
            self.times[agent] = own["times"].numpy()
        self._plan(np.arange(len(self.numbers)))


HOST_NUMBERS = ("now", "computing", "away", "arrival", "waiting")


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
                trace = side_by_side([part(trace, 0, count) for trace in told])
                told = [part(trace, count, None) for trace in told]
                yield Segment(start, self.delivered, trace, None, time.perf_counter() - began, theta, tuple(records))
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
                soonest = answer.time + sum(self._clock.iterations(one, then)) + self._clock.latency[one]
                bound = min(bound, (float(soonest[0]), event.agent))
        return records

    def _exchange(self, event: Event) -> tuple[Answer, Round]:
        agent, server, clock = event.agent, self.server, self._clock
        staleness = server.staleness(agent)
        download = server.take(agent, event.upload)
        cost = server.statistics.cost(event.length, download.version - int(self._versions[agent]))
        self._versions[agent] = download.version
        receiving = float(clock.receiving(np.array([agent]), float(cost.bytes_down))[0])
        quantities = {quantity.name: mean_of(quantity.name, [event.upload]) for quantity in QUANTITIES}
        if isinstance(download.weight, torch.Tensor):
            quantities["broadcast_alpha"] = float(download.weight)
        times = Times(event.time, event.computing, 0.0, event.sending + receiving, event.away)
        record = Round(
            iteration=event.iteration,
            length=event.length,
            triggered=(agent,),
            measure=float(event.upload.measure[0]),
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


EVENT_NUMBERS = {"time": float, "agent": int, "iteration": int, "length": int, "computing": float, "away": float,
                 "sending": float}  # fmt: skip
UPLOADED = ("measure", "news", "moments", "theta", "weight", "change")


def event_state(event: Event) -> State:
    """An upload on its way, as tensors."""
    state = {name: torch.tensor(getattr(event, name), dtype=torch.float64) for name in EVENT_NUMBERS}
    sent = {name: getattr(event.upload, name) for name in UPLOADED}
    state |= {f"upload.{name}": tensor for name, tensor in sent.items() if tensor is not None}
    return state | {"trained": torch.tensor(event.upload.trained), **prefixed("report", event.upload.report)}


def event_of(state: State) -> Event:
    """The way back."""
    sent = {name: state.get(f"upload.{name}") for name in UPLOADED}
    upload = Upload(**sent, trained=bool(state["trained"]), report=unprefixed("report", state))  # type: ignore[arg-type]
    return Event(**{name: kind(state[name].item()) for name, kind in EVENT_NUMBERS.items()}, upload=upload)


def part(trace: Trace, start: int, end: int | None) -> Trace:
    """Some iterations of a trace."""
    return Trace(*(values[start:end] for values in vars(trace).values()))


def after(one: Trace, other: Trace) -> Trace:
    """Two traces, one after the other."""
    return Trace(*(np.concatenate(both) for both in zip(vars(one).values(), vars(other).values(), strict=True)))


def side_by_side(traces: list[Trace]) -> Trace:
    """Traces of hosts in agent order; alpha is the mean over agents, each of which has its own."""
    columns = [np.concatenate(all_, axis=1) for all_ in zip(*(vars(trace).values() for trace in traces), strict=True)]
    arms, rewards, regret, weight, times = columns
    return Trace(arms, rewards, regret, weight.mean(1), times)
