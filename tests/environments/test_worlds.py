"""Agents that differ and tasks that drift: every formula by hand, and the same bits in every grouping."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import assert_same, plain

from fnbandit import simulate
from fnbandit.environments import make_environment
from fnbandit.numerics.randomness import BLOCK, Purpose, generator

CLUSTERS = {"heterogeneity": "clusters", "groups": 2}
PERSONAL = {"heterogeneity": "personal", "personal_share": 0.25}


def direction(block, inverse):
    """The a of h(<a, x>) by which a block was made, found by least squares from its contexts and rewards."""
    x = block.contexts.reshape(-1, block.contexts.shape[2])
    found, residuals, rank, _ = np.linalg.lstsq(x, inverse(block.means.ravel()), rcond=None)
    assert rank == x.shape[1]
    assert residuals.sum() < 1e-16
    return found


def linear(x):
    """A reward function that shows its own direction."""
    return x @ np.arange(1.0, x.shape[1] + 1)


def world(**settings):
    return make_environment(plain(environment="test_worlds:linear", dim=4, horizon=100, **settings))


def identity(values):
    return values


def test_contexts_and_noise_are_those_of_the_task():
    for settings in (CLUSTERS, PERSONAL, {"drift": "rotate"}, {"drift": "switch"}):
        one, other = world().block(3, 1), world(**settings).block(3, 1)
        np.testing.assert_array_equal(one.contexts, other.contexts)
        np.testing.assert_array_equal(one.noise, other.noise)


def test_clusters_share_a_direction_of_equal_length():
    environment = world(**CLUSTERS)
    a = [direction(environment.block(agent, 0), identity) for agent in range(4)]
    np.testing.assert_allclose(a[0], [1, 2, 3, 4], atol=1e-12)
    np.testing.assert_allclose(a[1], a[3], atol=1e-12)
    np.testing.assert_allclose(a[2], a[0], atol=1e-12)
    assert np.linalg.norm(a[1]) == pytest.approx(np.linalg.norm(a[0]))
    assert np.abs(a[1] - a[0]).max() > 0.5
    other_seed = direction(world(**CLUSTERS, seed=1).block(1, 0), identity)
    assert np.abs(other_seed - a[1]).max() > 0.5


def test_directions_of_groups_are_uniform_on_the_sphere():
    """The mean of 400 uniform directions is 0 within 4 standard errors, and their second moment is |a|^2 / d."""
    environment = world(heterogeneity="clusters", groups=401)
    a = np.array([direction(environment.block(agent, 0), identity) for agent in range(1, 401)])
    size = 30 / 4  # |a|^2 / d
    assert np.abs(a.mean(0)).max() < 4 * np.sqrt(size / 400)
    np.testing.assert_allclose(a.T @ a / 400, size * np.eye(4), atol=4 * size * np.sqrt(2 / 400))


def test_personal_rewards_are_a_mixture():
    environment, whole = world(**PERSONAL), world(heterogeneity="personal", personal_share=1.0)
    for agent in (0, 2):
        own = direction(whole.block(agent, 0), identity)
        mixed = direction(environment.block(agent, 0), identity)
        np.testing.assert_allclose(mixed, 0.75 * np.array([1, 2, 3, 4]) + 0.25 * own, atol=1e-12)
        assert np.linalg.norm(own) == pytest.approx(30**0.5)
    assert np.abs(direction(whole.block(0, 0), identity) - direction(whole.block(2, 0), identity)).max() > 0.5
    none = world(heterogeneity="personal", personal_share=0.0)
    np.testing.assert_array_equal(none.block(5, 0).means, world().block(5, 0).means)


def test_cosine_has_another_a_per_group():
    config = plain(environment="cosine", horizon=50, **CLUSTERS)
    a = generator(config.seed, Purpose.TASK).standard_normal(10)
    a /= np.linalg.norm(a)
    block, other = (make_environment(config).block(agent, 0) for agent in (2, 1))
    np.testing.assert_allclose(block.means, np.cos(3 * block.contexts @ a), atol=1e-12)
    assert np.abs(other.means - np.cos(3 * other.contexts @ a)).max() > 0.5
    # R is a function of (seed, purpose, variant), uniform: the signs make it independent of LAPACK's conventions.
    q, r = np.linalg.qr(generator(config.seed, Purpose.VARIANT, 1).standard_normal((10, 10)))
    rotated = other.contexts @ (q * np.sign(np.diag(r))).T
    np.testing.assert_allclose(other.means, np.cos(3 * rotated @ a), atol=1e-12)


@pytest.mark.parametrize("dim", [4, 5])
def test_a_rotating_direction(dim):
    """a(t) = cos(w t) a + sin(w t) b with b orthogonal to a; in an odd dimension of the part of a that turns."""
    rate = 0.02
    settings = {"environment": "test_worlds:linear", "dim": dim, "arms": 6, "drift": "rotate", "drift_rate": rate}
    environment = make_environment(plain(**settings))
    a = np.arange(1.0, dim + 1)
    blocks = [environment.block(0, 0), environment.block(0, 1)]
    contexts = np.concatenate([block.contexts for block in blocks])
    means = np.concatenate([block.means for block in blocks])
    found = np.array([np.linalg.lstsq(x, y, rcond=None)[0] for x, y in zip(contexts, means, strict=True)])
    angles = rate * np.arange(1, 2 * BLOCK + 1)
    # The path is a sum of a constant, a cosine and a sine, whose coefficients are found by least squares.
    waves = np.column_stack([np.ones_like(angles), np.cos(angles), np.sin(angles)])
    (constant, start, side), *_ = np.linalg.lstsq(waves, found, rcond=None)
    np.testing.assert_allclose(waves @ [constant, start, side], found, atol=1e-8)
    np.testing.assert_allclose(constant + start, a, atol=1e-7)
    np.testing.assert_allclose(start @ side, 0, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(start), np.linalg.norm(side), rtol=1e-6)
    if dim % 2 == 0:
        np.testing.assert_allclose(constant, 0, atol=1e-6)


def test_a_switch_at_half_time():
    environment = world(drift="switch")
    plain_means = world().block(1, 1).means
    means = environment.block(1, 1).means  # iterations 33 to 64; T/2 is 50
    np.testing.assert_array_equal(means[:18], plain_means[:18])
    assert np.abs(means[18:] - plain_means[18:]).min() > 1e-6
    after = direction(environment.block(0, 2), identity)
    assert after @ [1, 2, 3, 4] == pytest.approx(0, abs=1e-10)
    assert np.linalg.norm(after) == pytest.approx(30**0.5)


def test_clusters_drift_together():
    """Each group's direction turns by the same angle: inner products of groups' directions stay."""
    still, moved = world(**CLUSTERS), world(**CLUSTERS, drift="switch")
    before = [direction(still.block(agent, 2), identity) for agent in (0, 1)]
    after = [direction(moved.block(agent, 2), identity) for agent in (0, 1)]
    for one, other in zip(before, after, strict=True):
        assert one @ other == pytest.approx(0, abs=1e-9)
    assert before[0] @ before[1] == pytest.approx(after[0] @ after[1])


@pytest.mark.parametrize("environment", ["shuttle", "wheel"])
def test_arms_exchange_their_rewards_where_contexts_tell_them_apart(environment):
    config = plain(environment=environment, horizon=64, heterogeneity="clusters", groups=3)
    same = make_environment(plain(environment=environment, horizon=64))
    other = make_environment(config)
    np.testing.assert_array_equal(other.block(3, 0).means, same.block(3, 0).means)
    one, exchanged = same.block(1, 0).means, other.block(1, 0).means
    np.testing.assert_array_equal(np.sort(one, axis=1), np.sort(exchanged, axis=1))
    assert (one != exchanged).any()
    columns = {tuple(column) for column in one.T}
    assert {tuple(column) for column in exchanged.T} == columns
    drifting = make_environment(plain(environment=environment, horizon=64, drift="rotate", drift_rate=0.05))
    share = np.sin(0.05 * np.arange(1, BLOCK + 1))[:, None] ** 2
    end = make_environment(plain(environment=environment, horizon=1, drift="switch")).block(1, 0).means
    np.testing.assert_allclose(drifting.block(1, 0).means, (1 - share) * one + share * end, atol=1e-12)


def test_two_arms_do_exchange():
    config = plain(environment="magic", heterogeneity="clusters", groups=2)
    same = make_environment(plain(environment="magic")).block(1, 0).means
    np.testing.assert_array_equal(make_environment(config).block(1, 0).means, 1 - same)


@pytest.mark.parametrize(
    "settings", [CLUSTERS, PERSONAL | {"drift": "rotate", "drift_rate": 0.05}, {"drift": "switch"}], ids=str
)
def test_any_grouping_and_regret_against_the_own_best_arm(settings):
    config = plain(agents=5, horizon=40, training_steps=2, **settings)
    result = simulate(config)
    assert_same(result, simulate(config, groups=3))
    environment = make_environment(config)
    for agent in range(5):
        means = np.concatenate([environment.block(agent, index).means for index in (0, 1)])[:40]
        pulled = means[np.arange(40), result.arms[:, agent]]
        np.testing.assert_allclose(result.regret[:, agent], means.max(1) - pulled, atol=1e-12)
        assert (result.regret[:, agent] >= 0).all()


def own_difference(config):
    from fnbandit.environments.worlds import SameTask

    class Halves(SameTask):
        has_variants = True

        def mix(self, agent):
            return [(0.5, 0), (0.5, 1)]

    return Halves(config)


class Bare:
    """A user's task that does not tell how it could differ."""

    arms, dim = 2, 2

    def __init__(self, config):
        pass

    def block(self, agent, index):
        raise NotImplementedError

    def domain(self, count):
        raise NotImplementedError


