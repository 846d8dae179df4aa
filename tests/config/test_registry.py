"""The registry: names, own parts, and which fields matter with which part."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from helpers import plain

from fnbandit import simulate
from fnbandit.config import FIELDS
from fnbandit.config.registry import KINDS, check_name, describe_part, resolve_part, without_effect


def test_every_part_is_described_and_its_fields_exist():
    for kind, parts in KINDS.items():
        assert kind in FIELDS
        for name, part in parts.items():
            assert part.summary and part.path.count(":") == 1
            assert set(part.fields) <= set(FIELDS), name
            assert len(set(part.fields)) == len(part.fields), name


def test_names():
    check_name("trigger", "logdet")
    check_name("trigger", "mine:Moon")
    check_name("environment", "some/table.csv")
    with pytest.raises(ValueError, match="trigger='logdets' is unknown \\(did you mean 'logdet'"):
        check_name("trigger", "logdets")
    with pytest.raises(ValueError, match="trigger='table.csv' is unknown"):
        check_name("trigger", "table.csv")
    assert describe_part("trigger", "mine.triggers:Moon").title == "Moon"


def test_what_cannot_be_imported_is_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_parts.py").write_text("number = 3\nclass Moon: pass\n")
    assert resolve_part("trigger", "my_parts:Moon").__name__ == "Moon"
    for path in ("nowhere:Moon", "my_parts:Sun", "my_parts:number", "my_parts:", ".my_parts:Moon", "my parts:Moon"):
        with pytest.raises(ValueError, match=f"trigger='{path}': .*expected package.module:Name") as error:
            resolve_part("trigger", path)
        assert "\n" not in str(error.value)


def test_fields_without_effect_and_the_reason():
    names = {"algorithm": "fn-ucb", "environment": "cosine", "trigger": "always", "weight": "ramp"}
    names |= {"aggregation": "mean", "messages": "exact"}
    idle = without_effect(names)
    assert idle["threshold"] == idle["period"] == "trigger=always"
    assert idle["trim"] == "aggregation=mean"
    assert idle["label"] == "environment=cosine"
    assert idle["epsilon"] == "algorithm=fn-ucb"
    assert not {"trigger", "ramp", "agents", "dim", "width", "seed", "horizon"} & set(idle)
    assert "threshold" not in without_effect(names | {"trigger": "logdet"})
    assert without_effect(names | {"environment": "wheel"})["dim"] == "environment=wheel"
    assert "label" not in without_effect(names | {"environment": "my.csv"})


def test_parts_of_a_part_without_effect_have_none():
    idle = without_effect({"algorithm": "neural-ucb", "trigger": "logdet", "weight": "ramp"})
    assert idle["trigger"] == idle["threshold"] == idle["ramp"] == "algorithm=neural-ucb"
    assert "width" not in idle


def test_nothing_is_known_of_own_parts():
    idle = without_effect({"algorithm": "mine:Best", "environment": "mine:reward", "trigger": "mine:Moon"})
    assert idle.keys() == {"label", "standardization", "wheel_delta", "coding", "price", "domain_column"}


OTHERS = {
    "aggregate": False, "aggregation": "median", "averagings": 2, "exploration_global": 3.0, "exploration_local": 3.0,
    "federation": "exact", "first_iteration_only": True, "initialization": "normal", "network_dtype": "float64",
    "newton_steps": 2, "server_momentum": 0.5, "training_sample": 9,
    "stop_training_after": 5, "training_cap": 7, "training_decay": 2.0, "training_effort": 9.0, "training_fade": 3.0,
    "training_least": 3, "training_loss": "paper", "training_optimizer": "adam", "training_rate": 0.02,
    "training_schedule": "linear", "training_start": "initial", "training_steps": 3, "training_subsample": 0.5,
    "weight": "constant",
}  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"use_local": False}, "use_local=false"),
        ({"use_global": False}, "use_global=false"),
        ({"aggregate": False, "training_start": "own"}, "aggregate=false"),
        ({"training_steps": 0}, "training_steps=0"),
        ({"training_steps": 5}, "training_steps=5"),
        ({"hidden_layers": 1}, "hidden_layers=1"),
    ],
)
def test_fields_that_are_called_idle_change_nothing(fields, reason):
    base = plain(agents=2, horizon=14, width=4, dim=3, trigger="period", period=4, **fields)
    idle = [name for name, why in without_effect(dataclasses.asdict(base)).items() if why == reason]
    assert idle
    expected = simulate(base)
    for name in idle:
        if name in OTHERS:
            found = simulate(base.replace(**{name: OTHERS[name]}))
            assert np.array_equal(found.arms, expected.arms) and np.array_equal(found.rewards, expected.rewards), name
            assert found.rounds == expected.rounds and found.communication.total == expected.communication.total, name
    assert set(idle) - set(OTHERS) <= {"ramp", "weight_value", "domain_sample", "received_sample", "trim",
                                         "clipping_radius"}  # fmt: skip
