"""Randomness as a function of (seed, agent, block of iterations, purpose): no generator is saved.

Batches of any size, in any process, draw the same numbers. To go back to an earlier iteration, draw its block again.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import numpy as np

BLOCK = 32
"""Iterations that are drawn at once"""


class Purpose(IntEnum):
    """Purpose of a stream of numbers; streams of different purposes are independent."""

    TASK = 0
    INITIAL_PARAMETERS = 1
    CONTEXTS = 2
    NOISE = 3
    SHUFFLE = 4
    DOMAIN = 5
    THOMPSON = 6
    THEORY = 7
    MESSAGES = 8
    EXPLORATION = 9
    CLOCK = 10
    PARTICIPATION = 11
    SAMPLE = 12
    VARIANT = 13
    DRIFT = 14
    PRIVACY = 15
    ATTACK = 16
    """Drawn by `uniforms` only: `generator` keeps sixteen purposes per agent"""


def generator(seed: int, purpose: Purpose, agent: int = 0, block: int = 0) -> np.random.Generator:
    """Return the counter-based generator of (seed, purpose, agent, block)."""
    key = np.array([seed, agent * 16 + purpose], dtype=np.uint64)
    counter = np.array([0, 0, 0, block], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def uniforms(
    seed: int, purpose: Purpose, agents: Sequence[int] | np.ndarray, iteration: int | np.ndarray, count: int
) -> np.ndarray:
    """Return uniform numbers in [0, 1), a function of (seed, purpose, agent, iteration), [agents, count].

    `iteration` is one for all agents, or one for each, [agents].

    The numbers come from the mixing function of SplitMix64, applied to counters: it serves draws in every iteration
    or round, where a generator for each agent would take too long.
    """
    agent = np.asarray(agents, dtype=np.uint64)[:, None]
    when = np.asarray(iteration, dtype=np.uint64).reshape(-1, 1)
    place = np.arange(count, dtype=np.uint64)[None]
    with np.errstate(over="ignore"):
        key = _mix(np.uint64(seed % 2**64) + np.uint64(0x9E3779B97F4A7C15) * np.uint64(purpose + 1))
        bits = _mix(_mix(_mix(key ^ agent) + when) + place)
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def normals(
    seed: int, purpose: Purpose, agents: Sequence[int] | np.ndarray, iteration: int | np.ndarray, count: int
) -> np.ndarray:
    """Return standard normal numbers, a function of (seed, purpose, agent, iteration), [agents, count].

    They are Box and Muller's transform of `uniforms`.
    """
    half = -(-count // 2)
    radius, angle = np.split(uniforms(seed, purpose, agents, iteration, 2 * half), 2, axis=1)
    radius, angle = np.sqrt(-2 * np.log1p(-radius)), 2 * np.pi * angle
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], axis=1)[:, :count]


def _mix(bits: Any) -> Any:
    """Return 64-bit integers in which every bit depends on every bit of the 64-bit integers `bits`."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
