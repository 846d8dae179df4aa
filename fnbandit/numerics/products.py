"""Matrix products of the hot path, whose last bits do not depend on how agents are divided among processes.

A library chooses a kernel by shape, and kernels add in different orders. Processors differ in the shapes that keep
their bits when a batch is divided. So this module computes every product of agents' batches, and avoids these shapes:

- A contraction of length one (a rank-one change). MKL on Intel uses another kernel for a batch of one matrix, from
  p = 25 on. One multiplication and one addition, each rounded by itself, have the same bits everywhere.
- A trailing dimension of one. torch uses a matrix-vector product for a batch of one. The column is doubled.
- Rows times a shared matrix in an incomplete tile, or in a single one (Intel, float32, p >= 241). Rows are padded.
- Rows times a large shared matrix that is stored row by row (Intel, p >= 861). Such a matrix is multiplied in blocks,
  or, if it is symmetric, passed as its transpose, which is faster, too.

`fnbandit.numerics.battery` tries all products on this processor. `fnbandit.networks.training` avoids training on one
observation: it uses the observation twice.

Shapes: n agents, k rows, p parameters.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

WORKSPACE = 4_000_000
"""Bytes of intermediate results that a CPU computes at once: they stay in the cache"""
DEVICE_WORKSPACE = 16 * WORKSPACE
"""The same for other devices, which have no such cache, and where each further chunk costs launches"""
TILE = 8
"""Rows that a matrix product computes together"""
LEAST_ROWS = 2 * TILE
"""Smallest number of rows of a product with a shared matrix"""
LARGEST_BLOCK = 512
"""Largest number of rows and of columns of a matrix stored row by row that one product reads"""


def fits_workspace(numbers: int, like: Tensor) -> bool:
    """Return True where a tensor of `numbers` numbers fits the work space of the device of `like`."""
    return numbers * like.itemsize <= _workspace(like)


def chunks(agents: int, numbers: int, like: Tensor) -> Iterator[slice]:
    """Return slices of agents that fit the work space, at `numbers` numbers per agent."""
    step = max(1, _workspace(like) // (numbers * like.itemsize))
    return (slice(start, min(start + step, agents)) for start in range(0, agents, step))


def _workspace(like: Tensor) -> int:
    return WORKSPACE if like.device.type == "cpu" else DEVICE_WORKSPACE


# One matrix for each agent


def multiply(left: Tensor, right: Tensor, out: Tensor | None = None) -> Tensor:
    """Return left [n, a, b] times right [n, b, c], [n, a, c]; write it to `out` unless that is None.

    Avoids b = 1, which is an elementwise product, and c = 1, for which the column is doubled.
    """
    if left.shape[2] == 1:
        return torch.mul(left, right, out=out)
    if right.shape[2] == 1:
        column = torch.bmm(left, right.expand(-1, -1, 2))[:, :, :1]
        return column if out is None else out.copy_(column)
    return torch.bmm(left, right, out=out)


def add_product(
    base: Tensor, left: Tensor, right: Tensor, scale: float = 1.0, keep: float = 1.0, out: Tensor | None = None
) -> Tensor:
    """Return keep * base + scale * left times right, for left [n, a, b], right [n, b, c]; `out` may be base.

    Avoids b = 1 and c = 1, for which `multiply` computes the product and every operation rounds by itself.
    """
    if left.shape[2] == 1 or right.shape[2] == 1:
        total = (base * keep).add(multiply(left, right) * scale)
        return total if out is None else out.copy_(total)
    return torch.baddbmm(base, left, right, beta=keep, alpha=scale, out=out)


def downdate(matrix: Tensor, rows: Tensor) -> None:
    """Subtract Z^T Z from matrices [n, p, p] in place, for rows Z [n, k, p].

    Avoids k = 1, for which the outer products are subtracted, as many at once as fit the work space.
    """
    if rows.shape[1] != 1:
        matrix.baddbmm_(rows.mT, rows, alpha=-1)
        return
    n, p, _ = matrix.shape
    columns = rows.mT
    for chunk in chunks(n, p * min(p, 512), matrix):
        for start in range(0, p, 512):
            part = matrix[chunk, start : start + 512]
            part.sub_(columns[chunk, start : start + 512] * rows[chunk])


def factorize(matrix: Tensor) -> Tensor:
    """Return the lower Cholesky factors of positive matrices [n, k, k].

    Success is not checked: a check would wait for the device.
    """
    return torch.linalg.cholesky_ex(matrix).L


def solve_lower(factor: Tensor, right: Tensor) -> Tensor:
    """Return C^-1 right, [n, k, q], for lower triangular factors C [n, k, k].

    Avoids factors in other than column order, and results in other than row order, strides of dimensions of one
    included: the kernel, and so the last bits, depend on the order in memory, too.
    """
    solved = torch.linalg.solve_triangular(factor.mT.contiguous().mT, right, upper=False)
    return solved.clone(memory_format=torch.contiguous_format)


# One matrix for all agents


def fill_tiles(x: Tensor) -> Tensor:
    """Return x [n, k, p] as the rows of one matrix, padded with rows of zeros to whole tiles and to LEAST_ROWS.

    A row in an incomplete tile has other last bits, and which rows are there depends on the number of agents in the
    process.
    """
    rows = x.flatten(0, 1)
    missing = max(-len(rows) % TILE, LEAST_ROWS - len(rows))
    return torch.nn.functional.pad(rows, (0, 0, 0, missing)) if missing else rows


def multiply_tiles(rows: Tensor, matrix: Tensor, out: Tensor | None = None) -> Tensor:
    """Return rows from `fill_tiles` times a matrix [p, q]; write the product to `out` unless that is None.

    Avoids p = 1, and large matrices that are stored row by row: pass a symmetric one as its transpose.
    """
    assert len(rows) % TILE == 0 and len(rows) >= LEAST_ROWS, f"{len(rows)} rows are not whole tiles"
    p, q = matrix.shape
    if p == 1:
        return torch.mul(rows, matrix, out=out)
    if matrix.stride(0) == 1 or max(p, q) <= LARGEST_BLOCK:
        return torch.mm(rows, matrix, out=out)
    out = rows.new_empty(len(rows), q) if out is None else out
    for column in range(0, q, LARGEST_BLOCK):
        to, part = out[:, column : column + LARGEST_BLOCK], matrix[:, column : column + LARGEST_BLOCK]
        for row in range(0, p, LARGEST_BLOCK):
            block = slice(row, row + LARGEST_BLOCK)
            to.addmm_(rows[:, block], part[block], beta=0 if row == 0 else 1)
    return out


def multiply_rows(x: Tensor, matrix: Tensor) -> Tensor:
    """Return x [n, k, p] times a matrix [p, q] that all agents share, [n, k, q], through `multiply_tiles`."""
    return multiply_tiles(fill_tiles(x), matrix)[: x.shape[0] * x.shape[1]].unflatten(0, x.shape[:2])


def add_gram(total: Tensor, rows: Tensor, scale: float = 1.0) -> Tensor:
    """Add scale * G^T G to one matrix [p, p] in place, for rows G [k, p] of all agents together; return it.

    The caller passes the same rows in every layout.
    """
    return total.addmm_(rows.mT, rows, alpha=scale)
