"""The server: sums, averages and the minimum (Alg. 2) by hand, and what the agents make of its broadcast."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from helpers import LIKE, plain, rows

from fnbandit.config.registry import resolve_part
from fnbandit.core import Upload
from fnbandit.environments import make_environment
from fnbandit.federation.server import BarrierServer

P = 21
"""3 x 4 + 4 + 4 + 1 parameters"""
SMALL = {"agents": 3, "dim": 3, "width": 4, "network_dtype": "float64", "regularization": 0.5}
MEASURE = torch.zeros(3, dtype=torch.float64)


def server_of(**settings) -> BarrierServer:
    config = plain(**SMALL | settings)
    return BarrierServer(
        config, resolve_part("algorithm", config.algorithm).make_replica(config, make_environment(config), LIKE)
    )


def exchange(server: BarrierServer, sent: list[Upload]):
    """The server's answer to uploads, which batches send as partial sums; the replica has applied it."""
    download = server.exchange([server.replica.reduce(upload) for upload in sent])
    server.replica.apply([download], own=range(0))
    return download


def uploads(diagonal: bool, iteration: int = 2) -> list[Upload]:
    """Of two batches, of one agent and of two."""
    news, change = (rows(3, 2, P), rows(3, 2, P, seed=1) / 9) if not diagonal else (rows(3, P) ** 2, rows(3, P) ** 2)
    moments, theta = rows(3, P, seed=2), rows(3, P, seed=3)
    weight = torch.tensor([0.5, 0.25, 0.75], dtype=torch.float64)
    return [Upload(range(3)[part], iteration, 0, MEASURE[part],
                   *(t[part].clone() for t in (news, moments, theta, weight, change)))
            for part in (slice(0, 1), slice(1, 3))]  # fmt: skip


@pytest.mark.parametrize("diagonal", [False, True])
def test_a_round_by_hand(diagonal):
    server = server_of(diagonal=diagonal)
    shared = server.replica
    for repetition in (1, 2):
        broadcast = exchange(server, uploads(diagonal, 7 * repetition))
        assert broadcast.iteration == shared.last_round == 7 * repetition
        assert shared.rounds == repetition
        assert float(broadcast.alpha) == float(shared.alpha) == 0.25
        np.testing.assert_allclose(broadcast.theta, rows(3, P, seed=3).mean(0), rtol=1e-12)
        np.testing.assert_allclose(shared.estimate.sum_of_moments, repetition * rows(3, P, seed=2).sum(0), rtol=1e-12)
        if diagonal:
            expected = 0.5 + repetition * (rows(3, P) ** 2).sum(0)
            np.testing.assert_allclose(shared.estimate.covariance.diagonal[0], expected, rtol=1e-12)
        else:
            news = rows(3, 2, P).flatten(0, 1).numpy()
            inverse = np.linalg.inv(0.5 * np.eye(P) + repetition * news.T @ news)
            np.testing.assert_allclose(shared.estimate.covariance.inverse[0], inverse, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("algorithm", ["fn-ucb", "fn-ucb-less-comm"])
def test_what_is_made_of_the_local_inverses(algorithm):
    server = server_of(algorithm=algorithm)
    exchange(server, uploads(diagonal=False))
    change = (rows(3, 2, P, seed=1) / 9).numpy()
    inverses = np.eye(P) / 0.5 - change.transpose(0, 2, 1) @ change
    x = rows(1, 5, P, seed=8)
    squares = np.einsum("kp,apq,kq->ka", x[0], inverses, x[0])
    expected = np.sqrt(squares).mean(1) if algorithm == "fn-ucb" else np.sqrt(squares.mean(1))
    np.testing.assert_allclose(server.replica.inverses.deviation(x)[0], expected, rtol=1e-10)


def test_what_nobody_sends_is_not_broadcast():
    server = server_of(algorithm="dislinucb")
    broadcast = exchange(server, [Upload(range(3), 4, 0, MEASURE, rows(3, 2, 3), rows(3, 3))])
    assert (broadcast.theta, broadcast.inverses, broadcast.alpha) == (None, None, 0.0)
    server = server_of(use_global=False)
    sent = [dataclasses.replace(u, covariance=None, moments=None, alpha=None) for u in uploads(False, 4)]
    before = server.replica.estimate.sum_of_moments
    assert exchange(server, sent).statistics is None
    assert server.replica.estimate.sum_of_moments is before
    assert server.replica.last_round == 4


@pytest.mark.parametrize(
    "settings", [{}, {"algorithm": "fn-ucb"}, {"diagonal": True}, {"trigger": "diagonal"}, {"server_momentum": 0.5}],
    ids=str,
)  # fmt: skip
def test_a_servers_state_is_all_there_is(settings):
    diagonal = settings.get("diagonal", False)
    one, other = server_of(**settings), server_of(**settings)
    exchange(one, uploads(diagonal, 3))
    other.load({name: tensor.clone() for name, tensor in one.state().items()})
    assert (other.replica.last_round, other.rounds) == (3, 1)
    for server in (one, other):
        exchange(server, uploads(diagonal, 5))
    assert one.state().keys() == other.state().keys()
    for name, tensor in one.state().items():
        assert torch.equal(tensor, other.state()[name]), name
