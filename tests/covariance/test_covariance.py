"""Covariances against dense linear algebra, over long runs and for any sequence of updates."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers import LIKE, rows
from hypothesis import given, settings
from hypothesis import strategies as st

from fnbandit.core import Rows
from fnbandit.covariance import diagonal, full
from fnbandit.covariance.diagonal import Diagonal, DiagonalEstimate
from fnbandit.covariance.estimate import FullEstimate
from fnbandit.covariance.full import CHUNK, Full, downdate_in_chunks


def itself(x: torch.Tensor) -> torch.Tensor:
    """The lift of contexts that are features already."""
    return x


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
    epoch = FullEstimate(p, regularization, LIKE, itself).epoch(2)
    dense = np.stack([regularization * np.eye(p)] * 2)
    for step in range(5000):
        x = rows(2, 3, p, seed=step)
        found = epoch.evaluate(x)
        arms = torch.tensor([step % 3, (step + 1) % 3])
        epoch.append(x, x, arms, torch.zeros(2, dtype=torch.float64), found)
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
    downdate_in_chunks(copy, change)
    assert torch.equal(copy, covariance.inverse)


@pytest.mark.parametrize("shared", [False, True])
def test_every_form_of_an_inverse_answers_as_the_dense_one(shared):
    """Rows alone, then a matrix and rows, rows that come in small and in large numbers; saved and loaded in each."""
    p, count = 40, 1 if shared else 3
    kept = Full(count, p, 0.3, LIKE, shared=shared)
    dense = np.stack([0.3 * np.eye(p)] * count)
    forms = []
    for step, k in enumerate([1, 4, 1, 10, 3, 2, 1, 1, 30, 1, 150, 2]):
        new = rows(count, k, p, seed=step)
        before = np.linalg.inv(dense)
        change = kept.absorb(new).numpy()
        dense += new.mT.numpy() @ new.numpy()
        inverse = np.linalg.inv(dense)
        np.testing.assert_allclose(before - change.transpose(0, 2, 1) @ change, inverse, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(kept.inverse, inverse, rtol=1e-9, atol=1e-11)
        x = rows(3, 2, p, seed=100 + step)
        np.testing.assert_allclose(kept.solve(x), x.numpy() @ inverse, rtol=1e-8, atol=1e-10)
        expected = np.einsum("nkp,npq,nkq->nk", x, np.broadcast_to(inverse, (3, p, p)), x)
        np.testing.assert_allclose(kept.quadratic(x), expected, rtol=1e-8, atol=1e-10)
        copy = Full(count, p, 0.3, LIKE, shared=shared)
        copy.load(kept.state())
        assert torch.equal(copy.solve(x), kept.solve(x))
        forms.append(("matrix" in kept.state(), kept.rows.shape[1]))
    # 40 parameters: at most 20 rows (shared: 30) without a matrix, at most 2 beside one.
    if shared:
        assert forms == [(False, r) for r in (1, 5, 6, 16, 19, 21, 22, 23)] + [(True, r) for r in (0, 1, 0, 2)]
    else:
        assert forms == [(False, r) for r in (1, 5, 6, 16, 19)] + [(True, r) for r in (2, 1, 2, 0, 1, 0, 2)]


def test_full_and_diagonal_answer_the_same_questions():
    x = rows(3, 2, 4, seed=2)
    whole, part = Full(3, 4, 2.0, LIKE), Diagonal(3, 4, 2.0, LIKE)
    new = torch.zeros(3, 1, 4, dtype=torch.float64)
    new[:, 0, 1] = torch.tensor([1.0, 2.0, 3.0])  # one axis only: the two kinds agree
    whole.absorb(new)
    part.absorb(new.square().sum(1))
    torch.testing.assert_close(whole.solve(x), part.solve(x))
    torch.testing.assert_close(whole.quadratic(x), part.quadratic(x))
    # by hand: V = diag(2, 2 + 2^2, 2, 2) for the second
    expected = (x[1, 0] ** 2 / torch.tensor([2.0, 6.0, 2.0, 2.0])).sum()
    torch.testing.assert_close(whole.quadratic(x)[1, 0], expected)
    for kind in (whole, part):
        before = kind.quadratic(x)
        kind.absorb_rows(new)
        assert (kind.quadratic(x) < before).all()
    torch.testing.assert_close(whole.solve(x), part.solve(x))


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
    old = rows(4, p, seed=seed)
    dense = regularization * np.eye(p) + old.mT.numpy() @ old.numpy()
    moments = random.standard_normal(p)
    shared = FullEstimate(p, regularization, LIKE, itself, track_diagonal=back == 12)
    shared.apply(Rows(old), torch.from_numpy(moments))
    epoch = shared.epoch(agents)
    seen: list[list[np.ndarray]] = [[] for _ in range(agents)]
    rewards: list[list[float]] = [[] for _ in range(agents)]
    for step in range(steps):
        if step == back % (steps + 1) and back < 12:
            assert epoch.truncate(step // 2)
            seen, rewards = [g[: step // 2] for g in seen], [y[: step // 2] for y in rewards]
        x = rows(agents, 3, p, seed=seed + step) * scale
        found = epoch.evaluate(x)
        arms = torch.from_numpy(random.integers(0, 3, agents))
        y = torch.from_numpy(random.standard_normal(agents))
        for i in range(agents):
            inverse, theta, _ = dense_epoch(dense, moments, seen[i], rewards[i])
            np.testing.assert_allclose(found.mean[i], x[i].numpy() @ theta, rtol=1e-7, atol=1e-8 * scale)
            quadratic = np.einsum("kp,pq,kq->k", x[i].numpy(), inverse, x[i].numpy())
            np.testing.assert_allclose(found.variance[i], quadratic, rtol=1e-7, atol=1e-9 * scale**2)
            seen[i].append(x[i, arms[i]].numpy())
            rewards[i].append(float(y[i]))
        epoch.append(x, x, arms, y, found)
        for i in range(agents):
            _, _, gain = dense_epoch(dense, moments, seen[i], rewards[i])
            assert epoch.gain()[i].item() == pytest.approx(gain, rel=1e-7, abs=1e-9)
            if back == 12:
                grown = 1 + np.sum(np.square(seen[i]), axis=0) / np.diag(dense)
                assert epoch.diagonal_gain()[i].item() == pytest.approx(np.log(grown).sum(), rel=1e-9)
    assert epoch.length == len(seen[0])
    np.testing.assert_array_equal(epoch.update(), np.array(seen))
    new_moments = epoch.moments(torch.tensor(rewards, dtype=torch.float64))
    expected = np.einsum("nk,nkp->np", np.array(rewards), np.array(seen))
    np.testing.assert_allclose(new_moments, expected, rtol=1e-9, atol=1e-9 * scale)


def test_diagonal_epoch_by_hand():
    shared = DiagonalEstimate(2, 1.0, LIKE, itself)
    shared.apply(torch.zeros(2, dtype=torch.float64), torch.tensor([1.0, 0.0], dtype=torch.float64))
    epoch = shared.epoch(1)
    x = torch.tensor([[[1.0, 2.0], [0.0, 1.0]]], dtype=torch.float64)
    found = epoch.evaluate(x)
    assert found.mean.tolist() == [[1.0, 0.0]]
    assert found.variance.tolist() == [[5.0, 1.0]]
    epoch.append(x, x, torch.tensor([0]), torch.tensor([2.0], dtype=torch.float64), found)
    # V = (2, 5), B = (1 + 2, 4): theta = (1.5, 0.8)
    found = epoch.evaluate(x)
    np.testing.assert_allclose(found.mean, [[3.1, 0.8]])
    np.testing.assert_allclose(found.variance, [[1 / 2 + 4 / 5, 1 / 5]])
    assert epoch.gain().item() == pytest.approx(np.log(2) + np.log(5))
    assert epoch.diagonal_gain().item() == pytest.approx(np.log(2) + np.log(5))
    assert epoch.update().tolist() == [[1.0, 4.0]]
    assert epoch.moments(torch.tensor([[2.0]])).tolist() == [[2.0, 4.0]]
    assert (epoch.truncate(1), epoch.truncate(0)) == (True, False)


def test_an_epoch_that_tracks_its_diagonal_asks_to_be_replayed():
    epoch = FullEstimate(3, 1.0, LIKE, itself, track_diagonal=True).epoch(1)
    for _ in range(2):
        x = rows(1, 2, 3)
        epoch.append(x, x, torch.tensor([0]), torch.zeros(1, dtype=torch.float64), epoch.evaluate(x))
    assert epoch.truncate(2)
    assert not epoch.truncate(1)


@pytest.mark.parametrize("kind", [full, diagonal])
def test_inverses_that_all_agents_hear_of(kind):
    """Three agents absorb rows in two rounds; all inverses, and their mean, against numpy."""
    agents, p, regularization = 3, 5, 0.5
    is_full = kind is full
    all_inverses = full.AllInverses if is_full else diagonal.AllDiagonalInverses
    mean_inverse = full.MeanInverse if is_full else diagonal.MeanDiagonalInverse
    every = all_inverses(agents, p, regularization, LIKE, itself)
    mean = mean_inverse(agents, p, regularization, LIKE, itself)
    elsewhere = all_inverses(agents, p, regularization, LIKE, itself)
    local = {id(shared): shared.local(range(agents)) for shared in (every, mean)}
    dense = np.stack([regularization * np.eye(p)] * agents)
    x = rows(2, 4, p, seed=9)
    for seed in range(2):
        new = rows(agents, 2, p, seed=seed)
        outer = new.mT.numpy() @ new.numpy()
        dense += outer if kind is full else outer * np.eye(p)
        for shared in (every, mean):
            change = local[id(shared)].absorb(new if kind is full else new.square().sum(1))
            way = shared.sum(2)
            combined = shared.combine(way.total([(range(agents), way.parts(range(agents), change.clone()))]))
            shared.apply(combined, own=range(agents))
            if shared is every:
                elsewhere.apply(combined, own=range(0))
        inverses = np.linalg.inv(dense)
        squares = np.einsum("nkp,apq,nkq->nka", x, inverses, x)
        np.testing.assert_allclose(every.deviation(x), np.sqrt(squares).mean(-1), rtol=1e-9)
        np.testing.assert_allclose(elsewhere.deviation(x), np.sqrt(squares).mean(-1), rtol=1e-9)
        np.testing.assert_allclose(mean.deviation(x), np.sqrt(squares.mean(-1)), rtol=1e-9)
    copy = mean_inverse(agents, p, regularization, LIKE, itself)
    copy.load(mean.state())
    assert torch.equal(copy.deviation(x), mean.deviation(x))
