"""Trainings in rounds: their exchanges and their work by hand, and what they communicate against simulations."""

from __future__ import annotations

import pytest
from helpers import plain

from fnbandit import Config, simulate
from fnbandit.environments import make_environment
from fnbandit.planning.messages import expect_messages
from fnbandit.planning.training import expect_training, share_of_trainings, work_of_sums, work_of_training

P, FLOPS = 241, 4 * 11 * 20 + 6 * 21
"""10 inputs and a bias to 20 units, 21 weights of the output: parameters, and operations of a gradient"""
AUTO = {"training_steps": "auto", "training_effort": 1000.0, "training_least": 20, "training_cap": 100}


def exact(**settings) -> Config:
    """A config of exact federation."""
    return plain(**{"algorithm": "fn-exact", "federation": "exact", "agents": 10, "newton_steps": 4} | AUTO | settings)


def test_how_many_rounds_train_by_hand():
    # 20 of 1000 log(t / u) steps are due once u is 0.98 t: after 19.8 iterations at t = 1000.
    config = exact()
    assert share_of_trainings(config, 1000, 1) == pytest.approx(1 / 20)
    assert share_of_trainings(config, 1000, 5) == pytest.approx(1 / 4)
    assert share_of_trainings(config, 1000, 20) == share_of_trainings(config, 50, 1) == 1
    assert share_of_trainings(config.replace(stop_training_after=999), 1000, 5) == 0
    assert share_of_trainings(config.replace(training_steps=0), 1000, 5) == 0
    assert share_of_trainings(config.replace(training_steps=7), 1000, 5) == 1


@pytest.mark.parametrize(
    ("settings", "features", "contents"),
    [
        ({}, P, (("curvature", 5.0),)),  # the first one, and one for each of four steps
        ({}, 21, (("curvature", 5.0), ("statistics", 1.0))),
        ({"diagonal": True}, P, (("gradient", 20.0), ("statistics", 1.0))),
        ({"federation": "gradients"}, P, (("gradient", 20.0), ("statistics", 1.0))),
        ({"federation": "average"}, P, (("statistics", 1.0),)),
        ({"federation": "average", "averagings": 3}, None, (("network", 2.0),)),
        ({"federation": "gauss-newton"}, None, (("curvature", 5.0),)),
    ],
    ids=str,
)
def test_exchanges_by_hand(settings, features, contents):
    # Every fourth round of 5 iterations trains: 1000 * 20 / 1000 steps are due.
    training = expect_training(exact(**settings), 10, features, t=1000, k=5)
    assert (training.share, training.steps, training.contents) == (0.25, 20.0, contents)
    assert training.exchanges == pytest.approx(0.25 * sum(number for _, number in contents))


def test_the_work_of_a_sample_by_hand():
    # 4 agents of 10 evaluate 4 in 10 of 4000 observations at most, in each of 5 exchanges of every fourth round.
    work = work_of_sums(exact(), 10, P, n=4, t=1000, k=5)
    assert work.single == pytest.approx(0.25 * 5 * 1600 * FLOPS)
    assert work.double == pytest.approx(0.25 * (5 * (2 * 1600 * P * P + P**3 / 3) + P**3))
    # With more agents than the limit, those that are not drawn compute an observation that does not count.
    assert work_of_sums(exact(agents=10_000), 10, P, n=1600, t=1000, k=5) == work
    last_layer = work_of_sums(exact(), 10, 21, n=4, t=1000, k=5)
    more = 2 * 1600 * 21 * 21 + 21**3 - P**3
    assert last_layer.double - work.double == pytest.approx(0.25 * more)
    gradients = work_of_sums(exact(diagonal=True), 10, P, n=4, t=1000, k=5)
    assert gradients.single == pytest.approx(0.25 * 20 * 1600 * FLOPS)
    assert work_of_training(exact(), 10, n=4, t=1000, k=5).single == 0
    # Averaging three times: 20 steps on all of an agent's history each time.
    averaged = work_of_training(exact(federation="average", averagings=3), 10, n=4, t=1000, k=5)
    assert averaged.single == pytest.approx(0.25 * 3 * 20 * 4 * 1000 * FLOPS)


def test_bytes_of_a_round_are_those_of_the_ledger():
    for settings in (
        {"trigger": "always"},
        {"trigger": "period", "period": 5, "diagonal": True, "algorithm": "fn-ucb"},
        {"trigger": "period", "period": 4, "averagings": 3},
        {"trigger": "period", "period": 4, "algorithm": "fn-linear", "training_steps": 3, "network": "ntk"},
    ):
        config = plain(**{"agents": 3, "horizon": 40, "dim": 4, "width": 4} | settings)
        found = expect_messages(config, make_environment(config))
        result = simulate(config)
        total = result.communication.total
        # A round costs the same late in a run as early; the number of rounds is about right.
        for name in ("bytes_up", "bytes_down"):
            expected = getattr(total, name) / len(result.rounds)
            assert getattr(found, name) / found.rounds == pytest.approx(expected, rel=1e-6)
        assert found.rounds == pytest.approx(len(result.rounds), rel=0.01)


@pytest.mark.parametrize(
    "settings",
    [
        {"preset": "exact", "agents": 6, "horizon": 250},
        {"preset": "exact", "algorithm": "fn-linear", "agents": 6, "horizon": 250},
        {"agents": 6, "horizon": 250},
        {"algorithm": "fn-ucb-async", "agents": 4, "horizon": 120, "width": 8},
        {"algorithm": "dislinucb", "agents": 8, "horizon": 400},
    ],
    ids=str,
)
def test_about_as_much_is_sent_as_expected(settings):
    settings = dict(settings)
    config = Config.build(settings.pop("preset", "tuned"), "cosine", settings)
    found = expect_messages(config, make_environment(config))
    result = simulate(config)
    total = result.communication.total
    exchanges = sum(record.exchanges for record in result.round_records)
    for expected, counted in (
        (found.exchanges, exchanges), (found.bytes_up, total.bytes_up), (found.bytes_down, total.bytes_down),
    ):  # fmt: skip
        assert 1 / 1.5 < expected / counted < 1.5


def test_agents_that_never_communicate_send_nothing():
    config = plain(algorithm="linear-ucb")
    assert expect_messages(config, make_environment(config)).bytes_up == 0
