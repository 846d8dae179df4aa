"""What a simulation hands over: totals, summaries, segments."""

from __future__ import annotations

import numpy as np
from helpers import plain

from fnbandit import simulate
from fnbandit.algorithms.base import Trace
from fnbandit.core import Segment
from fnbandit.simulation.results import collect
from fnbandit.simulation.schedule import join_agents


def trace(iterations: int, agents: int, start: int = 0) -> Trace:
    """Numbers that say where they belong: 10 t + agent."""
    numbers = 10.0 * np.arange(start + 1, start + iterations + 1)[:, None] + np.arange(agents)
    return Trace(numbers.astype(np.int64), numbers, numbers / 2, numbers[:, 0])


def test_totals_are_the_sum_of_the_rounds():
    config = plain(agents=3, horizon=50, trigger="logdet")
    result = simulate(config)
    communication = result.communication
    assert len(communication.bytes_up) == len(result.rounds) > 1
    p = 241  # 10 x 20 + 20 + 20 + 1; two full matrices, B_new, alpha_i in double and theta_i in single precision
    assert communication.total.bytes_up == len(result.rounds) * 3 * (8 * (2 * p * p + p + 1) + 4 * p)
    signals = sum(len(record.triggered) for record in result.round_records)
    assert communication.total.messages_up == len(result.rounds) * 3 + signals
    for record in result.round_records:
        assert record.measure > config.threshold
        assert record.triggered


def test_groups_stand_side_by_side():
    found = join_agents([trace(3, 2), trace(3, 1)])
    assert found.arms.tolist() == [[10, 11, 10], [20, 21, 20], [30, 31, 30]]
    assert found.alpha.tolist() == [10, 20, 30]


def test_what_of_a_segment_lies_after_an_iteration():
    segment = Segment(4, 7, trace(3, 2, start=4), (), 0.5)
    whole = segment.after(2)
    assert (whole.start, whole.end) == (4, 7)
    np.testing.assert_array_equal(whole.trace.rewards, segment.trace.rewards)
    rest = segment.after(6)
    assert (rest.start, rest.end, rest.seconds) == (6, 7, 0.5)
    assert rest.trace.arms.tolist() == [[70, 71]]
    assert rest.trace.alpha.tolist() == [70]


def test_segments_are_collected_in_their_order():
    theta = np.array([1.0, 2.0])
    result = collect(plain(), [Segment(0, 2, trace(2, 2), (), 0.1), Segment(2, 3, trace(1, 2, 2), (), 0.1, theta)])
    assert result.arms.tolist() == [[10, 11], [20, 21], [30, 31]]
    assert result.theta is theta
    assert result.rounds == []


def test_summary_says_how_good_how_many_rounds_how_many_bytes():
    text = simulate(plain(agents=2, horizon=20)).summary()
    for word in ("regret per agent", "rounds", "bytes", "seconds"):
        assert word in text
