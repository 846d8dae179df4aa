"""Diagonal covariances (Sec. 3.4): only the diagonal of V, [c, p], is kept. An update is a sum of squares, [c, p]."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fnbandit.numerics.products import chunks, multiply
from fnbandit.numerics.state import State
from fnbandit.numerics.tree import TreeSum, gather, sum_vectors


class Diagonal:
    """c diagonal covariances: `diagonal` of V [c, p]."""

    def __init__(
        self,
        count: int,
        parameters: int,
        regularization: float,
        like: Tensor,
        lift: Callable[[Tensor], Tensor] = lambda x: x,
    ) -> None:
        self.diagonal = like.new_full((count, parameters), regularization)

    @property
    def inverse(self) -> Tensor:
        """The diagonal of V^-1, [c, p]."""
        return 1 / self.diagonal

    def solve(self, x: Tensor) -> Tensor:
        return x / self.diagonal[:, None]

    def quadratic(self, x: Tensor) -> Tensor:
        return (x * x / self.diagonal[:, None]).sum(-1)

    def absorb(self, update: Tensor) -> Tensor:
        """V <- V + diag(update). Return the diagonal of the new V^-1, [c, p]."""
        self.diagonal += update
        return self.inverse

    def absorb_rows(self, rows: Tensor) -> None:
        self.diagonal += rows.square().sum(1)

    def reduce_variances(self, variances: Tensor, change: Tensor, points: Tensor) -> Tensor:
        """Return x^T V^-1 x [c, r] of points [r, p] or [c, r, p], for V^-1 = change [c, p]; `variances` is unused."""
        return multiply(change[:, None], points.square().mT.expand(len(change), -1, -1)).squeeze(1)

    def subset(self, part: slice) -> Diagonal:
        subset = copy.copy(self)
        subset.diagonal = self.diagonal[part]
        return subset

    def state(self) -> State:
        return {"diagonal": self.diagonal}

    def load(self, state: State) -> None:
        self.diagonal.copy_(state["diagonal"])


@dataclass(frozen=True)
class DiagonalEvaluation:
    """Mean and variance of features, each [n, k]."""

    mean: Tensor
    variance: Tensor


class DiagonalEpoch:
    """n agents' sums since the last round on top of a `DiagonalEstimate`."""

    def __init__(self, shared: DiagonalEstimate, agents: int) -> None:
        self._shared = shared
        self._agents = agents
        self._carried = self._carried_moments = torch.zeros_like(shared.sum_of_moments).repeat(agents, 1)
        """Squares and moments that agents did not upload in the last round, [n, p]"""
        self.start()

    def start(self) -> None:
        self.length = 0
        self._squares, self._moments = self._carried.clone(), self._carried_moments.clone()

    def carry(self, absent: Tensor, slots: int, rewards: Tensor) -> None:
        """Keep the sums of absent agents [n]; the next epoch starts with them."""
        self._carried = self._squares * absent[:, None]
        self._carried_moments = self._moments * absent[:, None]

    def state(self) -> State:
        return {"carried": self._carried, "carried_moments": self._carried_moments}

    def load(self, state: State) -> None:
        self._carried = state["carried"].to(self._squares)
        self._carried_moments = state["carried_moments"].to(self._squares)

    def release(self) -> None:
        pass

    def evaluate(self, x: Tensor) -> DiagonalEvaluation:
        mean, variance = x.new_empty(2, *x.shape[:2])
        for chunk in chunks(len(x), x[0].numel(), x):
            part = x[chunk]
            covariance = self._shared.covariance.diagonal + self._squares[chunk]
            estimate = (self._shared.sum_of_moments + self._moments[chunk]) / covariance
            mean[chunk] = (part * estimate[:, None]).sum(-1)
            variance[chunk] = (part * part).div_(covariance[:, None]).sum(-1)
        return DiagonalEvaluation(mean, variance)

    def append(
        self, x: Tensor, contexts: Tensor, arms: Tensor, rewards: Tensor, found: DiagonalEvaluation | None
    ) -> None:
        chosen = x[torch.arange(self._agents, device=arms.device), arms]
        self._squares += chosen * chosen
        self._moments += rewards[:, None] * chosen
        self.length += 1

    def posterior(self, index: int) -> tuple[Tensor, Tensor]:
        covariance = self._shared.covariance.diagonal[0] + self._squares[index]
        return (self._shared.sum_of_moments + self._moments[index]) / covariance, 1 / covariance

    def gain(self) -> Tensor:
        """Return the sum of log((V_jj + squares_j) / (V_jj + carried_j)) over j, [n]."""
        new = self._squares - self._carried
        return torch.log1p(new / (self._shared.covariance.diagonal + self._carried)).sum(-1)

    diagonal_gain = gain

    def truncate(self, length: int) -> bool:
        # Subtracting from a sum does not restore the same bits.
        return length == self.length

    def update(self, as_features: bool = False) -> Tensor:
        return self._squares

    def moments(self, rewards: Tensor) -> Tensor:
        return self._moments


