"""Computes the running totals of a run, for summary.json and for trackers."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from fnbandit.config import Config
from fnbandit.config.registry import resolve_part
from fnbandit.core import Segment, Status
from fnbandit.federation.quantities import QUANTITIES
from fnbandit.simulation.clock import make_clock
from fnbandit.simulation.results import TIMES, standard_error

PHASES = TIMES[1:]
"""Uses of simulated time: all fields of `Times` but `time`"""
STEPS = 500
"""Largest number of values per metric"""
SECONDARY_METRIC_STRIDE = 5
"""Secondary metrics have one in this many values, because each costs a tracker's store time"""


class RunTotals:
    """An observer that sums regret, rounds, bytes and times, and samples them as metrics for trackers."""

    def __init__(self, seconds: float = 0.0) -> None:
        """Start from the `seconds` that earlier sessions of the run took."""
        self._earlier = seconds

    def begin(self, config: Config) -> None:
        self.config = config
        self.iterations = 0
        self.per_agent = np.zeros(config.honest_agents)
        """Cumulative regret of every agent that does not lie"""
        self.rounds = 0
        """Rounds at barriers; an agent that waits for no other has exchanges of its own instead"""
        self.exchanges = 0
        self.messages_up = self.messages_down = 0
        self.numbers_up = self.numbers_down = 0
        self.bytes_up = self.bytes_down = 0
        self.clocked = make_clock(config).shown
        self.simulated_seconds = 0.0
        """Simulated seconds of the slowest agent"""
        self.spent = dict.fromkeys(PHASES, 0.0)
        """Mean simulated seconds of the agents, by use"""
        self.quantities: dict[str, float] = {}
        """Quantities of the last round"""
        self._traits = resolve_part("algorithm", config.algorithm).traits
        self.began = time.monotonic() - self._earlier
        self.step = -(-config.horizon // STEPS)
        """Iterations between two values of a metric"""
        self.due: list[tuple[int, dict[str, float]]] = []
        """Iterations of the last segment at which metrics are due, with their values"""

    def segment(self, segment: Segment) -> None:
        trace = segment.trace
        mean = trace.regret.mean(1)
        cumulative = self.per_agent.mean() + np.cumsum(mean)
        self.per_agent = self.per_agent + trace.regret.sum(0)
        before = self._communication()
        for record in segment.rounds:
            self.rounds += record.agent is None
            self.exchanges += record.exchanges
            for name, value in vars(record.cost).items():
                setattr(self, name, getattr(self, name) + value)
            self.quantities = record.quantities
            if record.times is not None:
                share = 1 if record.agent is None else 1 / self.config.agents
                for name in PHASES:
                    self.spent[name] += share * getattr(record.times, name)
        self.iterations = segment.end
        if trace.time is not None:
            self.simulated_seconds = float(trace.time[-1].max())
        self.due = []
        for iteration in range(segment.start + 1, segment.end + 1):
            if iteration % self.step == 0 or iteration == self.config.horizon:
                place = iteration - segment.start - 1
                metrics = {"regret": float(cumulative[place])}
                if trace.time is not None:
                    metrics["simulated_seconds"] = float(trace.time[place].mean())
                metrics |= self._communication() if iteration == segment.end else before
                if iteration % (self.step * SECONDARY_METRIC_STRIDE) == 0 or iteration == self.config.horizon:
                    metrics |= {"regret_now": float(mean[place]), "alpha": float(trace.alpha[place])}
                    metrics |= {"seconds": self.seconds, **self._collect_reported()}
                self.due.append((iteration, metrics))

    def end(self, status: Status) -> None:
        """Keep the totals: observers after this one read them."""

    def _communication(self) -> dict[str, float]:
        if not self._traits.communicates:
            return {}
        name = "exchanges" if self._traits.is_asynchronous else "rounds"
        return {name: float(getattr(self, name)), "bytes": float(self.bytes_up + self.bytes_down)}

    def _collect_reported(self) -> dict[str, float]:
        found = {q.metric: self.quantities.get(q.name, np.nan) for q in QUANTITIES if q.metric}
        return {metric: value for metric, value in found.items() if np.isfinite(value)}

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    @property
    def regret(self) -> float:
        return float(self.per_agent.mean())

    def summary(self) -> dict[str, Any]:
        """Return the totals by their names in summary.json."""
        names = ("iterations", "regret", "rounds", "exchanges", "messages_up", "messages_down", "numbers_up",
                 "numbers_down", "bytes_up", "bytes_down", "seconds")  # fmt: skip
        return {name: getattr(self, name) for name in names} | {
            "regret_standard_error": float(standard_error(self.per_agent)),
            **({"honest_agents": len(self.per_agent)} if len(self.per_agent) < self.config.agents else {}),
            **({"simulated_seconds": self.simulated_seconds, "simulated": self.spent} if self.clocked else {}),
        }
