"""fnbandit.Study: the folders, runs and refusals of the command line, from Python."""

from __future__ import annotations

import subprocess
import sys

import pytest
from helpers import assert_records_equal

import fnbandit
from fnbandit import Config, Study
from fnbandit.errors import SimulationError
from fnbandit.storage.records import find_runs
from workflows.command_line import main
from workflows.command_line.arguments import StudyArguments, parse_request

SMALL = {"horizon": 12, "width": 4}
FLAGS = ["--horizon", "12", "--width", "4"]
REWARDS = """
from pathlib import Path
calls = 0
def late(x):
    global calls
    calls += 1
    return x[:, 0] * (float("nan") if calls > 7 and not Path("mended").exists() else 1)
def fine(x):
    return x[:, 0]
"""
HERE = {"engine": "local", "tracking": "none", "figures": False}


@pytest.fixture(autouse=True)
def in_a_directory_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def composed(*argv):
    """Folder -> config of the runs of `fnbandit sweep`."""
    points = parse_request("fnbandit sweep", argv, lists=True, kind=StudyArguments).points
    return {point.path: point.config for point in points}


def test_a_study_has_the_runs_of_the_command_line():
    flags = ["--agents", "1,2", "--trigger", "logdet", "--threshold", "2,5", "--seeds", "2"]
    sweep = {"agents": [1, 2], "trigger": "logdet", "threshold": (2.0, 5.0)}
    assert Study(Config.preset("tuned"), sweep, seeds=2).configs == composed(*flags)
    assert Study(sweep=sweep, seeds=2).configs == composed(*flags)
    # Of a preset's name, values that depend on the environment and the algorithm are each run's own.
    sweep = {"environment": ["cosine", "magic"], "algorithm": ["fn-ucb", "linear-ucb"], "trigger": ["always", "period"]}
    flags = ["--environment", "cosine,magic", "--algorithm", "fn-ucb,linear-ucb", "--trigger", "always,period"]
    assert Study("paper", sweep).configs == composed("--preset", "paper", *flags)
    # A config's are the same in all runs.
    base = Config.preset("tuned")
    found = Study(base, {"environment": ["cosine", "magic"]}).configs
    assert found["environment=magic/seed=0"] == base.replace(environment="magic")
    assert Study(base).configs == {".": base} == composed()
    assert Study(base, {"agents": range(1, 3)}, 2).configs == composed("--agents", "1,2", "--seeds", "2")


def test_a_study_writes_the_records_of_the_command_line(tmp_path, capsys):
    base = Config.preset("tuned", **SMALL)
    record = Study(base, {"agents": [1, 2]}, seeds=2).run("here", **HERE | {"figures": True})
    assert capsys.readouterr() == ("", "")
    assert len(record.finished) == len(record.runs) == 4
    assert repr(record) == repr(fnbandit.load("here"))
    flags = "--agents 1,2 --seeds 2 --engine local --tracking none --out there"
    argv = ["sweep", *FLAGS, *flags.split()]
    assert main(argv) == 0
    assert_records_equal(tmp_path / "here", tmp_path / "there", 4)
    names = {path.name for path in (tmp_path / "here").rglob("*")}
    assert names == {path.name for path in (tmp_path / "there").rglob("*")}
    # The command line goes on with a study that began in Python.
    capsys.readouterr()
    assert main([*argv[:-1], "here"]) == 0
    assert "4 of 4 runs are finished already" in capsys.readouterr().out


def test_a_folder_is_extended_refused_or_overwritten(tmp_path):
    base = Config.preset("tuned", agents=1, **SMALL)
    Study(base, {"threshold": [1.0, 2.0], "trigger": "logdet"}).run("here", **HERE)
    first = (tmp_path / "here/threshold=1.0/seed=0/trace.parquet").stat().st_mtime_ns
    larger = Study(base, {"threshold": [1.0, 3.0], "trigger": "logdet"}, seeds=2)
    assert len(larger.run("here", **HERE).finished) == 5
    assert (tmp_path / "here/threshold=1.0/seed=0/trace.parquet").stat().st_mtime_ns == first
    other = Study(base.replace(noise=0.5), {"threshold": [1.0, 2.0], "trigger": "logdet"})
    with pytest.raises(ValueError, match="holds runs with noise=0.01 instead of 0.5"):
        other.run("here", **HERE)
    assert len(other.run("here", overwrite=True, **HERE).finished) == 2


def test_without_a_folder_and_with_progress(tmp_path, capsys):
    record = Study(Config.preset("tuned", agents=1, **SMALL)).run(progress=True, **HERE)
    assert record.directory.parts[0] == "runs" and record.directory.name.startswith("cosine-fn-ucb-less-comm-")
    printed = capsys.readouterr()
    assert not printed.out
    first, second, *rest = printed.err.splitlines()
    assert first == "1 run of fn-ucb-less-comm on cosine, N = 1, T = 12, seed 0"
    assert second == f"folder   {record.directory}"
    assert any("regret" in line for line in rest)


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda: Study(sweep={"agnets": [1]}), r"field='agnets' is unknown \(did you mean 'agents'\?\)"),
        (lambda: Study("tunde"), r"preset='tunde' is unknown \(did you mean 'tuned'\?\)"),
        (lambda: Study(sweep={"agents": []}), r"agents=\[\]: expected at least one value"),
        (lambda: Study(sweep={"agents": [1, 1]}), "agents=1: duplicate value"),
        (lambda: Study(sweep={"agents": ["1"]}), "agents='1': expected a whole number, at least 1"),
        (lambda: Study(sweep={"period": [1, 2]}), "period: has no effect with trigger=logdet; trigger=period uses it"),
        (lambda: Study(seeds=0), "seeds=0: expected a whole number, at least 1"),
        (lambda: Study(seeds=True), "seeds=True: expected a whole number, at least 1"),
        (lambda: Study().run("here", engin="local"), r"field='engin' is unknown \(did you mean 'engine'\?\)"),
        (lambda: Study().run("here", engine="locl"), r"engine='locl' is unknown \(did you mean 'local'\?\)"),
    ],
)
def test_bad_input_is_one_line(tmp_path, make, line):
    with pytest.raises(ValueError, match=line) as error:
        make()
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_runs_that_fail_are_an_error_and_the_others_stay(tmp_path):
    (tmp_path / "study_rewards.py").write_text(REWARDS)
    study = Study(
        Config.preset("tuned", agents=1, horizon=90, width=4),
        {"environment": ["study_rewards:late", "study_rewards:fine"]},
    )
    with pytest.raises(SimulationError, match="here: runs have failed, see their log.txt"):
        study.run("here", **HERE)
    (finished,) = fnbandit.load("here").finished
    assert finished.summary["config"]["environment"] == "study_rewards:fine"
    (tmp_path / "mended").touch()
    assert len(study.run("here", **HERE).finished) == 2


def test_a_study_is_there_before_torch():
    code = (
        "import sys, fnbandit\n"
        "fnbandit.Study(sweep={'agents': [1, 2]})\n"
        "assert not {'torch', 'ray'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.long
def test_a_study_on_ray(ray_cluster, tmp_path):
    base = Config.preset("tuned", **SMALL)
    study = Study(base, {"agents": [1, 2]})
    there = study.run("there", engine="ray", address=ray_cluster, tracking="none")
    study.run("here", **HERE)
    assert len(there.finished) == 2
    assert_records_equal(tmp_path / "here", tmp_path / "there", len(find_runs("here")))
