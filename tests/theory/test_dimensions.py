"""NTK matrices, effective dimensions and norms against integration, dense computation and hand calculation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from helpers import plain
from scipy import integrate, linalg

from fnbandit import theory
from fnbandit.environments import make_environment
from fnbandit.environments.functions import on_sphere
from fnbandit.networks.network import Network
from fnbandit.theory import dimensions


@pytest.mark.parametrize("correlation", [-0.9, -0.3, 0.0, 0.5, 0.95])
@pytest.mark.parametrize("variances", [(1.0, 1.0), (0.5, 2.0)])
def test_closed_forms_agree_with_integration(correlation, variances):
    left, right = variances
    covariance = correlation * math.sqrt(left * right)
    relu, both = dimensions.arc_cosine(
        *(torch.tensor(v, dtype=torch.float64) for v in ([[covariance]], [left], [right]))
    )
    # u = sqrt(left) a, v = sqrt(right) (c a + s b) with a, b standard normal, in polar coordinates
    sine = math.sqrt(1 - correlation**2)

    def angular(power):
        def integrand(angle):
            u = math.sqrt(left) * math.cos(angle)
            v = math.sqrt(right) * (correlation * math.cos(angle) + sine * math.sin(angle))
            return (u > 0) * (v > 0) * (u * v) ** power

        kink = math.atan2(-correlation, sine)
        points = sorted([-math.pi / 2, math.pi / 2, kink])
        return sum(
            integrate.quad(integrand, a, b)[0] for a, b in zip([-math.pi, *points], [*points, math.pi], strict=True)
        )

    # E[r^2] = 2 for the radius of two standard normals
    assert relu.item() == pytest.approx(2 * angular(1) / (2 * math.pi), rel=1e-6)
    assert both.item() == pytest.approx(angular(0) / (2 * math.pi), rel=1e-6)


def test_ntk_of_one_context_by_hand():
    # Sigma^(l) of a unit vector stays 1 (2 E[relu^2] = 1) and H~^(l+1) = H~^(l) + 1 (2 P(u > 0) = 1).
    h, tangent = dimensions.ntk(np.array([[0.6, 0.8]]), depth=3)
    assert tangent.item() == pytest.approx(3)
    assert h.item() == pytest.approx(2)
    # Two orthogonal unit vectors, L = 2: Sigma = 2 * 1/(2 pi), H~ = 2 * 0 * 1/4 + Sigma.
    h, _ = dimensions.ntk(np.eye(2), depth=2)
    assert h[0, 1] == pytest.approx(1 / math.pi)


def test_effective_dimension_is_the_dense_computation():
    config = plain(agents=2, horizon=37, arms=3, dim=4, network="ntk")
    environment = make_environment(config)
    contexts = np.concatenate(
        [np.concatenate([environment.block(i, b).contexts for b in range(2)])[:37].reshape(-1, 4) for i in range(2)]
    )
    h, _ = dimensions.ntk(contexts, 2)
    expected = np.log(np.linalg.eigvalsh(np.eye(len(h)) + h / 0.7)).sum() / math.log(1 + 2 * 37 * 3 / 0.7)
    found, exact = dimensions.effective_dimension(environment, config, range(2), 0.7)
    assert exact
    assert found == pytest.approx(expected, rel=1e-9)
    local, _ = dimensions.effective_dimension(environment, config, range(1, 2), 0.7)
    half = h[111:, 111:]
    expected = np.log(np.linalg.eigvalsh(np.eye(111) + half / 0.7)).sum() / math.log(1 + 111 / 0.7)
    assert local == pytest.approx(expected, rel=1e-9)


def test_effective_dimension_of_a_standard_network_is_of_its_own_features():
    config = plain(agents=2, horizon=20, arms=3, dim=2, width=3)
    environment = make_environment(config)
    theta = Network(config, 2).initial_parameters(0).numpy()
    first, second = theta[:9].reshape(3, 3), theta[9:]
    rows = []
    for x in dimensions.contexts_of(environment, range(2), 20).x:
        z = first @ [*x, 1]
        # d f / d W_1 = w_2 1(z > 0) (x, 1)^T, d f / d (w_2, b_2) = (relu(z), 1)
        rows.append([*np.outer(second[:3] * (z > 0), [*x, 1]).ravel(), *np.maximum(z, 0), 1])
    gram = np.array(rows) @ np.array(rows).T
    expected = np.linalg.slogdet(np.eye(120) + gram / 0.7)[1] / math.log(1 + 120 / 0.7)
    assert dimensions.effective_dimension(environment, config, range(2), 0.7) == (
        pytest.approx(expected, rel=1e-9),
        True,
    )


def test_effective_dimension_on_raw_contexts():
    config = plain(algorithm="dislinucb", agents=2, horizon=20, dim=3)
    environment = make_environment(config)
    x = dimensions.contexts_of(environment, range(2), 20).x
    expected = np.linalg.slogdet(np.eye(3) + x.T @ x / 0.5)[1] / math.log(1 + 160 / 0.5)
    assert dimensions.effective_dimension(environment, config, range(2), 0.5)[0] == pytest.approx(expected, rel=1e-9)


def test_an_algorithm_without_features_is_refused():
    with pytest.raises(ValueError, match="algorithm='kernel-ucb': has no effective dimension here"):
        _ = theory.describe_theory(plain(algorithm="kernel-ucb")).effective_dimension


@pytest.mark.parametrize(("dim", "regularization"), [(4, 0.1), (4, 1.0), (10, 1.0)])
def test_the_approximation_is_close_to_the_exact_value(dim, regularization, monkeypatch):
    config = plain(agents=4, horizon=200, dim=dim, network="ntk")
    environment = make_environment(config)
    exact, is_exact = dimensions.effective_dimension(environment, config, range(4), regularization)
    monkeypatch.setattr(dimensions, "EXACT_CONTEXTS", 1000)
    monkeypatch.setattr(dimensions, "SAMPLE", 800)
    approximate, claims = dimensions.effective_dimension(environment, config, range(4), regularization)
    assert (is_exact, claims) == (True, False)
    assert approximate == pytest.approx(exact, rel=0.12)


def test_the_approximation_for_a_standard_network(monkeypatch):
    config = plain(agents=4, horizon=400, width=8)
    environment = make_environment(config)
    exact, is_exact = dimensions.effective_dimension(environment, config, range(4), 1.0)
    monkeypatch.setattr(dimensions, "EXACT_WORK", 0.0)
    monkeypatch.setattr(dimensions, "SAMPLE", 800)
    approximate, claims = dimensions.effective_dimension(environment, config, range(4), 1.0)
    assert (is_exact, claims) == (True, False)
    assert approximate == pytest.approx(exact, rel=0.05)


def test_the_sample_is_of_these_agents_contexts():
    config = plain(agents=3, horizon=40, dim=3)
    environment = make_environment(config)
    everything = dimensions.contexts_of(environment, range(1, 3), 40)
    sample = dimensions.receive_contexts(environment, config, range(1, 3), 100)
    assert (len(everything.x), everything.total, sample.total) == (320, 320, 320)
    values = {tuple(x): h for x, h in zip(everything.x, everything.h, strict=True)}
    assert len({tuple(x) for x in sample.x}) == 100
    assert [values[tuple(x)] for x in sample.x] == sample.h.tolist()


def test_norm_by_hand():
    # Two orthogonal unit vectors, L = 2: H = [[1.5, 1/pi], [1/pi, 1.5]]; for h = (1, 1), H^-1 h = h / (1.5 + 1/pi).
    h, _ = dimensions.ntk(np.eye(2), depth=2)
    assert dimensions.norm_of(np.ones(2), h) == pytest.approx(math.sqrt(2 * 2 / (1.5 + 1 / math.pi)), rel=1e-7)


def test_norm_with_a_context_that_stands_twice_is_of_the_pseudo_inverse():
    x = on_sphere(np.random.default_rng(0), 30, 4)
    x = np.concatenate([x, x[:5]])
    h = np.cos(3 * x[:, 0])
    matrix, _ = dimensions.ntk(x, 2)
    expected = math.sqrt(2 * h @ linalg.pinvh(matrix, rtol=1e-10) @ h)
    assert dimensions.norm_of(h, matrix) == pytest.approx(expected, rel=1e-4)
