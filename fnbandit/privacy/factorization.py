"""Noise of running sums: it is correlated over steps, so that the sum of all steps has little of it.

A running sum of x_0, x_1, .. is A x with ones in A's lower triangle. With A = D E, the mechanism releases
D (E x + z) = A x + D z: noise z of standard deviation s times the sensitivity of E makes it private, and the running
sum after step k has the noise (D z)_k. Agents send x_k plus the increment (D z)_k - (D z)_{k-1}.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

NumberedDraw = Callable[[int], np.ndarray]
"""Returns the i-th independent draw of standard normal numbers"""


class Toeplitz:
    """D = E = A^(1/2): Toeplitz matrices of c_0 = 1, c_j = c_{j-1} (1 - 1 / (2 j)) (Henzinger et al. 2023)."""

    def __init__(self, steps: int) -> None:
        self._c = np.cumprod(np.r_[1.0, 1 - 0.5 / np.arange(1, max(1, steps))])

    @property
    def sensitivity(self) -> float:
        """Norm of the first column of E, the longest one: an event is in one step alone."""
        return float(np.linalg.norm(self._c))

    def deviation(self, step: int) -> float:
        """Return the standard deviation of the running sum's noise after a step, for draws of standard deviation 1."""
        return float(np.linalg.norm(self._c[: step + 1]))

    def increment(self, step: int, draw: NumberedDraw) -> np.ndarray:
        """Return the noise that a step adds to the running sum's."""
        noise = draw(step).copy()
        for earlier in range(step):
            noise += (self._c[step - earlier] - self._c[step - earlier - 1]) * draw(earlier)
        return noise


class BinaryTree:
    """A sum has one draw per node of a binary tree over steps that it consists of (Chan et al. 2011).

    The node of level l that ends with step k is the sum of the last 2^l steps; it exists where 2^l divides k + 1.
    """

    def __init__(self, steps: int) -> None:
        self._levels = max(1, steps).bit_length()

    @property
    def sensitivity(self) -> float:
        """Norm of the first column of E: an event is in one node of every level."""
        return math.sqrt(self._levels)

    def deviation(self, step: int) -> float:
        return math.sqrt((step + 1).bit_count())

    def increment(self, step: int, draw: NumberedDraw) -> np.ndarray:
        """Return the draw of the node that ends with the step, less those of the nodes that it replaces."""
        level = _largest_level(step)
        noise = draw(self._number(step, level)).copy()
        for lower in range(level):
            noise -= draw(self._number(step - 2**lower, lower))
        return noise

    def _number(self, step: int, level: int) -> int:
        return step * self._levels + level


def _largest_level(step: int) -> int:
    return ((step + 1) & -(step + 1)).bit_length() - 1


FACTORIZATIONS: dict[str, type[Toeplitz | BinaryTree]] = {"toeplitz": Toeplitz, "tree": BinaryTree}
"""Choices of `privacy_factorization`"""
