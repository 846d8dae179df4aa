"""Randomness as a function of (seed, agent, block of iterations, purpose): no generator is ever saved.

Groups of any size, in any process, draw the same numbers, and going back to an earlier
iteration means drawing its block again.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

BLOCK = 32
"""Iterations that are drawn at once."""


class Purpose(IntEnum):
    """What a stream of numbers is for; streams of different purposes are independent."""

    TASK = 0
    INITIAL_PARAMETERS = 1
    CONTEXTS = 2
    NOISE = 3
    SHUFFLE = 4
    DOMAIN = 5
    THOMPSON = 6
    THEORY = 7


def generator(seed: int, purpose: Purpose, agent: int = 0, block: int = 0) -> np.random.Generator:
    """The counter-based generator of (seed, purpose, agent, block)."""
    key = np.array([seed, agent * 16 + purpose], dtype=np.uint64)
    counter = np.array([0, 0, 0, block], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))
