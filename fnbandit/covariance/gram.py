"""Sums over agents of G^T G, for the k rows G of each agent: as rows while N k is small, as triangles beyond."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from fnbandit.core import Rows, Triangle
from fnbandit.numerics.products import add_gram
from fnbandit.numerics.tree import LEAF, TreeSum, gather


def sum_of_squares(agents: int, length: int, parameters: int, lift: Callable[[Tensor], Tensor]) -> TreeSum:
    """Return the reduction of agents' rows [n, k, ..] of an epoch of k iterations.

    Absorbing N k rows takes 4 N k p^2 operations on one core. Summing them takes 2 N k p^2 on the agents' cores, and
    then about 8 p^3 on the one core, for the inverse and other one-time work: less for that core beyond N k = 2 p.
    A leaf is large enough for its rows to be more numbers than a triangle. Up to LEAF agents send rows.
    """
    if agents <= LEAF or agents * length <= 2 * parameters:
        return gather(agents, Rows)
    leaf = LEAF
    while leaf * length <= (parameters + 1) / 2:
        leaf *= 2
    return TreeSum(agents, leaf, lambda values: gram_triangle(lift(values)), Triangle)


def sum_of_sample(agents: int, slots: int, parameters: int) -> TreeSum:
    """Return the reduction of agents' rows [n, k, p] of a sample, k = `slots`: rows up to p in all, else a triangle.

    Agents of a leaf have about as many numbers in their rows as a triangle has, or it is one agent.
    """
    return gather(agents, Rows) if agents * slots <= parameters else sum_of_curvatures(agents, slots, parameters)


def sum_of_curvatures(agents: int, slots: int, parameters: int) -> TreeSum:
    """Return the reduction of agents' rows [n, k, p] of a sample, k = `slots`, to the triangle of G^T G."""
    leaf = 1
    while leaf < agents and leaf * slots <= (parameters + 1) / 2:
        leaf *= 2
    return TreeSum(agents, leaf, gram_triangle, Triangle)


def gram_triangle(rows: Tensor) -> Tensor:
    """Return the upper triangle of G^T G in double precision, [p (p + 1) / 2], for the rows [n, k, p] of all agents.

    In single precision lambda would be lost in a sum of many rows. The rows are copied because the last bits of a
    product depend on their place in memory, too.
    """
    g = rows.flatten(0, 1).to(torch.float64, copy=True)
    return pack_triangle(add_gram(g.new_zeros(g.shape[1], g.shape[1]), g))


def pack_triangle(matrix: Tensor) -> Tensor:
    """Return the upper triangle of a matrix [p, p], row by row."""
    return matrix.flatten().index_select(0, triangle(len(matrix), matrix.device))


def invert(matrix: Tensor) -> Tensor:
    """Return the inverse of a positive matrix [p, p].

    The success of the factorization is not checked: a check would wait for the device.
    """
    return torch.cholesky_inverse(torch.linalg.cholesky_ex(matrix).L).contiguous()


def symmetric(upper: Tensor, parameters: int) -> Tensor:
    """Return the symmetric matrix [p, p] with an upper triangle `upper`. Inverse of `pack_triangle`."""
    half = upper.new_zeros(parameters * parameters)
    half[triangle(parameters, upper.device)] = upper
    half = half.unflatten(0, (parameters, parameters))
    return half + half.triu(1).mT


@functools.cache
def triangle(parameters: int, device: torch.device) -> Tensor:
    """Return the indices of the upper triangle in a flattened p x p matrix, row by row."""
    i, j = torch.triu_indices(parameters, parameters, device=device)
    return i * parameters + j
