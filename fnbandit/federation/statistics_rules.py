"""Rules by which the server adds up statistics (W_i, B_i), and gradients with curvatures, of agents that may lie.

An honest agent's W = sum of g g^T, B = sum of y g and s = sum of y^2 over its n rows g with values y satisfy
    W positive,    tr W <= n L^2,    B^T (W + eta I)^-1 B <= s <= n R^2,
and numbers that satisfy this are those of some n rows: a liar who passes does no more harm than one who tells the truth
of n false rewards. L^2 and R^2 are multiples of the median over agents, so that nobody needs to know them, and hold
while fewer than half of the agents lie. Rules judge all of an agent's statistics since the features are as they are,
and leave out an agent with all of them.

They fail where honest agents differ more than liars do: with tasks of their own, and on rewards that are mostly noise,
as on routing, where an agent of flipped rewards is no worse explained than others. Before rewards are explained, in
the first iterations, liars are believed: flipped rewards of 3 of 10 agents leave 2.7 times the regret on cosine (mean
of 6 seeds, T = 60), where the sum leaves 6 times. With 4 of 10, an overweight W passes the certificate.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fnbandit.config import Config
from fnbandit.config.registry import build
from fnbandit.covariance import matrices
from fnbandit.federation.aggregation import median_of, minimize_distances
from fnbandit.federation.claims import Claims, is_finite
from fnbandit.numerics.products import multiply

SPREAD, SPREAD_OF_A_ROW = 10.0, 100.0
"""Largest ratio of an agent's trace, energy or squares per row to the median over agents, and of the median to a trace:
the first plus the second over the agent's rows, since few rows differ more"""
RIDGE = 1e-8
"""eta, relative to the trace of an agent's W"""
ROUNDING = 1.01
"""Factor by which B^T (W + eta I)^-1 B of single precision may exceed s"""
EXCESS, EXCESS_OF_A_ROW = 3.0, 20.0
"""Largest error per row of an honest agent over the median of all: the first, plus the second over its rows"""
NOTICED, NOTICED_OF_A_ROW = 0.1, 0.5
"""Smallest error per row that drops an agent, relative to the usual square of a reward, in the same form"""
JUDGED_ROWS = 4
"""Smallest number of rows with which an agent is dropped for its error: a first network of fewer rows is a poor one,
which later training does not leave"""
EXPLAINED = 0.3
"""Largest median error, relative to the usual square of a reward, with which agents are judged by their errors"""
FOLDS = 4
"""Groups of agents, each of which is judged by the solution of the others"""
CONCENTRATIONS = 2
"""Steps of least trimmed squares"""


class SumOfStatistics:
    """The sum over all agents (Alg. 2, line 5). Base class of the rules that check agents."""

    checks = False
    """True where agents can be dropped, for which the server needs every agent's own values"""

    def __init__(self, config: Config) -> None:
        self._regularization, self._share = config.number("regularization"), config.trim
        self._matrices: Any = matrices(config).own

    def judge(self, claims: Claims, order: Tensor, usual: float) -> Tensor:
        """Return True for each of n agents whose claims are added up, [n].

        `order` [n] is a random order of them. Values of y^2 up to `usual` prove nothing; 0 where that is not known.
        """
        return torch.ones(len(claims.rows), dtype=torch.bool, device=claims.rows.device)

    def combine(self, claims: Claims, order: Tensor) -> Tensor | None:
        """Return B [p] of the agents that are kept; None for the sum. `order` [n] is a random order."""
        return None


class Certificate(SumOfStatistics):
    """The sum over agents whose statistics are those of some rows."""

    checks = True

    def judge(self, claims: Claims, order: Tensor, usual: float) -> Tensor:
        return self._certify(claims, usual)[0]

    def _certify(self, claims: Claims, usual: float) -> tuple[Tensor, Tensor | None]:
        """Return True for agents whose statistics are those of some rows, [n], and the factors of W_i + eta I."""
        good = torch.stack([is_finite(value) for value in claims.values.values()]).all(0)
        if claims.squares is not None:
            good &= claims.squares >= 0
            good &= self._is_usual(claims.squares, claims.rows, good, usual)
        if claims.covariance is None or claims.moments is None:
            return good, None
        traces = self._matrices.traces(claims.covariance)
        good &= self._is_usual(traces, claims.rows, good, 0.0)
        good &= traces * _spread(claims.rows) >= claims.rows * self._median(traces, claims.rows, good)
        factors = self._matrices.factor(claims.covariance, RIDGE * traces + torch.finfo(traces.dtype).tiny)
        energies = self._matrices.energies(factors, claims.moments.double())
        good &= torch.isfinite(energies)
        if claims.squares is not None:
            return good & (energies <= ROUNDING * claims.squares), factors
        return good & self._is_usual(energies, claims.rows, good, usual), factors

    def _is_usual(self, values: Tensor, rows: Tensor, good: Tensor, usual: float) -> Tensor:
        """Return True for each agent whose value per row is not too far above the median, or at most `usual`."""
        return values <= rows * (_spread(rows) * self._median(values, rows, good)).clamp(min=usual)

    def _median(self, values: Tensor, rows: Tensor, good: Tensor) -> Tensor:
        per_row = (values / rows)[good]
        return median_of(per_row) if len(per_row) else values.new_zeros(())

    def _find_center(self, claims: Claims) -> Tensor:
        """Return the geometric median [p] of the solutions (W_i + lambda/n I)^-1 B_i in the norm of the sum of W_i."""
        assert claims.covariance is not None and claims.moments is not None
        count = len(claims.rows)
        ridge = torch.full_like(claims.rows, self._regularization / count)
        solutions = self._matrices.solve(self._matrices.factor(claims.covariance, ridge), claims.moments.double())
        total = self._matrices.regularize(claims.covariance.sum(0), self._regularization)
        return self._matrices.unwhiten(total, minimize_distances(self._matrices.whiten(total, solutions)))


