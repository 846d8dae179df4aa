"""The wheel bandit (Riquelme et al. 2018): exploration finds rare, large rewards."""

from __future__ import annotations

import numpy as np

from fnbandit.config import Config
from fnbandit.environments.base import Block
from fnbandit.numerics.randomness import BLOCK, Purpose, generator

ARMS = 5
SAFE, PLAIN, RARE = 1.2, 1.0, 50.0
"""Mean rewards: of the first arm, of the other arms, and of the best arm of a point outside the inner disc"""


class Wheel:
    """A point x, uniform in the unit disc, and five arms.

    The first arm always pays 1.2 and the others 1.0, but outside the disc of radius `wheel_delta` one of the
    other four, which depends on x's quadrant, pays 50. The context of arm k is (x, 1) in block k of five.
    """

    arms = ARMS
    dim = 3 * ARMS
    codes_arms = True
    """Contexts tell arms apart"""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.noise_bound = config.noise
        """R of Sec. 2"""

    def block(self, agent: int, index: int) -> Block:
        seed = self._config.seed
        points = in_disc(generator(seed, Purpose.CONTEXTS, agent, index), BLOCK)
        with np.errstate(over="ignore"):
            noise = self._config.noise * generator(seed, Purpose.NOISE, agent, index).standard_normal(BLOCK)
        return Block(contexts(points), self.means(points), noise)

    def means(self, points: np.ndarray) -> np.ndarray:
        """Return the mean rewards of all arms at points [count, 2] -> [count, 5]."""
        means = np.full((len(points), ARMS), PLAIN)
        means[:, 0] = SAFE
        outside = np.flatnonzero(np.linalg.norm(points, axis=1) > self._config.wheel_delta)
        quadrant = 1 + 2 * (points[:, 0] < 0) + (points[:, 1] < 0)
        means[outside, quadrant[outside]] = RARE
        return means

    def domain(self, count: int) -> np.ndarray:
        random = generator(self._config.seed, Purpose.DOMAIN)
        return contexts(in_disc(random, -(-count // ARMS))).reshape(-1, self.dim)[:count]


def in_disc(random: np.random.Generator, count: int) -> np.ndarray:
    """Draw points uniform in the unit disc, [count, 2]."""
    radius, angle = np.sqrt(random.random(count)), 2 * np.pi * random.random(count)
    return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])


def contexts(points: np.ndarray) -> np.ndarray:
    """Return one context per arm, (x, 1) in the arm's block: [count, 2] -> [count, 5, 15]."""
    rows = np.column_stack([points, np.ones(len(points))])
    return np.einsum("kl,cd->ckld", np.eye(ARMS), rows).reshape(len(points), ARMS, 3 * ARMS)
