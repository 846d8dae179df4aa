"""Results that are shipped: what is kept of a study, what is read back, how fresh runs compare with it."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
from helpers import plain
from rich.console import Console
from small_records import record

from fnbandit.numerics.battery import processor
from fnbandit.storage.records import read_run
from workflows.command_line import main
from workflows.execution.runner import execute
from workflows.paper import shipped as kept_results
from workflows.paper.shipped import (
    compare_shipped,
    keep,
    read_kept,
    read_published_values,
    restore_record,
    summarize_run,
    without_shipped,
)
from workflows.reporting.grouping import curve, group
from workflows.studies.experiments import experiment
from workflows.studies.settings import Settings
from workflows.studies.study import RunSpec, StudyPlan, with_seeds


@pytest.fixture
def results(tmp_path, monkeypatch):
    """A folder of results of its own."""
    monkeypatch.setattr(kept_results, "RESULTS", tmp_path / "results")
    return tmp_path / "results"


def small_study(tmp_path, horizon=20) -> StudyPlan:
    settings = Settings(engine="local", tracking="none")
    config = plain(agents=2, horizon=horizon, algorithm="linear-ucb")
    points = [RunSpec("curve=a", config, "paper: a", 3.5), RunSpec("curve=b", config.replace(agents=1), "tuned: b")]
    return StudyPlan("small", tmp_path / "runs" / "small", with_seeds(points, 2), settings)


def test_what_is_kept_is_what_the_runs_say(tmp_path, results):
    study = small_study(tmp_path)
    with pytest.raises(ValueError, match="4 of 4 runs are not finished; nothing is written"):
        keep(study)
    assert not results.exists()
    assert execute(study, Console(quiet=True)) == 0
    assert keep(study) == (results / "small.parquet", 0)
    kept = group(read_kept("small"))
    assert {label: len(runs) for label, runs in kept.items()} == {"tuned: b": 2, "paper: a": 2}
    for point in study.points:
        run = read_run(study.directory / point.path)
        one = kept[point.label][point.config.seed]
        assert plain(**one.summary["config"]) == point.config
        for name in ("regret", "regret_standard_error", "rounds", "bytes_up", "messages_down", "seconds", "versions"):
            assert one.summary[name] == run.summary[name]
        assert one.summary["machine"] == processor()
        iterations, regret = curve(one)
        assert iterations.tolist() == list(range(1, 21))
        assert regret == pytest.approx(curve(run)[1], rel=1e-6)
    assert read_published_values(read_kept("small")) == {"paper: a": 3.5}
    assert read_kept("another") == []


def test_what_is_missing_is_run_and_joins_what_is_shipped(tmp_path, results):
    study = small_study(tmp_path)
    one = dataclasses.replace(study, name="one", directory=tmp_path / "one", points=study.points[:2])
    assert execute(one, Console(quiet=True)) == 0
    keep(one)
    # The first curve is shipped with another study; of the second one seed of two is finished.
    left = without_shipped(study)
    assert [point.path for point in left.points] == ["curve=b/seed=0", "curve=b/seed=1"]
    assert execute(dataclasses.replace(left, points=left.points[:1]), Console(quiet=True)) == 0
    assert keep(study) == (results / "small.parquet", 1)
    (runs,) = group(read_kept("small")).values()
    assert [run.summary["label"] for run in runs] == ["paper: a"] * 2
    assert [run.summary["regret"] for run in runs] == [run.summary["regret"] for run in read_kept("one")]
    assert execute(left, Console(quiet=True)) == 0
    assert keep(study) == (results / "small.parquet", 0)
    assert [len(runs) for runs in group(read_kept("small")).values()] == [2, 2]
    assert without_shipped(study).points == []


def test_a_curve_is_thinned_to_150_points_with_both_ends(tmp_path):
    run = record(np.ones((1000, 1)))
    facts = {"versions": {}, "seconds": 1.0, "regret_standard_error": 0.0, "messages_up": 0, "messages_down": 0}
    run.summary.update(facts)
    row = summarize_run(run, RunSpec(".", plain()))
    assert len(row["curve"]) == 150
    assert (row["curve_iterations"][0], row["curve_iterations"][-1]) == (1, 1000)
    iterations, regret = curve(restore_record(tmp_path, row))
    assert (regret == iterations).all()


def test_damaged_results_are_one_line(results):
    results.mkdir()
    (results / "small.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(ValueError, match="small.parquet: is damaged") as error:
        read_kept("small")
    assert "\n" not in str(error.value)


def fresh(values, label="a", **fields):
    """A run of one agent per seed, with a final regret."""
    return [record([[value]], label=label, seed=seed, **fields) for seed, value in enumerate(values)]


def test_fresh_runs_beside_the_shipped_ones_by_hand(monkeypatch):
    shipped = [*fresh([1.0, 3.0]), *fresh([1.0, 1.2], "b", width=3), *fresh([5.0], "c", width=4)]
    monkeypatch.setattr(kept_results, "read_kept", lambda name: shipped)
    # a: means 2 and 3, errors 1 and 1. b: means 1.1 and 2.1, errors 0.1 and 0.1.
    again = [*fresh([2.0, 4.0]), *fresh([2.0, 2.2], "b", width=3), *fresh([5.0], "c", width=4), *fresh([7.0], "d")]
    found = {difference.label: difference for difference in compare_shipped("any", again)}
    one, two, three = (found.pop(label) for label in "abc")
    assert not found
    assert one.errors == pytest.approx(1 / math.sqrt(2))
    assert one.describe() == "within the error: +1.00, 0.7 standard errors"
    assert two.describe() == "outside: +1.00, 7.1 standard errors"
    assert three.describe() == "same bits"
    # Only the same seeds and configs are compared.
    (only,) = compare_shipped("any", fresh([1.0, 9.0])[:1])
    assert only.describe() == "same bits"
    assert compare_shipped("any", fresh([1.0], width=99)) == []


def test_the_command_keeps_and_compares(tmp_path, results, monkeypatch, capsys):
    from workflows.command_line import commands

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(commands, "experiment", lambda name, *_: dataclasses.replace(small_study(tmp_path), name=name))
    assert main(["reproduce", "small", "--engine", "local", "--keep"]) == 0
    printed = capsys.readouterr().out
    assert "shipped" not in printed and "kept" in printed
    assert main(["reproduce", "small"]) == 0
    printed = capsys.readouterr().out
    assert "Beside the shipped results" in printed and printed.count("same bits") == 2
    for words in (["small", "--quick"], ["small", "--dry-run"], []):
        assert main(["reproduce", *words, "--keep"]) == 2
        assert "keep=True: takes figures at full size" in capsys.readouterr().err
    assert main(["reproduce", "small", "--missing", "--engine", "local"]) == 0
    assert "nothing is missing" in capsys.readouterr().out
    assert main(["reproduce", "small", "--missing", "--quick"]) == 2
    assert "missing=True: takes figures at full size" in capsys.readouterr().err


def test_a_run_that_two_studies_share_is_carried_out_once(tmp_path, capsys):
    first = small_study(tmp_path)
    config = first.points[0].config
    points = with_seeds([RunSpec("curve=c", config, "c"), RunSpec("curve=d", config.replace(dim=3), "d")], 2)
    second = StudyPlan("second", tmp_path / "runs" / "second", points, first.settings)
    assert execute(first, Console(quiet=True)) == 0
    console = Console(width=200)
    assert execute(second, console, others=[first]) == 0
    assert "2 of 4 runs are those of small" in capsys.readouterr().out
    labels = [read_run(second.directory / point.path).summary["label"] for point in points]
    assert labels == ["c", "c", "d", "d"]
    shared = read_run(second.directory / "curve=c/seed=1")
    assert shared.trace.equals(read_run(first.directory / "curve=a/seed=1").trace)
    body = json.loads((second.directory / "curve=c/seed=1/summary.json").read_text())
    assert body["config"] == dataclasses.asdict(config.replace(seed=1))
    assert execute(second, console, others=[first]) == 0
    assert "are those of" not in capsys.readouterr().out


def test_shipped_results_are_those_of_the_experiments_as_they_stand(monkeypatch):
    """A changed default, or a new field, neither orphans what is shipped nor lets `--missing` run it again."""
    rows = kept_results.read_shipped_rows()
    monkeypatch.setattr(kept_results, "read_shipped_rows", lambda: rows)
    for name in kept_results.list_shipped():
        study, kept = experiment(name, False, None, Settings()), {run.summary["label"] for run in read_kept(name)}
        assert kept and kept <= {point.label for point in study.points}, name
        assert not [point.label for point in without_shipped(study).points if point.label in kept], name
    # Another trigger is another run: of four numbers of agents, with two presets; neural learners have no trigger.
    study = experiment("fig1a", False, 1, Settings())
    other = [dataclasses.replace(point, config=point.config.replace(trigger="logdet")) for point in study.points]
    left = without_shipped(dataclasses.replace(study, points=other)).points
    assert [point.config.algorithm for point in left] == ["fn-ucb-less-comm"] * 8
