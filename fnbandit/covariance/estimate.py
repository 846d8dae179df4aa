"""V_last with full matrices, and the rows that agents add to it between two rounds.

An agent's own rows since the last round do not change the shared matrix: `FullEpoch` keeps rows Z for them, so that
with u = Z x
    x^T (V + G^T G)^-1 x = x^T V^-1 x - ||u||^2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fnbandit.core import Rows, Triangle
from fnbandit.covariance.full import Full, compute_downdate
from fnbandit.covariance.gram import gram_triangle, invert, pack_triangle, sum_of_sample, sum_of_squares, symmetric
from fnbandit.numerics.products import chunks, downdate, fits_workspace, multiply
from fnbandit.numerics.state import State
from fnbandit.numerics.tree import LEAF, TreeSum


@dataclass(frozen=True)
class FullEvaluation:
    """Result of `FullEpoch.evaluate` for features x: mean and variance [n, k], and products that form the new row."""

    mean: Tensor
    variance: Tensor
    parts: list[tuple[Tensor, ...]]
    """For consecutive chunks of c agents: M x [c, k, p], Z x with Z of the shared inverse, [c, k, r], and, where the
    epoch has rows, Z x with Z of these, [c, k, length]"""

    def select_pulled(self, arms: Tensor) -> list[Tensor]:
        """Return the `parts` of the pulled arms, for all agents: [n, p], [n, r] and [n, length]."""
        found, start = [], 0
        for part in self.parts:
            pulled = arms[start : start + len(part[0])]
            index = torch.arange(len(pulled), device=arms.device)
            found.append([values[index, pulled] for values in part])
            start += len(pulled)
        return [torch.cat(values) for values in zip(*found, strict=True)]


class FullEpoch:
    """n agents' rows since the last round on top of a `FullEstimate`: V-bar, theta-bar (Alg. 1, line 4).

    With theta_0-bar = V^-1 B_sync, u = Z x and one coefficient c per row,
        theta-bar x = theta_0-bar x + u c,    c = (y - theta-bar x) / sqrt(1 + x^T V-bar^-1 x),
    the recursive form of V-bar^-1 (B_sync + B_new). Dropping the last rows goes back to an earlier iteration.
    """

    def __init__(self, shared: FullEstimate, agents: int) -> None:
        self._shared = shared
        self._agents = agents
        self._capacity = 4
        self._z = shared.solution.new_empty(agents, 0, len(shared.solution))
        self._coefficients = self._z.new_empty(agents, 0)
        self._gains = self._z.new_empty(agents, 0)
        self._carried: Tensor | None = None
        """Features of rows that agents did not upload in the last round, [n, m, p], 0 where an agent has none"""
        self.start()

    def start(self) -> None:
        self.length = 0
        self._rows = 0
        """Rows of Z: carried ones and one per iteration; no more are added once V-bar is not needed"""
        self._contexts: list[Tensor] = []
        self._latest: tuple[Tensor, Tensor, Tensor | None, Tensor] | None = None
        """Arguments of `_make_row` for the latest row of Z, which is computed when the same epoch needs it"""
        if self._shared.diagonal is not None:
            self._squares = torch.zeros_like(self._shared.diagonal).repeat(self._agents, 1)
        if self._carried is not None:
            self._absorb_carried(self._carried)

    def carry(self, absent: Tensor, slots: int, rewards: Tensor) -> None:
        """Keep the last `slots` rows of absent agents [n], with rewards [n, slots], for the next epoch."""
        rows = self.update(as_features=True)
        rows = rows[:, rows.shape[1] - slots :] * absent[:, None, None]
        self._carried, self._carried_rewards = (rows if slots else None), rewards * absent[:, None]

    def _absorb_carried(self, rows: Tensor) -> None:
        """Add carried rows to V-bar on top of the new V_last; they do not count as a gain."""
        solved = self._shared.covariance.solve(rows)
        residual = self._carried_rewards - multiply(self._shared.solution.expand(len(rows), 1, -1), rows.mT).squeeze(1)
        # A row of zeros has the reward 0, so its coefficient is 0.
        downdate = compute_downdate(rows, solved, residual[:, :, None])
        self._rows = rows.shape[1]
        self._capacity = max(self._capacity, 2 * self._rows)
        self._z = _grow(downdate[:, :, :-1], self._capacity)
        self._coefficients = _grow(downdate[:, :, -1], self._capacity)
        self._gains = self._z.new_zeros(self._agents, self._capacity)

    @property
    def _carried_count(self) -> int:
        return 0 if self._carried is None else self._carried.shape[1]

    def release(self) -> None:
        if not fits_workspace(self._z.numel(), self._z):
            self._z = self._z.new_empty(self._agents, 0, self._z.shape[2])

    def evaluate(self, x: Tensor) -> FullEvaluation:
        if self._latest is not None:
            self._make_row(*self._latest)
        found = [self._evaluate(x[chunk], chunk) for chunk in chunks(len(x), x[0].numel(), x)]
        means, variances, parts = zip(*found, strict=True)
        return FullEvaluation(torch.cat(means), torch.cat(variances).clamp_(min=0), list(parts))

    def _evaluate(self, x: Tensor, chunk: slice) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        """Return mean, variance and the part of `FullEvaluation.parts` for features x of a chunk of agents."""
        base, shared_u = self._shared.covariance.split_product(x)
        mean = multiply(self._shared.solution.expand(len(x), 1, -1), x.mT).squeeze(1)
        variance = (base * x).sum(-1) - shared_u.square().sum(-1)
        if not self._rows:
            return mean, variance, (base, shared_u)
        own_u = multiply(x, self._z[chunk, : self._rows].mT)
        mean = mean + multiply(self._coefficients[chunk, None, : self._rows], own_u.mT).squeeze(1)
        return mean, variance - (own_u * own_u).sum(-1), (base, shared_u, own_u)

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
        base, shared_u, *own_u = found.select_pulled(arms)
        self._latest = (base, shared_u, own_u[0] if own_u else None, root)
        if self._rows == self._z.shape[1]:
            # The capacity of the epoch before, at least: epochs grow slowly, and growing holds old and new buffers.
            self._capacity = max(self._capacity, 2 * self._rows)
            self._z, self._coefficients, self._gains = (
                _grow(tensor, self._capacity) for tensor in (self._z, self._coefficients, self._gains)
            )
        self._coefficients[:, self._rows] = (rewards - found.mean[index, arms]) / root
        gain = torch.log1p(variance)
        self._gains[:, self._rows] = gain + self._gains[:, self._rows - 1] if self._rows else gain
        self._rows += 1

    def _make_row(self, base: Tensor, shared_u: Tensor, own_u: Tensor | None, root: Tensor) -> None:
        row = self._rows - 1
        z = self._shared.covariance.join_product(base[:, None], shared_u[:, None]).squeeze(1)
        if own_u is not None:
            z = z - multiply(own_u[:, None], self._z[:, :row]).squeeze(1)
        self._z[:, row] = z / root[:, None]
        self._latest = None

    def posterior(self, index: int) -> tuple[Tensor, Tensor]:
        if self._latest is not None:
            self._make_row(*self._latest)
        rows, coefficients = self._z[index : index + 1, : self._rows], self._coefficients[index : index + 1]
        solution, inverse = self._shared.solution, self._shared.covariance.inverse
        if self._rows:
            solution = solution + multiply(coefficients[:, None, : self._rows], rows)[0, 0]
            downdate(inverse, rows)
        return solution, inverse[0]

    def gain(self) -> Tensor:
        return self._gains[:, self._rows - 1]

    def state(self) -> State:
        return {} if self._carried is None else {"carried": self._carried, "carried_rewards": self._carried_rewards}

    def load(self, state: State) -> None:
        self._carried = None
        if "carried" in state:
            self._carried = state["carried"].to(self._z)
            self._carried_rewards = state["carried_rewards"].to(self._z)

    def diagonal_gain(self) -> Tensor:
        assert self._shared.diagonal is not None
        last = self._shared.diagonal
        if self._carried is not None:
            last = last + self._carried.square().sum(1)
        return torch.log1p(self._squares / last).sum(-1)

    def truncate(self, length: int) -> bool:
        if length < self.length:
            if self._shared.diagonal is not None:
                # Subtracting from a sum does not restore the same bits.
                return False
            self._latest = None
            self._rows = min(self._rows, self._carried_count + length)
            self.length = length
            del self._contexts[length:]
        return True

    def update(self, as_features: bool = False) -> Tensor:
        contexts = torch.stack(self._contexts, dim=1)
        if self._carried is None and not as_features:
            return contexts
        parts = chunks(len(contexts), contexts.shape[1] * self._z.shape[2], self._z)
        rows = torch.cat([self._shared.lift(contexts[chunk]) for chunk in parts])
        return rows if self._carried is None else torch.cat([self._carried, rows], dim=1)

    def moments(self, rewards: Tensor) -> Tensor:
        contexts, p = self.update(), self._z.shape[2]
        if self._carried is not None:
            rewards = torch.cat([self._carried_rewards, rewards], dim=1)
        parts = chunks(len(contexts), contexts.shape[1] * p, self._z)
        sums = [multiply(rewards[chunk][:, None], self._shared.lift(contexts[chunk])) for chunk in parts]
        return torch.cat(sums).squeeze(1)


def _grow(tensor: Tensor, capacity: int) -> Tensor:
    """Return a copy with `capacity` places along its second dimension."""
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
        self.sum_of_moments = like.new_zeros(parameters)
        """B_sync [p]"""
        self.solution = like.new_zeros(parameters)
        """V_last^-1 B_sync [p]"""
        self.covariance = self._initial_covariance()
        """V_last"""
        self.diagonal = like.new_full((1, parameters), regularization) if track_diagonal else None
        """The diagonal of V_last, where a trigger needs it"""

    def epoch(self, agents: int) -> FullEpoch:
        return FullEpoch(self, agents)

    def sum(self, agents: int, length: int) -> TreeSum:
        return sum_of_squares(agents, length, len(self.solution), self.lift)

    def sample_sum(self, agents: int, slots: int) -> TreeSum:
        return sum_of_sample(agents, slots, len(self.solution))

    def account(self, agents: int) -> FullAccount:
        return FullAccount(self, agents)

    def apply(self, update: Rows | Triangle, sum_of_moments: Tensor) -> None:
        """Add rows to V, or replace V by the matrix of a triangle; B is [p]."""
        self.sum_of_moments = sum_of_moments
        right = sum_of_moments[None, None]
        if isinstance(update, Triangle):
            whole = symmetric(update.values, len(self.solution))
            self.covariance.replace_inverse(invert(whole).to(right)[None])
            self.solution = self.covariance.solve(right)[0, 0]
            if self.diagonal is not None:
                self.diagonal = whole.diagonal().to(right)[None]
            return
        self.solution = self.covariance.absorb_and_solve(update.values[None], right)[0, 0]
        if self.diagonal is not None:
            self.diagonal = self.diagonal + self.lift(update.values[None]).square().sum(1)

    def renew(self, update: Rows | Triangle, sum_of_moments: Tensor) -> None:
        """Replace V by lambda I + G^T G of rows, or by the matrix of a triangle; B is [p]."""
        if isinstance(update, Rows):
            self.covariance = self._initial_covariance()
            if self.diagonal is not None:
                self.diagonal = torch.full_like(self.diagonal, self.regularization)
        self.apply(update, sum_of_moments)

    def _initial_covariance(self) -> Full:
        return Full(1, len(self.solution), self.regularization, self.solution, self.lift, shared=True)

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
    """The server's account of V_last: V itself, where a round may upload the sum of W_new instead of rows."""

    def __init__(self, estimate: FullEstimate, agents: int) -> None:
        self._lift, self._regularization = estimate.lift, estimate.regularization
        self._like = estimate.solution
        self._whole = self._start if agents > LEAF else None
        """The upper triangle of V, in double precision; None where rounds upload rows only"""

    @property
    def _start(self) -> Tensor:
        """The upper triangle of lambda I; computed anew, since on a wide table rows are much smaller."""
        whole = torch.eye(len(self._like), dtype=torch.float64, device=self._like.device)
        return pack_triangle(whole * self._regularization)

    def combine(self, update: Rows | Triangle) -> Rows | Triangle:
        """Return the rows [N, k, ..] of all agents as [N k, ..]; for the triangle of the sum, the triangle of V."""
        if self._whole is None:
            assert isinstance(update, Rows)
            return Rows(update.values.flatten(0, 1))
        if isinstance(update, Triangle):
            self._whole = self._whole + update.values
            return Triangle(self._whole)
        self._whole = self._whole + gram_triangle(self._lift(update.values))
        return Rows(update.values.flatten(0, 1))

    def renew(self, update: Rows | Triangle, factor: float) -> Rows | Triangle:
        """Return `factor` W of a sample as rows [k, p]; for the triangle of W, the triangle of V."""
        if isinstance(update, Rows):
            rows = update.values.flatten(0, 1) * factor**0.5
            if self._whole is not None:
                self._whole = self._start + gram_triangle(rows[None])
            return Rows(rows)
        whole = self._start + factor * update.values
        if self._whole is not None:
            self._whole = whole
        return Triangle(whole)

    def state(self) -> State:
        return {} if self._whole is None else {"whole": self._whole}

    def load(self, state: State) -> None:
        if self._whole is not None:
            self._whole = state["whole"].to(self._whole)
