"""V_last with full matrices, and the rows that agents add to it between two rounds.

An agent's own rows since the last round never touch the shared matrix: `FullEpoch` keeps
Z for them, so that with u = Z x
    x^T (V + G^T G)^-1 x = x^T V^-1 x - ||u||^2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fnbandit.covariance.full import Full
from fnbandit.covariance.squares import inverted, packed, square, sum_of_squares, symmetric
from fnbandit.slices import few_at_once, product, small
from fnbandit.state import State
from fnbandit.tree import LEAF, Sum


@dataclass(frozen=True)
class FullEvaluation:
    """What `FullEpoch.evaluate` finds for features x: mean and variance [n, k], and what the chosen row is made of."""

    mean: Tensor
    variance: Tensor
    parts: list[tuple[Tensor, ...]]
    """Of a few agents at a time, in order: M x [few, k, p], Z x of the shared inverse, [few, k, r], and, where there
    are any, of the epoch's own rows, [few, k, length]"""

    def chosen(self, arms: Tensor) -> list[Tensor]:
        """The same of the arms that were pulled, [n, p], [n, r] and [n, length]."""
        found, start = [], 0
        for part in self.parts:
            few = arms[start : start + len(part[0])]
            index = torch.arange(len(few), device=arms.device)
            found.append([values[index, few] for values in part])
            start += len(few)
        return [torch.cat(values) for values in zip(*found, strict=True)]


class FullEpoch:
    """n agents' rows since the last round on top of a `FullEstimate`: V-bar, theta-bar (Alg. 1, line 4).

    With theta_0-bar = V^-1 B_sync, u = Z x and one coefficient c per row,
        theta-bar x = theta_0-bar x + u c,    c = (y - theta-bar x) / sqrt(1 + x^T V-bar^-1 x),
    the recursive form of V-bar^-1 (B_sync + B_new). Going back is dropping rows.
    """

    def __init__(self, shared: FullEstimate, agents: int) -> None:
        self._shared = shared
        self._agents = agents
        self._capacity = 4
        self._z = shared.solution.new_empty(agents, 0, len(shared.solution))
        self._coefficients = self._z.new_empty(agents, 0)
        self._gains = self._z.new_empty(agents, 0)
        self.start()

    def start(self) -> None:
        self.length = 0
        self._rows = 0
        """Rows of V-bar: as many as iterations, or none where V-bar does not matter any more"""
        self._contexts: list[Tensor] = []
        self._latest: tuple[Tensor, Tensor, Tensor | None, Tensor] | None = None
        """What the latest row of Z is made of, once an iteration of the same epoch asks for it"""
        if self._shared.diagonal is not None:
            self._squares = torch.zeros_like(self._shared.diagonal).repeat(self._agents, 1)

    def release(self) -> None:
        if not small(self._z):
            self._z = self._z.new_empty(self._agents, 0, self._z.shape[2])

    def evaluate(self, x: Tensor) -> FullEvaluation:
        if self._latest is not None:
            self._make_row(*self._latest)
        found = [self._evaluate(x[few], few) for few in few_at_once(len(x), x[0].numel(), x)]
        means, variances, parts = zip(*found, strict=True)
        return FullEvaluation(torch.cat(means), torch.cat(variances).clamp_(min=0), list(parts))

    def _evaluate(self, x: Tensor, few: slice) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        """Mean, variance and what else there is of features x of a few agents."""
        met, shared_u = self._shared.covariance.meet(x)
        mean = torch.bmm(self._shared.solution.expand(len(x), 1, -1), x.mT).squeeze(1)
        variance = (met * x).sum(-1) - shared_u.square().sum(-1)
        if not self._rows:
            return mean, variance, (met, shared_u)
        own_u = product(x, self._z[few, : self._rows].mT)
        mean = mean + torch.bmm(self._coefficients[few, None, : self._rows], own_u.mT).squeeze(1)
        return mean, variance - (own_u * own_u).sum(-1), (met, shared_u, own_u)

    def append(self, x: Tensor, contexts: Tensor, arms: Tensor, rewards: Tensor, found: FullEvaluation | None) -> None:
        index = torch.arange(self._agents, device=arms.device)
        self._contexts.append(contexts[index, arms])
        self.length += 1
        if found is None:
            return
        if self._shared.diagonal is not None:
            self._squares += x[index, arms].square()
        variance = found.variance[index, arms]
        root = (1 + variance).sqrt()
        met, shared_u, *own_u = found.chosen(arms)
        self._latest = (met, shared_u, own_u[0] if own_u else None, root)
        if self._rows == self._z.shape[1]:
            # As many as before: epochs grow slowly, and growing takes both, the old and the new.
            self._capacity = max(self._capacity, 2 * self._rows)
            self._z, self._coefficients, self._gains = (
                _grown(tensor, self._capacity) for tensor in (self._z, self._coefficients, self._gains)
            )
        self._coefficients[:, self._rows] = (rewards - found.mean[index, arms]) / root
        gain = torch.log1p(variance)
        self._gains[:, self._rows] = gain + self._gains[:, self._rows - 1] if self._rows else gain
        self._rows += 1

    def _make_row(self, met: Tensor, shared_u: Tensor, own_u: Tensor | None, root: Tensor) -> None:
        row = self._rows - 1
        z = self._shared.covariance.solved(met[:, None], shared_u[:, None]).squeeze(1)
        if own_u is not None:
            z = z - torch.bmm(own_u[:, None], self._z[:, :row]).squeeze(1)
        self._z[:, row] = z / root[:, None]
        self._latest = None

    def gain(self) -> Tensor:
        return self._gains[:, self._rows - 1]

    def diagonal_gain(self) -> Tensor:
        assert self._shared.diagonal is not None
        return torch.log1p(self._squares / self._shared.diagonal).sum(-1)

    def truncate(self, length: int) -> bool:
        if length < self.length:
            if self._shared.diagonal is not None:
                # Sums cannot be taken apart to the same bits.
                return False
            self._latest = None
            self._rows = min(self._rows, length)
            self.length = length
            del self._contexts[length:]
        return True

    def news(self) -> Tensor:
        return torch.stack(self._contexts, dim=1)

    def moments(self, rewards: Tensor) -> Tensor:
        contexts, p = self.news(), self._z.shape[2]
        parts = few_at_once(len(contexts), contexts.shape[1] * p, self._z)
        sums = [torch.bmm(rewards[few][:, None], self._shared.lift(contexts[few])) for few in parts]
        return torch.cat(sums).squeeze(1)


