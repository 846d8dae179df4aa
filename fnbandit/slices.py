"""Batched products whose last bits depend neither on the number of agents in a process nor on their place in it."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

WORKSPACE = 4_000_000
"""Bytes of rows that are worked on at once: what is made on the way stays in the cache."""
TILE = 8
"""Rows that a matrix product works on together."""


def small(tensor: Tensor) -> bool:
    """Whether a tensor fits the work space."""
    return tensor.numel() * tensor.itemsize <= WORKSPACE


def product(left: Tensor, right: Tensor) -> Tensor:
    """bmm, never with a trailing dimension of one, for which torch takes another path when n is 1."""
    if right.shape[2] != 1:
        return torch.bmm(left, right)
    return torch.bmm(left, right.expand(-1, -1, 2))[:, :, :1]


def few_at_once(agents: int, numbers: int, like: Tensor) -> Iterator[slice]:
    """All agents, a few at a time: as many as fit the work space with so many numbers each."""
    step = max(1, WORKSPACE // (numbers * like.itemsize))
    return (slice(start, min(start + step, agents)) for start in range(0, agents, step))


def whole_tiles(x: Tensor) -> Tensor:
    """x [n, k, p] as the rows of one matrix, padded to a multiple of TILE, for a product with a shared matrix.

    A row in an unfinished tile has other last bits, and who stands there depends on how many agents
    share the process.
    """
    rows = x.flatten(0, 1)
    return torch.nn.functional.pad(rows, (0, 0, 0, -len(rows) % TILE)) if len(rows) % TILE else rows
