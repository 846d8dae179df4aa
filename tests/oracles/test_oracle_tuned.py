"""The fast code makes the choices of the literal transcription of what the tuned preset does."""

from __future__ import annotations

import oracle_tuned
import pytest
from helpers import plain
from test_oracle import assert_same

BASE = {
    "dim": 4, "arms": 3, "width": 6, "agents": 3, "horizon": 40, "noise": 0.05, "network_dtype": "float64",
    "training_optimizer": "adam", "training_rate": 0.02, "training_steps": "auto", "training_effort": 60.0,
    "training_cap": 25, "training_least": 4, "training_schedule": "linear", "training_fade": 20.0,
    "training_decay": 0.3, "weight": "earned", "ramp": 10, "reward_unit": "rms", "training_subsample": 0.5,
    "exploration_global": 0.3, "exploration_local": 0.2, "threshold": 4.0,
}  # fmt: skip
CASES = [
    {},
    {"trigger": "logdet", "environment": "square"},
    {"trigger": "logdet", "algorithm": "fn-ucb", "threshold": 1.0},
    {"trigger": "diagonal", "diagonal": True, "environment": "square"},
    {"trigger": "diagonal", "training_steps": 12},
    {"trigger": "period", "period": 6, "training_start": "own"},
    {"training_start": "initial", "training_loss": "paper", "training_decay": "lambda"},
    {"network": "ntk", "hidden_layers": 2, "trigger": "logdet"},
    {"hidden_layers": 3, "initialization": "scaled"},
    {"aggregate": False, "training_start": "own", "training_schedule": "constant"},
    {"weight": "ramp", "reward_unit": "one", "environment": "square"},
    {"first_iteration_only": True, "trigger": "logdet", "threshold": 1.0},
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_same_choices_rounds_and_scores(case, monkeypatch):
    seed = len(str(case)) % 2
    assert_same(plain(**BASE | case | {"seed": seed}), 1 + seed, monkeypatch, oracle_tuned.run)


@pytest.mark.parametrize("seed", [1, 4])
def test_a_network_that_has_seen_no_reward_keeps_its_parameters(seed, monkeypatch):
    case = {"environment": "shuttle", "agents": 3, "horizon": 25, "trigger": "period", "period": 2}
    config = plain(**{name: value for name, value in BASE.items() if name not in ("dim", "arms", "noise")} | case,
                   seed=seed)  # fmt: skip
    assert_same(config, 1, monkeypatch, oracle_tuned.run)
