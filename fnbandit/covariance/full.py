"""Full covariances, stored as V^-1 = M - Z^T Z; V itself is never stored.

Absorbing rows G [k, p] appends to Z [r, p] the rows
    C^-1 G V^-1  with  C C^T = I + G V^-1 G^T,
and changes nothing else. While Z has few rows (`most_rows`), M is I / lambda and is not stored. After that M is p x p,
and is replaced by M - Z^T Z whenever Z has p / 16 rows, so that M is written rarely.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor

from fnbandit.core import Rows, Triangle
from fnbandit.covariance.gram import sum_of_squares, symmetric
from fnbandit.numerics.products import (
    chunks,
    downdate,
    factorize,
    fill_tiles,
    fits_workspace,
    multiply,
    multiply_tiles,
    solve_lower,
)
from fnbandit.numerics.state import State
from fnbandit.numerics.tree import TreeSum, gather

CHUNK = 128
"""Rows that are absorbed at once, at most: their k x k Cholesky factor stays small"""
DOWNDATE_ROWS = 4096
"""Rows that are subtracted from a mean inverse at once, at most"""


class Full:
    """c full covariances, V^-1 = M - Z^T Z; with `shared`, c is 1, one covariance for all agents."""

    def __init__(
        self,
        count: int,
        parameters: int,
        regularization: float,
        like: Tensor,
        lift: Callable[[Tensor], Tensor] = lambda x: x,
        shared: bool = False,
    ) -> None:
        self._regularization = regularization
        self._lift = lift
        self._shared = shared
        self._matrix: Tensor | None = None
        """M [c, p, p]; None while it is I / lambda"""
        self._buffer = like.new_empty(count, 0, parameters)
        self._rows = 0
        self._limits = (most_rows(parameters, shared), parameters // 16)
        """Largest numbers of rows of Z: without a stored M, and with one"""

    @property
    def rows(self) -> Tensor:
        """Z [c, r, p]"""
        return self._buffer[:, : self._rows]

    @property
    def inverse(self) -> Tensor:
        """V^-1 [c, p, p], a copy."""
        return self._subtract_rows(None if self._matrix is None else self._matrix.clone())

    def split_product(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return M x [n, k, p] and u = Z x [n, k, r] for x [n, k, p]; `quadratic` and `solve` combine them."""
        rows = fill_tiles(x) if self._shared else x
        # M is symmetric; its transpose is faster to read.
        base = x * (1 / self._regularization) if self._matrix is None else self._product(rows, self._matrix.mT, x)
        return base, self._product(rows, self.rows.mT, x)

    def join_product(self, base: Tensor, u: Tensor) -> Tensor:
        """Return V^-1 x [n, k, p] from the results of `split_product`, or from some of their rows."""
        return base - self._product(fill_tiles(u) if self._shared else u, self.rows, u) if self._rows else base

    def solve(self, x: Tensor) -> Tensor:
        """Return V^-1 x for x [n, k, p]; c is 1, one covariance for all n agents, or n."""
        return self.join_product(*self.split_product(x))

    def quadratic(self, x: Tensor) -> Tensor:
        """Return x^T V^-1 x for x [n, k, p] -> [n, k]."""
        found = []
        for chunk in chunks(len(x), x[0].numel(), x):
            part = x[chunk]
            base, u = (self if len(self._buffer) == 1 else self.subset(chunk)).split_product(part)
            found.append((base * part).sum(-1) - u.square_().sum(-1))
        return torch.cat(found) if len(found) > 1 else found[0]

    def _product(self, rows: Tensor, matrix: Tensor, x: Tensor) -> Tensor:
        """Return x [n, k, p] times matrix [c, p, q]; `rows` is x or, for a shared matrix, x in whole tiles."""
        if self._shared:
            return multiply_tiles(rows, matrix[0])[: x.shape[0] * x.shape[1]].unflatten(0, x.shape[:2])
        return multiply(rows, matrix.expand(len(x), -1, -1))

    def absorb(self, update: Tensor) -> Tensor:
        """V <- V + G^T G for the features G [c, k, p] of contexts [c, k, d]. Return the new rows of Z, [c, k, p]."""
        changes = []
        for part in update.split(CHUNK, dim=1):
            changes.append(self._compute_downdate(part))
            self.downdate(changes[-1])
        return torch.cat(changes, dim=1) if len(changes) > 1 else changes[0]

    def absorb_rows(self, rows: Tensor) -> None:
        self.absorb(rows)

    def _compute_downdate(self, contexts: Tensor) -> Tensor:
        """Return the new rows of Z, computed for as many covariances at a time as fit the work space."""
        count, k, p = len(contexts), contexts.shape[1], self._buffer.shape[2]
        if fits_workspace(count * k * p, self._buffer):
            rows = self._lift(contexts)
            return compute_downdate(rows, self.solve(rows))
        change = self._buffer.new_empty(count, k, p)
        for chunk in chunks(count, k * p, change):
            rows = self._lift(contexts[chunk])
            change[chunk] = compute_downdate(rows, self.subset(chunk).solve(rows))
        return change

    def reduce_variances(self, variances: Tensor, change: Tensor, points: Tensor) -> Tensor:
        """Return x^T V^-1 x [c, r] after `change` [c, k, p] is appended to Z: variances - ||change x||^2.

        Points x are [r, p] for all covariances, or [c, r, p].
        """
        return variances - multiply(change, points.mT.expand(len(change), -1, -1)).square_().sum(1)

    def subset(self, part: slice) -> Full:
        """Return some of the covariances, for reading only."""
        subset = copy.copy(self)
        subset._buffer = self._buffer[part]
        subset._matrix = None if self._matrix is None else self._matrix[part]
        return subset

    def absorb_and_solve(self, update: Tensor, right: Tensor) -> Tensor:
        """Apply `absorb`, and return V^-1 right for right [c, 1, p].

        Both read M once, and the new rows of Z are not collected.
        """
        solution = None
        for part in update.split(CHUNK, dim=1):
            rows = self._lift(part)
            if solution is None:
                both = self.solve(torch.cat([rows, right], dim=1))
                solved, solution = both[:, :-1], both[:, -1:]
            else:
                solved = self.solve(rows)
            change = compute_downdate(rows, solved)
            self.downdate(change)
            solution = solution - multiply(multiply(right, change.mT), change)
        assert solution is not None
        return solution

    def downdate(self, change: Tensor) -> None:
        """Append rows `change` [c, k, p] to Z: V^-1 <- V^-1 - change^T change."""
        k = change.shape[1]
        if self._rows + k > self._limit:
            self._matrix = self._subtract_rows(self._matrix)
            self._buffer, self._rows = self._buffer.new_empty(len(change), self._limit, change.shape[2]), 0
        if k > self._limit:
            assert self._matrix is not None
            downdate_in_chunks(self._matrix, change)
            return
        end = self._rows + k
        if end > self._buffer.shape[1]:
            larger = self._buffer.new_empty(len(change), min(self._limit, max(8, 2 * end)), change.shape[2])
            larger[:, : self._rows] = self.rows
            self._buffer = larger
        self._buffer[:, self._rows : end] = change
        self._rows = end

    def replace_inverse(self, inverse: Tensor) -> None:
        """Replace V^-1 by [c, p, p]."""
        self._matrix = inverse
        self._buffer, self._rows = self._buffer.new_empty(len(inverse), 0, inverse.shape[2]), 0

    @property
    def _limit(self) -> int:
        return self._limits[self._matrix is not None]

    def _subtract_rows(self, matrix: Tensor | None) -> Tensor:
        """Return M - Z^T Z, computed in place unless `matrix` is None, which means I / lambda."""
        if matrix is None:
            count, _, p = self._buffer.shape
            matrix = torch.eye(p, dtype=self._buffer.dtype, device=self._buffer.device) / self._regularization
            matrix = matrix.repeat(count, 1, 1)
        if self._rows:
            downdate(matrix, self.rows)
        return matrix

    def state(self) -> State:
        """Return all that `load` needs to continue with the same bits; every tensor's first dimension is c."""
        matrix = {} if self._matrix is None else {"matrix": self._matrix}
        return matrix | {"rows": self.rows}

    def load(self, state: State) -> None:
        """Continue from a `state`."""
        self._matrix = state["matrix"].to(self._buffer, copy=True) if "matrix" in state else None
        self._buffer = state["rows"].to(self._buffer, copy=True)
        self._rows = self._buffer.shape[1]


