"""Running totals of a run: what the progress bar, summary.json and MLflow show."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from fnbandit.clock import make_clock
from fnbandit.config import Config
from fnbandit.registry import find
from fnbandit.results import QUANTITIES, TIMES, Segment, standard_error

SPENT = TIMES[1:]
STEPS = 500
"""Values per metric, at the most."""
SELDOM = 5
"""Of the metrics that are not a run's main ones, every fifth value: a store takes its time for each."""


class Tally:
    """Running totals of a run: what the progress bar, the summary and MLflow show."""

    def __init__(self, config: Config, seconds: float = 0.0) -> None:
        """`seconds` is what earlier sessions of the run took."""
        self.config = config
        self.iterations = 0
        self.per_agent = np.zeros(config.agents)
        """Cumulative regret of every agent"""
        self.rounds = 0
        self.messages_up = self.messages_down = 0
        self.numbers_up = self.numbers_down = 0
        self.bytes_up = self.bytes_down = 0
        self.clocked = make_clock(config).shown
        self.simulated_seconds = 0.0
        """Of the slowest agent"""
        self.spent = dict.fromkeys(SPENT, 0.0)
        """Simulated seconds per agent"""
        self.quantities: dict[str, float] = {}
        """Of the last round"""
        self._communicates = find("algorithm", config.algorithm).communicates
        self.began = time.monotonic() - seconds
        self.step = -(-config.horizon // STEPS)
        """Iterations between two values of a metric"""

    def add(self, segment: Segment) -> list[tuple[int, dict[str, float]]]:
        """Take in a segment; the metrics that are due, by iteration."""
        trace = segment.trace
        mean = trace.regret.mean(1)
        cumulative = self.per_agent.mean() + np.cumsum(mean)
        self.per_agent = self.per_agent + trace.regret.sum(0)
        before = self._communication()
        for record in segment.rounds:
            self.rounds += 1
            for name, value in vars(record.cost).items():
                setattr(self, name, getattr(self, name) + value)
            self.quantities = record.quantities
            if record.times is not None:
                share = 1 if record.agent is None else 1 / self.config.agents
                for name in SPENT:
                    self.spent[name] += share * getattr(record.times, name)
        self.iterations = segment.end
        if trace.time is not None:
            self.simulated_seconds = float(trace.time[-1].max())
        due = []
        for iteration in range(segment.start + 1, segment.end + 1):
            if iteration % self.step == 0 or iteration == self.config.horizon:
                place = iteration - segment.start - 1
                metrics = {"regret": float(cumulative[place])}
                if trace.time is not None:
                    metrics["simulated_seconds"] = float(trace.time[place].mean())
                metrics |= self._communication() if iteration == segment.end else before
                if iteration % (self.step * SELDOM) == 0 or iteration == self.config.horizon:
                    metrics |= {"regret_now": float(mean[place]), "alpha": float(trace.weight[place])}
                    metrics |= {"seconds": self.seconds, **self._reported()}
                due.append((iteration, metrics))
        return due

    def _communication(self) -> dict[str, float]:
        if not self._communicates:
            return {}
        return {"rounds": float(self.rounds), "bytes": float(self.bytes_up + self.bytes_down)}

    def _reported(self) -> dict[str, float]:
        found = {q.metric: self.quantities.get(q.name, np.nan) for q in QUANTITIES if q.metric}
        return {metric: value for metric, value in found.items() if np.isfinite(value)}

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    @property
    def regret(self) -> float:
        return float(self.per_agent.mean())

    def summary(self) -> dict[str, Any]:
        """The totals, by the names of summary.json."""
        names = ("iterations", "regret", "rounds", "messages_up", "messages_down", "numbers_up", "numbers_down",
                 "bytes_up", "bytes_down", "seconds")  # fmt: skip
        return {name: getattr(self, name) for name in names} | {
            "regret_standard_error": float(standard_error(self.per_agent)),
            **({"simulated_seconds": self.simulated_seconds, "simulated": self.spent} if self.clocked else {}),
        }
