"""Simulated time of rounds at a barrier, computed from finished segments; it affects no choice."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, repeat

import numpy as np

from fnbandit.core import Round, Segment, Times
from fnbandit.federation.participation import Everyone
from fnbandit.simulation.clock import Clock


class Timeline:
    """The simulated time of each of N agents. It receives segments in order, from the first iteration on.

    Between two rounds every agent runs at its own speed. The round of iteration t begins for an agent when it has
    finished that iteration and, where agents ask for rounds (Alg. 1, lines 12-13), has received the server's signal,
    which answers that of the first agent. Then the agent trains and uploads. The server broadcasts when the slowest
    upload arrives, and each agent continues when it receives the broadcast. This is optimistic: agents stop exactly at
    the round's iteration; in a real protocol they would overshoot and wait longer.
    """

    def __init__(self, clock: Clock, participation: Everyone) -> None:
        self._clock, self._participation = clock, participation
        self._agents = np.arange(len(clock.speed))
        self._rounds = 0
        self._now = np.zeros(len(self._agents))
        """Time at which every agent finished its last iteration or received the download of the round after it"""
        self._computing = np.zeros_like(self._now)
        self._away = np.zeros_like(self._now)
        """Seconds of computing and of absence since the last round"""

    def add_times(self, segment: Segment) -> Segment:
        """Return the segment with simulated seconds."""
        times = np.empty((len(segment.trace.arms), len(self._agents)))
        for place, iteration in enumerate(range(segment.start + 1, segment.end + 1)):
            computing, away = self._clock.iterations(self._agents, np.array(iteration))
            self._now = self._now + (computing + away)
            self._computing = self._computing + computing
            self._away = self._away + away
            times[place] = self._now
        records = tuple(self._time_round(record) for record in segment.rounds)
        return replace(
            segment, trace=replace(segment.trace, time=times[:, : segment.trace.arms.shape[1]]), rounds=records
        )

    def _time_round(self, record: Round) -> Round:
        """Return the record with its times; every exchange lasts until the slowest participant's upload arrives."""
        clock, agents, cost = self._clock, self._agents, record.cost
        present = self._participation.draw(self._rounds, record.iteration)
        self._rounds += 1
        begins = self._now
        if cost.messages_up > record.exchanges * record.participants:
            asking = np.array(record.triggered)
            begins = np.maximum(begins, (begins + clock.latency)[asking].min() + clock.latency)
        steps = record.quantities.get("steps", np.nan)
        training = clock.time_training(agents, 0.0 if np.isnan(steps) else steps / record.exchanges)
        waiting = np.where(present, begins - self._now, 0.0)
        sending = np.zeros_like(self._now)
        free = np.where(present, begins, self._now)
        for exchange in chain.from_iterable(repeat(same, count) for count, same in record.costs or ((1, cost),)):
            up = clock.time_upload(agents, exchange.bytes_up / record.participants)
            down = clock.time_download(agents, exchange.bytes_down / len(agents))
            arrivals = np.where(present, free + training + up, free)
            time = float(arrivals[present].max())
            waiting = waiting + np.maximum(time - arrivals, 0.0)
            sending = sending + np.where(present, up + down, down)
            free = np.maximum(time, arrivals) + down
        times = Times(
            time=time,
            computing=float((self._computing + np.where(present, training * record.exchanges, 0.0)).mean()),
            waiting=float(waiting.mean()),
            sending=float(sending.mean()),
            away=float(self._away.mean()),
        )
        self._now = free
        self._computing = self._away = np.zeros_like(self._now)
        return replace(record, times=times)
