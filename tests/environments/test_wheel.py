"""The wheel bandit: by hand."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import plain

from fnbandit import simulate
from fnbandit.environments import make_environment
from fnbandit.environments.wheel import Wheel


def test_means_by_hand():
    wheel = Wheel(plain(environment="wheel", wheel_delta=0.5))
    points = np.array([[0.1, 0.2], [0.6, 0.6], [-0.6, 0.6], [-0.6, -0.6], [0.6, -0.6]])
    expected = [
        [1.2, 1, 1, 1, 1],
        [1.2, 50, 1, 1, 1],
        [1.2, 1, 1, 50, 1],
        [1.2, 1, 1, 1, 50],
        [1.2, 1, 50, 1, 1],
    ]
    np.testing.assert_array_equal(wheel.means(points), expected)


def test_contexts_are_a_point_of_the_disc_in_the_arms_block():
    wheel = make_environment(plain(environment="wheel"))
    blocks = [wheel.block(agent, index) for agent in range(4) for index in range(30)]
    points = []
    for block in blocks:
        assert block.contexts.shape == (32, 5, 15)
        by_arm = block.contexts.reshape(32, 5, 5, 3)
        for arm in range(5):
            np.testing.assert_array_equal(by_arm[:, arm, arm], by_arm[:, 0, 0])
            others = np.delete(by_arm[:, arm], arm, axis=1)
            assert not others.any()
        points.append(by_arm[:, 0, 0, :2])
        assert (by_arm[:, 0, 0, 2] == 1).all()
    radius = np.linalg.norm(np.concatenate(points), axis=1)
    assert radius.max() <= 1
    # Uniform in the disc: a quarter of the points within half the radius; 3840 points, five deviations.
    assert (radius < 0.5).mean() == pytest.approx(0.25, abs=5 * (0.25 * 0.75 / 3840) ** 0.5)
    assert wheel.domain(7).shape == (7, 15)


def test_random_arms_lose_what_they_must():
    delta = 0.8
    result = simulate(plain(environment="wheel", wheel_delta=delta, algorithm="random", agents=20, horizon=1000))
    inside, outside = 1.2 - (1.2 + 4) / 5, 50 - (50 + 1.2 + 3) / 5
    expected = delta**2 * inside + (1 - delta**2) * outside
    assert result.regret.mean() == pytest.approx(expected, rel=0.05)


def test_federation_learns_on_it():
    settings = {"environment": "wheel", "wheel_delta": 0.5, "agents": 5, "horizon": 200, "seed": 1}
    learned = simulate(plain(**settings, training_rate=1e-4, use_local=False))
    chance = simulate(plain(**settings, algorithm="random"))
    assert learned.regret.sum() < 0.5 * chance.regret.sum()
