"""Groups of any size give the same bits; rewinding leaves no trace; counting follows Sec. 3.4."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fnbandit import ALGORITHMS, Config, simulate
from fnbandit.agents import AgentGroup
from fnbandit.environments import make_environment
from fnbandit.messages import round_cost
from fnbandit.server import Server
from fnbandit.simulation import one_thread, split

VARIANTS = [
    {"trigger": "always"},
    {"trigger": "logdet", "threshold": 3.0},
    {"trigger": "logdet", "threshold": 3.0, "algorithm": "fn-ucb", "weight": "theory"},
    {"trigger": "diagonal", "threshold": 9.0, "diagonal": True},
    {"trigger": "diagonal", "threshold": 9.0},
    {"trigger": "period", "diagonal": True, "algorithm": "fn-ucb", "weight": "theory"},
    {"trigger": "always", "hidden_layers": 2, "aggregate": False},
    {"trigger": "logdet", "network": "ntk", "training_rate": 0.001, "training_start": "own"},
    {"trigger": "always", "arms": 7, "dim": 3, "width": 5},
    *({"algorithm": name} for name in ALGORITHMS if not name.startswith(("fn-ucb", "pooled"))),
]


def assert_identical(one, other):
    assert one.rounds == other.rounds
    np.testing.assert_array_equal(one.arms, other.arms)
    np.testing.assert_array_equal(one.rewards, other.rewards)
    np.testing.assert_array_equal(one.regret, other.regret)
    np.testing.assert_array_equal(one.weight, other.weight)
    assert one.communication.total == other.communication.total
    if one.parameters is not None:
        np.testing.assert_array_equal(one.parameters, other.parameters)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_any_grouping_gives_the_same_bits(variant):
    config = Config(**({"agents": 6, "horizon": 50} | variant))
    whole = simulate(config)
    assert config.algorithm not in ("fn-ucb", "fn-ucb-less-comm") or whole.rounds
    for groups in (2, 4, 6):
        assert_identical(whole, simulate(config, groups))


def test_on_tables_too():
    config = Config.preset("paper", environment="shuttle", agents=3, horizon=12, width=10)
    assert_identical(simulate(config), simulate(config, groups=3))


def test_the_number_of_torch_threads_does_not_matter():
    config = Config(agents=5, horizon=40, hidden_layers=2)
    expected = simulate(config)
    torch.set_num_threads(2)
    assert_identical(expected, simulate(config, groups=2))
    assert torch.get_num_threads() == 2


def test_split_is_even_and_in_order():
    assert split(7, 3) == [range(0, 2), range(2, 4), range(4, 7)]
    assert split(2, 5) == [range(0, 1), range(1, 2)]


@settings(max_examples=25, deadline=None)
@given(
    variant=st.sampled_from([v for v in VARIANTS if v.get("trigger") in ("logdet", "diagonal", "period")]),
    back=st.integers(1, 9),
    epochs=st.integers(0, 2),
)
def test_advance_rewind_advance_is_advance(variant, back, epochs):
    config = Config(**({"agents": 3, "horizon": 60, "period": 40} | variant | {"threshold": 1e9}))
    with one_thread():
        environment = make_environment(config)
        straight, wavering = (AgentGroup(config, environment, range(3)) for _ in range(2))
        target = 0
        for _ in range(epochs + 1):
            target += 10
            straight.advance(target)
            wavering.advance(target)
            wavering.rewind(target - back)
            wavering.advance(target + 5)
            wavering.rewind(target)
            uploads = [group.upload() for group in (straight, wavering)]
            for name in ("covariance", "moments", "measure", "parameters", "weight", "local", "loss"):
                left, right = (getattr(upload, name) for upload in uploads)
                assert (left is None) == (right is None)
                assert left is None or torch.equal(left, right), name
            trace, other = straight.trace(0, target), wavering.trace(0, target)
            np.testing.assert_array_equal(trace.arms, other.arms)
            for group, upload in zip((straight, wavering), uploads, strict=True):
                group.statistics.apply(Server(config, group.statistics).aggregate(target, [upload]), own=range(3))
                group.start_epoch()


def test_a_trigger_seen_late_is_the_trigger_seen_at_once():
    config = Config(agents=4, horizon=60, trigger="logdet", threshold=4.0)
    expected = simulate(config)
    from fnbandit import agents

    original = agents.AgentGroup.__init__

    def late(self, *args, **kwargs):
        original(self, *args, **kwargs)
        self._looks = 8

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(agents.AgentGroup, "__init__", late)
        assert_identical(expected, simulate(config))


def test_regret_is_best_minus_chosen_without_noise():
    config = Config(agents=2, horizon=40, noise=0.3)
    result = simulate(config)
    environment = make_environment(config)
    for agent in range(2):
        means = np.concatenate([environment.block(agent, i).means for i in range(2)])[:40]
        chosen = means[np.arange(40), result.arms[:, agent]]
        np.testing.assert_allclose(result.regret[:, agent], means.max(1) - chosen, atol=1e-15)
        noise = result.rewards[:, agent] - chosen
        assert 0.1 < noise.std() < 0.6
    assert (result.regret >= 0).all()


def test_counting_is_that_of_section_3_4():
    p0, n = 241, 5
    diagonal = round_cost(Config(agents=n, diagonal=True), p0, signals=0)
    assert diagonal.numbers_up == n * (p0 + p0 + p0 + 1 + p0)
    assert diagonal.numbers_down == n * (p0 + p0 + p0 + 1 + p0)
    assert diagonal.bytes_up == n * (8 * (3 * p0 + 1) + 4 * p0)
    everyone = round_cost(Config(agents=n, diagonal=True, algorithm="fn-ucb"), p0, signals=0)
    assert everyone.numbers_up == diagonal.numbers_up
    assert everyone.numbers_down == n * (p0 + p0 + p0 + 1 + n * p0)
    full = round_cost(Config(agents=n), p0, signals=0)
    assert full.numbers_up == full.numbers_down == n * (p0**2 + p0 + p0 + 1 + p0**2)
    assert (full.messages_up, full.messages_down) == (n, n)
    signalled = round_cost(Config(agents=n, trigger="logdet"), p0, signals=2)
    assert (signalled.messages_up, signalled.messages_down) == (n + 2, 2 * n)
    linear = round_cost(Config(agents=n, algorithm="dislinucb"), 10, signals=0)
    assert linear.numbers_up == linear.numbers_down == n * (100 + 10)


def test_totals_are_the_sum_of_the_rounds():
    config = Config(agents=3, horizon=50, trigger="logdet")
    result = simulate(config)
    communication = result.communication
    assert len(communication.bytes_up) == len(result.rounds) > 1
    one = round_cost(config, 241, signals=0)
    assert communication.total.bytes_up == len(result.rounds) * one.bytes_up
    signals = sum(len(record.triggered) for record in result.round_records)
    assert communication.total.messages_up == len(result.rounds) * 3 + signals
    for record in result.round_records:
        assert record.measure > config.threshold
        assert record.triggered


def test_periods_and_horizon():
    assert simulate(Config(agents=2, horizon=25, trigger="period", period=10)).rounds == [10, 20]
    assert simulate(Config(agents=1, horizon=1)).arms.shape == (1, 1)
    long = simulate(Config(agents=1, horizon=150, trigger="logdet", threshold=1e6, use_local=False))
    assert long.rounds == []
    assert long.arms.shape == (150, 1)


def test_federation_helps_on_cosine():
    alone, together = (simulate(Config(agents=n, horizon=300)).regret.sum(0).mean() for n in (1, 10))
    random = 300 * 0.55  # K = 4 arms: a random choice loses more than half a unit per iteration
    assert together < alone / 2 < random / 4


def test_summary_says_how_good_how_many_rounds_how_many_bytes():
    text = simulate(Config(agents=2, horizon=20)).summary()
    for word in ("regret per agent", "rounds", "bytes", "seconds"):
        assert word in text
