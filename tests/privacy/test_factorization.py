"""Noise of running sums: the factorization behind the increments, from unit draws, against matrix algebra."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fnbandit.privacy.factorization import FACTORIZATIONS

STEPS = (1, 2, 3, 7, 16, 21)


def released_noise(name: str, steps: int) -> np.ndarray:
    """D of D E = A, column by column: the running sum of increments from unit draws, [steps, draws]."""
    made = FACTORIZATIONS[name](steps)
    numbers: dict[int, int] = {}

    def draw(number: int) -> np.ndarray:
        unit = np.zeros(4 * steps + 8)
        unit[numbers.setdefault(number, len(numbers))] = 1
        return unit

    rows = [made.increment(step, draw) for step in range(steps)]
    return np.cumsum(rows, axis=0)[:, : len(numbers)]


def encoder(noise: np.ndarray) -> np.ndarray:
    """The least E with D E = A: draws that no released sum uses protect nothing."""
    return np.linalg.pinv(noise) @ np.tril(np.ones((len(noise), len(noise))))


@pytest.mark.parametrize("name", FACTORIZATIONS)
@pytest.mark.parametrize("steps", STEPS)
def test_the_increments_factorize_the_running_sum(name, steps):
    noise = released_noise(name, steps)
    made = FACTORIZATIONS[name](steps)
    whole = encoder(noise)
    assert np.allclose(noise @ whole, np.tril(np.ones((steps, steps))))
    # Sensitivity: an event enters one step, so one column of E; no column is longer than the first.
    assert np.linalg.norm(whole, axis=0).max() <= made.sensitivity + 1e-9
    variances = np.diag(noise @ noise.T)
    assert np.allclose([made.deviation(step) ** 2 for step in range(steps)], variances)


def test_the_toeplitz_matrix_is_the_square_root_of_the_running_sum():
    """C C = A, from binomial coefficients: c_j = (2j choose j) / 4^j."""
    steps = 12
    c = [math.comb(2 * j, j) / 4**j for j in range(steps)]
    root = np.array([[c[i - j] if i >= j else 0.0 for j in range(steps)] for i in range(steps)])
    assert np.allclose(root @ root, np.tril(np.ones((steps, steps))))
    assert np.allclose(released_noise("toeplitz", steps), root)
    assert FACTORIZATIONS["toeplitz"](steps).sensitivity == pytest.approx(np.linalg.norm(c))


@pytest.mark.parametrize(("steps", "toeplitz", "tree"), [(16, 1.94, 4.47), (64, 2.39, 6.48), (256, 2.83, 8.49)])
def test_the_worst_prefix_has_the_known_noise(steps, toeplitz, tree):
    """Standard deviation per unit of sensitivity: log(steps) / pi + 1 or so, against levels of a tree."""
    worst = {}
    for name in FACTORIZATIONS:
        made = FACTORIZATIONS[name](steps)
        worst[name] = made.sensitivity * max(made.deviation(step) for step in range(steps))
    assert worst == {"toeplitz": pytest.approx(toeplitz, abs=0.005), "tree": pytest.approx(tree, abs=0.005)}
    levels, bits = steps.bit_length(), steps.bit_length() - 1
    assert worst["tree"] == pytest.approx(math.sqrt(levels * bits))
