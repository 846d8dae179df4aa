"""The command `fnbandit`: every command has its effect, and what is wrong with what it was given is one line."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fnbandit.config import FIELDS
from fnbandit.config.registry import KINDS
from workflows.command_line import COMMANDS, main
from workflows.studies.experiments import experiment_names

SMALL = ["--agents", "3", "--horizon", "20", "--engine", "local", "--tracking", "none", "--no-figures"]


@pytest.fixture(autouse=True)
def in_a_directory_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["rum"], "did you mean 'rm' or 'run'?"),
        (["run", "--environment", "nowhere.csv", "--engine", "local"], "no such file"),
        (["run", "--device", "cuda", "--engine", "local"], "device='cuda'"),
        (["run", "--agents", "100000000", "--engine", "local"], "agents fit"),
        (["theory", "--engine", "local"], "--engine: unknown option"),
        (["resume"], "directory: is missing; expected a text"),
        (["resume", "nowhere"], "no study.json"),
        (["resume", "a", "b"], "b: unexpected argument"),
        (["report", "nowhere"], "has no run"),
        (["report"], "expected the directory"),
        (["reproduce", "fig1z"], "did you mean 'fig1"),
        (["reproduce", "fig1a", "--seeds", "0"], "seeds=0: expected a whole number, at least 1"),
        (["reproduce", "fig1a", "fig1b", "--out", "here"], "takes one figure"),
        (["ui"], "no store yet"),
        (["ui", "--port", "0"], "port=0: expected a whole number, at least 1"),
        (["algorithms", "more"], "algorithm='more' is unknown; accepted: fn-ucb, "),
        (["parts", "--more"], "--more: unknown option"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(tmp_path, capsys, argv, line):
    if torch_has_cuda() and "cuda" in argv:
        pytest.skip("there is a CUDA device here")
    assert main(argv) == 2
    printed = capsys.readouterr()
    assert line in printed.err
    assert printed.err.count("\n") == 1
    assert printed.err.startswith("fnbandit: ")
    assert "Traceback" not in printed.out + printed.err
    assert not (tmp_path / "runs").exists()


def torch_has_cuda():
    import torch

    return torch.cuda.is_available()


def test_the_commands_and_their_help(capsys):
    assert main([]) == 0
    printed = capsys.readouterr().out
    assert all(f"fnbandit {name}" in printed for name in COMMANDS)
    for name in COMMANDS:
        with pytest.raises(SystemExit) as end:
            main([name, "--help"])
        assert not end.value.code
        assert f"usage: fnbandit {name}" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["run", "--agents", "3", "--help"])
    printed = capsys.readouterr().out
    for name in (*FIELDS, "seeds", "dry_run", "cpus_per_actor", "tracking"):
        assert f"--{name.replace('_', '-')} " in printed, name


def test_lists_come_from_the_registry(capsys):
    def listed(command):
        assert main([command]) == 0
        return " ".join(capsys.readouterr().out.split())

    for command, kind in (("algorithms", "algorithm"), ("environments", "environment")):
        printed = listed(command)
        assert all(f"{name} {part.summary}" in printed for name, part in KINDS[kind].items())
        assert "package.module:" in printed
    assert "path/to/table.parquet" in listed("environments")
    printed = listed("parts")
    for kind, choices in KINDS.items():
        assert kind in printed
        for name, part in choices.items():
            assert f"{name} {part.summary}" + (f" fields: {', '.join(part.fields)}" if part.fields else "") in printed


def test_theory(capsys):
    assert main(["theory", "--agents", "2", "--horizon", "40"]) == 0
    assert "nu_TKN" in capsys.readouterr().out


def test_a_dry_run_of_one_run_shows_config_layout_and_memory(tmp_path, capsys):
    assert main(["run", "--preset", "theory", "--horizon", "50", "--agents", "2", "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "theory (`fnbandit theory` computes it)" in printed
    assert "layout" in printed
    assert "memory" in printed
    assert not (tmp_path / "runs").exists()


def test_a_dry_run_of_several_lists_them(tmp_path, capsys):
    assert main(["sweep", "--agents", "1,20", "--seeds", "2", "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert all(f"agents={n}/seed={s}" in printed for n in (1, 20) for s in (0, 1))
    assert main(["reproduce", "fig1c", "--quick", "--seeds", "5", "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "20 runs" in printed
    assert "curve=FN-UCB/seed=4" in printed
    assert not (tmp_path / "runs").exists()


def test_reproduce_without_a_figure_lists_them(capsys):
    assert main(["reproduce"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert names[1 : len(experiment_names()) + 1] == experiment_names()


def test_report(tmp_path, capsys):
    assert main(["run", *SMALL, "--out", "a", "--seeds", "2"]) == 0
    assert main(["run", *SMALL, "--out", "b", "--algorithm", "linear-ucb"]) == 0
    capsys.readouterr()
    assert main(["report", "a", "b", "--out", "both"]) == 0
    once = capsys.readouterr().out
    assert "Linear UCB" in once
    assert (tmp_path / "both" / "regret.png").exists()
    assert main(["report", "a", "b", "a", "--out", "both"]) == 0
    assert capsys.readouterr().out == once, "a run that is given twice is one observation"


def test_help_waits_for_nothing_heavy():
    code = """
import sys, types
# The package without what its own __init__ imports, which is another test's.
package = types.ModuleType("fnbandit")
package.__path__ = [sys.argv[1]]
sys.modules["fnbandit"] = package
from workflows.command_line import main
main(["parts"])
try:
    main(["run", "--help"])
except SystemExit:
    pass
print(sorted({"torch", "ray", "mlflow", "matplotlib", "pyarrow"} & set(sys.modules)))
"""
    import fnbandit

    done = subprocess.run([sys.executable, "-c", code, *fnbandit.__path__], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