def _grown(tensor: Tensor, capacity: int) -> Tensor:
    """A copy with room for more along its second dimension."""
    larger = tensor.new_empty(tensor.shape[0], capacity, *tensor.shape[2:])
    larger[:, : tensor.shape[1]] = tensor
    return larger


class FullEstimate:
    """V_last = lambda I + W_sync, B_sync and V_last^-1 B_sync."""

    always_needed = False
    inflated = False

    def __init__(
        self,
        parameters: int,
        regularization: float,
        like: Tensor,
        lift: Callable[[Tensor], Tensor],
        track_diagonal: bool = False,
    ) -> None:
        self.lift = lift
        self.regularization = regularization
        self.covariance = Full(1, parameters, regularization, like, lift, shared=True)
        """V_last"""
        self.sum_of_moments = like.new_zeros(parameters)
        """B_sync [p]"""
        self.solution = like.new_zeros(parameters)
        """V_last^-1 B_sync [p]"""
        self.diagonal = like.new_full((1, parameters), regularization) if track_diagonal else None
        """The diagonal of V_last, where a trigger looks at it"""

    def epoch(self, agents: int) -> FullEpoch:
        return FullEpoch(self, agents)

    def sum(self, agents: int, length: int) -> Sum:
        return sum_of_squares(agents, length, len(self.solution), self.lift)

    def account(self, agents: int) -> FullAccount:
        return FullAccount(self, agents)

    def apply(self, news: Tensor, sum_of_moments: Tensor) -> None:
        """Rows [N k, ..], or the triangle of V itself, [p (p + 1) / 2]."""
        self.sum_of_moments = sum_of_moments
        right = sum_of_moments[None, None]
        if news.ndim == 1:
            whole = symmetric(news, len(self.solution))
            self.covariance.become(inverted(whole).to(right)[None])
            self.solution = self.covariance.solve(right)[0, 0]
            if self.diagonal is not None:
                self.diagonal = whole.diagonal().to(right)[None]
            return
        self.solution = self.covariance.absorb_and_solve(news[None], right)[0, 0]
        if self.diagonal is not None:
            self.diagonal = self.diagonal + self.lift(news[None]).square().sum(1)

    def state(self) -> State:
        tensors = {"sum_of_moments": self.sum_of_moments, "solution": self.solution}
        if self.diagonal is not None:
            tensors["diagonal"] = self.diagonal
        return tensors | self.covariance.state()

    def load(self, state: State) -> None:
        self.covariance.load(state)
        self.sum_of_moments = state["sum_of_moments"].to(self.sum_of_moments)
        self.solution = state["solution"].to(self.solution)
        if self.diagonal is not None:
            self.diagonal = state["diagonal"].to(self.diagonal)


class FullAccount:
    """The server's account of V_last: V itself, where rounds may bring the sum of W_new instead of rows."""

    def __init__(self, estimate: FullEstimate, agents: int) -> None:
        p = len(estimate.solution)
        self._lift = estimate.lift
        self._whole: Tensor | None = None
        """The upper triangle of V, in double precision"""
        if agents > LEAF:
            start = torch.eye(p, dtype=torch.float64, device=estimate.solution.device) * estimate.regularization
            self._whole = packed(start)

    def combine(self, news: Tensor) -> Tensor:
        """All agents' rows [N, k, ..] one below the other, [N k, ..]; for their sum's triangle, that of V."""
        if self._whole is not None:
            self._whole = self._whole + (news if news.ndim == 1 else square(self._lift(news)))
            if news.ndim == 1:
                return self._whole
        return news.flatten(0, 1)

    def state(self) -> State:
        return {} if self._whole is None else {"whole": self._whole}

    def load(self, state: State) -> None:
        if self._whole is not None:
            self._whole = state["whole"].to(self._whole)
