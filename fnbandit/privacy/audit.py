"""Lower bounds on epsilon from what an attacker sees of two neighbouring histories."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

AUDIT_LEVEL = 0.05
"""Probability that a bound is wrong"""
THRESHOLDS = 20
"""Thresholds that an attack tries, on the half of the draws that the bound does not use"""


def bound_share(count: int, of: int, level: float = AUDIT_LEVEL) -> tuple[float, float]:
    """Return the two-sided Clopper-Pearson bounds on a probability with `count` hits in `of` draws."""
    from scipy.stats import beta

    low = float(beta.ppf(level / 2, count, of - count + 1)) if count else 0.0
    high = float(beta.ppf(1 - level / 2, count + 1, of - count)) if count < of else 1.0
    return low, high


def bound_rates(hits: int, of: int, false: int, among: int, delta: float = 0.0) -> float:
    """Return a lower bound on epsilon from a test with `hits` of one history and `false` alarms of the other.

    P(hit) <= e^epsilon P(false alarm) + delta holds for every test of a private release. Each of the two bounds is
    wrong with a probability of at most AUDIT_LEVEL / 2.
    """
    low, high = bound_share(hits, of)[0], bound_share(false, among)[1]
    return max(0.0, math.log((low - delta) / high)) if low > delta and high > 0 else 0.0


def bound_epsilon(one: Sequence[float] | np.ndarray, other: Sequence[float] | np.ndarray, delta: float) -> float:
    """Return a lower bound on epsilon from an attacker's scores of two histories; large scores speak for the first.

    The threshold, and which history it finds, are chosen on the first half of the draws, and tested on the second.
    """
    first, second = np.asarray(one, dtype=float), np.asarray(other, dtype=float)
    halves = [(values[: len(values) // 2], values[len(values) // 2 :]) for values in (first, second)]
    best, choice = -1.0, (0.0, True)
    for threshold in np.unique(
        np.quantile(np.concatenate([halves[0][0], halves[1][0]]), np.linspace(0, 1, THRESHOLDS))
    ):
        for above in (True, False):
            found = _bound(halves[0][0], halves[1][0], float(threshold), above, delta)
            if found > best:
                best, choice = found, (float(threshold), above)
    return _bound(halves[0][1], halves[1][1], *choice, delta)


def _bound(one: np.ndarray, other: np.ndarray, threshold: float, above: bool, delta: float) -> float:
    """Return the bound of the test "score above the threshold: the first history", or of its negation."""
    if above:
        return bound_rates(int((one > threshold).sum()), len(one), int((other > threshold).sum()), len(other), delta)
    return bound_rates(int((other <= threshold).sum()), len(other), int((one <= threshold).sum()), len(one), delta)
