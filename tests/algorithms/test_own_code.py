"""Users' own code that raises, exits or returns what it should not, and sizes that no machine has."""

from __future__ import annotations

import os
import sys

import pytest

from fnbandit import read_run
from workflows.command_line import main

BASE = {"--agents": "2", "--horizon": "10", "--width": "4"}
OWN = """
import os
import sys
import numpy as np
def raises(x):
    return {}["missing key"]
def exits(x):
    sys.exit(0)
def exits_later(x):
    if len(x) > 2:
        sys.exit(0)
    return x[:, 0]
def leaves_later(x):
    if len(x) > 2:
        os._exit(0)
    return x[:, 0]
def leaves_at_once(x):
    os._exit(0)
async def coroutine(x):
    return x[:, 0]
def without_argument():
    return 1
def in_place(x):
    x[:] = 0
    return x[:, 0]
def complex_values(x):
    return x[:, 0] + 1j
def ragged(x):
    return [[1], [1, 2]]
def texts(x):
    return np.array(["a"] * len(x))
def nothing(x):
    return None
def whole(x):
    return np.arange(len(x))
class Environment:
    arms, dim = 3, 2
    def __init__(self, config):
        pass
    def block(self, agent, index):
        raise RuntimeError("no block today")
    def domain(self, count):
        return np.zeros((count, 2))
class Empty:
    def __init__(self, *args):
        pass
class Strict:
    pass
"""


@pytest.fixture(autouse=True)
def with_own_modules(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_code.py").write_text(OWN)
    (tmp_path / "own_syntax.py").write_text("def f(x) return 1\n")
    (tmp_path / "own_import.py").write_text("raise RuntimeError('at import')\n")
    (tmp_path / "own_exit.py").write_text("import sys\nsys.exit(0)\n")
    yield
    for name in ("own_code", "own_syntax", "own_import", "own_exit"):
        sys.modules.pop(name, None)


def run(**flags):
    words = BASE | {f"--{name.replace('_', '-')}": value for name, value in flags.items()}
    return main(["run", *(word for pair in words.items() for word in pair), "--engine", "local", "--tracking", "none",
                 "--no-figures", "--out", "here"])  # fmt: skip


@pytest.mark.parametrize(
    ("flag", "name", "lines"),
    [
        ("environment", "own_code:raises", ["in raises", '{}["missing key"]', "KeyError: 'missing key'"]),
        ("environment", "own_code:exits", ["in exits", "SystemExit: 0"]),
        ("environment", "own_code:exits_later", ["in exits_later", "SystemExit: 0"]),
        ("environment", "own_code:without_argument", ["TypeError: without_argument() takes 0 positional arguments"]),
        ("environment", "own_code:in_place", ["in in_place", "ValueError: assignment destination is read-only"]),
        ("environment", "own_code:Environment", ["in block", "RuntimeError: no block today"]),
        ("environment", "own_syntax:f", ["def f(x) return 1", "SyntaxError"]),
        ("environment", "own_import:f", ["in <module>", "RuntimeError: at import"]),
        ("environment", "own_exit:f", ["in <module>", "SystemExit: 0"]),
        ("trigger", "own_code:Strict", ["TypeError: Strict() takes no arguments"]),
        ("weight", "own_code:Empty", ["AttributeError: 'Empty' object has no attribute"]),
    ],
)
def test_own_code_that_raises_is_told_with_its_own_traceback(capsys, flag, name, lines):
    assert run(**{flag: name}) == 1
    printed = capsys.readouterr().err.splitlines()
    assert printed[0].startswith(f"fnbandit: {flag}={name!r} raised ")
    for line in lines:
        assert any(line in row for row in printed[1:]), printed
    assert not [row for row in printed if "/fnbandit/" in row or "/workflows/" in row or "importlib" in row]


@pytest.mark.parametrize("name", ["exits_later", "leaves_later"])
def test_a_run_that_own_code_ends_has_failed(name):
    leave = os._exit
    assert run(environment=f"own_code:{name}") == 1
    assert read_run("here").summary["status"] == "failed"
    assert os._exit is leave


def test_own_code_that_leaves_at_once_has_failed(capsys):
    assert run(environment="own_code:leaves_at_once") == 1
    assert capsys.readouterr().err.endswith("SystemExit: os._exit(0)\n")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"environment": "own_code:complex_values"}, "complex128 values; expected one real number per context"),
        ({"environment": "own_code:ragged"}, "returned no array"),
        ({"environment": "own_code:texts"}, "expected one real number per context"),
        ({"environment": "own_code:nothing"}, "shape ()"),
        ({"environment": "own_code:coroutine"}, "returned a coroutine; write it as def, not as async def"),
        ({"algorithm": "own_code:Empty"}, "expected a class that extends fnbandit.Group"),
        ({"seed": str(2**64)}, "seed=18446744073709551616: expected a whole number, at least 0, below"),
        ({"seed": str(2**64 - 1), "seeds": "2"}, "seed=18446744073709551616"),
        ({"dim": str(10**9)}, "arms=4, dim=1000000000: the contexts of 32 iterations"),
        ({"arms": str(10**11)}, "256 TB"),
        ({"weight": "theory", "domain_sample": str(10**12)}, "of memory"),
        ({"horizon": str(10**30)}, "of memory"),
        ({"agents": str(10**12)}, "agents fit"),
        ({"hidden_layers": str(10**6)}, "at most 1000"),
        ({"device": "mps"}, "device='mps': expected auto, cpu, cuda or cuda:INDEX"),
        ({"device": "xla"}, "device='xla'"),
        ({"device": "meta"}, "device='meta'"),
        ({"noise": "1e308"}, "scores became NaN"),
        ({"seeds": str(10**7)}, "10,000,000 runs: a study has at most 100,000"),
    ],
)
def test_what_cannot_be_is_one_line(capsys, flags, words):
    assert run(**flags) == 2
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1 and printed.startswith("fnbandit: "), printed
    assert words in printed


def test_whole_numbers_are_rewards_and_huge_rates_are_survived():
    assert run(environment="own_code:whole", training_rate="1e308") == 0


def test_arms_beyond_sixteen_bits():
    command = ["run", "--agents", "1", "--horizon", "60", "--dim", "1", "--arms", "40000", "--algorithm", "random"]
    assert main([*command, "--engine", "local", "--tracking", "none", "--no-figures", "--out", "here"]) == 0
    arms = read_run("here").trace["arm"].to_pylist()
    assert min(arms) >= 0 and max(arms) > 2**15
