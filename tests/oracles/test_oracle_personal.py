"""Experts, clusters and forgetting: the fast code makes the choices of the literal transcription."""

from __future__ import annotations

import oracle_personal
import pytest
from helpers import plain
from test_oracle import assert_same

from fnbandit import Config, simulate

SETTINGS = {
    "algorithm": "fn-linear", "agents": 4, "horizon": 28, "arms": 3, "dim": 3, "width": 4, "noise": 0.1,
    "regularization": 0.5, "exploration_global": 0.3, "threshold": 3.0, "period": 5, "training_optimizer": "adam",
    "training_rate": 0.05, "training_steps": "auto", "training_effort": 60.0, "training_cap": 10, "training_least": 8,
    "training_schedule": "linear", "training_decay": 0.3, "reward_unit": "rms", "newton_steps": 2,
    "training_sample": 0, "network_dtype": "float64", "federation": "exact", "trigger": "logdet",
    "heterogeneity": "clusters", "groups": 2,
}  # fmt: skip
CASES = [
    {"personalization": "head"},
    {"personalization": "cluster", "cluster_level": 0.05},
    {"personalization": "auto"},
    {"personalization": "auto", "trigger": "period", "heterogeneity": "personal", "environment": "square"},
    {"personalization": "auto", "forgetting": "window", "window": 12, "drift": "switch"},
    {"personalization": "head", "forgetting": "discount", "discount": 0.8},
    {"personalization": "none", "forgetting": "window", "window": 10, "federation": "gradients"},
    {"personalization": "none", "forgetting": "discount", "discount": 0.7, "federation": "gauss-newton"},
]


@pytest.mark.parametrize("settings", CASES, ids=str)
def test_experts_and_forgetting(settings, monkeypatch):
    config = plain(**SETTINGS | settings | {"seed": len(str(settings))})
    assert_same(config, 1 + config.seed % 3, monkeypatch, oracle_personal.run)


def test_the_ledger_counts_an_agents_own_sums():
    """A round that trains sends one more message part: the triangle of S_i, c_i and two numbers up, the same down."""
    settings = SETTINGS | {"trigger": "period", "period": 14, "heterogeneity": "none", "groups": 3}
    config = plain(**settings | {"horizon": 14, "exploration_global": 0.0, "newton_steps": 1})
    head, cluster = (simulate(config.replace(personalization=name)) for name in ("head", "cluster"))
    p = config.dim + config.width + 1
    more = config.agents * (p * (p + 1) // 2 + p + 2)
    assert [one.rounds for one in (head, cluster)] == [[14], [14]]
    exchanges = [one.round_records[0].exchanges for one in (head, cluster)]
    assert exchanges[0] == exchanges[1]
    for name in ("numbers_up", "numbers_down"):
        sent = [getattr(one.communication.total, name) for one in (head, cluster)]
        assert sent[1] - sent[0] == more


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"personalization": "head", "diagonal": True}, "diagonal=True: personalization=head needs full matrices"),
        ({"personalization": "auto", "participation": "fraction"}, "participation='fraction': personalization=auto"),
        ({"personalization": "cluster", "messages": "quantized"}, "messages='quantized': personalization=cluster"),
        ({"forgetting": "discount"}, "forgetting='discount': federation=average accepts none, window"),
        ({"algorithm": "fn-exact", "personalization": "head"}, "personalization: has no effect with algorithm=fn-ex"),
        ({"cluster_level": 0.1}, "cluster_level: has no effect with personalization=none"),
    ],
    ids=str,
)
def test_combinations_without_a_meaning_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Config(**{"algorithm": "fn-linear"} | settings)


def test_a_mixture_of_experts_has_no_policy():
    result = simulate(Config(algorithm="fn-linear", personalization="head", agents=2, horizon=5, training_cap=2))
    with pytest.raises(ValueError, match="personalization='head': mixed experts have no policy"):
        result.policy(0)