def most_rows(parameters: int, shared: bool) -> int:
    """Return the largest number of rows for which Z is cheaper than a matrix.

    `solve` multiplies by Z twice, `quadratic` once. Shared inverses are mostly used in quadratic forms, so they stay
    low-rank for longer.
    """
    return 3 * parameters // 4 if shared else parameters // 2


def compute_downdate(rows: Tensor, solved: Tensor, beside: Tensor | None = None) -> Tensor:
    """Return new rows of Z, C^-1 G V^-1 [c, k, p], for rows G [c, k, p] and `solved` = G V^-1.

    Columns `beside` [c, k, q] are multiplied by C^-1, too, and follow in the result, [c, k, p + q].
    """
    inner = multiply(solved, rows.mT)
    inner.diagonal(dim1=1, dim2=2).add_(1)
    return solve_lower(factorize(inner), solved if beside is None else torch.cat([solved, beside], dim=2))


def downdate_in_chunks(inverse: Tensor, change: Tensor) -> None:
    """Subtract Z^T Z from inverses [c, p, p] in place, for rows Z [c, k, p] that `Full.absorb` returned."""
    for part in change.split(CHUNK, dim=1):
        downdate(inverse, part)


class MeanInverse:
    """V_sync,NN^-1, the mean of all agents' V_local^-1 (Less Comm., Sec. 3.4)."""

    def __init__(
        self, agents: int, parameters: int, regularization: float, like: Tensor, lift: Callable[[Tensor], Tensor]
    ) -> None:
        self._agents = agents
        self._new = (parameters, regularization, like, lift)
        self._mean = Full(1, *self._new, shared=True)

    def local(self, agents: range) -> Full:
        return Full(len(agents), *self._new)

    def sum(self, length: int) -> TreeSum:
        return sum_of_squares(self._agents, length, self._new[0], lambda change: change)

    def combine(self, changes: Rows | Triangle) -> Rows | Triangle:
        """Return the mean over agents of Z^T Z: as rows Z / sqrt(N), [N k, p], scaled in place, or as a triangle."""
        if isinstance(changes, Triangle):
            return Triangle(changes.values / self._agents)
        return Rows(changes.values.flatten(0, 1).div_(self._agents**0.5))

    def apply(self, combined: Rows | Triangle, own: range) -> None:
        if isinstance(combined, Triangle):
            change = symmetric(combined.values, self._new[0]).to(self._new[2])
            self._mean.replace_inverse(self._mean.inverse - change)
            return
        for rows in combined.values.split(DOWNDATE_ROWS):
            self._mean.downdate(rows[None])

    def deviation(self, x: Tensor) -> Tensor:
        """Return ||x||_{V_sync,NN^-1}."""
        return self._mean.quadratic(x).clamp_(min=0).sqrt_()

    @property
    def parts(self) -> Tensor:
        return self._mean.inverse

    def state(self) -> State:
        return self._mean.state()

    def load(self, state: State) -> None:
        self._mean.load(state)


