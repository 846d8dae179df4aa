"""The registry: names, own parts, and which fields matter with which part."""

from __future__ import annotations

import pytest

from fnbandit.config import FIELDS
from fnbandit.registry import KINDS, check_name, find, part_of, without_effect


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
    assert part_of("trigger", "mine.triggers:Moon").title == "Moon"


def test_what_cannot_be_imported_is_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_parts.py").write_text("number = 3\nclass Moon: pass\n")
    assert find("trigger", "my_parts:Moon").__name__ == "Moon"
    for path in ("nowhere:Moon", "my_parts:Sun", "my_parts:number", "my_parts:", ".my_parts:Moon", "my parts:Moon"):
        with pytest.raises(ValueError, match=f"trigger='{path}': .*expected package.module:Name") as error:
            find("trigger", path)
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
    assert idle.keys() == {"label", "standardization", "wheel_delta"}
