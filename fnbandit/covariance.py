"""Covariances V = lambda I + sum of g g^T, full or diagonal, that never invert a matrix in the loop.

Shapes: c covariances (one shared by all agents, or one per agent), n agents, k rows, p parameters.

Full holds V^-1 = M - Z^T Z. Absorbing rows G [k, p] adds rows to Z [r, p],
    C^-1 G V^-1  with  C C^T = I + G V^-1 G^T.
They say all that changed. M is I / lambda, and no matrix at all, while Z has few rows (`most_rows`); then it is
p x p, and Z is settled into it whenever p / 16 rows have come together: reading M costs what it must,
and writing it is rare.

An agent's own rows since the last round never touch the shared matrix: `FullEpoch` keeps
Z for them, so that with u = Z x
    x^T (V + G^T G)^-1 x = x^T V^-1 x - ||u||^2.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

CHUNK = 128
"""Rows that are absorbed at once: their k x k Cholesky factor stays small."""
WORKSPACE = 4_000_000
"""Bytes of rows that are worked on at once: what is made on the way stays in the cache."""
TILE = 8
"""Rows that a matrix product works on together."""


class Full:
    """c full covariances, V^-1 = M - Z^T Z; `shared` says that the one covariance serves all agents."""

    def __init__(self, count: int, parameters: int, regularization: float, like: Tensor, shared: bool = False) -> None:
        self._regularization = regularization
        self._shared = shared
        self._matrix: Tensor | None = None
        """M [c, p, p] once it is more than I / lambda"""
        self._buffer = like.new_empty(count, 0, parameters)
        self._rows = 0
        self._limits = (most_rows(parameters, shared), parameters // 16)
        """Most rows of Z before and after there is a matrix"""

    @classmethod
    def view(cls, inverse: Tensor) -> Full:
        """Covariances whose inverses [c, p, p] live in somebody else's tensor, and are always settled."""
        covariance = cls(len(inverse), inverse.shape[2], 1.0, inverse)
        covariance._matrix = inverse
        covariance._limits = (0, 0)
        return covariance

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
        met, u = self.meet(x)
        return (met * x).sum(-1) - u.square_().sum(-1)

    def _product(self, rows: Tensor, matrix: Tensor, x: Tensor) -> Tensor:
        """x [n, k, p] times matrix [c, p, q]; rows is x or, for a shared matrix, x in whole tiles."""
        if self._shared:
            return torch.mm(rows, matrix[0])[: x.shape[0] * x.shape[1]].unflatten(0, x.shape[:2])
        return product(rows, matrix.expand(len(x), -1, -1))

    def absorb(self, x: Tensor, features: Callable[[Tensor], Tensor] = lambda x: x) -> Tensor:
        """V <- V + G^T G for the features G [c, k, p] of x [c, k, d]; returns what Z has grown by, [c, k, p]."""
        changes = []
        for part in x.split(CHUNK, dim=1):
            changes.append(self._change_of(part, features))
            self.shrink(changes[-1])
        return torch.cat(changes, dim=1) if len(changes) > 1 else changes[0]

    def _change_of(self, x: Tensor, features: Callable[[Tensor], Tensor]) -> Tensor:
        """What Z will grow by; for a few covariances at a time, so that work space stays small."""
        count, k, p = len(x), x.shape[1], self._buffer.shape[2]
        change = self._buffer.new_empty(count, k, p)
        for few in few_at_once(count, k * p, change):
            rows = features(x[few])
            change[few] = change_of(rows, self._some(few).solve(rows))
        return change

    def _some(self, few: slice) -> Full:
        """Some of the covariances, to look at."""
        some = copy.copy(self)
        some._buffer = self._buffer[few]
        some._matrix = None if self._matrix is None else self._matrix[few]
        return some

    def absorb_and_solve(self, x: Tensor, features: Callable[[Tensor], Tensor], right: Tensor) -> Tensor:
        """`absorb`, then V^-1 right for right [c, 1, p]; M is read once for both, and Z is not kept."""
        solution = None
        for part in x.split(CHUNK, dim=1):
            rows = features(part)
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

    def state(self) -> dict[str, Tensor]:
        """What `load` needs to go on with the same bits; every tensor's first dimension is c."""
        matrix = {} if self._matrix is None else {"matrix": self._matrix}
        return matrix | {"rows": self.rows}

    def load(self, state: dict[str, Tensor]) -> None:
        """Take over another copy's `state`."""
        self._matrix = state["matrix"].to(self._buffer, copy=True) if "matrix" in state else None
        self._buffer = state["rows"].to(self._buffer, copy=True)
        self._rows = self._buffer.shape[1]


