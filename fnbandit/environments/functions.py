"""Environments from a reward function: the paper's cosine and square, or a user's own."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fnbandit.config import Config
from fnbandit.environments.base import Block
from fnbandit.randomness import BLOCK, Purpose, generator

RewardFunction = Callable[[np.ndarray], np.ndarray]


def on_sphere(random: np.random.Generator, *shape: int) -> np.ndarray:
    """Points uniform on the unit sphere of the last dimension."""
    points = random.standard_normal(shape)
    return points / np.linalg.norm(points, axis=-1, keepdims=True)


def synthetic_function(config: Config) -> RewardFunction:
    """cos(3 <a, x>) or 10 <a, x>^2 (Sec. 5.1), with a drawn from the seed."""
    direction = on_sphere(generator(config.seed, Purpose.TASK), config.dim)
    if config.environment == "cosine":
        return lambda x: np.cos(3 * (x @ direction))
    return lambda x: 10 * (x @ direction) ** 2


def imported_function(name: str) -> RewardFunction:
    """The function named by "package.module:function"; modules of the working directory count."""
    module_name, _, function_name = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"environment={name!r}: cannot import it ({error}); expected package.module:function"
        ) from None
    if not callable(function):
        raise ValueError(f"environment={name!r}: is no function; expected package.module:function")
    return function


class FunctionEnvironment:
    """K contexts per agent and iteration, uniform on the unit sphere; reward h(x) plus Gaussian noise."""

    def __init__(self, config: Config, function: RewardFunction) -> None:
        self.arms = config.arms
        self.dim = config.dim
        self._config = config
        self._function = function
        self._means(on_sphere(generator(config.seed, Purpose.DOMAIN), 2, config.dim))

    def block(self, agent: int, index: int) -> Block:
        seed = self._config.seed
        contexts = on_sphere(generator(seed, Purpose.CONTEXTS, agent, index), BLOCK, self.arms, self.dim)
        means = self._means(contexts.reshape(-1, self.dim)).reshape(BLOCK, self.arms)
        noise = self._config.noise * generator(seed, Purpose.NOISE, agent, index).standard_normal(BLOCK)
        return Block(contexts, means, noise)

    def domain(self, count: int) -> np.ndarray:
        return on_sphere(generator(self._config.seed, Purpose.DOMAIN), count, self.dim)

    def _means(self, x: np.ndarray) -> np.ndarray:
        means = np.asarray(self._function(x))
        name = self._config.environment
        if means.shape != (len(x),):
            raise ValueError(
                f"environment={name!r}: the reward function returned shape {means.shape} for contexts of shape "
                f"{x.shape}; expected ({len(x)},)"
            )
        if not np.issubdtype(means.dtype, np.number) or not np.isfinite(means).all():
            raise ValueError(
                f"environment={name!r}: the reward function returned NaN, infinity or no numbers; "
                "expected one finite number per context"
            )
        return means
