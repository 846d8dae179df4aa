"""When to communicate (Alg. 1, lines 11-13).

A trigger either knows the iteration of the next round beforehand, or measures every agent's epoch: a round takes
place in the first iteration in which some agent's measure exceeds `level`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from fnbandit.config import Config
from fnbandit.covariance import Epoch


@dataclass(frozen=True)
class Moment:
    """Where a simulation stands after an iteration."""

    iteration: int
    last_round: int
    """t_last"""
    rounds: int
    """Rounds so far"""


class Trigger:
    """The protocol; what is here holds for triggers that measure the exact log det."""

    measures = True
    """Whether it looks at log det, so that V_last must be kept up to date for it"""
    needs_diagonal = False
    """Whether it looks at `Epoch.diagonal_gain`"""
    level = math.nan
    """What a measure must exceed"""
    most_gain = math.inf
    """What log det V-bar - log det V_last can have come to without a round"""

    def __init__(self, config: Config) -> None:
        self._config = config

    def next_round(self, last_round: int) -> int | None:
        """The iteration of the next round, where it is known beforehand."""
        return None

    def most_rounds(self, information: float) -> int:
        """A bound on the rounds over the horizon, if log det V_last can grow by `information` in all."""
        rounds, iteration, horizon = 0, self.next_round(0), self._config.horizon
        if iteration is None:
            return horizon
        while iteration is not None and iteration <= horizon:
            rounds, iteration = rounds + 1, self.next_round(iteration)
        return rounds

    def measure(self, epoch: Epoch, moment: Moment) -> Tensor:
        """(t - t_last) * (log det V-bar - log det V_last) of every agent, [n] (Alg. 1, line 11)."""
        return (moment.iteration - moment.last_round) * epoch.gain()


class LogDeterminant(Trigger):
    """Alg. 1, line 11, exactly; level D."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.level = self.most_gain = config.number("threshold")

    def most_rounds(self, information: float) -> int:
        """ceil(T/zeta) + ceil(R zeta/D) with zeta = sqrt(D T/R) and R = ceil(information) (App. D), at most T.

        An epoch is longer than zeta, of which there are at most T/zeta, or its log det has grown by more than D/zeta.
        """
        horizon = self._config.horizon
        if not self.level or math.isinf(information):
            return horizon
        whole = math.ceil(information)
        zeta = math.sqrt(self.level * horizon / whole)
        return min(horizon, math.ceil(horizon / zeta) + math.ceil(whole * zeta / self.level))


class DiagonalLogDeterminant(LogDeterminant):
    """The form that the paper's experiments used: the same on the matrices' diagonals.

    App. D's bound is on sums of exact log det ratios; those of diagonals have none.
    """

    needs_diagonal = True

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.most_gain = math.inf

    def most_rounds(self, information: float) -> int:
        return self._config.horizon

    def measure(self, epoch: Epoch, moment: Moment) -> Tensor:
        return (moment.iteration - moment.last_round) * epoch.diagonal_gain()


class Determinant(Trigger):
    """det V-bar > (1 + gamma) det V_last, however long that took (He et al. 2022); level log(1 + gamma)."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.level = self.most_gain = math.log1p(config.async_gain)

    def most_rounds(self, information: float) -> int:
        """log det V_last grows by more than the level with every round; at most T."""
        horizon = self._config.horizon
        return min(horizon, int(information / self.level)) if information < horizon * self.level else horizon

    def measure(self, epoch: Epoch, moment: Moment) -> Tensor:
        return epoch.gain()


class Always(Trigger):
    """A round in every iteration; what it measures is for the record."""

    measures = False

    def next_round(self, last_round: int) -> int | None:
        return last_round + 1


class Period(Trigger):
    """A round every `period` iterations."""

    measures = False

    def next_round(self, last_round: int) -> int | None:
        return last_round + self._config.period


class Budget(Trigger):
    """At most R = `round_budget` rounds over the horizon, spent where an agent's log det gain is largest.

    A round has a price in log det, and an agent asks for one when its gain since the last round exceeds it:
        gain > 10^(8 (r / R - s(t))),   s(t) = log(1 + t) / log(1 + T),
    with r rounds spent so far. The schedule s rises as log det does, steeply at first. On schedule the price is 1,
    a gain that shrinks the volume of the agent's confidence ellipsoid by a factor of e^(1/2); when an eighth of the
    budget has been spent too early it is ten times as much, too late a tenth. After R rounds there are no more.
    The measure is the gain over the price, the level 1.
    """

    level = 1.0

    def most_rounds(self, information: float) -> int:
        return min(self._config.horizon, self._config.round_budget)

    def measure(self, epoch: Epoch, moment: Moment) -> Tensor:
        spent = moment.rounds / self._config.round_budget
        schedule = math.log1p(moment.iteration) / math.log1p(self._config.horizon)
        return (10.0 ** (8 * (schedule - spent)) if spent < 1 else 0.0) * epoch.gain()
