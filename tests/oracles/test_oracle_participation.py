"""Rounds of some agents, and of several averagings: the fast code makes the choices of the literal transcription."""

from __future__ import annotations

import functools

import numpy as np
import oracle_participation
import pytest
from helpers import plain
from test_oracle import assert_same

from fnbandit import simulate
from fnbandit.environments import make_environment
from fnbandit.federation.participation import make_participation

SETTINGS = {
    "agents": 4, "horizon": 50, "seed": 3, "arms": 3, "dim": 4, "width": 6, "noise": 0.05, "regularization": 0.5,
    "exploration_global": 0.3, "exploration_local": 0.2, "ramp": 30, "domain_sample": 20, "threshold": 2.0, "period": 4,
    "training_steps": 5, "training_rate": 0.01, "network_dtype": "float64", "training_start": "aggregate",
    "participation": "fraction", "participation_fraction": 0.4,
}  # fmt: skip
CASES = [
    {},
    {"algorithm": "fn-ucb", "trigger": "logdet"},
    {"trigger": "logdet", "weight": "theory"},
    {"trigger": "period", "training_start": "own", "diagonal": True},
    {"algorithm": "fn-ucb", "trigger": "diagonal", "weight": "theory"},
    {"trigger": "diagonal", "diagonal": True, "weight": "constant"},
    {"trigger": "logdet", "use_local": False},
    {"trigger": "period", "participation_fraction": 0.2, "agents": 5},
    {"trigger": "logdet", "messages": "factored"},
    {"participation": "availability", "clock": "lognormal", "availability": 0.5, "away_seconds": 1.0},
    {"averagings": 3, "participation": "all"},
    {"averagings": 2, "trigger": "logdet"},
]


@pytest.mark.parametrize("settings", CASES, ids=str)
@pytest.mark.parametrize("groups", [1, 3])
def test_the_same_choices_and_rounds(settings, groups, monkeypatch):
    config = plain(**SETTINGS | settings)
    participation = make_participation(config)
    drawn = [participation.draw(number, 7 * number + 1).sum() for number in range(10)]
    assert config.participation == "all" or min(drawn) < config.agents
    literal = functools.partial(oracle_participation.run, draw=participation.draw, averagings=config.averagings)
    assert_same(config, groups, monkeypatch, literal)


@pytest.mark.parametrize(
    "settings", [{"trigger": "always"}, {"trigger": "period", "participation_fraction": 0.2}], ids=str
)
@pytest.mark.parametrize("groups", [1, 3])
def test_dislinucb_adds_the_rows_of_participants_only(settings, groups):
    """Linear UCB on V_last, which has the rows that were uploaded, plus an agent's own rows since its last round."""
    config = plain(algorithm="dislinucb", **SETTINGS | settings)
    result, environment = simulate(config, groups=groups), make_environment(config)
    draw = make_participation(config).draw
    agents, dim = range(config.agents), config.dim
    V, b = config.regularization * np.eye(dim), np.zeros(dim)
    W_new, b_new, rounds = np.zeros((config.agents, dim, dim)), np.zeros((config.agents, dim)), []
    for t in range(1, config.horizon + 1):
        for i in agents:
            block, place = environment.block(i, (t - 1) // 32), (t - 1) % 32
            x, inverse = block.contexts[place], np.linalg.inv(V + W_new[i])
            bonus = config.exploration_global * np.sqrt(config.regularization * np.diag(x @ inverse @ x.T))
            scores, arm = x @ inverse @ (b + b_new[i]) + bonus, result.arms[t - 1, i]
            assert scores[arm] > scores.max() - 1e-12  # at first contexts of length 1 all have the same score
            W_new[i] += np.outer(x[arm], x[arm])
            b_new[i] += (block.means[place][arm] + block.noise[place]) * x[arm]
        if config.trigger == "always" or t % config.period == 0:
            present = draw(len(rounds), t)
            V, b = V + W_new[present].sum(0), b + b_new[present].sum(0)
            W_new[present], b_new[present] = 0, 0
            rounds.append(t)
    assert rounds == list(result.rounds)