def most_rows(parameters: int, shared: bool) -> int:
    """How many rows Z has while it is cheaper than a matrix.

    Solving meets Z twice, a quadratic form once; of a shared inverse most of what is asked are quadratic forms.
    """
    return 3 * parameters // 4 if shared else parameters // 2


def change_of(rows: Tensor, solved: Tensor) -> Tensor:
    """What Z grows by, [c, k, p], for rows G [c, k, p] and G V^-1."""
    inner = torch.bmm(solved, rows.mT)
    inner.diagonal(dim1=1, dim2=2).add_(1)
    # No look at the factor's success: the look would wait for a device, and I + G V^-1 G^T is positive.
    factor = torch.linalg.cholesky_ex(inner).L
    # In one memory order, strides of single rows included, because it is among what decides a product's last bits.
    return torch.linalg.solve_triangular(factor, solved, upper=False).clone(memory_format=torch.contiguous_format)


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


def shrink(inverse: Tensor, change: Tensor) -> None:
    """V^-1 <- V^-1 - Z^T Z in place, for inverses [c, p, p] and what `Full.absorb` returned, [c, k, p]."""
    for part in change.split(CHUNK, dim=1):
        inverse.baddbmm_(part.mT, part, alpha=-1)


class Diagonal:
    """c diagonal covariances: `diagonal` of V [c, p]."""

    def __init__(self, count: int, parameters: int, regularization: float, like: Tensor) -> None:
        self.diagonal = like.new_full((count, parameters), regularization)

    @property
    def inverse(self) -> Tensor:
        """The diagonal of V^-1, [c, p]."""
        return 1 / self.diagonal

    def solve(self, x: Tensor) -> Tensor:
        """V^-1 x for x [n, k, p]."""
        return x / self.diagonal[:, None]

    def quadratic(self, x: Tensor) -> Tensor:
        """x^T V^-1 x for x [n, k, p] -> [n, k]."""
        return (x * x / self.diagonal[:, None]).sum(-1)

    def absorb(self, squares: Tensor) -> None:
        """V <- V + diag(squares) for squares [c, p], the summed squares of the new rows."""
        self.diagonal += squares


