"""Which runs are one curve, what the curve is called, and its numbers."""

from __future__ import annotations

import dataclasses
import time

import numpy as np
import pytest
from small_records import record

from fnbandit import Config
from fnbandit.config.registry import KINDS
from fnbandit.simulation.results import standard_error
from workflows.reporting.grouping import curve, find_differing, group

# Numbers


def test_curve_is_the_mean_over_agents_summed_up():
    run = record([[1, 3], [0, 2], [4, 0]])
    iterations, regret = curve(run)
    assert iterations.tolist() == [1, 2, 3]
    assert regret.tolist() == [2, 3, 5]


def test_curve_of_a_trace_with_means_only():
    _, regret = curve(record([[1, 3], [0, 2], [4, 0]], mean=True))
    assert regret.tolist() == [2, 3, 5]


def test_curve_does_not_depend_on_the_order_of_rows():
    run = record([[1, 3], [0, 2], [4, 0]])
    shuffled = dataclasses.replace(run, trace=run.trace.take([4, 0, 3, 5, 1, 2]))
    assert curve(shuffled)[1].tolist() == [2, 3, 5]


def test_standard_error_by_hand():
    # Deviations -2, 0, 2: variance 8 / 2, error sqrt(4 / 3).
    assert standard_error(np.array([1.0, 3.0, 5.0])) == pytest.approx((4 / 3) ** 0.5)
    assert standard_error(np.array([7.0])) == 0


def test_a_long_trace_of_many_agents_is_read_quickly():
    """Arrays read it: as many values in a Python list take longer."""
    run = record(np.random.default_rng(0).random((1000, 1000)))
    began = time.process_time()
    curve(run)
    read = time.process_time() - began
    began = time.process_time()
    sum(run.trace["regret"].to_pylist())
    assert read < time.process_time() - began


# Groups and labels


def test_runs_that_differ_in_seed_are_one_group():
    groups = group([record([[1]], seed=1), record([[2]], seed=0)])
    assert list(groups) == ["FN-UCB (less comm.)"]
    assert [run.summary["config"]["seed"] for run in groups["FN-UCB (less comm.)"]] == [0, 1]


def test_groups_come_in_the_order_of_their_numbers():
    runs = [record(np.ones((1, n)), seed=s) for s in (0, 1) for n in (10, 2, 1)]
    assert list(group(runs)) == ["N = 1", "N = 2", "N = 10"]
    runs = [record([[1]], trigger="diagonal", threshold=d) for d in (10.0, 2.5, 0.05)]
    assert list(group(runs)) == ["D = 0.05", "D = 2.5", "D = 10"]


def test_labels_name_what_differs():
    runs = [
        record([[1]], environment="square"),
        record([[1]], environment="cosine", algorithm="neural-ts"),
        record([[1]], environment="cosine"),
    ]
    assert list(group(runs)) == ["cosine, FN-UCB (less comm.)", "cosine, Neural TS", "square, FN-UCB (less comm.)"]
    runs = [record([[1]], **{name: False}) for name in ("use_global", "use_local", "aggregate")]
    expected = ["FN-UCB (less comm.)", "without aggregation", "without UCB^a", "without UCB^b"]
    assert list(group([*runs, record([[1]])])) == expected


def test_fields_without_effect_make_no_difference():
    assert list(group([record([[1]], threshold=1.0), record([[1]], threshold=2.0, seed=1)])) == ["FN-UCB (less comm.)"]
    runs = [record([[1]], trigger="diagonal", threshold=1.0), record([[1]], threshold=2.0)]
    assert list(group(runs)) == ["always communicating", "D = 1, diagonal trigger"]


def test_many_differences_are_named_as_far_as_they_tell_runs_apart():
    one, other = Config.preset("paper"), Config.preset("tuned")
    configs = [dataclasses.asdict(config) for config in (one, other)]
    assert find_differing(configs) == ["agents"]


def test_given_labels_are_kept_and_told_apart():
    runs = [record(np.ones((1, n)), label="mine") for n in (1, 2)]
    assert list(group(runs)) == ["mine, N = 1", "mine, N = 2"]
    assert list(group([record([[1]], label="a"), record([[1]], label="b", seed=1)])) == ["a", "b"]


def test_equal_descriptions_of_different_runs_stay_apart():
    runs = [record([[1]], environment=path) for path in ("here/table.csv", "there/table.csv")]
    assert list(group(runs)) == ["table", "table (2)"]


def test_numbers_that_the_theory_computed_from_the_seed_do_not_split_a_group():
    runs = [record([[1]], trigger="logdet", threshold=d, seed=s) for s, d in enumerate((1.2345678, 1.3456789))]
    assert len(group(runs)) == 1
    runs = [record([[1]], trigger="logdet", threshold=d) for d in (1.2345678, 1.3456789)]
    assert list(group(runs)) == ["D = 1.235", "D = 1.346"]


def test_the_same_run_twice_is_one_observation():
    (runs,) = group([record([[1]], seed=0), record([[2]], seed=1), record([[1]], seed=0)]).values()
    assert [run.summary["config"]["seed"] for run in runs] == [0, 1]


def test_labels_have_the_titles_of_the_registry(monkeypatch):
    """A new part needs no line in grouping.py."""
    part = dataclasses.replace(KINDS["trigger"]["period"], title="when the moon is full", fields=())
    monkeypatch.setitem(KINDS["trigger"], "moon", part)
    runs = [record([[1]], trigger="moon", threshold=2.0), record([[1]], trigger="moon", threshold=3.0, seed=1)]
    assert list(group([*runs, record([[1]])])) == ["always communicating", "when the moon is full"]
    runs = [record([[1]], aggregation=name) for name in ("trimmed-mean", "mean")]
    assert list(group(runs)) == ["mean", "trimmed mean, trim = 0.1"]


def test_own_parts_are_called_by_their_class():
    runs = [record([[1]], algorithm=f"mine.algorithms:{name}") for name in ("Best", "Better")]
    assert list(group(runs)) == ["Best", "Better"]


def test_fields_of_networks_do_not_split_linear_runs():
    runs = [record([[1]], algorithm="linear-ucb", width=w, seed=w) for w in (10, 20)]
    assert list(group(runs)) == ["Linear UCB"]
