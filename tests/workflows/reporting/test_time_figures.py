"""Figures and totals of runs with a clock, checked by hand."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import plain
from small_records import record

from fnbandit import simulate
from fnbandit.runs import LocalRun
from fnbandit.storage.totals import RunTotals
from workflows.reporting.figures import figures
from workflows.reporting.time_figures import average_regret, panels

REGRET = [[1.0, 3.0], [0.5, 0.0]]
TIME = [[1.0, 4.0], [2.0, 8.0]]


def test_average_regret_up_to_a_moment():
    """Finished at 1, 2, 4 and 8 s: regret 1, 0.5, 3 and 0."""
    run = record(REGRET, time=TIME)
    found = average_regret(run, np.array([0.5, 1.0, 3.0, 4.0, 9.0]))
    np.testing.assert_allclose(found, [np.nan, 1.0, 0.75, 1.5, 1.125])


def test_a_panel_for_every_clock_and_a_curve_for_what_else_differs():
    same = {"time": TIME, "clock": "lognormal", "trigger": "determinant"}
    pairs = [(spread, gain) for spread in (0.0, 1.0) for gain in (1.0, 2.0)]
    runs = {
        f"{spread} {gain}": [record(REGRET, **same, speed_spread=spread, async_gain=gain)] for spread, gain in pairs
    }
    found = panels(runs)
    assert list(found) == ["speed spread = 0", "speed spread = 1"]
    assert all(list(names) == ["γ = 1", "γ = 2"] for names in found.values())


def test_figures_of_time_are_drawn_where_there_is_a_clock():
    clocked = [record(REGRET, time=TIME, clock="lognormal", seed=seed) for seed in (0, 1)]
    (axis,) = figures(clocked)["regret-against-time"].axes
    (line,) = axis.lines
    # From the end of the slower agent's first iteration on: before, the mean is that of single agents.
    assert (line.get_xdata()[0], line.get_xdata()[-1]) == (4.0, pytest.approx(8.0))
    assert line.get_ydata()[-1] == pytest.approx(1.125)
    assert "regret-against-time" not in figures([record(REGRET)])
    # The mean of agents that are at different moments is regret at none of them.
    assert "regret-against-time" not in figures([record(REGRET, time=TIME, clock="lognormal", mean=True)])


def test_totals_of_simulated_time():
    config = plain(agents=3, horizon=20, dim=4, width=6, training_steps=3, clock="lognormal")
    for algorithm, trigger in (("fn-ucb-less-comm", "period"), ("fn-ucb-async", "period")):
        run = LocalRun(config.replace(algorithm=algorithm, trigger=trigger, period=5))
        totals, due = RunTotals(), []
        totals.begin(run.config)
        for segment in run.segments():
            totals.segment(segment)
            due += totals.due
        result, summary = simulate(run.config), totals.summary()
        assert summary["simulated_seconds"] == result.times.max()
        assert due[-1][1]["simulated_seconds"] == pytest.approx(result.times[-1].mean())
        records = result.round_records
        share = 1 / 3 if algorithm == "fn-ucb-async" else 1
        assert summary["simulated"]["sending"] == pytest.approx(share * sum(r.times.sending for r in records))
        assert (summary["simulated"]["waiting"] > 0) == (algorithm == "fn-ucb-less-comm")
    totals.begin(config.replace(clock="none"))
    assert "simulated" not in totals.summary()
