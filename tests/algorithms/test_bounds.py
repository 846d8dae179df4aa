"""Bounds by hand."""

from __future__ import annotations

import torch

from fnbandit.algorithms.bounds import combine_bounds, global_bound, local_bound


def test_bounds_by_hand():
    mean, variance = torch.tensor([[1.0, 3.0, 2.0]]), torch.tensor([[4.0, 9.0, 16.0]])
    assert global_bound(mean, variance, 0.5, rescale=False).tolist() == [[2.0, 4.5, 4.0]]
    assert global_bound(mean, variance, 0.5, rescale=True).tolist() == [[1.0, 2.5, 2.5]]
    assert global_bound(torch.ones(1, 2), torch.zeros(1, 2), 0.5, rescale=True).tolist() == [[0.0, 0.0]]
    assert local_bound(mean, variance, 0.25).tolist() == [[2.0, 5.25, 6.0]]
    assert combine_bounds(mean, variance, 0.25).tolist() == [[1.75, 4.5, 5.5]]
    assert combine_bounds(mean, None, 0.0) is mean
    assert combine_bounds(None, variance, 1.0) is variance
