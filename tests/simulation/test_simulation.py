"""Groups of any size give the same bits; rewinding leaves no trace."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers import assert_same, communicate, make_group, plain
from hypothesis import given, settings
from hypothesis import strategies as st

from fnbandit import Config, simulate
from fnbandit.algorithms.federated import FederatedGroup
from fnbandit.config.registry import ALGORITHMS, resolve_part
from fnbandit.environments import make_environment
from fnbandit.numerics.device import one_thread
from fnbandit.simulation.partition import split_evenly

SUMS = {
    "training_steps": "auto", "training_effort": 100.0, "training_cap": 20, "training_least": 12, "training_sample": 90,
    "training_optimizer": "adam", "newton_steps": 2, "reward_unit": "rms", "width": 6, "dim": 4,
}  # fmt: skip
"""Few steps, by sums over a sample"""
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
    {"trigger": "budget", "round_budget": 9},
    {"messages": "factored", "trigger": "logdet", "threshold": 3.0},
    {"messages": "quantized", "algorithm": "fn-ucb", "trigger": "period"},
    {"aggregation": "geometric-median", "server_momentum": 0.5},
    {"trigger": "period", "algorithm": "fn-ucb", "width": 8},
    {"averagings": 3, "training_start": "aggregate", "messages": "factored, quantized"},
    {"participation": "fraction", "participation_fraction": 0.4, "trigger": "logdet", "threshold": 3.0},
    {"participation": "fraction", "trigger": "period", "algorithm": "fn-ucb", "width": 8, "aggregation": "median"},
    {"participation": "fraction", "trigger": "diagonal", "threshold": 9.0, "diagonal": True, "averagings": 2},
    {"participation": "fraction", "trigger": "logdet", "threshold": 3.0, "algorithm": "dislinucb"},
    {"participation": "availability", "clock": "lognormal", "availability": 0.5, "away_seconds": 1.0},
    {"algorithm": "fn-exact", "federation": "exact", "trigger": "logdet", "threshold": 3.0, **SUMS},
    {"algorithm": "fn-exact", "federation": "exact", "diagonal": True, "trigger": "period", **SUMS},
    {
        "algorithm": "fn-exact",
        "federation": "gauss-newton",
        "agents": 40,
        "horizon": 12,
        "trigger": "period",
        "period": 4,
        "messages": "factored, quantized",
        **SUMS,
    },
    {"algorithm": "fn-linear", "federation": "gradients", "participation": "fraction", "trigger": "period", **SUMS},
    {"algorithm": "fn-linear", "federation": "average", "averagings": 2, "reward_unit": "rms", "trigger": "logdet"},
    {"algorithm": "fn-ucb-less-comm", "federation": "exact", "trigger": "period", "period": 6, **SUMS},
    *({"algorithm": name} for name in ALGORITHMS if not name.startswith("fn-ucb")),
]


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_any_grouping_gives_the_same_bits(variant):
    config = plain(**({"agents": 6, "horizon": 36} | variant))
    whole = simulate(config)
    assert bool(whole.rounds) == resolve_part("algorithm", config.algorithm).traits.communicates
    for groups in (4, 6):  # two and one agents in a group; one
        assert_same(whole, simulate(config, groups=groups))


def test_on_tables_too():
    config = Config.preset("paper", environment="shuttle", agents=3, horizon=12, width=10)
    assert_same(simulate(config), simulate(config, groups=3))


def test_the_number_of_torch_threads_does_not_matter():
    config = plain(agents=5, horizon=40, hidden_layers=2)
    expected = simulate(config)
    torch.set_num_threads(2)
    assert_same(expected, simulate(config, groups=2))
    assert torch.get_num_threads() == 2


def test_split_is_even_and_in_order():
    assert split_evenly(7, 3) == [range(0, 2), range(2, 4), range(4, 7)]
    assert split_evenly(2, 5) == [range(0, 1), range(1, 2)]


@settings(max_examples=25, deadline=None)
@given(
    variant=st.sampled_from([v for v in VARIANTS if v.get("trigger") in ("logdet", "diagonal", "period")]),
    back=st.integers(1, 9),
    epochs=st.integers(0, 2),
)
def test_advance_rewind_advance_is_advance(variant, back, epochs):
    config = plain(**(variant | {"agents": 3, "horizon": 60, "period": 40, "threshold": 1e9}))
    with one_thread():
        environment = make_environment(config)
        straight, wavering = (make_group(config, environment, range(3)) for _ in range(2))
        target = 0
        for _ in range(epochs + 1):
            target += 10
            straight.advance(target)
            wavering.advance(target)
            wavering.rewind(target - back)
            wavering.advance(target + 5)
            wavering.rewind(target)
            uploads = [communicate(group)[0] for group in (straight, wavering)]
            for name in ("covariance", "moments", "measure", "theta", "alpha", "inverse"):
                left, right = (getattr(upload, name) for upload in uploads)
                assert (left is None) == (right is None)
                if left is not None:
                    torch.testing.assert_close(left, right, rtol=0, atol=0, equal_nan=True, msg=name)
            reports = [upload.report for upload in uploads]
            assert reports[0].keys() == reports[1].keys()
            assert all(torch.equal(value, reports[1][name]) for name, value in reports[0].items())
            trace, other = straight.trace(0, target), wavering.trace(0, target)
            np.testing.assert_array_equal(trace.arms, other.arms)


def test_a_trigger_seen_late_is_the_trigger_seen_at_once():
    config = plain(agents=4, horizon=60, trigger="logdet", threshold=4.0)
    expected = simulate(config)
    original = FederatedGroup.__init__

    def late(self, *args, **kwargs):
        original(self, *args, **kwargs)
        self._looks = 8

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FederatedGroup, "__init__", late)
        assert_same(expected, simulate(config))


def test_regret_is_best_minus_chosen_without_noise():
    config = plain(agents=2, horizon=40, noise=0.3)
    result = simulate(config)
    environment = make_environment(config)
    for agent in range(2):
        means = np.concatenate([environment.block(agent, i).means for i in range(2)])[:40]
        chosen = means[np.arange(40), result.arms[:, agent]]
        np.testing.assert_allclose(result.regret[:, agent], means.max(1) - chosen, atol=1e-15)
        noise = result.rewards[:, agent] - chosen
        assert 0.1 < noise.std() < 0.6
    assert (result.regret >= 0).all()


def test_periods_and_horizon():
    assert simulate(plain(agents=2, horizon=25, trigger="period", period=10)).rounds == [10, 20]
    assert simulate(plain(agents=1, horizon=1)).arms.shape == (1, 1)
    long = simulate(plain(agents=1, horizon=150, trigger="logdet", threshold=1e6, use_local=False))
    assert long.rounds == []
    assert long.arms.shape == (150, 1)


def test_federation_helps_on_cosine():
    alone, together = (simulate(plain(agents=n, horizon=300)).regret.sum(0).mean() for n in (1, 10))
    random = 300 * 0.55  # K = 4 arms: a random choice loses more than half a unit per iteration
    assert together < alone / 2 < random / 4