class FullEpoch:
    """n agents' rows since the last round on top of one shared `Full`: V-bar, theta-bar (Alg. 1, line 4).

    With theta_0-bar = V^-1 B_sync, u = Z x and one coefficient c per row,
        theta-bar x = theta_0-bar x + u c,    c = (y - theta-bar x) / sqrt(1 + x^T V-bar^-1 x),
    the recursive form of V-bar^-1 (B_sync + B_new). Going back is dropping rows.
    """

    def __init__(self, agents: int) -> None:
        self._agents = agents
        self._capacity = 4
        self.rows = 0

    def start(self, shared: Full, estimate: Tensor) -> None:
        """Begin an epoch from the shared covariance [1, p, p] and the estimate V^-1 B_sync [p]."""
        self._shared = shared
        self._estimate = estimate
        self._latest: tuple[Tensor, Tensor, Tensor | None, Tensor] | None = None
        self.rows = 0
        if not hasattr(self, "_z"):
            self._clear()

    def end(self) -> None:
        """Give much memory back: a round needs its own."""
        if self._z.numel() * self._z.itemsize > WORKSPACE:
            self._clear()

    def _clear(self) -> None:
        self._z = self._estimate.new_empty(self._agents, 0, len(self._estimate))
        self._coefficients = self._estimate.new_empty(self._agents, 0)
        self._gains = self._estimate.new_empty(self._agents, 0)

    def evaluate(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance x^T V-bar^-1 x of features x [n, k, p], each [n, k]."""
        if self._latest is not None:
            self._make_row(*self._latest)
        self._met, self._shared_u = self._shared.meet(x)
        mean = torch.bmm(self._estimate.expand(len(x), 1, -1), x.mT).squeeze(1)
        variance = (self._met * x).sum(-1) - self._shared_u.square().sum(-1)
        self._u = None
        if self.rows:
            self._u = torch.bmm(x, self._z[:, : self.rows].mT)
            mean = mean + torch.bmm(self._coefficients[:, None, : self.rows], self._u.mT).squeeze(1)
            variance = variance - (self._u * self._u).sum(-1)
        self._mean, self._variance = mean, variance.clamp_(min=0)
        return mean, variance

    def append(self, x: Tensor, arms: Tensor, rewards: Tensor) -> None:
        """Add the chosen row of x, the features just evaluated, with its reward (Alg. 1, line 9)."""
        index = torch.arange(self._agents, device=arms.device)
        variance = self._variance[index, arms]
        root = (1 + variance).sqrt()
        u = None if self._u is None else self._u[index, arms]
        self._latest = (self._met[index, arms], self._shared_u[index, arms], u, root)
        if self.rows == self._z.shape[1]:
            # As many as before: epochs grow slowly, and growing takes both, the old and the new.
            self._capacity = max(self._capacity, 2 * self.rows)
            self._grow(self._capacity)
        self._coefficients[:, self.rows] = (rewards - self._mean[index, arms]) / root
        gain = torch.log1p(variance)
        self._gains[:, self.rows] = gain + self._gains[:, self.rows - 1] if self.rows else gain
        self.rows += 1

    def _make_row(self, met: Tensor, shared_u: Tensor, u: Tensor | None, root: Tensor) -> None:
        """The latest row of Z, once an iteration of the same epoch asks for it."""
        row = self.rows - 1
        z = self._shared.solved(met[:, None], shared_u[:, None]).squeeze(1)
        if u is not None:
            z = z - torch.bmm(u[:, None], self._z[:, :row]).squeeze(1)
        self._z[:, row] = z / root[:, None]
        self._latest = None

    def _grow(self, capacity: int) -> None:
        for name in ("_z", "_coefficients", "_gains"):
            old = getattr(self, name)
            new = old.new_empty(old.shape[0], capacity, *old.shape[2:])
            new[:, : old.shape[1]] = old
            setattr(self, name, new)

    def gain(self) -> Tensor:
        """log det(V-bar) - log det(V_last) of every agent, [n] (Alg. 1, line 11)."""
        return self._gains[:, self.rows - 1]

    def truncate(self, rows: int) -> bool:
        """Back to the first `rows` rows."""
        if rows < self.rows:
            self._latest = None
        self.rows = rows
        return True


class DiagonalEpoch:
    """n agents' sums since the last round on top of one shared `Diagonal`."""

    def __init__(self, agents: int) -> None:
        self._agents = agents
        self.rows = 0

    def start(self, shared: Diagonal, moments: Tensor) -> None:
        """Begin an epoch from the shared diagonal [1, p] and B_sync [p]."""
        self._shared = shared
        self._moments = moments
        self.squares = moments.new_zeros(self._agents, len(moments))
        self.new_moments = moments.new_zeros(self._agents, len(moments))
        self.rows = 0

    def evaluate(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance x^T V-bar^-1 x of features x [n, k, p], each [n, k]."""
        mean, variance = x.new_empty(2, *x.shape[:2])
        for few in few_at_once(len(x), x[0].numel(), x):
            part = x[few]
            covariance = self._shared.diagonal + self.squares[few]
            estimate = (self._moments + self.new_moments[few]) / covariance
            mean[few] = (part * estimate[:, None]).sum(-1)
            variance[few] = (part * part).div_(covariance[:, None]).sum(-1)
        return mean, variance

    def append(self, x: Tensor, arms: Tensor, rewards: Tensor) -> None:
        """Add the chosen row's squares and moment (Alg. 1, line 9)."""
        chosen = x[torch.arange(self._agents, device=arms.device), arms]
        self.squares += chosen * chosen
        self.new_moments += rewards[:, None] * chosen
        self.rows += 1

    def gain(self) -> Tensor:
        """log det(V-bar) - log det(V_last) of every agent, [n] (Alg. 1, line 11)."""
        return diagonal_gain(self.squares, self._shared.diagonal)

    def truncate(self, rows: int) -> bool:
        """Sums cannot be taken apart to the same bits: False asks the caller to replay."""
        return rows == self.rows


def diagonal_gain(squares: Tensor, diagonal: Tensor) -> Tensor:
    """sum_j log((V_jj + squares_j) / V_jj), [n]: the trigger of the paper's experiments (App. E)."""
    return torch.log1p(squares / diagonal).sum(-1)
