"""An agent's own additions to V: its rows since its last download, and the iterations that it evaluates ahead.

The downloaded V^-1 is constant until the next download. So an agent multiplies it by the contexts of several
iterations at once, and keeps their Gram matrix in V-bar^-1, where V-bar is V plus the agent's own rows. With the Gram
matrix a pull needs no vector of length p; the rows of length p are computed at the next evaluation ahead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fnbandit.numerics.device import put_values
from fnbandit.numerics.products import multiply
from fnbandit.numerics.state import State

ROWS = 32
"""Contexts that an agent evaluates ahead, approximately"""


def iterations_ahead(arms: int) -> int:
    """Return the largest number of iterations that an agent evaluates ahead."""
    return max(1, ROWS // arms)


class Own(NamedTuple):
    """Rows of agents whose numbers of rows round to the same `room`."""

    agents: Tensor
    """Indices into the agents that `OwnRows.of` is called with, [n']"""
    z: Tensor
    """[n', r, p]"""
    coefficients: Tensor
    """[n', r]"""


class OwnRows:
    """Rows Z that n agents added since their last download; their number differs between agents.

    V-bar^-1 = V^-1 - Z^T Z, and the mean of x grows by <coefficients, Z x>.
    """

    def __init__(self, agents: int, parameters: int, like: Tensor) -> None:
        self._z = like.new_zeros(agents, 0, parameters)
        """[n, capacity, p]; 0 beyond an agent's rows"""
        self._coefficients = like.new_zeros(agents, 0)
        self.lengths = np.zeros(agents, dtype=np.int64)

    def reset(self, agent: int) -> None:
        """Delete an agent's rows."""
        self._z[agent, : self.lengths[agent]] = 0
        self._coefficients[agent, : self.lengths[agent]] = 0
        self.lengths[agent] = 0

    def of(self, agents: np.ndarray) -> Iterator[Own]:
        """Yield the rows of some agents, by `room`; agents without rows are left out."""
        rooms = room(self.lengths[agents])
        for size in np.unique(rooms[rooms > 0]):
            places = np.flatnonzero(rooms == size)
            index = put_values(agents[places], self._z.device)
            yield Own(put_values(places, self._z.device), self._z[index, :size], self._coefficients[index, :size])

    def correct_for_own_rows(self, agents: np.ndarray, x: Tensor, solved: Tensor, mean: Tensor) -> None:
        """Change V^-1 x to V-bar^-1 x [n', k, p], and the mean to that with own rows [n', k], in place."""
        for places, z, coefficients in self.of(agents):
            u = multiply(x[places], z.mT)
            solved[places] -= multiply(u, z)
            mean[places] += multiply(u, coefficients[:, :, None]).squeeze(2)

    def append(self, agents: np.ndarray, counts: np.ndarray, rows: Tensor, coefficients: Tensor) -> None:
        """Append the first counts [n'] of rows [n', k, p] to agents' rows; the other rows must be 0."""
        places = self.lengths[agents][:, None] + np.arange(rows.shape[1])
        most = int(room(places[:, -1] + 1).max())
        if most > self._z.shape[1]:
            more = most - self._z.shape[1]
            self._z = torch.nn.functional.pad(self._z, (0, 0, 0, more))
            self._coefficients = torch.nn.functional.pad(self._coefficients, (0, more))
        index, at = (put_values(values, rows.device) for values in (agents[:, None], places))
        self._z[index, at] = rows
        self._coefficients[index, at] = coefficients
        self.lengths[agents] += counts

    def state_of(self, agent: int) -> State:
        """Return one agent's rows."""
        length = self.lengths[agent]
        return {"z": self._z[agent, :length], "coefficients": self._coefficients[agent, :length]}

    def load_of(self, agent: int, state: State) -> None:
        """Continue with one agent's rows from a `state_of`."""
        self.reset(agent)
        z, coefficients = (state[name][None].to(self._z) for name in ("z", "coefficients"))
        if z.shape[1]:
            self.append(np.array([agent]), np.array([z.shape[1]]), z, coefficients)


def room(lengths: np.ndarray) -> np.ndarray:
    """Return the numbers of rows that products read, [n]: `lengths` rounded up to 0, 8, 16, 32, ...

    The result depends on the agent's own number of rows alone.
    """
    return np.where(lengths > 0, 8 * 2 ** np.ceil(np.log2(np.maximum(lengths, 8) / 8)).astype(np.int64), 0)


class Prospects:
    """Means and variances in V-bar of the r contexts that each of n agents evaluates ahead, updated by every pull.

    With the Gram matrix G before the pull of context j, l_j = G_j / sqrt(1 + variance of j). The pull subtracts l_j^2
    from the variances and l_j l_j^T from the Gram matrix, and adds l_j (reward - mean of j) / sqrt(1 + variance of j)
    to the means.
    """

    def __init__(self, agents: int, iterations: int, arms: int, like: Tensor) -> None:
        rows = iterations * arms
        self._arms = arms
        self.gram = like.new_zeros(agents, rows, rows)
        """The Gram matrix before the first pull"""
        self.factor = like.new_zeros(agents, iterations, rows)
        """l_j of the pulls so far"""
        self.mean = like.new_zeros(agents, iterations, arms)
        self.variance = like.new_zeros(agents, iterations, arms)

    def start(self, index: Tensor, gram: Tensor, mean: Tensor) -> None:
        """Start with contexts that have a Gram matrix [n', r, r] and means [n', r]."""
        self.gram[index] = gram
        self.factor[index] = 0
        shape = self.mean.shape[1:]
        self.mean[index] = mean.unflatten(1, shape)
        self.variance[index] = gram.diagonal(dim1=1, dim2=2).unflatten(1, shape).clamp(min=0)

    def at(self, index: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        """Return means and variances [n', arms] of some agents, each in one of its iterations."""
        return self.mean[index, places], self.variance[index, places]

    def pull(self, index: Tensor, places: Tensor, arms: Tensor, rewards: Tensor) -> Tensor:
        """Add the contexts of the pulled arms to V-bar; return their variances before the pull."""
        pulled = places * self._arms + arms
        mean, variance = self.mean[index].flatten(1), self.variance[index].flatten(1)
        every, before = torch.arange(len(arms), device=arms.device), self.factor[index]
        found = variance[every, pulled]
        root = (1 + found).sqrt()
        known = multiply(before[every, :, pulled][:, None], before).squeeze(1)
        change = (self.gram[index, pulled] - known) / root[:, None]
        residual = (rewards - mean[every, pulled]) / root
        shape = self.mean.shape[1:]
        self.mean[index] = torch.addcmul(mean, change, residual[:, None]).unflatten(1, shape)
        self.variance[index] = torch.addcmul(variance, change, change, value=-1).clamp_(min=0).unflatten(1, shape)
        self.factor[index, places] = change
        return found
