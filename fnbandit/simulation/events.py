"""Batches of agents that do not wait: each runs its agents ahead, in simulated time, to their next uploads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from fnbandit.algorithms.asynchronous import AsynchronousGroup
from fnbandit.config import Config
from fnbandit.core import NEVER, Advance, Arrival, ArrivalTime, Download, Upload
from fnbandit.numerics.state import State, add_prefix, remove_prefix
from fnbandit.simulation.clock import Clock

RUNNING_SHARE = 8
"""A batch returns uploads once at most 1 / RUNNING_SHARE of its agents are still running"""


class EventBatch:
    """Agents of one group, each in its own iteration and at its own simulated time."""

    def __init__(self, config: Config, clock: Clock, group: AsynchronousGroup) -> None:
        self.group, self._clock, self._horizon = group, clock, config.horizon
        self.agents, self.replica = group.agents, group.replica
        n = len(group.agents)
        self.numbers = np.arange(group.agents.start, group.agents.stop)
        self.now = np.zeros(n)
        """Simulated time at which every agent finished its last iteration or received its last download"""
        self.computing, self.away = np.zeros(n), np.zeros(n)
        """Seconds of computing and of absence since every agent's last exchange"""
        self.arrival = np.full(n, math.nan)
        """Simulated time at which an agent's ready upload arrives; NaN where there is none"""
        self.training, self.sending = np.zeros(n), np.zeros(n)
        """Seconds of the training before a ready upload, and of its message"""
        self.prepared = np.zeros(n, dtype=np.int64)
        """1 for agents that have trained for their ready upload"""
        self.waiting = np.zeros(n, dtype=np.int64)
        """1 for agents whose upload the server has not answered yet"""
        self.times = np.zeros((n, config.horizon))
        self.reported = 0
        """Number of iterations whose trace has been returned"""
        self._least = clock.time_upload(self.numbers, float(group.replica.cost(1, 0).bytes_up))
        """Seconds of an upload of one row, the shortest possible"""
        self._bounds = np.zeros(n)
        self._plan(np.arange(n))

    def _plan(self, agents: np.ndarray) -> None:
        """Compute the earliest arrival of the uploads of agents: after one more iteration."""
        more = self.group.done[agents] < self._horizon
        computing, away = self._clock.iterations(self.numbers[agents], self.group.done[agents] + 1)
        soonest = self.now[agents] + (computing + away) + self._least[agents]
        self._bounds[agents] = np.where(more, soonest, math.inf)

    @property
    def _running(self) -> np.ndarray:
        return np.flatnonzero(np.isnan(self.arrival) & (self.waiting == 0) & (self.group.done < self._horizon))

    def _bound(self, agents: np.ndarray, times: np.ndarray) -> ArrivalTime:
        """Return the first arrival of some agents."""
        if not len(agents):
            return NEVER
        first = agents[np.lexsort((agents, times[agents]))[0]]
        return float(times[first]), int(self.numbers[first])

    def receive(self, downloads: Sequence[Download]) -> None:
        for download in downloads:
            agent = download.agents.start - int(self.numbers[0])
            self.group.receive(agent, download)
            self.now[agent] = download.time
            self.waiting[agent] = 0
            self.computing[agent] = self.away[agent] = 0.0
            self._plan(np.array([agent]))

    def settle(self, start: int, iteration: int) -> Advance:
        raise NotImplementedError("agents that do not wait for each other have no barrier")

    def exchange(self, download: Download) -> Upload:
        raise NotImplementedError("rounds of single agents have one exchange")

    def advance(self, start: int, limit: int) -> Advance:
        """Run until few agents are running and an upload is certain to be the next of this batch.

        More agents that step and train together are faster; their choices are the same.
        """
        while True:
            running = self._running
            bound = self._bound(running, self._bounds)
            ready = np.flatnonzero(~np.isnan(self.arrival))
            certain = self._bound(ready, self.arrival) < bound
            if not len(running) or (certain and len(running) * RUNNING_SHARE <= len(self.numbers)):
                break
            able = running[self.group.done[running] < self.group.looked_until[running]]
            if not len(able):
                self.group.look_ahead(running)
                able = running
            self._step(able)
        first = [agent for agent in ready if (self.arrival[agent], self.numbers[agent]) < bound]
        arrivals = self._upload(np.array(first, dtype=np.int64))
        left = np.flatnonzero(~np.isnan(self.arrival))
        begin, end = self.reported, int(self.group.done.min())
        self.reported = end
        trace = replace(self.group.trace(begin, end), time=self.times[:, begin:end].T)
        return Advance(min(bound, self._bound(left, self.arrival)), trace, arrivals=tuple(arrivals))

    def _step(self, agents: np.ndarray) -> None:
        group, clock, numbers = self.group, self._clock, self.numbers[agents]
        computing, away = clock.iterations(numbers, group.done[agents] + 1)
        fired = group.advance_active(agents)
        self.now[agents] += computing + away
        self.computing[agents] += computing
        self.away[agents] += away
        self.times[agents, group.done[agents] - 1] = self.now[agents]
        for agent in agents[fired]:
            self.training[agent], self.sending[agent] = self._time_exchange(int(agent))
            self.arrival[agent] = self.now[agent] + self.training[agent] + self.sending[agent]
            self.prepared[agent] = 0
        self._plan(agents)

    def _time_exchange(self, agent: int) -> tuple[float, float]:
        """Return the seconds of training and of the upload before an agent's exchange."""
        number, group = self.numbers[[agent]], self.group
        size = group.replica.cost(int(group.done[agent] - group.last[agent]), 0).bytes_up
        training = self._clock.time_training(number, float(group.steps_of(agent)))
        return float(training[0]), float(self._clock.time_upload(number, float(size))[0])

    def _upload(self, agents: np.ndarray) -> list[Arrival]:
        """Return the uploads of agents that have one ready."""
        group, arrivals = self.group, []
        if (self.prepared[agents] == 0).any():
            # All agents with a ready upload: training more of them together is faster.
            due = np.flatnonzero(~np.isnan(self.arrival) & (self.prepared == 0))
            group.train(due)
            self.prepared[due] = 1
        uploads = group.uploads(agents) if len(agents) else []
        for agent, upload in zip(agents.tolist(), uploads, strict=True):
            arrival = Arrival(
                time=float(self.arrival[agent]),
                agent=int(self.numbers[agent]),
                computing=float(self.computing[agent] + self.training[agent]),
                away=float(self.away[agent]),
                sending=float(self.sending[agent]),
                upload=upload,
            )
            arrivals.append(arrival)
            self.arrival[agent], self.waiting[agent] = math.nan, 1
        return sorted(arrivals)

    def state(self) -> State:
        """Return histories [n, ..], every agent's own state by its number, and the versions that agents hold."""
        group = self.group
        state = add_prefix("replica", self.replica.state())
        state |= {name: getattr(group, name).clone() for name in HISTORY} | {
            "time": torch.from_numpy(self.times.copy())
        }
        for agent, number in enumerate(self.numbers):
            own = {name: torch.tensor(getattr(self, name)[agent]) for name in NUMBERS} | group.agent_state(agent)
            state |= add_prefix(f"agent.{number}", {name: tensor.clone() for name, tensor in own.items()})
        return state

    def load(self, iteration: int, state: State) -> None:
        """Continue from a `state` of these agents, whose first `iteration` iterations have been returned."""
        self.reported = iteration
        self.replica.load(remove_prefix("replica", state))
        for name in HISTORY:
            getattr(self.group, name).copy_(state[name])
        self.times[:] = state["time"].numpy()
        for agent, number in enumerate(self.numbers):
            own = remove_prefix(f"agent.{number}", state)
            self.group.load_agent(agent, own)
            for name in NUMBERS:
                getattr(self, name)[agent] = own[name].item()
        self._plan(np.arange(len(self.numbers)))


