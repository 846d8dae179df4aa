"""The benchmark's lines at small sizes: they measure something, and say what."""

from __future__ import annotations

import sys

import pytest
from helpers import plain

from workflows.benchmarks import __main__ as benchmark
from workflows.benchmarks.gpu import against_a_core, agreement, split_work
from workflows.benchmarks.scale import in_epoch, prediction, servers_part


def run(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["benchmark", *arguments])
    benchmark.run_benchmarks()
    return capsys.readouterr().out


def test_where_there_is_no_gpu_one_line_says_so(monkeypatch, capsys):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert run(monkeypatch, capsys, "--gpu", "cosine") == "torch finds no GPU: nothing to measure\n"


def test_the_plan_for_a_gpu_counts_iterations_and_rounds():
    config = plain(agents=3, dim=4, width=4, training_steps=2)
    iteration, round_ = split_work(config, iterations=4)
    assert iteration.copies == 3 / 4  # contexts, means and noise, once for all four iterations
    assert iteration.reads == 6 / 4  # arms, rewards, regret, alpha, the flag of NaN; theta at the end
    assert round_.reads > 0 and round_.launches > iteration.launches


def test_an_unknown_line_is_refused_with_those_there_are(monkeypatch, capsys):
    with pytest.raises(SystemExit, match=r"cosin: unknown benchmark; accepted: oracle-cosine, .*servers-part"):
        run(monkeypatch, capsys, "cosin")


def test_lines_on_many_agents_with_few():
    part, epoch, model = servers_part(20, 8), in_epoch(3), prediction(36, 18, 8)
    assert 0 < part.value < 1
    assert "iterations 33-63" in epoch.note and epoch.value > 0
    assert model.value > 0 and "predicted" in model.note


def test_a_line_against_the_oracle():
    assert (benchmark.ORACLES / "oracle.py").exists()
    line = benchmark.against_oracle("cosine N=2", plain(agents=2, horizon=6, width=4), (3, 6), (3, 5), target=0)
    assert line.value > 0 and line.holds and "(iterations 3-6)" in line.note


def test_lines_for_a_gpu_on_a_core():
    line = against_a_core("cosine N=2", plain(agents=2, horizon=6), 1, device="cpu")
    assert line.value > 0 and "6 iterations" in line.note
    same = agreement(2, 6, device="cpu")
    assert (same.value, same.holds) == (1.0, True)
