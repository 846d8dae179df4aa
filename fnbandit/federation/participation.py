"""Which agents upload in a round. All agents receive its download.

An agent that does not take part keeps its new rows and uploads them in its next round. Until then its V-bar is the
new V_last plus these rows, and the trigger measures the rows that it has collected since the last round.
"""

from __future__ import annotations

import math

import numpy as np

from fnbandit.config import Config
from fnbandit.config.registry import build
from fnbandit.numerics.randomness import Purpose, uniforms


class Everyone:
    """All agents take part in every round (the paper)."""

    is_partial = False

    def __init__(self, config: Config) -> None:
        self._config = config

    def draw(self, number: int, iteration: int) -> np.ndarray:
        """Return the participants of round `number` (from 0 on), after an iteration: [N], True for each of them."""
        return np.ones(self._config.agents, dtype=bool)


class Fraction(Everyone):
    """ceil(f N) agents, f = `participation_fraction`, drawn again in each round by (seed, round)."""

    is_partial = True

    def draw(self, number: int, iteration: int) -> np.ndarray:
        count = math.ceil(self._config.participation_fraction * self._config.agents)
        draws = uniforms(self._config.seed, Purpose.PARTICIPATION, range(self._config.agents), number, 1)[:, 0]
        chosen = np.zeros(self._config.agents, dtype=bool)
        chosen[np.argsort(draws, kind="stable")[:count]] = True
        return chosen


class Availability(Everyone):
    """Agents that are not away by the clock in the iteration of the round; at least one.

    Where all are away, the one that returns first takes part.
    """

    is_partial = True

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._clock = build("clock", config.clock, config)

    def draw(self, number: int, iteration: int) -> np.ndarray:
        _, away = self._clock.iterations(np.arange(self._config.agents), np.array(iteration))
        return away <= away.min() if away.min() > 0 else away == 0


def make_participation(config: Config) -> Everyone:
    """Make the participation that a config names."""
    return build("participation", config.participation, config)
