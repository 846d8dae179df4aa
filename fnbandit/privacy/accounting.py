"""Accounting by dp-accounting: the noise that a promise needs, and the epsilon of releases that took place.

A release has a cost (sensitivity over standard deviation of its noise)^2. Gaussian releases, each chosen after the
ones before, are together as private as one Gaussian mechanism whose cost is the sum of theirs (Dong et al. 2022).
"""

from __future__ import annotations

import functools
import math
from typing import Any


@functools.cache
def find_noise(epsilon: float, delta: float) -> float:
    """Return the standard deviation of noise with which one release of sensitivity 1 is (epsilon, delta)-private."""
    return float(_import_accounting().get_sigma_gaussian(epsilon, delta))


@functools.cache
def find_epsilon(cost: float, delta: float) -> float:
    """Return the epsilon of Gaussian releases whose costs sum to `cost`."""
    return float(_import_accounting().get_epsilon_gaussian(1 / math.sqrt(cost), delta)) if cost else 0.0


def _import_accounting() -> Any:
    try:
        import dp_accounting
    except ImportError:
        raise ValueError("privacy: needs dp-accounting; pip install 'fnbandit[privacy]'") from None
    return dp_accounting
