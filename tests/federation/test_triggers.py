"""When to communicate: what triggers measure, and the budget."""

from __future__ import annotations

import math

import pytest
import torch
from helpers import plain

from fnbandit import simulate
from fnbandit.config.registry import resolve_part
from fnbandit.federation.triggers import RoundCounters


class FakeEpoch:
    def gain(self):
        return torch.tensor([0.5, 2.0])

    def diagonal_gain(self):
        return torch.tensor([0.7, 3.0])


def trigger(name: str, **settings):
    return resolve_part("trigger", name)(plain(trigger=name, **settings))


def test_measures_by_hand():
    moment = RoundCounters(iteration=9, last_round=5, rounds=2)
    assert trigger("logdet", threshold=7.5).measure(FakeEpoch(), moment).tolist() == [2.0, 8.0]
    assert trigger("logdet", threshold=7.5).level == 7.5
    assert trigger("diagonal").measure(FakeEpoch(), moment).tolist() == pytest.approx([2.8, 12.0])
    assert trigger("always").next_round(5) == 6
    assert trigger("period", period=10).next_round(5) == 15
    assert trigger("logdet").next_round(5) is None


def test_the_budgets_price_by_hand():
    budget = trigger("budget", round_budget=4, horizon=255)
    # log2(16) / log2(256) is half of the schedule, and half of the budget is spent: the price is 1.
    assert budget.measure(FakeEpoch(), RoundCounters(15, 1, 2)).tolist() == pytest.approx([0.5, 2.0])
    # A quarter of the budget too early: a hundred times as dear; too late: a hundredth.
    assert budget.measure(FakeEpoch(), RoundCounters(15, 1, 3)).tolist() == pytest.approx([0.005, 0.02])
    assert budget.measure(FakeEpoch(), RoundCounters(15, 1, 1)).tolist() == pytest.approx([50.0, 200.0])
    assert budget.measure(FakeEpoch(), RoundCounters(200, 1, 4)).tolist() == [0.0, 0.0]
    assert math.isclose(budget.level, 1.0)


@pytest.mark.parametrize("rounds", [1, 4, 15])
@pytest.mark.parametrize("settings", [{}, {"diagonal": True}, {"environment": "square", "agents": 1}], ids=str)
def test_the_budget_is_spent_and_never_exceeded(rounds, settings):
    base = {"agents": 5, "horizon": 150, "dim": 5, "width": 8, "training_steps": 3, "training_rate": 0.005}
    config = plain(trigger="budget", round_budget=rounds, **base | settings)
    result = simulate(config)
    assert len(result.rounds) == rounds
    gaps = [b - a for a, b in zip(result.rounds, result.rounds[1:], strict=False)]
    # As log det rises, rounds are dense at first.
    assert rounds < 4 or sum(gaps[: len(gaps) // 2]) < sum(gaps[len(gaps) // 2 :])
    assert simulate(config, groups=min(2, config.agents)).rounds == result.rounds
