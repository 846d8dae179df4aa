"""Covariances V = lambda I + sum of g g^T that never invert a matrix in the loop: one contract, two kinds.

full.py keeps whole matrices, diagonal.py their diagonals (Sec. 3.4). Both implement the same protocols, so that
callers do not depend on the kind. Shapes: c covariances (one shared by all agents, or one per agent), n agents,
k rows, p parameters. `update` is the increment of a covariance: for full matrices the contexts [c, k, dim] whose
features are the new rows (or the rows themselves, [c, k, p]), for diagonal ones the rows' sums of squares [c, p].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from fnbandit.config import Config
from fnbandit.covariance import diagonal, estimate, full
from fnbandit.covariance.own_values import OwnDiagonals, OwnMatrices
from fnbandit.numerics.state import State
from fnbandit.numerics.tree import TreeSum

Lift = Callable[[Tensor], Tensor]
"""Maps contexts [.., k, dim] to features [.., k, p]; returns rows that are features already unchanged"""

EPOCH_ROWS = 64
"""Rows of an epoch that memory estimates assume, at most"""


class Covariance(Protocol):
    """c covariances."""

    def solve(self, x: Tensor) -> Tensor:
        """Return V^-1 x for x [n, k, p]; c is 1, one covariance for all n agents, or n."""
        ...

    def quadratic(self, x: Tensor) -> Tensor:
        """Return x^T V^-1 x for x [n, k, p] -> [n, k]."""
        ...

    def absorb(self, update: Tensor) -> Tensor:
        """V <- V + G^T G. Return the change of V^-1, in the form that `LocalInverses.combine` takes."""
        ...

    def absorb_rows(self, rows: Tensor) -> None:
        """V <- V + G^T G for rows G [c, k, p]."""
        ...

    def reduce_variances(self, variances: Tensor, change: Tensor, points: Tensor) -> Tensor:
        """Return x^T V^-1 x [c, r] after a `change` that `absorb` returned, from the variances [c, r] before it.

        Points x are [r, p] for all covariances, or [c, r, p].
        """
        ...

    def subset(self, part: slice) -> Covariance:
        """Return some of the covariances, for reading only."""
        ...

    @property
    def inverse(self) -> Tensor:
        """V^-1 [c, p, p], or its diagonal [c, p]; a copy."""
        ...

    def state(self) -> State:
        """Return all that `load` needs to continue with the same bits; every tensor's first dimension is c."""
        ...

    def load(self, state: State) -> None:
        """Continue from a `state`."""
        ...


class Evaluation(Protocol):
    """Mean and variance x^T V-bar^-1 x of an iteration's features, each [n, arms]."""

    @property
    def mean(self) -> Tensor: ...

    @property
    def variance(self) -> Tensor: ...


class Epoch(Protocol):
    """n agents' rows since the last round, on top of the shared estimate: V-bar and theta-bar (Alg. 1, line 4)."""

    length: int
    """Iterations since the last round"""

    def start(self) -> None:
        """Begin an epoch on top of the current shared estimate."""
        ...

    def evaluate(self, x: Tensor) -> Evaluation:
        """Return mean and variance of features x [n, arms, p]."""
        ...

    def append(self, x: Tensor, contexts: Tensor, arms: Tensor, rewards: Tensor, found: Any) -> None:
        """Add the contexts [n, arms, dim] of the pulled arms, their features x, and `found`, the result of `evaluate`.

        `found` is None where V-bar is not needed until the next round (Alg. 1, line 9).
        """
        ...

    def gain(self) -> Tensor:
        """Return log det(V-bar) - log det(V_last) of every agent, [n] (Alg. 1, line 11)."""
        ...

    def diagonal_gain(self) -> Tensor:
        """Return the `gain` of the matrices' diagonals, [n], where the shared estimate tracks its diagonal (App. E)."""
        ...

    def truncate(self, length: int) -> bool:
        """Go back to the first `length` iterations; return False where the caller must start and replay them instead.

        A replay is necessary where going back would not restore the same bits.
        """
        ...

    def release(self) -> None:
        """Free large buffers, because a round needs memory of its own."""
        ...

    def update(self, as_features: bool = False) -> Tensor:
        """Return W_new in the form that `Covariance.absorb` takes; for full matrices, contexts or features."""
        ...

    def carry(self, absent: Tensor, slots: int, rewards: Tensor) -> None:
        """Keep the last `slots` rows of absent agents [n], with rewards [n, slots], for the next epoch."""
        ...

    def state(self) -> State:
        """Return the carried rows."""
        ...

    def load(self, state: State) -> None:
        """Continue from a `state`; `start` puts its rows on top of V_last."""
        ...

    def moments(self, rewards: Tensor) -> Tensor:
        """Return B_new [n, p] (Alg. 1, line 9) for the epoch's rewards [n, k]."""
        ...

    def posterior(self, index: int) -> tuple[Tensor, Tensor]:
        """Return theta-bar [p] and V-bar^-1, [p, p] or its diagonal [p], of one of the n agents."""
        ...


