"""The weight alpha of UCB^b by hand, and when UCB^a may be left alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers import LIKE, make_group, plain

from fnbandit import simulate
from fnbandit.covariance.diagonal import Diagonal
from fnbandit.covariance.full import Full
from fnbandit.environments import make_environment
from fnbandit.federation.alpha import DomainRatio


def group(**settings):
    """A group of two agents."""
    config = plain(**settings)
    return make_group(config, make_environment(config), range(2))


class Points:
    """An environment with a domain of nine points."""

    arms, dim = 3, 4

    def __init__(self, config):
        pass

    def domain(self, count):
        return np.random.default_rng(1).standard_normal((count, 4))


@pytest.mark.parametrize(
    ("settings", "iteration", "last", "expected"),
    [
        ({"weight": "ramp", "ramp": 4}, 1, 0, 0.0),
        ({"weight": "ramp", "ramp": 4}, 3, 0, 0.5),
        ({"weight": "ramp", "ramp": 4}, 5, 0, 1.0),
        ({"weight": "ramp", "ramp": 4}, 9, 0, 1.0),
        ({"weight": "constant", "weight_value": 0.3}, 1, 0, 0.3),
        ({"weight": "theory"}, 7, 5, 0.125),
        ({"weight": "theory", "first_iteration_only": True}, 6, 5, 0.125),
        ({"weight": "theory", "first_iteration_only": True}, 7, 5, 0.0),
        ({"use_local": False}, 50, 5, 0.0),
        ({"use_global": False}, 1, 0, 1.0),
        ({"use_local": False, "first_iteration_only": True}, 7, 5, 0.0),
        ({"use_global": False, "first_iteration_only": True}, 7, 5, 1.0),
    ],
)
def test_weights(settings, iteration, last, expected):
    agents = group(**settings)
    agents.replica.last_round, agents.replica.alpha = last, 0.125
    assert agents.alpha(iteration) == expected


def test_dislinucb_has_no_second_bound():
    result = simulate(plain(algorithm="dislinucb", agents=2, horizon=30))
    assert not result.alpha.any()


@pytest.mark.parametrize(
    ("settings", "iteration", "expected"),
    [
        ({"ramp": 10}, 10, True),
        ({"ramp": 10}, 11, False),
        ({"ramp": 10, "trigger": "period"}, 11, False),
        ({"ramp": 10, "trigger": "logdet"}, 11, True),
        ({"ramp": 10, "first_iteration_only": True}, 11, True),
        ({"ramp": 10, "diagonal": True}, 11, True),
        ({"weight": "theory"}, 1000, True),
        ({"use_global": False}, 1, False),
        ({"use_local": False}, 1000, True),
        ({"algorithm": "dislinucb"}, 1000, True),
    ],
)
def test_when_the_global_bound_is_needed(settings, iteration, expected):
    assert group(**settings).needs_global(iteration) is expected


@pytest.mark.parametrize("kind", [Full, Diagonal])
def test_domain_ratio_follows_the_local_covariances(kind):
    random = np.random.default_rng(0)
    config = plain(environment=f"{__name__}:Points", domain_sample=9)
    points = torch.from_numpy(Points(config).domain(9))
    local = kind(2, 4, 0.5, LIKE)
    weight = DomainRatio(config)
    weight.start(Points(config), lambda x: x, local, 2, LIKE)
    dense = np.stack([0.5 * np.eye(4)] * 2)
    for k in (1, 3):
        new = torch.from_numpy(random.standard_normal((2, k, 4)))
        outer = new.mT.numpy() @ new.numpy()
        dense += outer if kind is Full else outer * np.eye(4)
        weight.update_uncertainties(local, local.absorb(new if kind is Full else new.square().sum(1)))
        for i in range(2):
            deviations = [float(x @ np.linalg.inv(dense[i]) @ x) ** 0.5 for x in points.numpy()]
            assert weight.upload()[i].item() == pytest.approx(min(deviations) / max(deviations), rel=1e-9)
    other = DomainRatio(config)
    other.start(Points(config), lambda x: x, local, 2, LIKE)
    other.load(weight.state())
    assert torch.equal(other.upload(), weight.upload())


def test_a_domain_without_features_has_weight_0():
    weight = DomainRatio(plain(domain_sample=9))
    weight.start(Points(plain()), torch.zeros_like, Full(2, 4, 0.5, LIKE), 2, LIKE)
    assert weight.upload().tolist() == [0.0, 0.0]
