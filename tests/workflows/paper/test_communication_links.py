"""Seconds of messages on links of which all agents have the same, beside the simulated clock."""

from __future__ import annotations

import dataclasses

import pytest

from fnbandit import Config, simulate
from workflows.paper.page_communication import LINKS, Link


@pytest.mark.parametrize("link", LINKS, ids=lambda link: link.name)
@pytest.mark.parametrize(
    "fields",
    [
        {"trigger": "logdet", "threshold": 3.0},
        {"trigger": "period", "period": 7},
        {"trigger": "logdet", "threshold": 3.0, "algorithm": "fn-exact", "federation": "exact"},
    ],
    ids=["asked for", "periodic", "several exchanges"],
)
def test_seconds_are_those_of_the_clock_when_computing_takes_no_time(link, fields):
    config = Config.build(
        "exact" if "federation" in fields else "tuned",
        "cosine",
        {"agents": 3, "horizon": 25, "clock": "uniform", "speed": 1e12, "speed_spread": 0.0, "training_pace": 1e12,
         "latency": link.latency, "bandwidth_up": link.up, "bandwidth_down": link.down} | fields,
    )  # fmt: skip
    result = simulate(config)
    assert result.rounds and max(result.rounds) < config.horizon
    total = dataclasses.asdict(result.communication.total)
    exchanges = sum(record.exchanges for record in result.round_records)
    summary = total | {"config": dataclasses.asdict(config), "rounds": len(result.rounds), "exchanges": exchanges}
    assert link.time_messages(summary) == pytest.approx(result.times[-1].mean(), rel=1e-3)


def test_seconds_by_hand():
    """Four agents, three rounds of five exchanges in all, each asked for: (5 + 3) times there and back."""
    summary = {
        "config": {"agents": 4},
        "rounds": 3,
        "exchanges": 5,
        "messages_up": 23,
        "bytes_up": 400,
        "bytes_down": 80,
    }
    assert Link("any", 0.5, 10.0, 20.0).time_messages(summary) == pytest.approx(2 * 0.5 * 8 + 100 / 10 + 20 / 20)
    assert Link("any", 0.5, 10.0, 20.0).time_messages(summary | {"messages_up": 20}) == pytest.approx(5 + 11)
