"""Covariances V = lambda I + sum of g g^T, full or diagonal, that never invert a matrix in the loop.

Shapes: c covariances (one shared by all agents, or one per agent), n agents, k rows, p parameters.

Full holds V^-1. Absorbing rows G [k, p] is one rank-k update,
    Z = C^-1 G V^-1  with  C C^T = I + G V^-1 G^T,    V^-1 <- V^-1 - Z^T Z,
and log det grows by 2 sum log diag C. The rows Z say all that changed.

An agent's own rows since the last round never touch the shared matrix: `FullEpoch` keeps
Z for them, so that with u = Z x
    x^T (V + G^T G)^-1 x = x^T V^-1 x - ||u||^2.
"""

from __future__ import annotations

import torch
from torch import Tensor

CHUNK = 128
"""Rows that are absorbed at once: their k x k Cholesky factor stays small."""
LARGE = 4_000_000
"""Bytes from which a matrix is too large for the cache."""


class Full:
    """c full covariances: `inverse` [c, p, p], `log_determinant` of V / lambda [c].

    `shared` says that the one covariance serves all agents, for whom `shared_product` is made.
    """

    def __init__(self, count: int, parameters: int, regularization: float, like: Tensor, shared: bool = False) -> None:
        self._shared = shared
        eye = torch.eye(parameters, dtype=like.dtype, device=like.device) / regularization
        self.inverse = eye.repeat(count, 1, 1)
        self.log_determinant = like.new_zeros(count)

    @classmethod
    def view(cls, inverse: Tensor) -> Full:
        """Covariances whose inverses [c, p, p] live in somebody else's tensor."""
        covariance = cls(0, 0, 1.0, inverse)
        covariance.inverse = inverse
        covariance.log_determinant = inverse.new_zeros(len(inverse))
        return covariance

    def solve(self, x: Tensor) -> Tensor:
        """V^-1 x for x [n, k, p]; one covariance serves all n, or each its own."""
        if self._shared:
            return shared_product(x, self.inverse[0])
        return torch.bmm(x, self.inverse.expand(len(x), -1, -1))

    def quadratic(self, x: Tensor) -> Tensor:
        """x^T V^-1 x for x [n, k, p] -> [n, k]."""
        return (self.solve(x) * x).sum(-1)

    def absorb(self, rows: Tensor) -> Tensor:
        """V <- V + G^T G for rows [c, k, p]; returns Z [c, k, p], by which V^-1 shrinks: V^-1 - Z^T Z."""
        changes = []
        for part in rows.split(CHUNK, dim=1):
            change, gain = change_of(part, self.solve(part))
            shrink(self.inverse, change)
            self.log_determinant += gain
            changes.append(change)
        return torch.cat(changes, dim=1)


class Local:
    """c full covariances that begin as V^-1 = I / lambda - Z^T Z, with all Z kept, as long as that is smaller.

    While they have fewer rows than parameters, absorbing k rows reads the rows, not p x p numbers.
    """

    def __init__(self, count: int, parameters: int, regularization: float, like: Tensor) -> None:
        self._regularization = regularization
        self._parameters = parameters
        self._z = like.new_empty(count, 0, parameters)
        self._rows = 0
        self.dense: Full | None = None

    def solve(self, x: Tensor) -> Tensor:
        """V^-1 x for x [c, k, p]."""
        if self.dense is not None:
            return self.dense.solve(x)
        z = self._z[:, : self._rows]
        return x / self._regularization - torch.bmm(torch.bmm(x, z.mT), z)

    def quadratic(self, x: Tensor) -> Tensor:
        """x^T V^-1 x for x [c, k, p] -> [c, k]."""
        return (self.solve(x) * x).sum(-1)

    def absorb(self, rows: Tensor) -> Tensor:
        """As `Full.absorb`."""
        if self.dense is None and self._rows + rows.shape[1] > self._parameters:
            self._make_dense(self._z[:, : self._rows])
        if self.dense is not None:
            return self.dense.absorb(rows)
        first = self._rows
        for part in rows.split(CHUNK, dim=1):
            change, _ = change_of(part, self.solve(part))
            end = self._rows + part.shape[1]
            if end > self._z.shape[1]:
                larger = self._z.new_empty(len(self._z), min(self._parameters, max(8, 2 * end)), self._parameters)
                larger[:, : self._rows] = self._z[:, : self._rows]
                self._z = larger
            self._z[:, self._rows : end] = change
            self._rows = end
        return self._z[:, first : self._rows].clone()

    def _make_dense(self, z: Tensor) -> None:
        self.dense = Full(len(z), self._parameters, self._regularization, z)
        shrink(self.dense.inverse, z)
        self._z = z.new_empty(len(z), 0, self._parameters)

    def state(self) -> Tensor:
        """Z [c, rows, p] while there are fewer rows than parameters, then V^-1 [c, p, p]."""
        return self._z[:, : self._rows].clone() if self.dense is None else self.dense.inverse.clone()

    def load(self, state: Tensor) -> None:
        """Take over another copy's `state`."""
        if state.shape[1] < self._parameters:
            self._z = state.to(self._z)
            self._rows = state.shape[1]
        else:
            self.dense = Full.view(state.to(self._z))


