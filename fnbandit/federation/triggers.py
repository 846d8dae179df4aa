"""Triggers, which decide after which iterations agents communicate (Alg. 1, lines 11-13).

A trigger either knows the iteration of the next round beforehand, or measures every agent's epoch: a round takes
place in the first iteration in which some agent's measure exceeds `level`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from fnbandit.config import Config


@dataclass(frozen=True)
class RoundCounters:
    """Position of an iteration among the rounds."""

    iteration: int
    last_round: int
    """t_last"""
    rounds: int
    """Number of rounds so far"""


class GainsToMeasure(Protocol):
    """Gains of n agents that triggers measure: those of an epoch, or those that follow from W_new."""

    def gain(self) -> Tensor: ...

    def diagonal_gain(self) -> Tensor: ...


class Trigger:
    """Base class; its defaults suit triggers that measure the exact log det."""

    measures = True
    """True where `measure` reads log det, so that V_last must be kept up to date for it"""
    needs_diagonal = False
    """True where `measure` reads `Epoch.diagonal_gain`"""
    level = math.nan
    """Threshold of the measure: a round takes place once some agent exceeds it; NaN without a measure"""
    most_gain = math.inf
    """Upper bound of log det V-bar - log det V_last while there is no round"""

    def __init__(self, config: Config) -> None:
        self._config = config

    def next_round(self, last_round: int) -> int | None:
        """Return the iteration of the next round; None where it is not known beforehand."""
        return None

    def expect_gap(self, iteration: int, dimension: float) -> float:
        """Return the expected iterations between two rounds around an iteration, for features of some dimension d.

        A row adds about d / (N t) to log det V, so the measure of an agent's k rows is about k^2 d / (N t).
        """
        known = self.next_round(iteration)
        if known is not None:
            return known - iteration
        return math.sqrt(self.level / self._gain_of_row(iteration, dimension))

    def _gain_of_row(self, iteration: int, dimension: float) -> float:
        return dimension / (self._config.agents * iteration)

    def most_rounds(self, information: float) -> int:
        """Return a bound on the rounds over the horizon, if log det V_last grows by at most `information` in all."""
        rounds, iteration, horizon = 0, self.next_round(0), self._config.horizon
        if iteration is None:
            return horizon
        while iteration is not None and iteration <= horizon:
            rounds, iteration = rounds + 1, self.next_round(iteration)
        return rounds

    def measure(self, epoch: GainsToMeasure, counters: RoundCounters) -> Tensor:
        """Return (t - t_last) * (log det V-bar - log det V_last) of every agent, [n] (Alg. 1, line 11)."""
        return (counters.iteration - counters.last_round) * epoch.gain()


class LogDeterminant(Trigger):
    """The measure of Alg. 1, line 11; level D."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.level = self.most_gain = config.number("threshold")

    def most_rounds(self, information: float) -> int:
        """Return ceil(T/zeta) + ceil(R zeta/D) with zeta = sqrt(D T/R) and R = ceil(information) (App. D), at most T.

        An epoch is longer than zeta (at most T/zeta are), or log det grows by more than D/zeta in it.
        """
        horizon = self._config.horizon
        if not self.level or math.isinf(information):
            return horizon
        whole = math.ceil(information)
        zeta = math.sqrt(self.level * horizon / whole)
        return min(horizon, math.ceil(horizon / zeta) + math.ceil(whole * zeta / self.level))


class DiagonalLogDeterminant(LogDeterminant):
    """Alg. 1, line 11, on the diagonals of the matrices, as in the paper's experiments.

    App. D bounds sums of exact log det ratios; sums of those of diagonals have no such bound.
    """

    needs_diagonal = True

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.most_gain = math.inf

    def most_rounds(self, information: float) -> int:
        return self._config.horizon

    def measure(self, epoch: GainsToMeasure, counters: RoundCounters) -> Tensor:
        return (counters.iteration - counters.last_round) * epoch.diagonal_gain()


class Determinant(Trigger):
    """det V-bar > (1 + gamma) det V_last, whatever the length of the epoch (He et al. 2022); level log(1 + gamma)."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.level = self.most_gain = math.log1p(config.async_gain)

    def most_rounds(self, information: float) -> int:
        """Return information / level, at most T: log det V_last grows by more than the level with every round."""
        horizon = self._config.horizon
        return min(horizon, int(information / self.level)) if information < horizon * self.level else horizon

    def expect_gap(self, iteration: int, dimension: float) -> float:
        return self.level / self._gain_of_row(iteration, dimension)

    def measure(self, epoch: GainsToMeasure, counters: RoundCounters) -> Tensor:
        return epoch.gain()


class Always(Trigger):
    """A round in every iteration; it measures for the record only."""

    measures = False

    def next_round(self, last_round: int) -> int | None:
        return last_round + 1


class Period(Trigger):
    """A round every `period` iterations."""

    measures = False

    def next_round(self, last_round: int) -> int | None:
        return last_round + self._config.period


class Geometric(Trigger):
    """Rounds whose gaps grow with the iterations: ceil((gap_growth - 1) (t + 1)) after t, at most `largest_gap`.

    With a growth of 2 they are after iterations 1, 3, 7, 15, ..: gaps of 1, 2, 4, 8.
    """

    measures = False

    def next_round(self, last_round: int) -> int:
        gap = math.ceil((self._config.gap_growth - 1) * (last_round + 1))
        return last_round + min(self._config.largest_gap, gap)


class Budget(Trigger):
    """At most R = `round_budget` rounds over the horizon, spent where an agent's log det gain is largest.

    A round has a price in log det, and an agent asks for one when its gain since the last round exceeds it:
        gain > 10^(8 (r / R - s(t))),   s(t) = log(1 + t) / log(1 + T),
    with r rounds spent so far. The schedule s rises as log det does, steeply at first. On schedule the price is 1,
    a gain that shrinks the volume of the agent's confidence ellipsoid by a factor of e^(1/2). It is 10 when an eighth
    of the budget has been spent too early, and 1/10 when an eighth is late. There are no rounds after R.
    The measure is the gain divided by the price; the level is 1.
    """

    level = 1.0

    def most_rounds(self, information: float) -> int:
        return min(self._config.horizon, self._config.round_budget)

    def expect_gap(self, iteration: int, dimension: float) -> float:
        """Return 1 / (R s'(t)), as if rounds were spent on schedule."""
        return (1 + iteration) * math.log1p(self._config.horizon) / self._config.round_budget

    def measure(self, epoch: GainsToMeasure, counters: RoundCounters) -> Tensor:
        spent = counters.rounds / self._config.round_budget
        schedule = math.log1p(counters.iteration) / math.log1p(self._config.horizon)
        return (10.0 ** (8 * (schedule - spent)) if spent < 1 else 0.0) * epoch.gain()
