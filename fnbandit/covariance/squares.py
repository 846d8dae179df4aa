"""Sums over agents of G^T G, for the k rows G of each: as rows while there are few, as triangles beyond."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from fnbandit.tree import LEAF, Sum, everyone


def sum_of_squares(agents: int, length: int, parameters: int, lift: Callable[[Tensor], Tensor]) -> Sum:
    """How agents' rows [n, k, ..] of an epoch of k iterations are summed.

    Absorbing N k rows takes 4 N k p^2 operations, on one core. Their sum takes 2 N k p^2, on the agents' cores, and
    about 8 p^3 with the inverse and what else is done once: beyond N k = 2 p it is less for the one core. A leaf
    has as many agents as it takes for their rows to be more numbers than a triangle. One leaf of agents sends rows.
    """
    if agents <= LEAF or agents * length <= 2 * parameters:
        return everyone(agents)
    leaf = LEAF
    while leaf * length <= (parameters + 1) / 2:
        leaf *= 2
    return Sum(agents, leaf, lambda values: square(lift(values)))


def square(rows: Tensor) -> Tensor:
    """G^T G of rows [n, k, p], all agents' together: its upper triangle in double precision, [p (p + 1) / 2].

    Single precision would lose lambda beside a sum of many rows. The rows are copied because their place in memory
    is among what decides a product's last bits.
    """
    g = rows.flatten(0, 1).to(torch.float64, copy=True)
    return packed(g.mT @ g)


def packed(matrix: Tensor) -> Tensor:
    """The upper triangle of a matrix [p, p], row by row."""
    return matrix.flatten().index_select(0, triangle(len(matrix), matrix.device))


def inverted(matrix: Tensor) -> Tensor:
    """The inverse of a positive matrix [p, p]; no look at the factor's success, which would wait for a device."""
    return torch.cholesky_inverse(torch.linalg.cholesky_ex(matrix).L)


def symmetric(upper: Tensor, parameters: int) -> Tensor:
    """The matrix [p, p] that has such an upper triangle."""
    half = upper.new_zeros(parameters * parameters)
    half[triangle(parameters, upper.device)] = upper
    half = half.unflatten(0, (parameters, parameters))
    return half + half.triu(1).mT


@functools.cache
def triangle(parameters: int, device: torch.device) -> Tensor:
    """Where a p x p matrix, row by row, has its upper triangle."""
    i, j = torch.triu_indices(parameters, parameters, device=device)
    return i * parameters + j
