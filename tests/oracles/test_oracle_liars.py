"""Exact federation with attackers and a server that checks: the fast code makes the choices of the transcription."""

from __future__ import annotations

import numpy as np
import oracle_liars
import pytest
from helpers import plain, theta_0
from test_oracle_exact import SETTINGS, observations_of

from fnbandit import simulate
from fnbandit.environments import make_environment
from fnbandit.environments.base import BLOCK
from fnbandit.numerics.randomness import Purpose, uniforms

CASES = [
    {"attack": "sign-flip", "attack_scale": 3.0},
    {"attack": "overconfident", "aggregation_statistics": "sum"},
    {"attack": "reward-flip", "aggregation_statistics": "trimmed", "horizon": 30, "newton_steps": 4},
    {"attack": "ipm", "aggregation_statistics": "trimmed", "trigger": "period"},
    {"attack": "alie", "aggregation_statistics": "certificate"},
    {"attack": "zero", "aggregation_statistics": "certificate"},
    {"attack": "mimic", "aggregation_statistics": "certificate", "training_sample": 40},
    {"attack": "sign-flip", "attack_scale": 5.0, "aggregation_statistics": "certificate", "trigger": "always"},
    {"attack": "anxious", "aggregation_statistics": "trimmed", "trigger": "period", "environment": "square"},
    {"attack": "overconfident", "attack_scale": 5.0, "aggregation_statistics": "certificate"},
]


@pytest.mark.parametrize("settings", CASES, ids=str)
def test_exact_federation_with_liars(settings):
    usual = {"algorithm": "fn-exact", "agents": 7, "byzantine_share": 0.3, "horizon": 14, "seed": 4, "arms": 2,
             "dim": 3, "width": 3, "newton_steps": 2, "threshold": 4.0}  # fmt: skip
    config = plain(**SETTINGS | usual | settings)
    environment = make_environment(config)

    def order(number, count):
        draws = uniforms(config.seed, Purpose.ATTACK, range(count), number, 1)[:, 0]
        return np.argsort(draws, kind="stable").tolist()

    def means(agent, iteration):
        block, place = divmod(iteration - 1, BLOCK)
        return environment.block(agent, block).means[place]

    arms, rounds, dropped, theta = oracle_liars.run(
        config, environment, theta_0(config), observations_of(config, 10**6), order, means
    )
    for groups in (1, 3):
        result = simulate(config, groups=groups)
        assert result.rounds == rounds
        found = [list(record.dropped or ()) for record in result.round_records]
        assert found == dropped
        np.testing.assert_array_equal(result.arms, arms)
        np.testing.assert_allclose(result.theta, theta, rtol=1e-4, atol=1e-5)
    if config.attack in ("reward-flip", "overconfident") and config.aggregation_statistics != "sum":
        assert any(dropped)
