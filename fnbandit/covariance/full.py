"""Full covariances. V^-1 = M - Z^T Z is kept, V never.

Absorbing rows G [k, p] adds rows to Z [r, p],
    C^-1 G V^-1  with  C C^T = I + G V^-1 G^T.
They say all that changed. M is I / lambda, and no matrix at all, while Z has few rows (`most_rows`); then it is
p x p, and Z is settled into it whenever p / 16 rows have come together: reading M costs what it must,
and writing it is rare.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor

from fnbandit.covariance.squares import sum_of_squares, symmetric
from fnbandit.slices import WORKSPACE, few_at_once, product, whole_tiles
from fnbandit.state import State
from fnbandit.tree import Sum, everyone

CHUNK = 128
"""Rows that are absorbed at once: their k x k Cholesky factor stays small."""
SLICE = 4096
"""Rows by which a mean inverse shrinks at once."""


class Full:
    """c full covariances, V^-1 = M - Z^T Z; `shared` says that the one covariance serves all agents."""

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
        """M [c, p, p] once it is more than I / lambda"""
        self._buffer = like.new_empty(count, 0, parameters)
        self._rows = 0
        self._limits = (most_rows(parameters, shared), parameters // 16)
        """Most rows of Z before and after there is a matrix"""

    @property
    def rows(self) -> Tensor:
        """Z [c, r, p]"""
        return self._buffer[:, : self._rows]

    @property
    def inverse(self) -> Tensor:
        """V^-1 [c, p, p], to look at."""
        return self._settled(None if self._matrix is None else self._matrix.clone())

    def meet(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """M x [n, k, p] and u = Z x [n, k, r] for x [n, k, p]: what `quadratic` and `solve` are made of."""
        rows = whole_tiles(x) if self._shared else x
        # M is symmetric, and faster to read along its rows.
        met = x * (1 / self._regularization) if self._matrix is None else self._product(rows, self._matrix.mT, x)
        return met, self._product(rows, self.rows.mT, x)

    def solved(self, met: Tensor, u: Tensor) -> Tensor:
        """V^-1 x [n, k, p] from what `meet` returned, or from some of its rows."""
        return met - self._product(whole_tiles(u) if self._shared else u, self.rows, u) if self._rows else met

    def solve(self, x: Tensor) -> Tensor:
        """V^-1 x for x [n, k, p]; one covariance serves all n, or each its own."""
        return self.solved(*self.meet(x))

    def quadratic(self, x: Tensor) -> Tensor:
        """x^T V^-1 x for x [n, k, p] -> [n, k]."""
        found = []
        # A few at a time: what is made on the way stays in the cache.
        for few in few_at_once(len(x), x[0].numel(), x):
            part = x[few]
            met, u = (self if len(self._buffer) == 1 else self.some(few)).meet(part)
            found.append((met * part).sum(-1) - u.square_().sum(-1))
        return torch.cat(found) if len(found) > 1 else found[0]

    def _product(self, rows: Tensor, matrix: Tensor, x: Tensor) -> Tensor:
        """x [n, k, p] times matrix [c, p, q]; rows is x or, for a shared matrix, x in whole tiles."""
        if self._shared:
            return torch.mm(rows, matrix[0])[: x.shape[0] * x.shape[1]].unflatten(0, x.shape[:2])
        return product(rows, matrix.expand(len(x), -1, -1))

    def absorb(self, news: Tensor) -> Tensor:
        """V <- V + G^T G for the features G [c, k, p] of contexts [c, k, d]; returns what Z has grown by, [c, k, p]."""
        changes = []
        for part in news.split(CHUNK, dim=1):
            changes.append(self._change_of(part))
            self.shrink(changes[-1])
        return torch.cat(changes, dim=1) if len(changes) > 1 else changes[0]

    def absorb_rows(self, rows: Tensor) -> None:
        self.absorb(rows)

    def _change_of(self, contexts: Tensor) -> Tensor:
        """What Z will grow by; for a few covariances at a time, so that work space stays small."""
        count, k, p = len(contexts), contexts.shape[1], self._buffer.shape[2]
        if count * k * p * self._buffer.itemsize <= WORKSPACE:
            rows = self._lift(contexts)
            return change_of(rows, self.solve(rows))
        change = self._buffer.new_empty(count, k, p)
        for few in few_at_once(count, k * p, change):
            rows = self._lift(contexts[few])
            change[few] = change_of(rows, self.some(few).solve(rows))
        return change

    def reduced(self, variances: Tensor, change: Tensor, points: Tensor) -> Tensor:
        """x^T V^-1 x of points after Z has grown by `change` [c, k, p]: less by ||change x||^2, [c, r].

        Points are [r, p] for all, or [c, r, p].
        """
        return variances - torch.bmm(change, points.mT.expand(len(change), -1, -1)).square_().sum(1)

    def some(self, few: slice) -> Full:
        """Some of the covariances, to look at."""
        some = copy.copy(self)
        some._buffer = self._buffer[few]
        some._matrix = None if self._matrix is None else self._matrix[few]
        return some

    def absorb_and_solve(self, news: Tensor, right: Tensor) -> Tensor:
        """`absorb`, then V^-1 right for right [c, 1, p]; M is read once for both, and Z is not kept."""
        solution = None
        for part in news.split(CHUNK, dim=1):
            rows = self._lift(part)
            if solution is None:
                both = self.solve(torch.cat([rows, right], dim=1))
                solved, solution = both[:, :-1], both[:, -1:]
            else:
                solved = self.solve(rows)
            change = change_of(rows, solved)
            self.shrink(change)
            solution = solution - torch.bmm(torch.bmm(right, change.mT), change)
        assert solution is not None
        return solution

    def shrink(self, change: Tensor) -> None:
        """V^-1 <- V^-1 - Z^T Z for new rows of Z, [c, k, p]."""
        k = change.shape[1]
        if self._rows + k > self._limit:
            self._matrix = self._settled(self._matrix)
            self._buffer, self._rows = self._buffer.new_empty(len(change), self._limit, change.shape[2]), 0
        if k > self._limit:
            assert self._matrix is not None
            shrink(self._matrix, change)
            return
        end = self._rows + k
        if end > self._buffer.shape[1]:
            larger = self._buffer.new_empty(len(change), min(self._limit, max(8, 2 * end)), change.shape[2])
            larger[:, : self._rows] = self.rows
            self._buffer = larger
        self._buffer[:, self._rows : end] = change
        self._rows = end

    def become(self, inverse: Tensor) -> None:
        """Take over V^-1 [c, p, p] as a whole."""
        self._matrix = inverse
        self._buffer, self._rows = self._buffer.new_empty(len(inverse), 0, inverse.shape[2]), 0

    @property
    def _limit(self) -> int:
        return self._limits[self._matrix is not None]

    def _settled(self, matrix: Tensor | None) -> Tensor:
        """M - Z^T Z, in place where there is a matrix."""
        if matrix is None:
            count, _, p = self._buffer.shape
            matrix = torch.eye(p, dtype=self._buffer.dtype, device=self._buffer.device) / self._regularization
            matrix = matrix.repeat(count, 1, 1)
        if self._rows:
            matrix.baddbmm_(self.rows.mT, self.rows, alpha=-1)
        return matrix

    def state(self) -> State:
        """What `load` needs to go on with the same bits; every tensor's first dimension is c."""
        matrix = {} if self._matrix is None else {"matrix": self._matrix}
        return matrix | {"rows": self.rows}

    def load(self, state: State) -> None:
        """Take over another copy's `state`."""
        self._matrix = state["matrix"].to(self._buffer, copy=True) if "matrix" in state else None
        self._buffer = state["rows"].to(self._buffer, copy=True)
        self._rows = self._buffer.shape[1]


