"""Memory, reckoned by hand before anything starts, and what does not fit."""

from __future__ import annotations

import pytest
from helpers import plain

from fnbandit.config.registry import ALGORITHMS
from fnbandit.environments import make_environment
from fnbandit.numerics.memory import Memory, precisions, readable
from fnbandit.planning.capacity import MARGIN, check_local, memory


def needs(**settings) -> Memory:
    config = plain(**settings)
    return memory(config, make_environment(config))


def test_memory_adds_up():
    both = Memory(3.0, 10.0) + Memory(4.0)
    assert both == Memory(7.0, 10.0)
    assert both.of(5) == 45
    assert precisions(plain(statistics_dtype="float32", network_dtype="float64")) == (4, 8)


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (1234567, "1.23 MB"), (25e9, "25 GB"), (5e12, "5 TB")],
)
def test_bytes_as_people_write_them(count, text):
    assert readable(count) == text


def test_agents_that_learn_nothing_by_hand():
    # Arms, rewards and regret of 1000 iterations; 32 iterations of 4 contexts with mean and noise; features.
    found = needs(algorithm="random", horizon=1000, arms=4, dim=10)
    assert found.per_agent == pytest.approx(MARGIN * (1000 * 3 * 8 + 32 * 4 * 12 * 8 + 4 * 4 * 10 * 8))
    assert found.shared == 0


def test_one_more_matrix_by_hand():
    nothing, linear = needs(algorithm="random", dim=30), needs(algorithm="linear-ucb", dim=30)
    assert linear.per_agent - nothing.per_agent == pytest.approx(MARGIN * 30 * 30 * 8)


def test_what_grows_with_what():
    p = 241
    every, one = needs(algorithm="fn-ucb", agents=50), needs(algorithm="fn-ucb-less-comm", agents=50)
    # FN-UCB: everybody's inverse, once in a process; Less Comm.: rows of an own one for every agent.
    assert every.shared - one.shared == pytest.approx(MARGIN * 50 * p * p * 8)
    assert one.per_agent > every.per_agent
    assert needs(algorithm="fn-ucb", agents=100).shared - every.shared == pytest.approx(MARGIN * 50 * p * p * 8)
    assert needs(diagonal=True).per_agent < one.per_agent / 5
    assert needs(statistics_dtype="float32").per_agent < one.per_agent


def test_an_inverse_is_kept_as_rows_until_a_matrix_is_smaller():
    """On a wide table few rows come together: V_last and V_sync,NN have a row of p numbers per observation, twice."""
    p = 241  # (10 + 1) * 20 + 21
    few = needs(agents=3, horizon=20)
    longer = needs(agents=3, horizon=30)
    assert longer.shared - few.shared == pytest.approx(MARGIN * 3 * 10 * 4 * p * 8)
    many, more = needs(agents=3, horizon=200), needs(agents=3, horizon=2000)
    assert many.shared == more.shared == pytest.approx(few.shared + MARGIN * (p - 60) * 4 * p * 8)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_says_what_it_takes(algorithm):
    found = needs(algorithm=algorithm)
    assert found.per_agent > 2000 * 3 * 8
    assert found.of(2) - found.of(1) == pytest.approx(found.per_agent, abs=1)


def test_what_this_process_cannot_hold(monkeypatch):
    config = plain(agents=100, algorithm="linear-ucb")
    environment = make_environment(config)
    each = memory(config, environment).per_agent
    pages = {"SC_PAGE_SIZE": 1, "SC_AVPHYS_PAGES": int(100 * each) + 1}
    monkeypatch.setattr("fnbandit.numerics.memory.os.sysconf", pages.__getitem__)
    check_local(config, environment)
    pages["SC_AVPHYS_PAGES"] = int(40.5 * each)
    with pytest.raises(
        ValueError, match="^agents=100: 100 x .* of memory, .* available; 40 agents fit at most"
    ) as caught:
        check_local(config, environment)
    assert "\n" not in str(caught.value)
    assert f"100 x {readable(each)} + 0 B shared = {readable(100 * each)}" in str(caught.value)
