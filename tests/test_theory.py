"""The theory's numbers against numerical integration, dense computation and the paper's formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import integrate

from fnbandit import Config, simulate, theory
from fnbandit.environments import make_environment
from fnbandit.environments.functions import on_sphere


@pytest.mark.parametrize("correlation", [-0.9, -0.3, 0.0, 0.5, 0.95])
@pytest.mark.parametrize("variances", [(1.0, 1.0), (0.5, 2.0)])
def test_closed_forms_agree_with_integration(correlation, variances):
    left, right = variances
    covariance = correlation * math.sqrt(left * right)
    relu, both = theory.arc_cosine(*(torch.tensor(v, dtype=torch.float64) for v in ([[covariance]], [left], [right])))
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
    h, tangent = theory.ntk(np.array([[0.6, 0.8]]), depth=3)
    assert tangent.item() == pytest.approx(3)
    assert h.item() == pytest.approx(2)
    # Two orthogonal unit vectors, L = 2: Sigma = 2 * 1/(2 pi), H~ = 2 * 0 * 1/4 + Sigma.
    h, _ = theory.ntk(np.eye(2), depth=2)
    assert h[0, 1] == pytest.approx(1 / math.pi)


def test_effective_dimension_is_the_dense_computation():
    config = Config(agents=2, horizon=37, arms=3, dim=4)
    environment = make_environment(config)
    contexts = np.concatenate(
        [np.concatenate([environment.block(i, b).contexts for b in range(2)])[:37].reshape(-1, 4) for i in range(2)]
    )
    h, _ = theory.ntk(contexts, 2)
    expected = np.log(np.linalg.eigvalsh(np.eye(len(h)) + h / 0.7)).sum() / math.log(1 + 2 * 37 * 3 / 0.7)
    found, exact = theory.effective_dimension(environment, config, range(2), 0.7)
    assert exact
    assert found == pytest.approx(expected, rel=1e-9)
    local, _ = theory.effective_dimension(environment, config, range(1, 2), 0.7)
    half = h[111:, 111:]
    expected = np.log(np.linalg.eigvalsh(np.eye(111) + half / 0.7)).sum() / math.log(1 + 111 / 0.7)
    assert local == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("dim", "regularization"), [(4, 0.1), (4, 1.0), (10, 1.0)])
def test_the_approximation_is_close_to_the_exact_value(dim, regularization, monkeypatch):
    config = Config(agents=4, horizon=200, dim=dim)
    environment = make_environment(config)
    exact, is_exact = theory.effective_dimension(environment, config, range(4), regularization)
    monkeypatch.setattr(theory, "EXACT_CONTEXTS", 1000)
    monkeypatch.setattr(theory, "SAMPLE", 800)
    approximate, claims = theory.effective_dimension(environment, config, range(4), regularization)
    assert (is_exact, claims) == (True, False)
    assert approximate == pytest.approx(exact, rel=0.12)


def test_the_sample_is_of_these_agents_contexts():
    config = Config(agents=3, horizon=40, dim=3)
    environment = make_environment(config)
    everything = {tuple(x) for x in theory.contexts_of(environment, range(1, 3), 40)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(theory, "SAMPLE", 100)
        sample = theory._sampled(environment, config, range(1, 3))
    assert len({tuple(x) for x in sample}) == 100
    assert {tuple(x) for x in sample} <= everything


def test_formulas_of_the_paper():
    config = Config.preset("theory", agents=3, horizon=50, dim=4, norm_bound=2.0, noise_bound=0.5, delta=0.3)
    numbers = theory.describe(config)
    lam, d, d_max = 1 + 2 / 50, numbers.effective_dimension, numbers.largest_local_dimension
    assert numbers.regularization == lam
    assert numbers.exact
    assert numbers.exploration_global == pytest.approx(
        2 + 0.5 * math.sqrt(2 * (math.log(3 / 0.3) + 1) + d * math.log(1 + 50 * 4 * 3 / lam))
    )
    assert numbers.exploration_local == pytest.approx(
        2 + 0.5 * math.sqrt(2 * (math.log(9 / 0.3) + 1) + d_max * math.log(1 + 50 * 4 / lam))
    )
    assert numbers.threshold == pytest.approx(50 / (3 * d))
    assert numbers.training_rate == pytest.approx(1 / (20 * lam + 20 * 50 * 2))
    # (1 - eta m lambda)^J sqrt(T L / lambda) T N <= 1/3, the condition that J serves
    remaining = (1 - numbers.training_rate * 20 * lam) ** numbers.training_steps
    assert remaining * math.sqrt(50 * 2 / lam) * 50 * 3 <= 1 / 3
    assert numbers.regret_bound == pytest.approx(d * math.sqrt(150) + d_max * 3 * math.sqrt(50))
    less = theory.describe(config.replace(algorithm="fn-ucb-less-comm"))
    assert less.regret_bound == pytest.approx(d * math.sqrt(150) + d_max * 3**1.5 * math.sqrt(50))


def test_rounds_stay_below_their_bound():
    config = Config.preset("theory", agents=2, horizon=60, dim=3, width=16, training_steps=3)
    assert 1 <= len(simulate(config).rounds) <= theory.describe(config).rounds_bound


def test_resolving_replaces_every_theory_by_its_number():
    config = Config.preset("theory", agents=2, horizon=20, dim=3)
    resolved = theory.resolve(config)
    numbers = theory.describe(config)
    for name in theory.THEORY_FIELDS:
        assert getattr(resolved, name) == getattr(numbers, name)
    assert resolved.weight == "theory"
    assert theory.resolve(Config()) == Config()
    assert theory.resolve(Config(regularization="theory", horizon=10)).regularization == 1.2
    with pytest.raises(ValueError, match="not resolved"):
        config.number("threshold")


def test_points_on_the_sphere_are_uniform():
    points = on_sphere(np.random.default_rng(0), 4000, 3)
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(points.T @ points / 4000, np.eye(3) / 3, atol=0.03)
