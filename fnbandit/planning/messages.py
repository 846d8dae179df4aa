"""Rounds, exchanges and bytes of a run, estimated before it starts; bytes as `federation.channels` counts them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from fnbandit.config import Config
from fnbandit.config.registry import resolve_part
from fnbandit.core import Content, Cost
from fnbandit.environments import Environment
from fnbandit.federation.replica import Replica
from fnbandit.planning.duration import count_features, divide_horizon, expect_gap, traits_of, without_theory_values
from fnbandit.planning.training import RoundTraining, expect_training

SHOWN = 3
"""Exchanges of equal content whose costs are computed: the first, the last, and one for all between"""


@dataclass(frozen=True)
class ExpectedMessages:
    """Expected communication of a run."""

    rounds: float = 0.0
    """0 where agents do not wait for each other"""
    exchanges: float = 0.0
    bytes_up: float = 0.0
    bytes_down: float = 0.0

    def __add__(self, other: ExpectedMessages) -> ExpectedMessages:
        return ExpectedMessages(*(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))

    def __mul__(self, factor: float) -> ExpectedMessages:
        return ExpectedMessages(*(value * factor for value in vars(self).values()))


def expect_messages(config: Config, environment: Environment) -> ExpectedMessages:
    """Return the expected communication of a run over its horizon."""
    config = without_theory_values(config)
    total, traits = ExpectedMessages(), traits_of(config)
    if not traits.communicates:
        return total
    # The meta device stores no values: only sizes are read.
    like = torch.empty(0, dtype=getattr(torch, config.statistics_dtype), device="meta")
    replica = resolve_part("algorithm", config.algorithm).make_replica(config, environment, like)
    features = count_features(config, environment)
    for t, width in divide_horizon(config.horizon):
        expected = expect_gap(config, environment, t)
        gap = min(t, expected)
        if traits.is_asynchronous:
            each = _of_cost(replica.cost(gap, config.agents * gap)) * config.agents
        else:
            training = expect_training(config, environment.dim, features, t, gap)
            each = _expect_round(replica, t, gap, training)
        total += each * (width / expected)
    return total


def _expect_round(replica: Replica, t: int, gap: int, training: RoundTraining) -> ExpectedMessages:
    """Return the communication of a round of `gap` iterations: the average of those that train, and of others."""
    replica.last_round = t - gap
    replica.since[:] = t - gap
    known = replica.trigger.next_round(t - gap) is not None
    total, share = ExpectedMessages(), training.share
    if share:
        replica.last_trained = 0
        counted = list(_count_contents(training))
        costs = replica.costs(t, [None, *(content for content, _ in counted)], None if known else 1)
        weights = [1.0, *(number for _, number in counted)]
        for cost, weight in zip(costs, weights, strict=True):
            total += _of_cost(cost) * (weight * share)
    if share < 1:
        replica.last_trained = t
        (cost,) = replica.costs(t, [None], None if known else 1)
        total += _of_cost(cost) * (1 - share)
    return total + ExpectedMessages(rounds=1.0)


def _count_contents(training: RoundTraining) -> Iterator[tuple[Content, float]]:
    """Yield the contents of exchanges in order, at most SHOWN of each, with the number that each stands for."""
    for content, number in training.contents:
        count = min(SHOWN, max(1, round(number)))
        for place in range(count):
            yield content, number - (count - 1) if place == count // 2 else 1.0


def _of_cost(cost: Cost) -> ExpectedMessages:
    return ExpectedMessages(0.0, 1.0, cost.bytes_up, cost.bytes_down)
