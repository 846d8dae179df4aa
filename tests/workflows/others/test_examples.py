"""The examples run as they stand."""

from __future__ import annotations

import runpy

import pytest


@pytest.mark.parametrize(
    ("name", "printed", "files"),
    [
        (
            "own_task",
            "Result: fn-ucb-less-comm on __main__:Thermostats",
            ["own_task.png", "runs/own-task/trace.parquet"],
        ),
        ("own_algorithm", "nearest   regret per agent", []),
        ("route_questions", "mean score of 504 questions: ", ["policy.safetensors"]),
        ("study_figure", "6 of 6 runs finished; agents = 1, 2, 4", ["regret.pdf"]),
    ],
)
def test_an_example(name, printed, files, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    runpy.run_module(f"workflows.examples.{name}", run_name="__main__")
    assert printed in capsys.readouterr().out
    assert all((tmp_path / file).stat().st_size > 1000 for file in files)
