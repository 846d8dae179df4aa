"""Environments from a reward function: the paper's cosine and square, or a user's own."""

from __future__ import annotations

from collections.abc import Callable, Coroutine

import numpy as np

from fnbandit.config import Config
from fnbandit.environments.base import Block
from fnbandit.errors import call_user_code
from fnbandit.numerics.memory import check_contexts
from fnbandit.numerics.randomness import BLOCK, Purpose, generator

RewardFunction = Callable[[np.ndarray], np.ndarray]


def on_sphere(random: np.random.Generator, *shape: int) -> np.ndarray:
    """Draw points [..., dim], uniform on the unit sphere of the last dimension."""
    points = random.standard_normal(shape)
    return points / np.linalg.norm(points, axis=-1, keepdims=True)


def cosine(config: Config) -> FunctionEnvironment:
    """Return the environment of h(x) = cos(3 <a, x>) (Sec. 5.1), with a drawn from the seed."""
    check_contexts(config.arms, config.dim)
    a = direction(config)
    return FunctionEnvironment(config, lambda x: np.cos(3 * (x @ a)))


def square(config: Config) -> FunctionEnvironment:
    """Return the environment of h(x) = 10 <a, x>^2 (Sec. 5.1), with a drawn from the seed."""
    check_contexts(config.arms, config.dim)
    a = direction(config)
    return FunctionEnvironment(config, lambda x: 10 * (x @ a) ** 2)


def direction(config: Config) -> np.ndarray:
    """Draw a, uniform on the unit sphere, [dim]."""
    return on_sphere(generator(config.seed, Purpose.TASK), config.dim)


class FunctionEnvironment:
    """K contexts per agent and iteration, uniform on the unit sphere; reward h(x) plus Gaussian noise."""

    def __init__(self, config: Config, function: RewardFunction) -> None:
        self.arms = config.arms
        self.dim = config.dim
        self.noise_bound = config.noise
        """R of Sec. 2: Gaussian noise is sub-Gaussian with its own standard deviation"""
        self._config = config
        self._function = function
        check_contexts(self.arms, self.dim)
        self.rewards(on_sphere(generator(config.seed, Purpose.DOMAIN), 2, config.dim))

    def block(self, agent: int, index: int) -> Block:
        seed = self._config.seed
        contexts = on_sphere(generator(seed, Purpose.CONTEXTS, agent, index), BLOCK, self.arms, self.dim)
        means = self.rewards(contexts.reshape(-1, self.dim)).reshape(BLOCK, self.arms)
        with np.errstate(over="ignore"):
            noise = self._config.noise * generator(seed, Purpose.NOISE, agent, index).standard_normal(BLOCK)
        return Block(contexts, means, noise)

    def domain(self, count: int) -> np.ndarray:
        return on_sphere(generator(self._config.seed, Purpose.DOMAIN), count, self.dim)

    def rewards(self, x: np.ndarray) -> np.ndarray:
        """Return h of rows x, checked: a user's function may return anything, and may try to change x."""
        part = f"environment={self._config.environment!r}"
        x = x.view()
        x.flags.writeable = False
        returned = call_user_code(part, self._function, x)
        if isinstance(returned, Coroutine):
            returned.close()
            raise ValueError(f"{part}: the reward function returned a coroutine; write it as def, not as async def")
        try:
            means = np.asarray(returned)
        except Exception as error:
            raise ValueError(f"{part}: the reward function returned no array ({error})") from None
        if means.shape != (len(x),):
            raise ValueError(
                f"{part}: the reward function returned shape {means.shape} for contexts of shape "
                f"{x.shape}; expected ({len(x)},)"
            )
        if means.dtype.kind not in "iuf":
            raise ValueError(
                f"{part}: the reward function returned {means.dtype} values; expected one real number per context"
            )
        means = means.astype(np.float64, copy=False)
        if not np.isfinite(means).all():
            raise ValueError(
                f"{part}: the reward function returned NaN or infinity; expected one finite number per context"
            )
        return means
