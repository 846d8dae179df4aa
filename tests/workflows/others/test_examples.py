"""The examples run as they stand."""

from __future__ import annotations

import runpy
import sys

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
        ("own_federated", "N = 8  regret per agent", []),
        ("route_questions", "mean score of 504 questions: ", ["policy.safetensors"]),
        ("study_figure", "6 of 6 runs finished; agents = 1, 2, 4", ["regret.pdf"]),
    ],
)
def test_an_example(name, printed, files, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    # Another test may have imported it.
    monkeypatch.delitem(sys.modules, f"workflows.examples.{name}", raising=False)
    runpy.run_module(f"workflows.examples.{name}", run_name="__main__")
    assert printed in capsys.readouterr().out
    assert all((tmp_path / file).stat().st_size > 1000 for file in files)


class Trial:
    """What an objective calls of an Optuna trial; it prunes at an iteration."""

    def __init__(self, last):
        self.last, self.reported = last, {}

    def suggest_float(self, name, low, high, log):
        return (low * high) ** 0.5

    def report(self, value, step):
        self.reported[step] = value

    def should_prune(self):
        return max(self.reported) >= self.last


def test_a_trial_is_pruned():
    from workflows.examples.pruning import objective, searched

    whole, pruned = Trial(10**6), Trial(40)
    regret = objective(whole, KeyError)
    assert max(whole.reported) == searched.horizon and whole.reported[searched.horizon] == regret
    with pytest.raises(KeyError):
        objective(pruned, KeyError)
    assert max(pruned.reported) == 40 and pruned.reported[40] == whole.reported[40] < regret
