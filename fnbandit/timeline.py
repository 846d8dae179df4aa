"""Simulated time of synchronous rounds: it follows what happened, and changes no choice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fnbandit.clock import Clock
from fnbandit.results import Round, Segment, Times


class Timeline:
    """Where N agents stand in simulated time. Segments come in order, from the first iteration on.

    Between two rounds every agent goes on at its own speed. A round of iteration t begins for an agent when it has
    finished that iteration and, where agents ask for rounds (Alg. 1, lines 12-13), has heard the server's signal, which
    answers the first agent's. It trains and uploads; when the slowest upload has come the server broadcasts, and each
    agent goes on when it has received that. So agents know, as it were, in which iteration the next round is: a
    real protocol would wait longer.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._agents = np.arange(len(clock.speed))
        self._now = np.zeros(len(self._agents))
        """Of every agent, after the last iteration delivered, or when it received the round after it"""
        self._computing = np.zeros_like(self._now)
        self._away = np.zeros_like(self._now)
        """Seconds since the last round"""

    def timed(self, segment: Segment) -> Segment:
        """The segment with simulated seconds."""
        times = np.empty(segment.trace.arms.shape)
        for place, iteration in enumerate(range(segment.start + 1, segment.end + 1)):
            computing, away = self._clock.iterations(self._agents, np.array(iteration))
            self._now = self._now + (computing + away)
            self._computing = self._computing + computing
            self._away = self._away + away
            times[place] = self._now
        record = None if segment.round is None else self._round(segment.round)
        return replace(segment, trace=replace(segment.trace, time=times), round=record)

    def _round(self, record: Round) -> Round:
        clock, agents, cost = self._clock, self._agents, record.cost
        begins = self._now
        if cost.messages_up > len(agents):
            asking = np.array(record.triggered)
            begins = np.maximum(begins, (begins + clock.latency)[asking].min() + clock.latency)
        steps = record.quantities.get("steps", np.nan)
        training = clock.training(agents, 0.0 if np.isnan(steps) else steps)
        up = clock.sending(agents, cost.bytes_up / len(agents))
        down = clock.receiving(agents, cost.bytes_down / len(agents))
        came = begins + training + up
        time = float(came.max())
        times = Times(
            time=time,
            computing=float((self._computing + training).mean()),
            waiting=float((begins - self._now + time - came).mean()),
            sending=float((up + down).mean()),
            away=float(self._away.mean()),
        )
        self._now = time + down
        self._computing = self._away = np.zeros_like(self._now)
        return replace(record, times=times)
