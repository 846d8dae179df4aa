"""Linear estimates of single agents, several for each: the agents' own part beside V_last and B_sync."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fnbandit.numerics.device import put_values
from fnbandit.numerics.products import downdate, factorize, multiply, solve_lower


class RidgeEvaluation(NamedTuple):
    """Mean and variance of features [n, k, p] by the e estimates of every agent, each [n, e, k]."""

    mean: Tensor
    variance: Tensor
    solved: Tensor
    """V_e^-1 x, [n, e, k, p]"""


class RidgeStep(NamedTuple):
    """The change of all estimates by one observation of each agent."""

    row: Tensor
    """V_e^-1 x / sqrt(1 + x^T V_e^-1 x), [n, e, p]"""
    coefficient: Tensor
    """(y - mean) / sqrt(1 + x^T V_e^-1 x), [n, e]"""
    moments: Tensor
    """y x, [n, p]"""


class Ridges:
    """V_e^-1 [n, e, p, p], moments b_e [n, e, p] and solutions V_e^-1 (b_e + prior_e) of e estimates of n agents.

    An observation is a change of rank one. `truncate` repeats the first changes of an epoch from its beginning.
    """

    def __init__(self, agents: int, regularizations: Sequence[float], parameters: int, like: Tensor) -> None:
        """One estimate begins with V = lambda I for each of the regularizations."""
        scales = 1 / put_values(np.array(regularizations), like.device, like.dtype)
        eye = torch.eye(parameters, dtype=like.dtype, device=like.device)
        self.inverse = eye * scales[:, None, None].expand(agents, -1, -1, -1)
        self.moments = like.new_zeros(agents, len(scales), parameters)
        self.start(torch.zeros_like(self.moments))

    def start(self, prior: Tensor) -> None:
        """Begin an epoch; `prior` [n, e, p] is part of the moments until the next one begins."""
        right = (self.moments + prior).flatten(0, 1)[:, None]
        self.solution = multiply(right, self.inverse.flatten(0, 1))[:, 0].view_as(self.moments)
        self._first = self.inverse.clone(), self.moments.clone(), self.solution.clone()
        self._steps: list[RidgeStep] = []

    def evaluate(self, x: Tensor) -> RidgeEvaluation:
        """Return mean and variance of features x [n, k, p]."""
        n, e = self.inverse.shape[:2]
        rows = x[:, None].expand(-1, e, -1, -1).flatten(0, 1)
        solved = multiply(rows, self.inverse.flatten(0, 1))
        mean = multiply(self.solution.flatten(0, 1)[:, None], rows.mT)[:, 0]
        variance = (solved * rows).sum(-1).clamp_(min=0)
        return RidgeEvaluation(*(part.unflatten(0, (n, e)) for part in (mean, variance, solved)))

    def append(self, x: Tensor, arms: Tensor, targets: Tensor, found: RidgeEvaluation) -> None:
        """Add the pulled arms [n] of features x [n, k, p] with their targets [n]."""
        index = torch.arange(len(x), device=x.device)
        root = (1 + found.variance[index, :, arms]).sqrt()
        coefficient = (targets[:, None] - found.mean[index, :, arms]) / root
        row = found.solved[index, :, arms] / root[:, :, None]
        self._apply(RidgeStep(row, coefficient, targets[:, None] * x[index, arms]))

    def _apply(self, step: RidgeStep) -> None:
        self._steps.append(step)
        downdate(self.inverse.view(-1, *self.inverse.shape[2:]), step.row.flatten(0, 1)[:, None])
        self.moments += step.moments[:, None]
        self.solution += step.row * step.coefficient[:, :, None]

    def truncate(self, length: int) -> None:
        """Go back to the first `length` observations of the epoch."""
        if length >= len(self._steps):
            return
        steps, self._steps = self._steps[:length], []
        for values, first in zip((self.inverse, self.moments, self.solution), self._first, strict=True):
            values.copy_(first)
        for step in steps:
            self._apply(step)


def invert_all(matrices: Tensor) -> Tensor:
    """Return the inverses of positive matrices [n, p, p]."""
    factor = factorize(matrices)
    half = solve_lower(factor, torch.eye(factor.shape[1], dtype=factor.dtype, device=factor.device).expand_as(factor))
    return multiply(half.mT, half)


def sum_own(rows: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return every agent's sum of x x^T, [n, p, p], and of y x, [n, p], for rows [n, k, p] and targets [n, k]."""
    return multiply(rows.mT, rows), multiply(targets[:, None], rows)[:, 0]
