"""Covariances V = lambda I + sum of g g^T that never invert a matrix in the loop: one contract, two kinds.

full.py keeps whole matrices, diagonal.py their diagonals (Sec. 3.4). Both answer the same questions, so that
nobody else asks which kind it is. Shapes: c covariances (one shared by all agents, or one per agent), n agents,
k rows, p parameters. `news` is what a covariance grows by: for full matrices the contexts [c, k, dim] whose
features are the new rows (or the rows themselves, [c, k, p]), for diagonal ones the rows' sums of squares [c, p].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from fnbandit.config import Config
from fnbandit.covariance import diagonal, full, full_estimate
from fnbandit.state import State
from fnbandit.tree import Sum

Lift = Callable[[Tensor], Tensor]
"""Contexts [.., k, dim] to features [.., k, p]; rows that are features already stay as they are"""

EPOCH_ROWS = 64
"""Rows of an epoch that memory is reckoned with"""


class Covariance(Protocol):
    """c covariances."""

    def solve(self, x: Tensor) -> Tensor:
        """V^-1 x for x [n, k, p]; one covariance serves all n, or each its own."""
        ...

    def quadratic(self, x: Tensor) -> Tensor:
        """x^T V^-1 x for x [n, k, p] -> [n, k]."""
        ...

    def absorb(self, news: Tensor) -> Tensor:
        """V <- V + G^T G; returns what changed in V^-1, in the form that `LocalInverses.combine` takes."""
        ...

    def absorb_rows(self, rows: Tensor) -> None:
        """V <- V + G^T G for rows G [c, k, p]."""
        ...

    def reduced(self, variances: Tensor, change: Tensor, points: Tensor) -> Tensor:
        """x^T V^-1 x of points [r, p], or each its own [c, r, p], after a change that `absorb` returned, from those
        before it, [c, r].
        """
        ...

    def some(self, few: slice) -> Covariance:
        """Some of the covariances, to look at."""
        ...

    def state(self) -> State:
        """What `load` needs to go on with the same bits; every tensor's first dimension is c."""
        ...

    def load(self, state: State) -> None:
        """Take over another copy's `state`."""
        ...


class Evaluation(Protocol):
    """Mean and variance x^T V-bar^-1 x of an iteration's features, each [n, arms]."""

    @property
    def mean(self) -> Tensor: ...

    @property
    def variance(self) -> Tensor: ...


class Epoch(Protocol):
    """n agents' rows since the last round, on top of what all share: V-bar and theta-bar (Alg. 1, line 4)."""

    length: int
    """Iterations since the last round"""

    def start(self) -> None:
        """Begin an epoch with the shared estimate as it is now."""
        ...

    def evaluate(self, x: Tensor) -> Evaluation:
        """Mean and variance of features x [n, arms, p]."""
        ...

    def append(self, x: Tensor, contexts: Tensor, arms: Tensor, rewards: Tensor, found: Any) -> None:
        """Add the chosen ones of contexts [n, arms, dim] with features x, and what `evaluate` has found.

        None for `found` says that V-bar does not matter any more (Alg. 1, line 9).
        """
        ...

    def gain(self) -> Tensor:
        """log det(V-bar) - log det(V_last) of every agent, [n] (Alg. 1, line 11)."""
        ...

    def diagonal_gain(self) -> Tensor:
        """The same on the matrices' diagonals, [n], where the shared estimate tracks its diagonal (App. E)."""
        ...

    def truncate(self, length: int) -> bool:
        """Go back to the first iterations; False where the same bits ask the caller to start and replay them."""
        ...

    def release(self) -> None:
        """Give much memory back: a round needs its own."""
        ...

    def news(self) -> Tensor:
        """What the epoch has brought, as `Covariance.absorb` takes it: W_new."""
        ...

    def moments(self, rewards: Tensor) -> Tensor:
        """B_new [n, p] (Alg. 1, line 9) for the epoch's rewards [n, k]."""
        ...


