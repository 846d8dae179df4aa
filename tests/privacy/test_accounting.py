"""Costs and epsilon: closed forms from scipy, and another accountant of the same events."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from fnbandit import Config
from fnbandit.privacy.accounting import find_epsilon, find_noise
from fnbandit.privacy.releases import plan_releases

ALLOWED = {"agents": 20, "horizon": 40, "privacy": "local", "privacy_allow_noise": True, "trigger": "geometric"}
CONFIGS = {
    "networks": {"algorithm": "fedigw"},
    "averagings": {"algorithm": "fedigw", "averagings": 3},
    "gradients": {"algorithm": "fedigw", "federation": "gradients", "training_steps": 4, "reward_unit": "one"},
    "statistics": {"algorithm": "dislinucb"},
    "tree": {"algorithm": "dislinucb", "privacy_factorization": "tree"},
    "both": {"algorithm": "fn-linear", "reward_unit": "one", "stop_training_after": 10},
}


def make(name: str, **changes: object) -> Config:
    return Config(**(ALLOWED | CONFIGS[name] | changes))


def delta_of(noise: float, epsilon: float) -> float:
    """Balle and Wang 2018, Theorem 8: delta of one Gaussian release of sensitivity 1."""
    return norm.cdf(0.5 / noise - epsilon * noise) - math.exp(epsilon) * norm.cdf(-0.5 / noise - epsilon * noise)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.3, 1e-5), (1.0, 1e-5), (1.0, 1e-6), (8.0, 1e-5), (0.2, 0.1)])
def test_the_noise_of_one_release_solves_the_closed_form(epsilon, delta):
    noise = find_noise(epsilon, delta)
    assert delta_of(noise, epsilon) == pytest.approx(delta, rel=1e-6)
    assert find_epsilon(1 / noise**2, delta) == pytest.approx(epsilon, rel=1e-6)


@pytest.mark.parametrize("name", CONFIGS)
def test_all_releases_together_cost_the_stated_epsilon(name):
    config = make(name)
    releases = plan_releases(config)
    assert releases.cost(config.horizon) == pytest.approx(1 / releases.noise**2)
    assert find_epsilon(releases.cost(config.horizon), config.privacy_delta) == pytest.approx(config.privacy_epsilon)
    costs = [releases.cost(t) for t in range(config.horizon + 1)]
    assert costs[0] == 0 and costs == sorted(costs) and find_epsilon(costs[0], 1e-5) == 0


def test_rounds_and_exchanges_are_counted_by_hand():
    """Rounds of growing gaps are after 1, 3, 7, 15, 31; training_steps=auto trains in all of them, here."""
    assert plan_releases(make("networks")).network_exchanges == dict.fromkeys((1, 3, 7, 15, 31), 1)
    assert plan_releases(make("averagings")).networks == 15
    assert plan_releases(make("gradients")).networks == 20
    assert plan_releases(make("statistics")).places == {t: (0, k) for k, t in enumerate((1, 3, 7, 15, 31))}
    both = plan_releases(make("both"))
    # Features change after 1, 3 and 7; the statistics of the rounds after that continue a sequence.
    assert both.network_exchanges == {1: 1, 3: 1, 7: 1} and both.sequences == (1, 1, 3)
    assert both.places == {1: (0, 0), 3: (1, 0), 7: (2, 0), 15: (2, 1), 31: (2, 2)}


@pytest.mark.parametrize("name", ["networks", "statistics", "both"])
def test_another_accountant_agrees(name):
    """Privacy loss distributions (dp_accounting.pld) of the releases as events, whose epsilon is rounded upwards."""
    import dp_accounting

    config = make(name)
    releases = plan_releases(config)
    events = [dp_accounting.GaussianDpEvent(releases.network_noise)] * releases.networks
    for length in releases.sequences:
        # A sequence is one release of E x, with noise of all of its draws.
        sensitivity = releases.factorization(length).sensitivity
        events.append(dp_accounting.GaussianDpEvent(releases.statistics_noise / sensitivity))
    accountant = dp_accounting.pld.PLDAccountant()
    accountant.compose(dp_accounting.ComposedDpEvent(events))
    found = accountant.get_epsilon(config.privacy_delta)
    assert config.privacy_epsilon == pytest.approx(found, rel=1e-2) and found >= config.privacy_epsilon - 1e-4


def test_noise_grows_with_the_root_of_the_releases():
    rare, often = (plan_releases(make("networks", trigger="period", period=period)) for period in (40, 10))
    assert (rare.networks, often.networks) == (1, 4)
    assert often.network_noise == pytest.approx(2 * rare.network_noise) and rare.network_noise == rare.noise
    one = plan_releases(make("statistics", trigger="period", period=10))
    c = np.array([1, 1 / 2, 3 / 8, 5 / 16])
    assert one.statistics_noise == pytest.approx(one.noise * math.sqrt((c**2).sum()))
