"""The server: sums, averages and the minimum (Alg. 2) by hand, and what the agents make of its broadcast."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers import LIKE, rows

from fnbandit import Config
from fnbandit.environments import make_environment
from fnbandit.registry import find
from fnbandit.rounds.messages import Upload
from fnbandit.rounds.server import Server

P = 21
"""3 x 4 + 4 + 4 + 1 parameters"""
SMALL = {"agents": 3, "dim": 3, "width": 4, "network_dtype": "float64", "regularization": 0.5}
MEASURE = torch.zeros(3, dtype=torch.float64)


def server_of(**settings) -> Server:
    config = Config(**SMALL | settings)
    shared = find("algorithm", config.algorithm).make_shared(config, make_environment(config), LIKE)
    return Server(config, shared)


def uploads(diagonal: bool) -> list[Upload]:
    """Of two groups, of one agent and of two."""
    news, change = (rows(3, 2, P), rows(3, 2, P, seed=1) / 9) if not diagonal else (rows(3, P) ** 2, rows(3, P) ** 2)
    moments, theta = rows(3, P, seed=2), rows(3, P, seed=3)
    weight = torch.tensor([0.5, 0.25, 0.75], dtype=torch.float64)
    return [Upload(MEASURE[part], *(t[part].clone() for t in (news, moments, theta, weight, change)))
            for part in (slice(0, 1), slice(1, 3))]  # fmt: skip


@pytest.mark.parametrize("diagonal", [False, True])
def test_a_round_by_hand(diagonal):
    server, sent = server_of(diagonal=diagonal), uploads(diagonal)
    shared = server.shared
    for repetition in (1, 2):
        broadcast = server.aggregate(7 * repetition, sent)
        shared.apply(broadcast, own=range(0))
        assert broadcast.iteration == shared.last_round == 7 * repetition
        assert shared.rounds == repetition
        assert float(broadcast.weight) == float(shared.weight) == 0.25
        np.testing.assert_allclose(broadcast.theta, rows(3, P, seed=3).mean(0), rtol=1e-12)
        np.testing.assert_allclose(shared.estimate.sum_of_moments, repetition * rows(3, P, seed=2).sum(0), rtol=1e-12)
        if diagonal:
            expected = 0.5 + repetition * (rows(3, P) ** 2).sum(0)
            np.testing.assert_allclose(shared.estimate.covariance.diagonal[0], expected, rtol=1e-12)
        else:
            news = rows(3, 2, P).flatten(0, 1).numpy()
            inverse = np.linalg.inv(0.5 * np.eye(P) + repetition * news.T @ news)
            np.testing.assert_allclose(shared.estimate.covariance.inverse[0], inverse, rtol=1e-8, atol=1e-10)
        sent = uploads(diagonal)


@pytest.mark.parametrize("algorithm", ["fn-ucb", "fn-ucb-less-comm"])
def test_what_is_made_of_the_local_inverses(algorithm):
    server = server_of(algorithm=algorithm)
    server.shared.apply(server.aggregate(1, uploads(diagonal=False)), own=range(0))
    change = (rows(3, 2, P, seed=1) / 9).numpy()
    inverses = np.eye(P) / 0.5 - change.transpose(0, 2, 1) @ change
    x = rows(1, 5, P, seed=8)
    squares = np.einsum("kp,apq,kq->ka", x[0], inverses, x[0])
    expected = np.sqrt(squares).mean(1) if algorithm == "fn-ucb" else np.sqrt(squares.mean(1))
    np.testing.assert_allclose(server.shared.inverses.deviation(x)[0], expected, rtol=1e-10)


def test_what_nobody_sends_is_not_broadcast():
    server = server_of(algorithm="dislinucb")
    broadcast = server.aggregate(4, [Upload(MEASURE, rows(3, 2, 3), rows(3, 3))])
    assert (broadcast.theta, broadcast.inverses, broadcast.weight) == (None, None, 0.0)
    server = server_of(use_global=False)
    sent = [Upload(u.measure, None, None, u.theta, None, u.change) for u in uploads(diagonal=False)]
    before = server.shared.estimate.sum_of_moments
    broadcast = server.aggregate(4, sent)
    assert broadcast.news is None and broadcast.sum_of_moments is None
    server.shared.apply(broadcast, own=range(0))
    assert server.shared.estimate.sum_of_moments is before
    assert server.shared.last_round == 4


@pytest.mark.parametrize(
    "settings", [{}, {"algorithm": "fn-ucb"}, {"diagonal": True}, {"trigger": "diagonal"}, {"server_momentum": 0.5}],
    ids=str,
)  # fmt: skip
def test_a_servers_state_is_all_there_is(settings):
    diagonal = settings.get("diagonal", False)
    one, other = server_of(**settings), server_of(**settings)
    one.shared.apply(one.aggregate(3, uploads(diagonal)), own=range(0))
    other.load({name: tensor.clone() for name, tensor in one.state().items()})
    assert (other.shared.last_round, other.shared.rounds) == (3, 1)
    for server in (one, other):
        server.shared.apply(server.aggregate(5, uploads(diagonal)), own=range(0))
    assert one.state().keys() == other.state().keys()
    for name, tensor in one.state().items():
        assert torch.equal(tensor, other.state()[name]), name