HISTORY = ("arms", "rewards", "regret", "alpha_history")
NUMBERS = ("now", "computing", "away", "arrival", "training", "sending", "prepared", "waiting")
ARRIVAL_NUMBERS = {"time": float, "agent": int, "computing": float, "away": float, "sending": float}
UPLOAD_TENSORS = ("measure", "covariance", "moments", "theta", "alpha", "inverse")


def save_arrival(arrival: Arrival) -> State:
    """Return an upload that waits for its answer, as tensors."""
    state = {name: torch.tensor(getattr(arrival, name), dtype=torch.float64) for name in ARRIVAL_NUMBERS}
    upload = arrival.upload
    sent = {name: getattr(upload, name) for name in UPLOAD_TENSORS}
    state |= {f"upload.{name}": tensor for name, tensor in sent.items() if tensor is not None}
    numbers = {"iteration": upload.iteration, "since": upload.since, "trained": int(upload.trained)}
    return state | {name: torch.tensor(value) for name, value in numbers.items()} | add_prefix("report", upload.report)


def load_arrival(state: State) -> Arrival:
    """Inverse of `save_arrival`."""
    own: dict[str, Any] = {name: kind(state[name].item()) for name, kind in ARRIVAL_NUMBERS.items()}
    upload = Upload(
        agents=range(own["agent"], own["agent"] + 1),
        iteration=int(state["iteration"]),
        since=int(state["since"]),
        **{name: state.get(f"upload.{name}") for name in UPLOAD_TENSORS},  # type: ignore[arg-type]
        trained=bool(state["trained"]),
        report=remove_prefix("report", state),
    )
    return Arrival(**own, upload=upload)