def most_rows(parameters: int, shared: bool) -> int:
    """How many rows Z has while it is cheaper than a matrix.

    Solving multiplies by Z twice, a quadratic form once; shared inverses mostly serve quadratic forms, so they
    stay low-rank for longer.
    """
    return 3 * parameters // 4 if shared else parameters // 2


def change_of(rows: Tensor, solved: Tensor, beside: Tensor | None = None) -> Tensor:
    """What Z grows by, C^-1 G V^-1 [c, k, p], for rows G [c, k, p] and G V^-1; and C^-1 times what stands beside."""
    inner = torch.bmm(solved, rows.mT)
    inner.diagonal(dim1=1, dim2=2).add_(1)
    # No look at the factor's success: the look would wait for a device, and I + G V^-1 G^T is positive.
    factor = torch.linalg.cholesky_ex(inner).L
    # In one memory order, strides of single rows included, because it is among what decides a product's last bits.
    right = solved if beside is None else torch.cat([solved, beside], dim=2)
    return torch.linalg.solve_triangular(factor, right, upper=False).clone(memory_format=torch.contiguous_format)


def shrink(inverse: Tensor, change: Tensor) -> None:
    """V^-1 <- V^-1 - Z^T Z in place, for inverses [c, p, p] and what `Full.absorb` returned, [c, k, p]."""
    for part in change.split(CHUNK, dim=1):
        inverse.baddbmm_(part.mT, part, alpha=-1)


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

    def sum(self, length: int) -> Sum:
        return sum_of_squares(self._agents, length, self._new[0], lambda change: change)

    def combine(self, changes: Tensor) -> Tensor:
        """The mean of V_local^-1 - Z^T Z over agents falls by the rows Z / sqrt(N), [N k, p]; done in place.

        The triangle of the sum of Z^T Z is divided by N.
        """
        if changes.ndim == 1:
            return changes / self._agents
        return changes.flatten(0, 1).div_(self._agents**0.5)

    def apply(self, combined: Tensor, own: range) -> None:
        if combined.ndim == 1:
            self._mean.become(self._mean.inverse - symmetric(combined, self._new[0]).to(self._new[2]))
            return
        for rows in combined.split(SLICE):
            self._mean.shrink(rows[None])

    def deviation(self, x: Tensor) -> Tensor:
        """||x||_{V_sync,NN^-1}"""
        return self._mean.quadratic(x).clamp_(min=0).sqrt_()

    def state(self) -> State:
        return self._mean.state()

    def load(self, state: State) -> None:
        self._mean.load(state)