def change_of(rows: Tensor, solved: Tensor) -> tuple[Tensor, Tensor]:
    """Z [c, k, p] for rows G [c, k, p] and G V^-1, and the gain in log det, [c]."""
    inner = torch.bmm(solved, rows.mT)
    inner.diagonal(dim1=1, dim2=2).add_(1)
    factor = torch.linalg.cholesky(inner)
    # Contiguous, because memory order is among what decides a product's last bits.
    change = torch.linalg.solve_triangular(factor, solved, upper=False).contiguous()
    return change, 2 * factor.diagonal(dim1=1, dim2=2).log().sum(-1)


def shared_product(x: Tensor, matrix: Tensor) -> Tensor:
    """x [n, k, p] times one matrix [p, p].

    A small matrix stays in the cache while every agent's k rows meet it by themselves. A large one
    is read once for all rows; those are padded to eights, so that an agent's rows fall into the same
    tiles of the product whoever stands before them, and get the same last bits.
    """
    n, k, p = x.shape
    if matrix.numel() * matrix.itemsize < LARGE:
        return torch.bmm(x, matrix.expand(n, p, p))
    padded = torch.nn.functional.pad(x, (0, 0, 0, -k % 8))
    return torch.mm(padded.flatten(0, 1), matrix).unflatten(0, (n, -1))[:, :k]


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
        self.rows = 0

    def start(self, shared: Full, estimate: Tensor) -> None:
        """Begin an epoch from the shared covariance [1, p, p] and the estimate V^-1 B_sync [p]."""
        self._shared = shared
        self._estimate = estimate
        self.rows = 0
        if not hasattr(self, "_z"):
            self._z = estimate.new_empty(self._agents, 0, len(estimate))
            self._coefficients = estimate.new_empty(self._agents, 0)
            self._gains = estimate.new_empty(self._agents, 0)

    def evaluate(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance x^T V-bar^-1 x of features x [n, k, p], each [n, k]."""
        self._solved = self._shared.solve(x)
        mean = torch.bmm(self._estimate.expand(len(x), 1, -1), x.mT).squeeze(1)
        variance = (self._solved * x).sum(-1)
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
        z = self._solved[index, arms]
        if self._u is not None:
            z = z - torch.bmm(self._u[index, arms][:, None], self._z[:, : self.rows]).squeeze(1)
        if self.rows == self._z.shape[1]:
            self._grow(max(4, 2 * self.rows))
        self._z[:, self.rows] = z / root[:, None]
        self._coefficients[:, self.rows] = (rewards - self._mean[index, arms]) / root
        gain = torch.log1p(variance)
        self._gains[:, self.rows] = gain + self._gains[:, self.rows - 1] if self.rows else gain
        self.rows += 1

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
        covariance = self._shared.diagonal + self.squares
        estimate = (self._moments + self.new_moments) / covariance
        mean = (x * estimate[:, None]).sum(-1)
        return mean, (x * x / covariance[:, None]).sum(-1)

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
