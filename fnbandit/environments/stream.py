"""The stream of tensors for agents that are in different iterations."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fnbandit.environments.base import Environment, draw_block
from fnbandit.numerics.device import put_values
from fnbandit.numerics.randomness import BLOCK


class RaggedStream:
    """Contexts, means and noise of n agents, each in its own iteration. One block of each agent is held."""

    def __init__(self, environment: Environment, agents: range, dtype: torch.dtype, device: torch.device) -> None:
        self._environment, self._agents = environment, agents
        n, arms, dim = len(agents), environment.arms, environment.dim
        self._contexts = torch.empty(n, BLOCK, arms, dim, dtype=dtype, device=device)
        self._means = self._contexts.new_empty(n, BLOCK, arms)
        self._noise = self._contexts.new_empty(n, BLOCK)
        self._blocks = np.full(n, -1)

    def at(self, active: np.ndarray, iterations: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
        """Return contexts [n', arms, dim], means [n', arms] and noise [n'] of agents, each in its iteration.

        `active` holds the agents' indices [n']; an agent may occur several times, with iterations of one block.
        """
        index, places = self._places(active, iterations)
        return self._contexts[index, places], self._means[index, places], self._noise[index, places]

    def contexts(self, active: np.ndarray, iterations: np.ndarray) -> Tensor:
        """Return the contexts of `at` alone."""
        return self._contexts[self._places(active, iterations)]

    def _places(self, active: np.ndarray, iterations: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return the indices of agents and of their iterations in the blocks; draw blocks that are not held."""
        blocks, offsets = np.divmod(iterations - 1, BLOCK)
        places = np.flatnonzero(self._blocks[active] != blocks)
        if len(places):
            # An agent that occurs several times needs one block.
            agents, first = np.unique(active[places], return_index=True)
            self._draw(agents, blocks[places[first]])
        device = self._contexts.device
        return put_values(active, device), put_values(offsets, device)

    def _draw(self, agents: np.ndarray, numbers: np.ndarray) -> None:
        """Draw a block of each of some agents."""
        drawn = [
            draw_block(self._environment, self._agents[agent], number)
            for agent, number in zip(agents.tolist(), numbers.tolist(), strict=True)
        ]
        index = put_values(agents, self._contexts.device)
        for held, arrays in (
            (self._contexts, [block.contexts for block in drawn]),
            (self._means, [block.means for block in drawn]),
            (self._noise, [block.noise for block in drawn]),
        ):
            held[index] = put_values(np.stack(arrays), held.device, held.dtype)
        self._blocks[agents] = numbers