class Estimate(Protocol):
    """V_last = lambda I + W_sync and B_sync: the part of UCB^a that all agents share."""

    always_needed: bool
    """True where an epoch must evaluate features to produce its update"""
    inflated: bool
    """True where means must be rescaled over an agent's contexts (footnote in Sec. 5.2)"""
    sum_of_moments: Tensor
    """B_sync [p]"""

    def epoch(self, agents: int) -> Epoch:
        """Return a new epoch of n agents."""
        ...

    def sum(self, agents: int, length: int) -> TreeSum:
        """Return the reduction of W_new of N agents of an epoch of `length` iterations: a sum, or all values."""
        ...

    def sample_sum(self, agents: int, slots: int) -> TreeSum:
        """Return the reduction of W of a sample with `slots` rows per agent: a sum, or all values."""
        ...

    def account(self, agents: int) -> Account:
        """Return the initial account of the server of N agents."""
        ...

    def apply(self, update: Any, sum_of_moments: Tensor) -> None:
        """Apply a round: W_sync in the form that `Account.combine` returns, B_sync [p]."""
        ...

    def renew(self, update: Any, sum_of_moments: Tensor) -> None:
        """Replace V and B: the form that `Account.renew` returns, [p]."""
        ...

    def state(self) -> State: ...

    def load(self, state: State) -> None: ...


class Account(Protocol):
    """The part of V_last's state that only the server keeps."""

    def combine(self, update: Any) -> Any:
        """Return all agents' W_new, or its sum, in the form that `Estimate.apply` takes (Alg. 2, line 5)."""
        ...

    def renew(self, update: Any, factor: float) -> Any:
        """Begin again with `factor` times W of a sample; return it in the form that `Estimate.renew` takes."""
        ...

    def state(self) -> State: ...

    def load(self, state: State) -> None: ...


class LocalInverses(Protocol):
    """V_local^-1 as all agents share it: the inverses of all agents (FN-UCB), or their mean (Less Comm.)."""

    def local(self, agents: range) -> Covariance:
        """Return V_local of some agents, for their batch to hold."""
        ...

    def sum(self, length: int) -> TreeSum:
        """Return the reduction of all agents' changes of an epoch of `length` iterations: a sum, or all values."""
        ...

    def combine(self, changes: Any) -> Any:
        """Return all agents' changes, or their sum, in the form that `apply` takes (Alg. 2, line 4)."""
        ...

    def apply(self, combined: Any, own: range) -> None:
        """Apply a round. `own` are the agents of this process, whose batch may have changed their inverses already."""
        ...

    def deviation(self, x: Tensor) -> Tensor:
        """Return the norm in UCB^b of features x [n, k, p] -> [n, k] (Alg. 1, line 6; Sec. 3.4)."""
        ...

    @property
    def parts(self) -> Tensor:
        """The matrices [m, p, p], or their diagonals [m, p], whose norms' mean `deviation` returns."""
        ...

    def state(self) -> State: ...

    def load(self, state: State) -> None: ...


@dataclass(frozen=True)
class Matrices:
    """The classes of one kind of matrix, and its numbers in messages and memory."""

    covariance: Callable[..., Covariance]
    estimate: Callable[..., Estimate]
    mean_inverse: Callable[..., LocalInverses]
    all_inverses: Callable[..., LocalInverses]
    numbers: Callable[[int], int]
    """Returns the numbers of a p x p matrix in a message, by p"""
    triangle: Callable[[int], int]
    """Returns the numbers of a symmetric matrix in a message, by p"""
    kept: Callable[[int, int], int]
    """Returns the numbers of an agent's own covariance in memory, by p and the horizon"""
    shared: Callable[[int, int], int]
    """Returns the numbers of V_last and V_sync,NN in memory, by p and the number of rows that they absorb"""
    epoch_numbers: Callable[[int, int], int]
    """Returns the numbers of an agent's epoch in memory, by p and the horizon"""
    factor: Callable[[int, int], int]
    """Returns the numbers of the triangular factor of r rows in a message, by p and r"""
    as_update: Callable[[Tensor], Tensor]
    """Returns rows [n, k, p] in the form that `Covariance.absorb` takes"""
    triangular_factor: Callable[[Tensor, Lift], Tensor]
    """Returns a triangular factor R of an update: R^T R = G^T G"""
    own: Any
    """Operations on the W_i of all agents, where the server holds each of them"""


FULL = Matrices(
    covariance=full.Full,
    estimate=estimate.FullEstimate,
    mean_inverse=full.MeanInverse,
    all_inverses=full.AllInverses,
    numbers=lambda p: p * p,
    triangle=lambda p: p * (p + 1) // 2,
    kept=lambda p, horizon: 2 * p * min(horizon, 3 * p // 4),
    # Each has a row per observation, in a buffer that doubles, until a matrix is smaller.
    shared=lambda p, rows: 4 * p * min(p, rows),
    epoch_numbers=lambda p, horizon: 4 * p * min(horizon, EPOCH_ROWS),
    factor=lambda p, r: min(r, p) * (2 * p - min(r, p) + 1) // 2,
    as_update=lambda rows: rows,
    triangular_factor=full.triangular_factor,
    own=OwnMatrices,
)
DIAGONAL = Matrices(
    covariance=diagonal.Diagonal,
    estimate=diagonal.DiagonalEstimate,
    mean_inverse=diagonal.MeanDiagonalInverse,
    all_inverses=diagonal.AllDiagonalInverses,
    numbers=lambda p: p,
    triangle=lambda p: p,
    kept=lambda p, horizon: p,
    shared=lambda p, rows: 4 * p,
    epoch_numbers=lambda p, horizon: 6 * p,
    factor=lambda p, r: p,
    as_update=lambda rows: rows.square().sum(1),
    triangular_factor=lambda update, lift: update,
    own=OwnDiagonals,
)


def matrices(config: Config) -> Matrices:
    """Return the kind of matrix that `config.diagonal` selects."""
    return DIAGONAL if config.diagonal else FULL