class Estimate(Protocol):
    """V_last = lambda I + W_sync and B_sync: what all agents share of UCB^a."""

    always_needed: bool
    """Whether an epoch's news come from evaluating it"""
    inflated: bool
    """Whether means must be rescaled over an agent's contexts (footnote in Sec. 5.2)"""
    sum_of_moments: Tensor
    """B_sync [p]"""

    def epoch(self, agents: int) -> Epoch:
        """An epoch of some agents, not begun."""
        ...

    def sum(self, agents: int, length: int) -> Sum:
        """How the server gets W_new of N agents after an epoch of some iterations: summed, or everybody's."""
        ...

    def account(self, agents: int) -> Account:
        """What the server of N agents keeps, not begun."""
        ...

    def apply(self, news: Tensor, sum_of_moments: Tensor) -> None:
        """Take in a round: W_sync as `Account.combine` says, B_sync is [p]."""
        ...

    def state(self) -> State: ...

    def load(self, state: State) -> None: ...


class Account(Protocol):
    """What the server alone keeps of V_last."""

    def combine(self, news: Tensor) -> Tensor:
        """All agents' W_new, or its sum, as `Estimate.apply` takes it (Alg. 2, line 5)."""
        ...

    def state(self) -> State: ...

    def load(self, state: State) -> None: ...


class LocalInverses(Protocol):
    """What all agents know of everybody's V_local^-1: all of them (FN-UCB), or their mean (Less Comm.)."""

    def local(self, agents: range) -> Covariance:
        """V_local of some agents, for their group to hold."""
        ...

    def sum(self, length: int) -> Sum:
        """How the server gets all agents' changes after an epoch of some iterations: summed, or everybody's."""
        ...

    def combine(self, changes: Tensor) -> Tensor:
        """What the server makes of all agents' changes, or of their sum (Alg. 2, line 4): what `apply` takes."""
        ...

    def apply(self, combined: Tensor, own: range) -> None:
        """Take in a round; the inverses of the agents in `own` may have been changed by their group already."""
        ...

    def deviation(self, x: Tensor) -> Tensor:
        """The norm in UCB^b of features x [n, k, p] -> [n, k] (Alg. 1, line 6; Sec. 3.4)."""
        ...

    def state(self) -> State: ...

    def load(self, state: State) -> None: ...


@dataclass(frozen=True)
class Matrices:
    """The classes of one kind, and how many numbers its matrices take in a message."""

    covariance: Callable[..., Covariance]
    estimate: Callable[..., Estimate]
    mean_inverse: Callable[..., LocalInverses]
    all_inverses: Callable[..., LocalInverses]
    numbers: Callable[[int], int]
    """Of a p x p matrix, by p"""
    triangle: Callable[[int], int]
    """Of a symmetric one"""
    kept: Callable[[int, int], int]
    """Of an agent's own covariance in memory, by p and the horizon"""
    epoch_numbers: Callable[[int, int], int]
    """Of an agent's epoch in memory, by p and the horizon"""
    factor: Callable[[int, int], int]
    """Of the triangular factor of r rows, by p and r"""
    rotate: Callable[[Tensor, Lift], Tensor]
    """News as a triangular factor that says the same"""


FULL = Matrices(
    covariance=full.Full,
    estimate=full_estimate.FullEstimate,
    mean_inverse=full.MeanInverse,
    all_inverses=full.AllInverses,
    numbers=lambda p: p * p,
    triangle=lambda p: p * (p + 1) // 2,
    kept=lambda p, horizon: 2 * p * min(horizon, 3 * p // 4),
    epoch_numbers=lambda p, horizon: 4 * p * min(horizon, EPOCH_ROWS),
    factor=lambda p, r: min(r, p) * (2 * p - min(r, p) + 1) // 2,
    rotate=full.rotated,
)
DIAGONAL = Matrices(
    covariance=diagonal.Diagonal,
    estimate=diagonal.DiagonalEstimate,
    mean_inverse=diagonal.MeanInverse,
    all_inverses=diagonal.AllInverses,
    numbers=lambda p: p,
    triangle=lambda p: p,
    kept=lambda p, horizon: p,
    epoch_numbers=lambda p, horizon: 6 * p,
    factor=lambda p, r: p,
    rotate=lambda news, lift: news,
)


def matrices(config: Config) -> Matrices:
    """The kind that a config asks for."""
    return DIAGONAL if config.diagonal else FULL