class DiagonalEstimate:
    """The diagonal of V_last, and B_sync."""

    always_needed = True
    inflated = True

    def __init__(
        self,
        parameters: int,
        regularization: float,
        like: Tensor,
        lift: Callable[[Tensor], Tensor],
        track_diagonal: bool = False,
    ) -> None:
        self._regularization = regularization
        self.covariance = Diagonal(1, parameters, regularization, like)
        self.sum_of_moments = like.new_zeros(parameters)

    def epoch(self, agents: int) -> DiagonalEpoch:
        return DiagonalEpoch(self, agents)

    def sum(self, agents: int, length: int) -> TreeSum:
        return sum_vectors(agents)

    def sample_sum(self, agents: int, slots: int) -> TreeSum:
        return sum_vectors(agents)

    def account(self, agents: int) -> DiagonalAccount:
        return DiagonalAccount()

    def apply(self, update: Tensor, sum_of_moments: Tensor) -> None:
        self.sum_of_moments = sum_of_moments
        self.covariance.diagonal += update

    def renew(self, update: Tensor, sum_of_moments: Tensor) -> None:
        self.sum_of_moments = sum_of_moments
        self.covariance.diagonal = update + self._regularization

    def state(self) -> State:
        return {"sum_of_moments": self.sum_of_moments, **self.covariance.state()}

    def load(self, state: State) -> None:
        self.sum_of_moments = state["sum_of_moments"].to(self.sum_of_moments)
        self.covariance.load(state)


class DiagonalAccount:
    """The server's account of V_last: empty, because every replica holds all of it."""

    def combine(self, update: Tensor) -> Tensor:
        """Return the sum over agents, [p], unchanged."""
        return update

    def renew(self, update: Tensor, factor: float) -> Tensor:
        return (update * factor)[None]

    def state(self) -> State:
        return {}

    def load(self, state: State) -> None:
        pass


class MeanDiagonalInverse:
    """The diagonal of V_sync,NN^-1, the mean of all agents' V_local^-1 (Less Comm.)."""

    def __init__(
        self, agents: int, parameters: int, regularization: float, like: Tensor, lift: Callable[[Tensor], Tensor]
    ) -> None:
        self._agents = agents
        self._new = (parameters, regularization, like)
        self._mean = Diagonal(1, *self._new).inverse[0]

    def local(self, agents: range) -> Diagonal:
        return Diagonal(len(agents), *self._new)

    def sum(self, length: int) -> TreeSum:
        return sum_vectors(self._agents)

    def combine(self, changes: Tensor) -> Tensor:
        """Return the mean over agents, [p], from their sum."""
        return changes / self._agents

    def apply(self, combined: Tensor, own: range) -> None:
        self._mean = combined

    def deviation(self, x: Tensor) -> Tensor:
        """Return ||x||_{V_sync,NN^-1}."""
        parts = chunks(len(x), x[0].numel(), x)
        return torch.cat([(x[chunk] * self._mean).mul_(x[chunk]).sum(-1) for chunk in parts]).sqrt_()

    @property
    def parts(self) -> Tensor:
        return self._mean[None]

    def state(self) -> State:
        return {"mean": self._mean}

    def load(self, state: State) -> None:
        self._mean = state["mean"].to(self._mean)


class AllDiagonalInverses:
    """The diagonals of V_local^-1 of all N agents, [N, p] (FN-UCB)."""

    def __init__(
        self, agents: int, parameters: int, regularization: float, like: Tensor, lift: Callable[[Tensor], Tensor]
    ) -> None:
        self._new = (parameters, regularization, like)
        self._inverses = Diagonal(agents, *self._new).inverse

    def local(self, agents: range) -> Diagonal:
        return Diagonal(len(agents), *self._new)

    def sum(self, length: int) -> TreeSum:
        return gather(len(self._inverses))

    def combine(self, changes: Tensor) -> Tensor:
        """Return the inverses of all agents, [N, p], unchanged."""
        return changes

    def apply(self, combined: Tensor, own: range) -> None:
        self._inverses = combined

    def deviation(self, x: Tensor) -> Tensor:
        """Return the mean over agents of ||x||_{V_local^-1}."""
        squares = multiply(x * x, self._inverses.mT.expand(len(x), -1, -1))
        return squares.sqrt_().mean(-1)

    @property
    def parts(self) -> Tensor:
        return self._inverses

    def state(self) -> State:
        return {"inverses": self._inverses}

    def load(self, state: State) -> None:
        self._inverses = state["inverses"].to(self._inverses)
