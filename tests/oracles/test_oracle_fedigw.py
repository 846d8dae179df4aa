"""FedIGW makes the draws of its literal transcription, in every grouping, after a checkpoint, and sends p numbers."""

from __future__ import annotations

import numpy as np
import oracle_fedigw
import pytest
import torch
from helpers import EVERY_ROUND, assert_same, interrupt, make_group, plain, theta_0

from fnbandit import Config, simulate
from fnbandit.environments import make_environment
from fnbandit.numerics.randomness import Purpose, uniforms
from fnbandit.runs import Checkpointing, LocalRun

SMALL = {
    "algorithm": "fedigw", "trigger": "geometric", "agents": 3, "horizon": 40, "dim": 4, "arms": 3, "width": 6,
    "training_steps": 8, "network_dtype": "float64", "gap_weight": 20.0,
}  # fmt: skip


@pytest.mark.parametrize(
    "settings",
    [{}, {"gap_growth": 1.3}, {"largest_gap": 5}, {"training_start": "own"}, {"training_start": "initial"},
     {"environment": "square", "gap_weight": 1.0}, {"network": "ntk", "training_rate": 0.01}],
    ids=str,
)  # fmt: skip
def test_draws_of_the_literal_algorithm(settings):
    config = plain(**SMALL | settings)

    def uniform(agent, t):
        return uniforms(config.seed, Purpose.EXPLORATION, [agent], t, 1)[0, 0]

    result = simulate(config)
    arms, theta = oracle_fedigw.run(config, make_environment(config), theta_0(config), uniform)
    np.testing.assert_array_equal(result.arms, arms)
    np.testing.assert_allclose(result.theta, theta, rtol=1e-8, atol=1e-10)
    assert result.rounds == oracle_fedigw.rounds(config.gap_growth, config.largest_gap, config.horizon)
    if not settings:
        assert result.rounds == [1, 3, 7, 15, 31]


def test_frequencies_are_the_probabilities():
    config = plain(**SMALL | {"agents": 2, "arms": 4})
    group = make_group(config, make_environment(config), range(2))
    contexts = group.stream.contexts(1)
    assert group.probabilities(contexts).tolist() == [[0.25] * 4] * 2
    group.replica.last_trained = 1
    p = group.probabilities(contexts)
    np.testing.assert_allclose(p.sum(1), 1)
    for agent in range(2):
        expected = oracle_fedigw.probabilities(group.predict(contexts)[agent].numpy(), 20.0)
        np.testing.assert_allclose(p[agent], expected, rtol=1e-12)
    counts = torch.zeros(2, 4, dtype=torch.float64)
    for iteration in range(1, 4001):
        counts += group.scores(iteration, contexts).values
    assert ((counts / 4000 - p).abs() < 4 * (p * (1 - p) / 4000).sqrt() + 1e-9).all()


def test_any_grouping_and_a_checkpoint(tmp_path):
    config = Config(algorithm="fedigw", agents=5, horizon=40, training_cap=10, dim=4, width=6)
    result = simulate(config)
    assert_same(result, simulate(config, groups=3))
    assert interrupt(config, tmp_path, 6) in (3, 7, 15)
    assert_same(result, LocalRun(config, Checkpointing(str(tmp_path), **EVERY_ROUND), resume=True).result())


@pytest.mark.parametrize(
    "settings", [{"participation": "fraction"}, {"averagings": 2}, {"messages": "quantized"}, {"aggregation": "median"}]
)
def test_with_other_parts_of_a_round(settings):
    config = Config(algorithm="fedigw", agents=5, horizon=40, training_cap=10, dim=4, width=6, **settings)
    result = simulate(config)
    assert_same(result, simulate(config, groups=2))
    trained = [record for record in result.round_records if record.quantities["steps"] > 0]
    assert trained
    assert all(record.exchanges == settings.get("averagings", 1) for record in trained)


def test_a_message_is_a_network():
    config = Config(algorithm="fedigw", agents=5, horizon=20, dim=4, width=6)
    total, rounds = simulate(config).communication, 4
    p = 4 * 6 + 6 + 6 + 1
    assert total.numbers_up.tolist() == total.numbers_down.tolist() == [5 * p] * rounds
    assert total.messages_up.tolist() == [5] * rounds


def test_triggers_that_measure_matrices_are_refused():
    for trigger in ("logdet", "diagonal", "determinant", "budget"):
        with pytest.raises(ValueError, match=f"trigger='{trigger}': algorithm=fedigw accepts always, period"):
            Config(algorithm="fedigw", trigger=trigger)
    with pytest.raises(ValueError, match="expected always, period or geometric"):
        simulate(Config(algorithm="fedigw", trigger="fnbandit.federation.triggers:LogDeterminant", agents=2, horizon=5))


def test_the_policy_is_the_greedy_arm():
    config = Config(algorithm="fedigw", agents=2, horizon=31, training_cap=20, gap_weight=1e12)
    policy = simulate(config).policy(1)
    later = simulate(config.replace(horizon=50))
    block = make_environment(config).block(1, 1)
    assert policy.act(block.contexts[:18]).tolist() == later.arms[32:50, 1].tolist()


def test_geometric_rounds_of_another_algorithm():
    result = simulate(Config(agents=2, horizon=30, trigger="geometric", gap_growth=1.5, training_cap=10))
    assert result.rounds == oracle_fedigw.rounds(1.5, 4096, 30) == [1, 2, 4, 7, 11, 17, 26]