class AllInverses:
    """V_local^-1 of all N agents, [N, p, p] (FN-UCB). A batch's own covariances are views of it."""

    def __init__(
        self, agents: int, parameters: int, regularization: float, like: Tensor, lift: Callable[[Tensor], Tensor]
    ) -> None:
        self._lift = lift
        self._inverses = Full(agents, parameters, regularization, like).inverse

    def local(self, agents: range) -> Full:
        return FullView(self._inverses[agents.start : agents.stop], self._lift)

    def sum(self, length: int) -> TreeSum:
        return gather(len(self._inverses), Rows)

    def combine(self, changes: Rows) -> Rows:
        """Return the changes of all agents, [N, k, p], unchanged."""
        return changes

    def apply(self, combined: Rows, own: range) -> None:
        for others in (slice(0, own.start), slice(own.stop, len(self._inverses))):
            downdate_in_chunks(self._inverses[others], combined.values[others])

    def deviation(self, x: Tensor) -> Tensor:
        """Return the mean over agents of ||x||_{V_local^-1}."""
        norms = [(multiply(x, inverse.expand(len(x), -1, -1)) * x).sum(-1) for inverse in self._inverses]
        return torch.stack(norms, dim=-1).clamp_(min=0).sqrt_().mean(-1)

    @property
    def parts(self) -> Tensor:
        return self._inverses

    def state(self) -> State:
        return {"inverses": self._inverses}

    def load(self, state: State) -> None:
        # In place: batches hold views of it.
        self._inverses.copy_(state["inverses"])


class FullView(Full):
    """Covariances without Z, whose inverses [c, p, p] are views of a tensor of `AllInverses`, which saves it."""

    def __init__(self, inverses: Tensor, lift: Callable[[Tensor], Tensor]) -> None:
        super().__init__(len(inverses), inverses.shape[2], 1.0, inverses, lift)
        self._matrix = inverses
        self._limits = (0, 0)

    def state(self) -> State:
        return {}

    def load(self, state: State) -> None:
        pass


def triangular_factor(update: Tensor, lift: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the triangular factor R of the QR decomposition of rows G [n, k, p]: R^T R = G^T G, [n, min(k, p), p]."""
    return torch.linalg.qr(lift(update), mode="r").R
