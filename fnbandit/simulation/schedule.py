"""Schedules: all agents upload at a barrier (the paper), or each agent when its own trigger fires."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from fnbandit.config import Config
from fnbandit.core import NEVER, Advance, Arrival, Download, Round, Segment, Times, Trace, Upload
from fnbandit.numerics.state import State, add_prefix, remove_prefix
from fnbandit.simulation.clock import Clock
from fnbandit.simulation.events import load_arrival, save_arrival

LONGEST_PART = 64
"""Iterations after which an epoch without a round reaches the observers in parts"""


class Barrier:
    """All agents stop at the iteration in which the first of them triggers, and upload together (Alg. 1, line 13).

    Batches run ahead on their own. Those that ran past the first trigger go back to it.
    """

    def __init__(self, config: Config, has_rounds: bool) -> None:
        self._horizon, self._has_rounds, self._delay = config.horizon, has_rounds, config.feedback_delay
        self._honest = config.honest_agents
        self.start = self._last_round = 0
        """Number of iterations that observers have received"""
        self._part = LONGEST_PART
        self._records: list[Round] = []

    @property
    def is_finished(self) -> bool:
        return self.start >= self._horizon

    @property
    def limit(self) -> int:
        return min(self._horizon, self.start + self._part)

    def barrier(self, advances: Sequence[Advance]) -> int | None:
        first = min(advance.bound for advance in advances)
        is_settled = first == NEVER or all(advance.upload is not None for advance in advances)
        return None if is_settled else int(first[0])

    def admit(self, advances: Sequence[Advance]) -> Iterator[Sequence[Upload]]:
        uploads = [advance.upload for advance in advances if advance.upload is not None]
        if uploads:
            yield uploads

    def answer(self, download: Download, record: Round) -> Download:
        # The algorithm counts rewards learned, observers count decisions.
        self._records = [replace(record, iteration=record.iteration + self._delay)]
        return download

    def finish(self, advances: Sequence[Advance]) -> Segment | None:
        trace = join_agents([advance.trace for advance in advances if advance.trace is not None]).of_first(self._honest)
        start, self.start = self.start, self.start + len(trace.arms)
        self._part = min(LONGEST_PART, 2 * self._part)
        if self._records:
            self._part = limit_part(self.start - self._last_round)
            self._last_round = self.start
        records, self._records = tuple(self._records), []
        return Segment(start, self.start, trace, records, 0.0, is_boundary=bool(records) or not self._has_rounds)

    def state(self) -> State:
        return {}

    def load(self, iteration: int, state: State) -> None:
        self.start = self._last_round = iteration


def limit_part(epoch: int) -> int:
    """Return the iterations that batches run ahead before they report: a quarter more than the last epoch had."""
    return min(LONGEST_PART, max(1, epoch + epoch // 4))


class FirstCome:
    """Every agent uploads when its own trigger fires; the server answers in the order of (simulated time, agent).

    This is a discrete-event simulation with lookahead: the iterations of an agent up to its next upload depend on its
    last download alone. So a batch runs its agents ahead, and the server answers an upload as soon as no running agent
    can have an earlier one. Lookahead affects speed only: the same uploads arrive in the same order for every split of
    the agents into batches.
    """

    def __init__(self, config: Config, clock: Clock, smallest_upload: int) -> None:
        self._config, self._clock = config, clock
        self.start = 0
        """Number of iterations that all agents have finished and observers have received"""
        self.limit = config.horizon
        self.is_finished = False
        self._queue: list[Arrival] = []
        """Uploads that cannot be answered yet, as a heap"""
        self._bound = NEVER
        self._least = clock.time_upload(np.arange(config.agents), float(smallest_upload))
        """Seconds of an upload of one row, the shortest possible"""
        self._traces: list[Trace] = []
        """Iterations of every batch that observers have not received"""
        self._records: list[Round] = []
        self._answered = 0
        """Number of uploads answered since agents last advanced"""

    def barrier(self, advances: Sequence[Advance]) -> int | None:
        return None

    def admit(self, advances: Sequence[Advance]) -> Iterator[Sequence[Upload]]:
        for advance in advances:
            for arrival in advance.arrivals:
                heapq.heappush(self._queue, arrival)
        self._bound = min(advance.bound for advance in advances)
        self._answered = 0
        while self._queue and self._queue[0].key < self._bound:
            self._arrival = heapq.heappop(self._queue)
            yield [self._arrival.upload]

    def answer(self, download: Download, record: Round) -> Download:
        arrival, clock, one = self._arrival, self._clock, np.array([self._arrival.agent])
        receiving = float(clock.time_download(one, float(record.cost.bytes_down))[0])
        arrives = arrival.time + receiving
        times = Times(arrival.time, arrival.computing, 0.0, arrival.sending + receiving, arrival.away)
        self._records.append(replace(record, times=times) if clock.shown else record)
        self._answered += 1
        if download.iteration < self._config.horizon:
            then = np.array([download.iteration + 1])
            soonest = arrives + sum(clock.iterations(one, then)) + self._least[one]
            self._bound = min(self._bound, (float(soonest[0]), arrival.agent))
        return replace(download, time=arrives)

    def finish(self, advances: Sequence[Advance]) -> Segment | None:
        new = [advance.trace for advance in advances if advance.trace is not None]
        self._traces = [join_iterations(*both) for both in zip(self._traces, new, strict=True)] if self._traces else new
        self.is_finished = self._bound == NEVER and not self._queue and not self._answered
        count = min(len(trace.arms) for trace in self._traces)
        if not self.is_finished:
            count = min(count, self._config.horizon - 1 - self.start)
        if count <= 0:
            return None
        start, self.start = self.start, self.start + count
        trace = join_agents([trace.part(0, count) for trace in self._traces])
        # Each agent has its own alpha; the segment contains the mean over agents.
        trace = replace(trace, alpha=trace.alpha.mean(1), time=trace.time if self._clock.shown else None)
        self._traces = [trace.part(count, None) for trace in self._traces]
        records, self._records = tuple(self._records), []
        return Segment(start, self.start, trace, records, 0.0)

    def state(self) -> State:
        queue: State = {}
        for arrival in self._queue:
            queue |= add_prefix(f"queue.{arrival.agent}", save_arrival(arrival))
        return queue

    def load(self, iteration: int, state: State) -> None:
        self.start = iteration
        waiting = {name.split(".")[1] for name in state if name.startswith("queue.")}
        self._queue = [load_arrival(remove_prefix(f"queue.{agent}", state)) for agent in waiting]
        heapq.heapify(self._queue)


def join_agents(traces: Sequence[Trace]) -> Trace:
    """Join traces of batches, in agent order; lock-step batches share one alpha."""
    alpha = traces[0].alpha
    return Trace(
        arms=np.concatenate([trace.arms for trace in traces], axis=1),
        rewards=np.concatenate([trace.rewards for trace in traces], axis=1),
        regret=np.concatenate([trace.regret for trace in traces], axis=1),
        alpha=alpha if alpha.ndim == 1 else np.concatenate([trace.alpha for trace in traces], axis=1),
        time=None if traces[0].time is None else np.concatenate([trace.time for trace in traces], axis=1),
    )


def join_iterations(one: Trace, other: Trace) -> Trace:
    """Join two consecutive traces of the same agents."""
    return Trace(*(np.concatenate(both) for both in zip(vars(one).values(), vars(other).values(), strict=True)))
