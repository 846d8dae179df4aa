"""What an agent adds to V by itself: its rows since its last download, and the iterations that it has looked at ahead.

V^-1, as downloaded, stays as it is until the next download. So an agent meets it with the contexts of several
iterations at once, and keeps of them the Gram matrix in V-bar^-1, V-bar being V with the agent's own rows. With it
rows are added without a vector of length p; they are made when the agent looks ahead again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fnbandit.state import State

ROWS = 32
"""Contexts that an agent looks at ahead, about"""


def iterations_ahead(arms: int) -> int:
    """Iterations that an agent looks at ahead at the most."""
    return max(1, ROWS // arms)


class Own(NamedTuple):
    """Rows of some agents with about as many."""

    agents: Tensor
    """Places among those asked for"""
    z: Tensor
    """[n', r, p]"""
    coefficients: Tensor
    """[n', r]"""


class OwnRows:
    """Rows Z that n agents have added since their last download, each its own number of them.

    V-bar^-1 = V^-1 - Z^T Z, and the mean of x has grown by <coefficients, Z x>.
    """

    def __init__(self, agents: int, parameters: int, like: Tensor) -> None:
        self._z = like.new_zeros(agents, 0, parameters)
        """[n, capacity, p]; 0 where an agent has no row"""
        self._coefficients = like.new_zeros(agents, 0)
        self.lengths = np.zeros(agents, dtype=np.int64)

    def reset(self, agent: int) -> None:
        """Begin anew."""
        self._z[agent, : self.lengths[agent]] = 0
        self._coefficients[agent, : self.lengths[agent]] = 0
        self.lengths[agent] = 0

    def of(self, agents: np.ndarray) -> Iterator[Own]:
        """The rows of some agents; those without any are left out."""
        rooms = room(self.lengths[agents])
        for size in np.unique(rooms[rooms > 0]):
            few = np.flatnonzero(rooms == size)
            index = torch.from_numpy(agents[few]).to(self._z.device)
            yield Own(torch.from_numpy(few).to(self._z.device), self._z[index, :size], self._coefficients[index, :size])

    def solved(self, agents: np.ndarray, x: Tensor, solved: Tensor, mean: Tensor) -> None:
        """From V^-1 x and the mean to V-bar^-1 x [n', k, p] and the mean with own rows [n', k], in place."""
        for few, z, coefficients in self.of(agents):
            u = torch.bmm(x[few], z.mT)
            solved[few] -= torch.bmm(u, z)
            mean[few] += torch.bmm(u, coefficients[:, :, None].expand(-1, -1, 2))[:, :, 0]

    def append(self, agents: np.ndarray, counts: np.ndarray, rows: Tensor, coefficients: Tensor) -> None:
        """More rows for agents: the first counts [n'] of rows [n', k, p], the others being 0."""
        places = self.lengths[agents][:, None] + np.arange(rows.shape[1])
        most = int(room(places[:, -1] + 1).max())
        if most > self._z.shape[1]:
            more = most - self._z.shape[1]
            self._z = torch.nn.functional.pad(self._z, (0, 0, 0, more))
            self._coefficients = torch.nn.functional.pad(self._coefficients, (0, more))
        index, at = (torch.from_numpy(values).to(rows.device) for values in (agents[:, None], places))
        self._z[index, at] = rows
        self._coefficients[index, at] = coefficients
        self.lengths[agents] += counts

    def state_of(self, agent: int) -> State:
        """One agent's rows."""
        length = self.lengths[agent]
        return {"z": self._z[agent, :length], "coefficients": self._coefficients[agent, :length]}

    def load_of(self, agent: int, state: State) -> None:
        """Take over one agent's rows."""
        self.reset(agent)
        z, coefficients = (state[name][None].to(self._z) for name in ("z", "coefficients"))
        if z.shape[1]:
            self.append(np.array([agent]), np.array([z.shape[1]]), z, coefficients)


def room(lengths: np.ndarray) -> np.ndarray:
    """Rows that are worked on for agents with so many: 0, 8, 16, 32, ...; a function of the agent's own alone."""
    return np.where(lengths > 0, 8 * 2 ** np.ceil(np.log2(np.maximum(lengths, 8) / 8)).astype(np.int64), 0)


class Prospects:
    """Of r contexts each that n agents look at ahead: means and variances in V-bar, and how a pull changes them.

    With l_j = G_j / sqrt(1 + variance of j) for every context j pulled, G being the Gram matrix before the pull,
    a pull takes l_j^2 from variances, l_j l_j^T from the Gram matrix, and adds l_j times a surprise to means.
    """

    def __init__(self, agents: int, iterations: int, arms: int, like: Tensor) -> None:
        rows = iterations * arms
        self._arms = arms
        self.gram = like.new_zeros(agents, rows, rows)
        """Before any of them was pulled"""
        self.factor = like.new_zeros(agents, iterations, rows)
        """l_j of the iterations so far"""
        self.mean = like.new_zeros(agents, iterations, arms)
        self.variance = like.new_zeros(agents, iterations, arms)

    def start(self, index: Tensor, gram: Tensor, mean: Tensor) -> None:
        """Look at contexts with a Gram matrix [n', r, r] and means [n', r]."""
        self.gram[index] = gram
        self.factor[index] = 0
        shape = self.mean.shape[1:]
        self.mean[index] = mean.unflatten(1, shape)
        self.variance[index] = gram.diagonal(dim1=1, dim2=2).unflatten(1, shape).clamp(min=0)

    def at(self, index: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances [n', arms] of some agents, each in one of its iterations."""
        return self.mean[index, places], self.variance[index, places]

    def pull(self, index: Tensor, places: Tensor, arms: Tensor, rewards: Tensor) -> Tensor:
        """Add the contexts of the arms pulled to V-bar; their variances before."""
        pulled = places * self._arms + arms
        mean, variance = self.mean[index].flatten(1), self.variance[index].flatten(1)
        every, before = torch.arange(len(arms), device=arms.device), self.factor[index]
        found = variance[every, pulled]
        root = (1 + found).sqrt()
        known = torch.bmm(before[every, :, pulled][:, None], before).squeeze(1)
        change = (self.gram[index, pulled] - known) / root[:, None]
        surprise = (rewards - mean[every, pulled]) / root
        shape = self.mean.shape[1:]
        self.mean[index] = torch.addcmul(mean, change, surprise[:, None]).unflatten(1, shape)
        self.variance[index] = torch.addcmul(variance, change, change, value=-1).clamp_(min=0).unflatten(1, shape)
        self.factor[index, places] = change
        return found
