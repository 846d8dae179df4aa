"""The protocol of an environment, and the stream of tensors that a batch of agents reads from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from fnbandit.errors import PACKAGES
from fnbandit.numerics.device import put_values
from fnbandit.numerics.randomness import BLOCK


@dataclass(frozen=True)
class Block:
    """BLOCK consecutive iterations of one agent."""

    contexts: np.ndarray
    """[BLOCK, arms, dim]"""
    means: np.ndarray
    """h of every context, [BLOCK, arms]"""
    noise: np.ndarray
    """Noise of the reward, which is added to the pulled arm's mean, [BLOCK]"""


class Environment(Protocol):
    """A task: contexts, mean rewards and noise.

    Three more attributes are optional. The theory's nu needs `noise_bound`: a number R for which the noise is
    R-sub-Gaussian. Agents that differ and drift need either `rewards`, a method that returns h of contexts
    [rows, dim] -> [rows] and that holds for rotated contexts too, or `codes_arms = True` where contexts tell arms
    apart, so that arms may exchange their rewards.
    """

    arms: int
    dim: int

    def block(self, agent: int, index: int) -> Block:
        """Return iterations index * BLOCK + 1 to (index + 1) * BLOCK of one agent."""
        ...

    def domain(self, count: int) -> np.ndarray:
        """Return at most `count` points of the domain, [points, dim]; the whole domain where it is no larger."""
        ...


def draw_block(environment: Environment, agent: int, index: int) -> Block:
    """Return a block of an environment; raise a ValueError of one line where a user's own returns something else."""
    block = environment.block(agent, index)
    kind = type(environment)
    if kind.__module__.split(".")[0] in PACKAGES:
        return block
    part = f"environment='{kind.__module__}:{kind.__qualname__}': block({agent}, {index})"
    shapes = {
        "contexts": (BLOCK, environment.arms, environment.dim),
        "means": (BLOCK, environment.arms),
        "noise": (BLOCK,),
    }
    if not isinstance(block, Block):
        raise ValueError(f"{part} returned {type(block).__name__}; expected fnbandit.Block(contexts, means, noise)")
    for name, shape in shapes.items():
        _check_array(f"{part}: {name}", getattr(block, name), shape)
    return block


def draw_domain(environment: Environment, count: int) -> np.ndarray:
    """Return at most `count` points of an environment's domain; raise a ValueError of one line as `draw_block` does."""
    points = environment.domain(count)
    kind = type(environment)
    if kind.__module__.split(".")[0] not in PACKAGES:
        part = f"environment='{kind.__module__}:{kind.__qualname__}': domain({count})"
        found = len(points) if isinstance(points, np.ndarray) and points.ndim else 0
        if found > count:
            raise ValueError(f"{part} returned {found} points; expected at most {count}")
        _check_array(part, points, (max(1, found), environment.dim))
    return points


def _check_array(name: str, values: object, shape: tuple[int, ...]) -> None:
    if not isinstance(values, np.ndarray):
        raise ValueError(f"{name} is {type(values).__name__}; expected a NumPy array {list(shape)}")
    if values.shape != shape or values.dtype.kind not in "iuf":
        found = f"an array {list(values.shape)} of {values.dtype}"
        raise ValueError(f"{name} is {found}; expected {list(shape)} of real numbers")
    if not np.isfinite(values).all():
        raise ValueError(f"{name} has a NaN or an infinity; expected finite numbers")


class Stream:
    """The contexts, means and noise of a batch of agents, iteration by iteration, on its device.

    Each agent's block is drawn by itself, so that no number depends on the other agents of the batch.
    """

    def __init__(self, environment: Environment, agents: range, dtype: torch.dtype, device: torch.device) -> None:
        self._environment = environment
        self._agents = agents
        self._dtype = dtype
        self._device = device
        self._index = -1

    def _load(self, iteration: int) -> int:
        """Draw the block of an iteration unless it is held already; return the iteration's offset in it."""
        index, offset = divmod(iteration - 1, BLOCK)
        if index != self._index:
            blocks = [draw_block(self._environment, agent, index) for agent in self._agents]
            self._contexts = self._tensor([block.contexts for block in blocks])
            self._means = self._tensor([block.means for block in blocks])
            self._noise = self._tensor([block.noise for block in blocks])
            self._index = index
        return offset

    def _tensor(self, arrays: list[np.ndarray]) -> torch.Tensor:
        return put_values(np.stack(arrays, axis=1), self._device, self._dtype)

    def contexts(self, iteration: int) -> torch.Tensor:
        """Return X_{t,i} of every agent, [agents, arms, dim] (Alg. 1, line 3)."""
        offset = self._load(iteration)
        return self._contexts[offset]

    def means(self, iteration: int) -> torch.Tensor:
        """Return h of the iteration's contexts, [agents, arms]."""
        offset = self._load(iteration)
        return self._means[offset]

    def noise(self, iteration: int) -> torch.Tensor:
        """Return the noise of the iteration's rewards, [agents]."""
        offset = self._load(iteration)
        return self._noise[offset]
