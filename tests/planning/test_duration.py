"""The duration model: gaps that triggers expect, against simulations; seconds, against hand calculation."""

from __future__ import annotations

import math

import pytest
from helpers import plain
from own_parts import PrimeTrigger

from fnbandit import Config, simulate
from fnbandit.config.registry import resolve_part
from fnbandit.environments import make_environment
from fnbandit.federation.triggers import Always, Budget, Determinant, LogDeterminant, Period
from fnbandit.planning.arithmetic import Rates
from fnbandit.planning.duration import (
    AGENT,
    OVER_IDEAL,
    OVERHEADS,
    expect_rounds,
    group_seconds,
    measure_rates,
    run_seconds,
)

ENDLESS = Rates(double=math.inf, single=math.inf, stream=math.inf)
"""Arithmetic that takes no time, so that calls alone count"""


def test_gaps_by_hand():
    config = plain(agents=10, horizon=1000, threshold=5.0, async_gain=1.0, period=7, round_budget=50)
    assert Always(config).expect_gap(30, 20) == 1
    assert Period(config).expect_gap(30, 20) == 7
    assert PrimeTrigger(config).expect_gap(23, 20) == 6
    # A row adds 20 / (10 * 40) to log det: k^2 / 20 > 5 for k = 10, and k / 20 > log 2.
    assert LogDeterminant(config).expect_gap(40, 20) == pytest.approx(10)
    assert Determinant(config).expect_gap(40, 20) == pytest.approx(20 * math.log(2))
    assert Budget(config).expect_gap(99, 20) == pytest.approx(2 * math.log(1001))


@pytest.mark.parametrize(
    "settings",
    [
        {"algorithm": "dislinucb", "trigger": "logdet"},
        {"algorithm": "dislinucb", "trigger": "logdet", "threshold": 0.5, "agents": 2},
        {"algorithm": "dislinucb", "trigger": "determinant"},
        {"algorithm": "fedlinucb", "trigger": "determinant"},
        {"algorithm": "dislinucb", "trigger": "budget", "round_budget": 40},
        {"algorithm": "dislinucb", "trigger": "period", "period": 25},
        {"algorithm": "dislinucb", "trigger": "always"},
        {"algorithm": "linear-ucb"},
        {"trigger": "logdet", "agents": 4, "horizon": 150},
    ],
)
def test_rounds_are_about_as_many_as_expected(settings):
    config = plain(**{"agents": 8, "horizon": 400} | settings)
    rounds = len(simulate(config).round_records)
    if config.algorithm == "fedlinucb":
        rounds /= config.agents
    expected = expect_rounds(config, make_environment(config))
    if resolve_part("trigger", config.trigger)(config).next_round(0) is not None or not rounds:
        assert expected == pytest.approx(rounds, rel=0.02)
    else:
        assert rounds / 1.6 < expected < 1.6 * rounds


def test_calls_by_hand():
    """Arithmetic aside, an iteration is a step, each agent's share, and 1 / k of a round."""
    steps, rounds = OVERHEADS["barrier", False].step, OVERHEADS["barrier", False].round
    config = plain(agents=30, horizon=1000, algorithm="dislinucb", trigger="period", period=10)
    seconds = group_seconds(config, make_environment(config), 6, ENDLESS)
    # In the first nine iterations the last round was at the start of the run, t < 10 iterations ago.
    early = sum(1 / t - 1 / 10 for t in range(1, 10))
    assert seconds == pytest.approx(1000 * (steps + 6 * AGENT) + rounds * (100 + early), rel=0.02)
    none = config.replace(algorithm="linear-ucb")
    expected = 1000 * (OVERHEADS["none", False].step + 6 * AGENT)
    assert group_seconds(none, make_environment(none), 6, ENDLESS) == pytest.approx(expected)


def test_agents_that_run_ahead_alone_take_steps_of_their_own():
    """With a period all agents upload at once. With a trigger that measures, each runs ahead without the others."""
    period = plain(agents=8, horizon=400, algorithm="fedlinucb", trigger="period", period=20)
    measured = period.replace(trigger="determinant")
    assert run_seconds(measured, ENDLESS) > 3 * run_seconds(period, ENDLESS)


def test_values_of_the_theory_need_not_be_known():
    theory = Config.preset("theory", agents=2, horizon=100)
    assert 0 < run_seconds(theory) < 100


def test_estimates_grow_with_the_work():
    small = Config.preset("tuned", agents=2, horizon=100)
    # With training_steps=auto most steps are due early: C log(t / u). A fixed number is due in every round.
    fixed = small.replace(training_steps=30)
    assert run_seconds(fixed.replace(horizon=400)) > 3 * run_seconds(fixed)
    assert run_seconds(small.replace(horizon=400)) > 1.5 * run_seconds(small)
    assert run_seconds(small.replace(width=60)) > run_seconds(small)
    environment = make_environment(small)
    halves = [group_seconds(small.replace(agents=400), environment, n) for n in (200, 400)]
    assert halves[0] < halves[1] < 2 * halves[0]
    for algorithm in ("neural-ucb", "kernel-ucb", "linear-ucb", "random", "dislinucb", "fn-ucb"):
        assert run_seconds(small.replace(algorithm=algorithm, agents=50)) > 0


def test_an_algorithm_without_a_formula_reads_what_it_keeps():
    """A kernel method keeps 3 t^2 numbers after t iterations: over a run, a third of what it keeps at the end."""
    kernel = Config.preset("paper", algorithm="kernel-ucb", agents=1, horizon=5000)
    matrices = OVER_IDEAL * 5000 * 2 * kernel.arms * (3 * 5000**2 / 3) / 1e10
    assert run_seconds(kernel, Rates(double=1e10, single=1e10, stream=1e10)) == pytest.approx(matrices, rel=0.25)


def test_rates_are_those_of_a_processor():
    rates = measure_rates(1)
    assert 1e8 < rates.double < rates.single < 1e13 and 1e8 < rates.stream < 1e12