class AllInverses:
    """V_local^-1 of all N agents, [N, p, p] (FN-UCB). A group's own covariances are views of it."""

    def __init__(
        self, agents: int, parameters: int, regularization: float, like: Tensor, lift: Callable[[Tensor], Tensor]
    ) -> None:
        self._lift = lift
        self._inverses = Full(agents, parameters, regularization, like).inverse

    def local(self, agents: range) -> Full:
        return FullView(self._inverses[agents.start : agents.stop], self._lift)

    def sum(self, length: int) -> Sum:
        return everyone(len(self._inverses))

    def combine(self, changes: Tensor) -> Tensor:
        """Every agent hears every change, [N, k, p]."""
        return changes

    def apply(self, combined: Tensor, own: range) -> None:
        for others in (slice(0, own.start), slice(own.stop, len(self._inverses))):
            shrink(self._inverses[others], combined[others])

    def deviation(self, x: Tensor) -> Tensor:
        """The mean over agents of ||x||_{V_local^-1}"""
        norms = [(torch.bmm(x, inverse.expand(len(x), -1, -1)) * x).sum(-1) for inverse in self._inverses]
        return torch.stack(norms, dim=-1).clamp_(min=0).sqrt_().mean(-1)

    def state(self) -> State:
        return {"inverses": self._inverses}

    def load(self, state: State) -> None:
        # In place: groups hold views of it.
        self._inverses.copy_(state["inverses"])


class FullView(Full):
    """Covariances whose inverses [c, p, p] live in somebody else's tensor, which saves them; always settled."""

    def __init__(self, inverses: Tensor, lift: Callable[[Tensor], Tensor]) -> None:
        super().__init__(len(inverses), inverses.shape[2], 1.0, inverses, lift)
        self._matrix = inverses
        self._limits = (0, 0)

    def state(self) -> State:
        return {}

    def load(self, state: State) -> None:
        pass


def rotated(news: Tensor, lift: Callable[[Tensor], Tensor]) -> Tensor:
    """The triangular factor R of the QR decomposition of rows G [n, k, p]: R^T R = G^T G, [n, min(k, p), p]."""
    return torch.linalg.qr(lift(news), mode="r").R
