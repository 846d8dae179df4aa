"""Bounds and weights by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fnbandit import Config
from fnbandit.confidence import combined, global_bound, local_bound
from fnbandit.covariance import Diagonal, Full
from fnbandit.weighting import DomainRatio, needs_global, weight_at

LIKE = torch.empty(0, dtype=torch.float64)


def test_bounds_by_hand():
    mean, variance = torch.tensor([[1.0, 3.0, 2.0]]), torch.tensor([[4.0, 9.0, 16.0]])
    assert global_bound(mean, variance, 0.5, rescale=False).tolist() == [[2.0, 4.5, 4.0]]
    assert global_bound(mean, variance, 0.5, rescale=True).tolist() == [[1.0, 2.5, 2.5]]
    assert global_bound(torch.ones(1, 2), torch.zeros(1, 2), 0.5, rescale=True).tolist() == [[0.0, 0.0]]
    assert local_bound(mean, variance, 0.25).tolist() == [[2.0, 5.25, 6.0]]
    assert combined(mean, variance, 0.25).tolist() == [[1.75, 4.5, 5.5]]
    assert combined(mean, None, 0.0) is mean
    assert combined(None, variance, 1.0) is variance


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
        ({"algorithm": "dislinucb"}, 50, 5, 0.0),
    ],
)
def test_weights(settings, iteration, last, expected):
    assert weight_at(Config(**settings), iteration, last, 0.125) == expected


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
    assert needs_global(Config(**settings), iteration) is expected


def test_domain_ratio_follows_the_local_covariances():
    random = np.random.default_rng(0)
    points = torch.from_numpy(random.standard_normal((9, 4)))
    full = Full(2, 4, 0.5, LIKE)
    ratio = DomainRatio(points, full, 2)
    for k in (1, 3):
        ratio.shrink(full.absorb(torch.from_numpy(random.standard_normal((2, k, 4)))))
    for i in range(2):
        deviations = [float(x @ full.inverse[i] @ x) ** 0.5 for x in points]
        assert ratio.ratio()[i].item() == pytest.approx(min(deviations) / max(deviations), rel=1e-9)
    diagonal = Diagonal(2, 4, 0.5, LIKE)
    ratio = DomainRatio(points, diagonal, 2)
    diagonal.absorb(torch.from_numpy(random.random((2, 4))))
    ratio.replace(diagonal)
    for i in range(2):
        deviations = [float((x * x / diagonal.diagonal[i]).sum()) ** 0.5 for x in points]
        assert ratio.ratio()[i].item() == pytest.approx(min(deviations) / max(deviations), rel=1e-9)