class TrimmedStatistics(Certificate):
    """Least trimmed squares over agents: the sum over those whose rewards are explained by what others have seen.

    An agent's error at a solution is the least sum of squared errors that its statistics allow,
        (B_i - W_i theta)^T (W_i + eta I)^-1 (B_i - W_i theta),
    per row. The solution is that of agents in other folds, because few rows explain themselves perfectly: first of all
    agents, then of the half with the smallest errors, then of those with at most EXCESS times the median error. Agents
    with a larger one are dropped, unless it is small beside the rewards, or the median error is not: nobody can tell a
    liar before rewards are explained. An agent counts by its rows, whatever the size of its W.
    """

    def judge(self, claims: Claims, order: Tensor, usual: float) -> Tensor:
        good, factors = self._certify(claims, usual)
        index = good.nonzero()[:, 0]
        if factors is None or len(index) < FOLDS:
            return good
        places = torch.empty_like(order).index_copy(0, order, torch.arange(len(order), device=order.device))
        folds = places[index].argsort().argsort() % FOLDS
        if len(index) == len(good):
            return self._trim(claims, factors, folds, usual)
        return good.index_copy(0, index, self._trim(claims.select(index), factors[index], folds, usual))

    def _trim(self, claims: Claims, factors: Tensor, folds: Tensor, usual: float) -> Tensor:
        """Return True for agents whose errors are usual, [n]; `folds` [n] are the agents' folds."""
        assert claims.moments is not None
        traces = self._matrices.traces(claims.covariance)
        weights = claims.rows / traces.clamp(min=torch.finfo(traces.dtype).tiny)
        weights = weights * (traces.sum() / claims.rows.sum())
        chosen = torch.ones_like(folds, dtype=torch.bool)
        for _ in range(CONCENTRATIONS):
            best = self._cross_errors(claims, factors, weights * chosen, folds).argsort(stable=True)
            chosen = torch.zeros_like(chosen).index_fill(0, best[: len(folds) // 2 + 1], True)
        reference = usual or float(median_of(self._matrices.energies(factors, claims.moments.double()) / claims.rows))
        for _ in range(2):
            errors = self._cross_errors(claims, factors, weights * chosen, folds)
            typical = median_of(errors)
            if typical > EXPLAINED * reference:
                return torch.ones_like(chosen)
            limits = typical * (EXCESS + EXCESS_OF_A_ROW / claims.rows)
            chosen = errors <= limits.maximum((NOTICED + NOTICED_OF_A_ROW / claims.rows) * reference)
            chosen |= claims.rows < JUDGED_ROWS
        return chosen

    def _cross_errors(self, claims: Claims, factors: Tensor, weights: Tensor, folds: Tensor) -> Tensor:
        """Return every agent's error per row, [n], at the solution for the weighted agents of the other folds."""
        assert claims.covariance is not None and claims.moments is not None
        of_others = weights * (folds != torch.arange(FOLDS, device=folds.device)[:, None])
        moments = claims.moments.double()
        ridge = weights.new_full((FOLDS,), self._regularization)
        totals = self._matrices.factor(self._matrices.add_up(claims.covariance, of_others), ridge)
        solutions = self._matrices.solve(totals, multiply(of_others[None], moments[None])[0])
        rest = moments - self._matrices.times(claims.covariance, solutions[folds])
        return self._matrices.energies(factors, rest) / claims.rows


class MedianOfSolutions(Certificate):
    """The geometric median of the solutions of 2 floor(trim n) + 1 groups of agents (Jadbabaie et al. 2022).

    W is the sum over all agents that the certificate keeps, and B is W + lambda I times that median.
    """

    def combine(self, claims: Claims, order: Tensor) -> Tensor | None:
        if claims.covariance is None or claims.moments is None:
            return None
        groups = min(len(order), 2 * int(self._share * len(order)) + 1)
        parts = [claims.select(order[place::groups].sort().values) for place in range(groups)]
        joined = replace(
            claims.select(order[:groups]),
            covariance=torch.stack([part.covariance.sum(0) for part in parts if part.covariance is not None]),
            moments=torch.stack([part.moments.double().sum(0) for part in parts if part.moments is not None]),
        )
        total = self._matrices.regularize(claims.covariance.sum(0), self._regularization)
        return self._matrices.times(total[None], self._find_center(joined)[None])[0]


def _spread(rows: Tensor) -> Tensor:
    """Return the largest ratio of a value per row to the median over agents, for agents with some rows [n]."""
    return SPREAD + SPREAD_OF_A_ROW / rows


def make_statistics_rule(config: Config) -> SumOfStatistics:
    """Make the rule that a config names."""
    return build("aggregation_statistics", config.aggregation_statistics, config)
