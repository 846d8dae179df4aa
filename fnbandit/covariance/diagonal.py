"""Diagonal covariances (Sec. 3.4): only the diagonal of V, [c, p], is kept. News are sums of squares, [c, p]."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fnbandit.slices import few_at_once
from fnbandit.state import State
from fnbandit.tree import Sum, everyone, vectors


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

    def absorb(self, news: Tensor) -> Tensor:
        """V <- V + diag(news); returns the diagonal of the new V^-1, [c, p]."""
        self.diagonal += news
        return self.inverse

    def absorb_rows(self, rows: Tensor) -> None:
        self.diagonal += rows.square().sum(1)

    def reduced(self, variances: Tensor, change: Tensor, points: Tensor) -> Tensor:
        """x^T V^-1 x of points [r, p] or [c, r, p] for V^-1 = change [c, p], whatever it was before; [c, r]."""
        return torch.bmm(change[:, None], points.square().mT.expand(len(change), -1, -1)).squeeze(1)

    def some(self, few: slice) -> Diagonal:
        some = copy.copy(self)
        some.diagonal = self.diagonal[few]
        return some

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
        self.start()

    def start(self) -> None:
        self.length = 0
        self._squares = torch.zeros_like(self._shared.sum_of_moments).repeat(self._agents, 1)
        self._moments = torch.zeros_like(self._squares)

    def release(self) -> None:
        pass

    def evaluate(self, x: Tensor) -> DiagonalEvaluation:
        mean, variance = x.new_empty(2, *x.shape[:2])
        for few in few_at_once(len(x), x[0].numel(), x):
            part = x[few]
            covariance = self._shared.covariance.diagonal + self._squares[few]
            estimate = (self._shared.sum_of_moments + self._moments[few]) / covariance
            mean[few] = (part * estimate[:, None]).sum(-1)
            variance[few] = (part * part).div_(covariance[:, None]).sum(-1)
        return DiagonalEvaluation(mean, variance)

    def append(
        self, x: Tensor, contexts: Tensor, arms: Tensor, rewards: Tensor, found: DiagonalEvaluation | None
    ) -> None:
        chosen = x[torch.arange(self._agents, device=arms.device), arms]
        self._squares += chosen * chosen
        self._moments += rewards[:, None] * chosen
        self.length += 1

    def gain(self) -> Tensor:
        """sum_j log((V_jj + squares_j) / V_jj), [n]"""
        return torch.log1p(self._squares / self._shared.covariance.diagonal).sum(-1)

    diagonal_gain = gain

    def truncate(self, length: int) -> bool:
        # Sums cannot be taken apart to the same bits.
        return length == self.length

    def news(self) -> Tensor:
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
        self.covariance = Diagonal(1, parameters, regularization, like)
        self.sum_of_moments = like.new_zeros(parameters)

    def epoch(self, agents: int) -> DiagonalEpoch:
        return DiagonalEpoch(self, agents)

    def sum(self, agents: int, length: int) -> Sum:
        return vectors(agents)

    def account(self, agents: int) -> DiagonalAccount:
        return DiagonalAccount()

    def apply(self, news: Tensor, sum_of_moments: Tensor) -> None:
        self.sum_of_moments = sum_of_moments
        self.covariance.diagonal += news

    def state(self) -> State:
        return {"sum_of_moments": self.sum_of_moments, **self.covariance.state()}

    def load(self, state: State) -> None:
        self.sum_of_moments = state["sum_of_moments"].to(self.sum_of_moments)
        self.covariance.load(state)


class DiagonalAccount:
    """The server's account of V_last: nothing beside what all agents know."""

    def combine(self, news: Tensor) -> Tensor:
        """The sum over agents, [p], as it is."""
        return news

    def state(self) -> State:
        return {}

    def load(self, state: State) -> None:
        pass


class MeanInverse:
    """The diagonal of V_sync,NN^-1, the mean of all agents' V_local^-1 (Less Comm.)."""

    def __init__(
        self, agents: int, parameters: int, regularization: float, like: Tensor, lift: Callable[[Tensor], Tensor]
    ) -> None:
        self._agents = agents
        self._new = (parameters, regularization, like)
        self._mean = Diagonal(1, *self._new).inverse[0]

    def local(self, agents: range) -> Diagonal:
        return Diagonal(len(agents), *self._new)

    def sum(self, length: int) -> Sum:
        return vectors(self._agents)

    def combine(self, changes: Tensor) -> Tensor:
        """The mean over agents, [p], from the sum."""
        return changes / self._agents

    def apply(self, combined: Tensor, own: range) -> None:
        self._mean = combined

    def deviation(self, x: Tensor) -> Tensor:
        """||x||_{V_sync,NN^-1}"""
        parts = few_at_once(len(x), x[0].numel(), x)
        return torch.cat([(x[few] * self._mean).mul_(x[few]).sum(-1) for few in parts]).sqrt_()

    def state(self) -> State:
        return {"mean": self._mean}

    def load(self, state: State) -> None:
        self._mean = state["mean"].to(self._mean)


class AllInverses:
    """The diagonals of V_local^-1 of all N agents, [N, p] (FN-UCB)."""

    def __init__(
        self, agents: int, parameters: int, regularization: float, like: Tensor, lift: Callable[[Tensor], Tensor]
    ) -> None:
        self._new = (parameters, regularization, like)
        self._inverses = Diagonal(agents, *self._new).inverse

    def local(self, agents: range) -> Diagonal:
        return Diagonal(len(agents), *self._new)

    def sum(self, length: int) -> Sum:
        return everyone(len(self._inverses))

    def combine(self, changes: Tensor) -> Tensor:
        """Every agent hears every inverse, [N, p]."""
        return changes

    def apply(self, combined: Tensor, own: range) -> None:
        self._inverses = combined

    def deviation(self, x: Tensor) -> Tensor:
        """The mean over agents of ||x||_{V_local^-1}"""
        squares = torch.bmm(x * x, self._inverses.mT.expand(len(x), -1, -1))
        return squares.sqrt_().mean(-1)

    def state(self) -> State:
        return {"inverses": self._inverses}

    def load(self, state: State) -> None:
        self._inverses = state["inverses"].to(self._inverses)
