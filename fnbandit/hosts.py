"""Agents in simulated time: a host runs those of one group ahead to their next uploads."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from fnbandit.algorithms.asynchronous import AsynchronousGroup
from fnbandit.algorithms.base import Trace
from fnbandit.clock import Clock
from fnbandit.config import Config
from fnbandit.rounds.exchange import AgentUpload, Download
from fnbandit.state import State, prefixed, unprefixed

Moment = tuple[float, int]
"""Simulated seconds and an agent: what the server's order goes by"""
FEW = 8
"""One in so many agents is few"""
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
    upload: AgentUpload = field(compare=False)

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
        self.training, self.sending = np.zeros(n), np.zeros(n)
        """Seconds of the training and of the message that such an upload takes"""
        self.prepared = np.zeros(n, dtype=np.int64)
        """1 for agents that have trained for it"""
        self.waiting = np.zeros(n, dtype=np.int64)
        """1 for agents whose upload the server has"""
        self.times = np.zeros((n, config.horizon))
        self.told = 0
        """Iterations whose trace has been told"""
        self._least = clock.sending(self.numbers, float(group.statistics.cost(1, 0).bytes_up))
        """Seconds of an upload of one row: none takes less"""
        self._bounds = np.zeros(n)
        self._plan(np.arange(n))

    def _plan(self, agents: np.ndarray) -> None:
        """When the uploads of agents can arrive at the earliest: after one more iteration."""
        more = self.group.done[agents] < self._horizon
        computing, away = self._clock.iterations(self.numbers[agents], self.group.done[agents] + 1)
        soonest = self.now[agents] + (computing + away) + self._least[agents]
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
        """Run until few agents are under way and an upload is certain to be the next of this host.

        The more agents step and train together, the faster; what they do is the same.
        """
        while True:
            under_way = self._under_way
            bound = self._bound(under_way, self._bounds)
            ready = np.flatnonzero(~np.isnan(self.arrival))
            certain = self._bound(ready, self.arrival) < bound
            if not len(under_way) or (certain and len(under_way) * FEW <= len(self.numbers)):
                break
            able = under_way[self.group.done[under_way] < self.group.looked_until[under_way]]
            if not len(able):
                self.group.look_ahead(under_way)
                able = under_way
            self._step(able)
        first = [agent for agent in ready if (self.arrival[agent], self.numbers[agent]) < bound]
        events = self._events(np.array(first, dtype=np.int64))
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
            self.training[agent], self.sending[agent] = self._before(int(agent))
            self.arrival[agent] = self.now[agent] + self.training[agent] + self.sending[agent]
            self.prepared[agent] = 0
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
        if (self.prepared[agents] == 0).any():
            # All that will upload: the more together, the faster.
            due = np.flatnonzero(~np.isnan(self.arrival) & (self.prepared == 0))
            group.train(due)
            self.prepared[due] = 1
        uploads = group.uploads(agents) if len(agents) else []
        for agent, upload in zip(agents.tolist(), uploads, strict=True):
            done = int(group.done[agent])
            event = Event(
                time=float(self.arrival[agent]),
                agent=int(self.numbers[agent]),
                iteration=done,
                length=done - int(group.last[agent]),
                computing=float(self.computing[agent] + self.training[agent]),
                away=float(self.away[agent]),
                sending=float(self.sending[agent]),
                upload=upload,
            )
            events.append(event)
            self.arrival[agent], self.waiting[agent] = math.nan, 1
        return sorted(events)

    def state(self) -> State:
        """Everything that `load` needs to go on with the same bits: of agents by number, and versions they hold."""
        state = prefixed("statistics", self.group.statistics.state())
        for agent, number in enumerate(self.numbers):
            own = {name: torch.tensor(getattr(self, name)[agent]) for name in HOST_NUMBERS}
            own |= {"times": torch.from_numpy(self.times[agent]), **self.group.agent_state(agent)}
            state |= prefixed(str(number), {name: tensor.clone() for name, tensor in own.items()})
        return state

    def load(self, told: int, state: State) -> None:
        """Take over a `state` of these agents, or of more, after `told` iterations of all agents were told."""
        self.told = told
        self.group.statistics.load(unprefixed("statistics", state))
        for agent, number in enumerate(self.numbers):
            own = unprefixed(str(number), state)
            self.group.load_agent(agent, own)
            for name in HOST_NUMBERS:
                getattr(self, name)[agent] = own[name].item()
            self.times[agent] = own["times"].numpy()
        self._plan(np.arange(len(self.numbers)))


HOST_NUMBERS = ("now", "computing", "away", "arrival", "training", "sending", "prepared", "waiting")


EVENT_NUMBERS = {"time": float, "agent": int, "iteration": int, "length": int, "computing": float, "away": float,
                 "sending": float}  # fmt: skip
UPLOADED = ("news", "moments", "theta", "weight", "change")


def event_state(event: Event) -> State:
    """An upload on its way, as tensors."""
    state = {name: torch.tensor(getattr(event, name), dtype=torch.float64) for name in EVENT_NUMBERS}
    sent = {name: getattr(event.upload, name) for name in UPLOADED}
    state |= {f"upload.{name}": tensor for name, tensor in sent.items() if tensor is not None}
    reported = {f"report.{name}": value for name, value in event.upload.report.items()}
    numbers = {"measure": event.upload.measure, "trained": float(event.upload.trained), **reported}
    return state | {name: torch.tensor(value, dtype=torch.float64) for name, value in numbers.items()}


def event_of(state: State) -> Event:
    """The way back."""
    sent: dict[str, Any] = {name: state.get(f"upload.{name}") for name in UPLOADED}
    report = {name: value.item() for name, value in unprefixed("report", state).items()}
    upload = AgentUpload(state["measure"].item(), **sent, trained=bool(state["trained"]), report=report)
    return Event(**{name: kind(state[name].item()) for name, kind in EVENT_NUMBERS.items()}, upload=upload)
