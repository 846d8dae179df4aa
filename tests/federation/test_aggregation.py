"""How the server combines networks: by hand, by scipy, and the same in every layout."""

from __future__ import annotations

import functools
import importlib.util
import sys
import types

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


def combined(name: str, values: torch.Tensor = VALUES, **settings: float) -> list[float]:
    return make_aggregation(plain(aggregation=name, **settings))(values, torch.zeros_like(values[0])).tolist()


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


def naive_krum(values: np.ndarray, liars: int) -> np.ndarray:
    """Krum's scores, sums over the nearest others, literally."""
    squares = [[float(((a - b) ** 2).sum()) for b in values] for a in values]
    nearest = len(values) - liars - 1
    return np.array([sum(sorted(row[:i] + row[i + 1 :])[:nearest]) for i, row in enumerate(squares)])


def test_krum_by_hand():
    # With one liar of five, the scores sum three squared distances; (4, 5) is nearest: 4 + 20 + 32 = 56 against
    # (2, 1): 4 + 20 + 40 = 64, (4, 7): 4 + 40 + 52 = 96 and (0, 1): 4 + 32 + 52 = 88.
    assert combined("krum", trim=0.2) == [4.0, 5.0]
    assert combined("multi-krum", trim=0.2) == [2.5, 3.5]
    values = np.random.default_rng(1).normal(size=(11, 4))
    scores = naive_krum(values, 3)
    assert combined("krum", torch.from_numpy(values), trim=0.3) == values[scores.argmin()].tolist()
    best = values[np.argsort(scores)[:8]].mean(0)
    assert combined("multi-krum", torch.from_numpy(values), trim=0.3) == pytest.approx(best.tolist())


def test_centered_clipping_by_hand():
    values = torch.tensor([[3.0, 4.0], [0.0, 0.0], [0.0, 1.0], [0.0, 100.0]], dtype=torch.float64)
    # From 0 with tau = 2: changes of (1.2, 1.6), 0, (0, 1), (0, 2) have the mean (0.3, 1.15), and so on, three times.
    point = np.zeros(2)
    for _ in range(3):
        steps = [(v - point) * min(1, 2 / max(1e-9, np.linalg.norm(v - point))) for v in values.numpy()]
        point = point + np.mean(steps, axis=0)
    assert combined("centered-clipping", values, clipping_radius=2.0) == pytest.approx(point.tolist())
    assert combined("centered-clipping", torch.full((3, 2), 7.0, dtype=torch.float64)) == pytest.approx([7.0, 7.0])


def test_neighbour_mixing_by_hand():
    # f = 1 of five: an agent's four nearest, itself included, leave out (90, -9); its own leave out (0, 1).
    # Then one of five is trimmed at each end of every coordinate.
    assert combined("neighbour-mixing", trim=0.2) == pytest.approx([2.5, 3.5])


@pytest.mark.parametrize("liars", [0, 1, 3])
def test_rules_are_byzfls(liars):
    """byzfl's module of rules, where it is installed; the package imports torchvision, which they do not use."""
    byzfl = import_rules_of_byzfl()
    values = torch.from_numpy(np.random.default_rng(liars).normal(size=(10, 5)) * [1, 2, 3, 4, 5])
    theirs = {
        "krum": byzfl.Krum(liars),
        "multi-krum": byzfl.MultiKrum(liars),
        "trimmed-mean": byzfl.TrMean(liars),
        "centered-clipping": byzfl.CenteredClipping(L=3, tau=3.0),
        "neighbour-mixing": lambda values: byzfl.TrMean(liars)(byzfl.NNM(liars)(values)),
    }
    for name, rule in theirs.items():
        found = combined(name, values, trim=liars / 10, clipping_radius=3.0)
        np.testing.assert_allclose(found, rule(values.float()), rtol=1e-4, atol=1e-5, err_msg=name)


@functools.cache
def import_rules_of_byzfl():
    """byzfl.aggregators without the package's other modules; skips where byzfl is not installed."""
    found = importlib.util.find_spec("byzfl")
    if found is None:
        pytest.skip("byzfl is not installed: pip install --no-deps byzfl==0.0.11")
    package = types.ModuleType("byzfl")
    package.__path__ = found.submodule_search_locations
    sys.modules["byzfl"] = package
    return importlib.import_module("byzfl.aggregators")


RULES = [
    {"aggregation": "median"},
    {"aggregation": "trimmed-mean", "trim": 0.3},
    {"aggregation": "geometric-median", "server_momentum": 0.7},
    {"aggregation": "multi-krum", "trim": 0.2},
    {"aggregation": "centered-clipping"},
    {"aggregation": "neighbour-mixing", "trim": 0.2},
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