@pytest.mark.parametrize(
    ("settings", "pattern"),
    [
        ({"environment": "test_worlds:Bare", **CLUSTERS}, "heterogeneity='clusters': .*Bare' has neither `rewards`"),
        ({"environment": "test_worlds:Bare", "drift": "switch"}, "drift='switch': .*Bare' has neither"),
        ({"heterogeneity": "domain"}, "heterogeneity='domain': environment='cosine' has no domains"),
        ({"drift": "rotate", "dim": 1}, "dim=1: drift=rotate"),
        ({"heterogeneity": "cluster"}, "heterogeneity='cluster' is unknown .did you mean 'clusters'"),
        ({"personal_share": 1.5}, "personal_share=1.5"),
        ({"drift_rate": 0.0}, "drift_rate=0.0"),
    ],
)
def test_worlds_that_cannot_be(settings, pattern):
    with pytest.raises(ValueError, match=pattern) as caught:
        make_environment(plain(**settings))
    assert "\n" not in str(caught.value)


def test_an_own_difference():
    environment = world(heterogeneity="test_worlds:own_difference")
    second = direction(world(heterogeneity="clusters", groups=2).block(1, 0), identity)
    found = direction(environment.block(0, 0), identity)
    np.testing.assert_allclose(found, (np.array([1, 2, 3, 4]) + second) / 2, atol=1e-12)
