"""Covariances against dense linear algebra, over long runs and for any sequence of updates."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fnbandit.covariance import (
    CHUNK,
    Diagonal,
    DiagonalEpoch,
    Full,
    FullEpoch,
    diagonal_gain,
    shrink,
    whole_tiles,
)

LIKE = torch.empty(0, dtype=torch.float64)


def rows(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


def relative(found: torch.Tensor, expected: np.ndarray) -> float:
    return float(np.abs(found.numpy() - expected).max() / np.abs(expected).max())


def test_after_5000_updates_the_inverse_is_exact():
    p, regularization = 30, 0.1
    covariance = Full(2, p, regularization, LIKE)
    dense = np.stack([regularization * np.eye(p)] * 2)
    for step in range(5000):
        new = rows(2, 1, p, seed=step) * 3
        covariance.absorb(new)
        dense += new.mT.numpy() @ new.numpy()
    for i in range(2):
        assert relative(covariance.inverse[i], np.linalg.inv(dense[i])) < 1e-8


def test_after_5000_rows_of_an_epoch_the_log_determinant_is_exact():
    p, regularization = 30, 0.1
    shared = Full(1, p, regularization, LIKE, shared=True)
    epoch = FullEpoch(2)
    epoch.start(shared, torch.zeros(p, dtype=torch.float64))
    dense = np.stack([regularization * np.eye(p)] * 2)
    for step in range(5000):
        x = rows(2, 3, p, seed=step)
        epoch.evaluate(x)
        arms = torch.tensor([step % 3, (step + 1) % 3])
        epoch.append(x, arms, torch.zeros(2, dtype=torch.float64))
        new = x[torch.arange(2), arms][:, None].numpy()
        dense += new.transpose(0, 2, 1) @ new
    expected = np.linalg.slogdet(dense)[1] - p * np.log(regularization)
    np.testing.assert_allclose(epoch.gain(), expected, rtol=1e-8)


@pytest.mark.parametrize("k", [1, 5, CHUNK, CHUNK + 3])
def test_absorbing_rows_returns_what_the_inverse_lost(k):
    covariance = Full(2, 7, 0.5, LIKE)
    covariance.absorb(rows(2, 3, 7))
    before = covariance.inverse.clone()
    new = rows(2, k, 7, seed=1)
    dense = np.linalg.inv(before.numpy()) + new.mT.numpy() @ new.numpy()
    change = covariance.absorb(new)
    assert change.shape == (2, k, 7)
    np.testing.assert_allclose(covariance.inverse, np.linalg.inv(dense), rtol=1e-9, atol=1e-12)
    copy = before.clone()
    shrink(copy, change)
    assert torch.equal(copy, covariance.inverse)


@pytest.mark.parametrize("shared", [False, True])
def test_every_form_of_an_inverse_answers_as_the_dense_one(shared):
    """Rows alone, then a matrix and rows, rows that come in small and in large numbers; saved and loaded in each."""
    p, count = 40, 1 if shared else 3
    full = Full(count, p, 0.3, LIKE, shared)
    dense = np.stack([0.3 * np.eye(p)] * count)
    forms = []
    for step, k in enumerate([1, 4, 1, 10, 3, 2, 1, 1, 30, 1, 150, 2]):
        new = rows(count, k, p, seed=step)
        before = np.linalg.inv(dense)
        change = full.absorb(new).numpy()
        dense += new.mT.numpy() @ new.numpy()
        inverse = np.linalg.inv(dense)
        np.testing.assert_allclose(before - change.transpose(0, 2, 1) @ change, inverse, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(full.inverse, inverse, rtol=1e-9, atol=1e-11)
        x = rows(3, 2, p, seed=100 + step)
        np.testing.assert_allclose(full.solve(x), x.numpy() @ inverse, rtol=1e-8, atol=1e-10)
        expected = np.einsum("nkp,npq,nkq->nk", x, np.broadcast_to(inverse, (3, p, p)), x)
        np.testing.assert_allclose(full.quadratic(x), expected, rtol=1e-8, atol=1e-10)
        copy = Full(count, p, 0.3, LIKE, shared)
        copy.load(full.state())
        assert torch.equal(copy.solve(x), full.solve(x))
        forms.append(("matrix" in full.state(), full.rows.shape[1]))
    # 40 parameters: at most 20 rows (shared: 30) without a matrix, at most 2 beside one.
    if shared:
        assert forms == [(False, r) for r in (1, 5, 6, 16, 19, 21, 22, 23)] + [(True, r) for r in (0, 1, 0, 2)]
    else:
        assert forms == [(False, r) for r in (1, 5, 6, 16, 19)] + [(True, r) for r in (2, 1, 2, 0, 1, 0, 2)]


@pytest.mark.parametrize("p", [30, 720])
@pytest.mark.parametrize("q", [1, 5, 64, None], ids=["1 row", "5 rows", "64 rows", "a matrix"])
def test_one_matrix_for_all_gives_each_agent_the_same_bits(p, q):
    matrix = rows(p, p) if q is None else rows(q, p).mT
    for k in (1, 2, 3, 4, 7, 10):
        x = rows(9, k, p, seed=k)
        together = whole_tiles(x) @ matrix
        torch.testing.assert_close(together[: 9 * k], x.flatten(0, 1) @ matrix)
        for i in range(9):
            for j in (1, 2):
                alone = whole_tiles(x[i : i + j].clone()) @ matrix
                assert torch.equal(alone[: j * k], together[i * k : (i + j) * k])


def test_full_and_diagonal_answer_the_same_questions():
    x = rows(3, 2, 4, seed=2)
    full, diagonal = Full(3, 4, 2.0, LIKE), Diagonal(3, 4, 2.0, LIKE)
    new = torch.zeros(3, 1, 4, dtype=torch.float64)
    new[:, 0, 1] = torch.tensor([1.0, 2.0, 3.0])  # one axis only: the two kinds agree
    full.absorb(new)
    diagonal.absorb(new.square().sum(1))
    torch.testing.assert_close(full.solve(x), diagonal.solve(x))
    torch.testing.assert_close(full.quadratic(x), diagonal.quadratic(x))
    # by hand: V = diag(2, 2 + 2^2, 2, 2) for the second
    expected = (x[1, 0] ** 2 / torch.tensor([2.0, 6.0, 2.0, 2.0])).sum()
    torch.testing.assert_close(full.quadratic(x)[1, 0], expected)


def dense_epoch(shared: np.ndarray, moments: np.ndarray, seen: list[np.ndarray], rewards: list[float]):
    v = shared + sum((np.outer(g, g) for g in seen), np.zeros_like(shared))
    b = moments + sum((y * g for y, g in zip(rewards, seen, strict=True)), np.zeros_like(moments))
    return np.linalg.inv(v), np.linalg.solve(v, b), np.linalg.slogdet(v)[1] - np.linalg.slogdet(shared)[1]


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    agents=st.integers(1, 3),
    p=st.integers(2, 6),
    steps=st.integers(1, 12),
    back=st.integers(0, 12),
    scale=st.sampled_from([0.01, 1.0, 30.0]),
    regularization=st.sampled_from([0.1, 1.0, 10.0]),
)
def test_an_epoch_is_the_shared_matrix_plus_own_rows(seed, agents, p, steps, back, scale, regularization):
    random = np.random.default_rng(seed)
    shared = Full(1, p, regularization, LIKE)
    old = rows(1, 4, p, seed=seed)
    shared.absorb(old)
    dense = regularization * np.eye(p) + old[0].mT.numpy() @ old[0].numpy()
    moments = random.standard_normal(p)
    epoch = FullEpoch(agents)
    epoch.start(shared, torch.from_numpy(np.linalg.solve(dense, moments)))
    seen: list[list[np.ndarray]] = [[] for _ in range(agents)]
    rewards: list[list[float]] = [[] for _ in range(agents)]
    for step in range(steps):
        if step == back % (steps + 1):
            epoch.truncate(step // 2)
            seen, rewards = [g[: step // 2] for g in seen], [y[: step // 2] for y in rewards]
        x = rows(agents, 3, p, seed=seed + step) * scale
        mean, variance = epoch.evaluate(x)
        arms = torch.from_numpy(random.integers(0, 3, agents))
        y = torch.from_numpy(random.standard_normal(agents))
        for i in range(agents):
            inverse, theta, _ = dense_epoch(dense, moments, seen[i], rewards[i])
            np.testing.assert_allclose(mean[i], x[i].numpy() @ theta, rtol=1e-7, atol=1e-8 * scale)
            quadratic = np.einsum("kp,pq,kq->k", x[i].numpy(), inverse, x[i].numpy())
            np.testing.assert_allclose(variance[i], quadratic, rtol=1e-7, atol=1e-9 * scale**2)
            seen[i].append(x[i, arms[i]].numpy())
            rewards[i].append(float(y[i]))
        epoch.append(x, arms, y)
        for i in range(agents):
            _, _, gain = dense_epoch(dense, moments, seen[i], rewards[i])
            assert epoch.gain()[i].item() == pytest.approx(gain, rel=1e-7, abs=1e-9)


def test_diagonal_epoch_by_hand():
    shared = Diagonal(1, 2, 1.0, LIKE)
    epoch = DiagonalEpoch(1)
    epoch.start(shared, torch.tensor([1.0, 0.0], dtype=torch.float64))
    x = torch.tensor([[[1.0, 2.0], [0.0, 1.0]]], dtype=torch.float64)
    mean, variance = epoch.evaluate(x)
    assert mean.tolist() == [[1.0, 0.0]]
    assert variance.tolist() == [[5.0, 1.0]]
    epoch.append(x, torch.tensor([0]), torch.tensor([2.0], dtype=torch.float64))
    # V = (2, 5), B = (1 + 2, 4): theta = (1.5, 0.8)
    mean, variance = epoch.evaluate(x)
    np.testing.assert_allclose(mean, [[3.1, 0.8]])
    np.testing.assert_allclose(variance, [[1 / 2 + 4 / 5, 1 / 5]])
    assert epoch.gain().item() == pytest.approx(np.log(2) + np.log(5))
    assert diagonal_gain(torch.tensor([[3.0]]), torch.tensor([[1.0]])).item() == pytest.approx(np.log(4))
