"""`fnbandit check`: a line for each promise, and what to do where one is not kept."""

from __future__ import annotations

import json
import sqlite3
from collections import namedtuple

import numpy as np
import pytest

from fnbandit.numerics.battery import Break
from workflows.command_line import main
from workflows.execution import self_check
from workflows.execution.self_check import Finding, check_disk, check_groups, check_memory, check_products, check_store

NAMES = ["processor", "products", "groups", "ray", "gpu", "mlflow", "disk", "memory"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return tmp_path


def test_all_checks_pass_on_this_machine(here, ray_cluster, monkeypatch, capsys):
    monkeypatch.setenv("RAY_ADDRESS", ray_cluster)
    assert main(["check", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["is_passed"] and [one["name"] for one in found["checks"]] == NAMES
    assert all(one["is_passed"] for one in found["checks"])
    assert "torch" in found["checks"][0]["text"]
    assert list(here.iterdir()) == []


def test_the_small_run_meets_what_has_lost_bits():
    """Rank-one changes of matrices with p >= 25, and an alpha that they decide."""
    result = self_check.run_alone()
    assert list(result.rounds) == list(range(1, self_check.LAYOUT_CONFIG.horizon + 1))
    assert len(result.theta) >= 25
    assert (result.alpha[1:] > 0).all()


def test_a_failure_is_a_line_and_exit_code_1(here, monkeypatch, capsys):
    for name in ("check_products", "check_groups", "check_ray"):
        monkeypatch.setattr(self_check, name, lambda: Finding(True, "skipped"))
    monkeypatch.setattr(self_check, "check_disk", lambda: Finding(False, "make room"))
    assert main(["check"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == NAMES
    assert [line.split()[0] for line in lines].count("FAILED") == 1
    assert "FAILED disk       make room" in lines
    assert main(["check", "--jsn"]) == 2


def test_products_that_depend_on_the_batch_are_named(monkeypatch):
    broken = Break("multiply", "float32", 25, 1, 3, "as copies", "a processor")
    monkeypatch.setattr(self_check, "find_breaks", lambda shapes: iter([broken, broken]))
    passed, text, details = check_products()
    assert not passed and details == (str(broken), str(broken))
    assert text.startswith("2 products depend on the batch, first: multiply: float32, p = 25, k = 1, 3 agents")
    assert "--agents-per-actor" in text


def test_groups_that_differ_are_named(monkeypatch):
    fields = namedtuple("fields", ["arms", "rewards", "alpha", "theta", "rounds"])
    one, other = (fields(np.zeros(2), np.zeros(2), np.full(2, value), None, [1]) for value in (0.5, 0.25))
    monkeypatch.setattr(self_check, "run_alone", lambda: one)
    monkeypatch.setattr(self_check, "simulate", lambda config, groups: one if groups == 2 else other)
    passed, text, _ = check_groups()
    assert not passed and text.startswith("alpha of a run differ between 1 and 3 groups; compare only")


def test_a_cluster_that_is_not_there_is_a_finding(here, monkeypatch):
    def refuse(*_):
        raise ValueError("address='10.0.0.1:1': no cluster answers")

    monkeypatch.setattr(self_check, "RayRun", refuse)
    passed, text, _ = self_check.check_ray()
    assert not passed and "no cluster answers" in text and "--engine local" in text


def test_stores(here, monkeypatch):
    assert check_store() == Finding(True, f"{here / 'mlflow.db'} can be made")
    with sqlite3.connect(here / "mlflow.db") as store:
        store.execute("create table runs (id int)")
    assert check_store() == Finding(True, f"{here / 'mlflow.db'} can be written to")
    (here / "mlflow.db").write_text("no database, but a text that is long enough to be seen as none" * 20)
    passed, text, _ = check_store()
    assert not passed and "not a database" in text and "--tracking none" in text
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:////no/such/folder/mlflow.db")
    assert not check_store().is_passed
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    passed, text, _ = check_store()
    assert not passed and "http://127.0.0.1:9" in text


def test_too_little_room(monkeypatch):
    assert check_disk().is_passed and check_memory().is_passed
    monkeypatch.setattr(self_check, "LEAST_DISK", 10**18)
    monkeypatch.setattr(self_check, "LEAST_MEMORY", 10**18)
    assert "--out" in check_disk().text and "fewer agents" in check_memory().text
    assert not check_disk().is_passed and not check_memory().is_passed
