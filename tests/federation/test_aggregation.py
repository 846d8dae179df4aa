"""How the server combines networks: by hand, by scipy, and the same in every layout."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import torch
from helpers import plain

from fnbandit import simulate
from fnbandit.federation.aggregation import make_aggregation
from fnbandit.runs import Checkpointing, LocalRun
from fnbandit.storage.checkpoints import CheckpointStore

VALUES = torch.tensor([[0.0, 1.0], [2.0, 1.0], [4.0, 7.0], [90.0, -9.0], [4.0, 5.0]], dtype=torch.float64)
LAST = torch.zeros(2, dtype=torch.float64)


def combined(name: str, values: torch.Tensor = VALUES, **settings: float) -> list[float]:
    return make_aggregation(plain(aggregation=name, **settings))(values, LAST).tolist()


def test_rules_by_hand():
    assert combined("mean") == [20.0, 1.0]
    assert combined("median") == [4.0, 1.0]
    assert combined("median", VALUES[:4]) == [3.0, 1.0]
    # One of five at either end: (2 + 4 + 4) / 3 and (1 + 1 + 5) / 3.
    assert combined("trimmed-mean", trim=0.2) == pytest.approx([10 / 3, 7 / 3])
    # A tenth of five agents is nobody.
    assert combined("trimmed-mean", trim=0.1) == [20.0, 1.0]


def test_geometric_median_is_scipys():
    values = np.random.default_rng(0).normal(size=(9, 3)) * [1, 5, 20]
    found = combined("geometric-median", torch.from_numpy(values))
    expected = scipy.optimize.minimize(lambda z: np.linalg.norm(values - z, axis=1).sum(), values.mean(0), tol=1e-12).x
    np.testing.assert_allclose(found, expected, atol=2e-4)


def test_geometric_median_where_most_agents_agree():
    values = torch.tensor([[1.0, 2.0]] * 4 + [[9.0, 9.0]], dtype=torch.float64)
    np.testing.assert_allclose(combined("geometric-median", values), [1.0, 2.0], atol=1e-5)


def test_momentum_by_hand():
    rule = make_aggregation(plain(server_momentum=0.5))
    ones = torch.ones(3, 2, dtype=torch.float64)
    first = rule(4 * ones, torch.zeros(2, dtype=torch.float64))
    assert first.tolist() == [4.0, 4.0]
    # m = 0.5 * 4 + (5 - 4) = 3
    second = rule(5 * ones, first)
    assert second.tolist() == [7.0, 7.0]
    again = make_aggregation(plain(server_momentum=0.5))
    again.load(rule.state())
    assert again(ones, second).tolist() == rule(ones, second).tolist() == [2.5, 2.5]


RULES = [
    {"aggregation": "median"},
    {"aggregation": "trimmed-mean", "trim": 0.3},
    {"aggregation": "geometric-median", "server_momentum": 0.7},
]


@pytest.mark.parametrize("settings", RULES, ids=str)
def test_the_same_bits_in_any_grouping_and_other_choices_than_the_mean(settings):
    config = plain(agents=6, horizon=60, dim=5, width=8, ramp=20, training_rate=0.02, **settings)
    one, three = simulate(config), simulate(config, groups=3)
    np.testing.assert_array_equal(one.theta, three.theta)
    np.testing.assert_array_equal(one.arms, three.arms)
    assert not np.array_equal(one.theta, simulate(config.replace(aggregation="mean", server_momentum=0.0)).theta)


def test_momentum_survives_a_checkpoint(tmp_path):
    config = plain(agents=3, horizon=40, dim=4, width=6, ramp=10, training_rate=0.02, server_momentum=0.9)
    whole = simulate(config)
    location = str(tmp_path / "checkpoints")
    run = LocalRun(config, Checkpointing(location, seconds=0, rounds=7))
    for segment in run.segments():
        if segment.end == 20:
            break
    assert "federation.momentum" in CheckpointStore(location).latest().server
    resumed = LocalRun(config, Checkpointing(location), resume=True).result()
    np.testing.assert_array_equal(resumed.theta, whole.theta)
