"""Clocks: what agents are like, tables of them, and the time of synchronous rounds by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from helpers import assert_same, interrupt, plain

from fnbandit import simulate
from fnbandit.runs import Checkpointing, LocalRun
from fnbandit.simulation.clock import make_clock
from workflows.command_line import main

HEADER = "agent,speed,latency,up,down"
ALIKE = {"speed": [1, 1], "latency": [1, 1], "up": [1, 1], "down": [1, 1]}
SMALL = {"horizon": 30, "dim": 4, "width": 6, "training_steps": 4}


def test_speeds_are_distributed_as_said():
    drawn = {kind: make_clock(plain(clock=kind, agents=4000, speed=5.0, speed_spread=0.4, link_spread=0.2, seed=3))
             for kind in ("uniform", "lognormal")}  # fmt: skip
    uniform, lognormal = drawn["uniform"], np.log(drawn["lognormal"].speed / 5)
    assert 3 < uniform.speed.min() < 3.05 and 6.95 < uniform.speed.max() < 7
    assert uniform.speed.std() == pytest.approx(5 * 0.4 / 3**0.5, rel=0.03)
    assert lognormal.mean() == pytest.approx(0, abs=0.02) and lognormal.std() == pytest.approx(0.4, rel=0.03)
    assert np.log(drawn["lognormal"].up / 1e6).std() == pytest.approx(0.2, rel=0.03)
    assert abs(np.corrcoef(lognormal, np.log(drawn["lognormal"].up))[0, 1]) < 0.05
    few = make_clock(plain(clock="lognormal", agents=7, speed=5.0, speed_spread=0.4, link_spread=0.2, seed=3))
    np.testing.assert_array_equal(few.speed, drawn["lognormal"].speed[:7])  # a function of (seed, agent)


def test_some_agents_are_slow():
    clock = make_clock(plain(clock="lognormal", agents=30, speed=2.0, speed_spread=0.0, slow_share=0.1, seed=1))
    assert sorted(clock.speed.tolist()) == [0.2] * 3 + [2.0] * 27


def test_jitter_and_spells_are_functions_of_agent_and_iteration():
    config = plain(clock="uniform", agents=3, speed=4.0, speed_spread=0.0, jitter=0.3, availability=0.8,
                    away_seconds=2.0)  # fmt: skip
    clock = make_clock(config)
    computing, away = (np.array(v) for v in zip(*(clock.iterations(range(3), np.array(t)) for t in range(1, 20001)),
                                                strict=True))  # fmt: skip
    assert np.log(4 * computing).std() == pytest.approx(0.3, rel=0.02)
    assert computing.sum() / (computing.sum() + away.sum()) == pytest.approx(0.8, abs=0.01)
    assert away[away > 0].mean() == pytest.approx(2.0, rel=0.05)
    mixed = clock.iterations(np.array([2, 0]), np.array([17, 5]))
    assert mixed[0].tolist() == [computing[16, 2], computing[4, 0]]
    assert mixed[1].tolist() == [away[16, 2], away[4, 0]]


def test_an_agent_that_is_hardly_there_is_away_before_every_iteration():
    config = plain(clock="uniform", agents=1, speed=1.0, speed_spread=0.0, availability=0.1, away_seconds=3.0)
    clock = make_clock(config)
    away = np.concatenate([clock.iterations([0], np.array(t))[1] for t in range(1, 20001)])
    assert (away > 0).all() and away.mean() == pytest.approx(9.0, rel=0.03)


TABLE = f"{HEADER}\n1,2.0,0.5,100,1000\n0,4.0,0.25,50,500\n"


def timed(tmp_path, **changes):
    (tmp_path / "clock.csv").write_text(TABLE)
    config = plain(agents=2, clock="trace", clock_table=str(tmp_path / "clock.csv"), training_pace=8.0,
                    **SMALL | changes)  # fmt: skip
    return simulate(config)


def test_a_round_waits_for_the_slowest(tmp_path):
    """By hand: iterations of 1/4 and 1/2 s, three to a round, four steps of training at 32 and 16 per second."""
    result = timed(tmp_path, trigger="period", period=3)
    first, second = result.round_records[:2]
    up, down = first.cost.bytes_up / 2, first.cost.bytes_down / 2
    begins, training = np.array([0.75, 1.5]), np.array([0.125, 0.25])
    sent = np.array([0.25 + up / 50, 0.5 + up / 100])
    came = (begins + training + sent).max()
    heard = np.array([0.25 + down / 500, 0.5 + down / 1000])
    np.testing.assert_allclose(result.times[:4].T, [[0.25, 0.5, 0.75, came + heard[0] + 0.25],
                                                    [0.5, 1.0, 1.5, came + heard[1] + 0.5]])  # fmt: skip
    waiting = (came - begins - training - sent).mean()
    expected = [came, (begins + training).mean(), waiting, (sent + heard).mean(), 0.0]
    np.testing.assert_allclose(list(dataclasses.astuple(first.times)), expected)
    np.testing.assert_allclose(second.times.time, came + (heard + begins + training + sent).max())


def test_a_round_that_is_asked_for_begins_with_signals(tmp_path):
    result = timed(tmp_path, trigger="logdet", threshold=4.0)
    first = result.round_records[0]
    t, up = first.iteration, first.cost.bytes_up / 2
    now, latency = np.array([t / 4, t / 2]), np.array([0.25, 0.5])
    heard = min(now[i] + latency[i] for i in first.triggered) + latency
    came = np.maximum(now, heard) + latency + np.array([0.125 + up / 50, 0.25 + up / 100])
    assert first.times.time == pytest.approx(came.max())


@pytest.mark.parametrize("algorithm", ["fn-ucb", "dislinucb", "linear-ucb"])
def test_a_clock_changes_no_choice(algorithm):
    config = plain(algorithm=algorithm, agents=3, trigger="logdet", threshold=3.0, **SMALL)
    without = simulate(config)
    result = simulate(config.replace(clock="lognormal", jitter=0.2, availability=0.9), groups=2)
    assert without.times is None and result.times.shape == (30, 3) and (np.diff(result.times, axis=0) > 0).all()
    for name in ("arms", "rewards", "regret"):
        np.testing.assert_array_equal(getattr(without, name), getattr(result, name))
    assert without.rounds == result.rounds


def test_times_after_a_resume_are_the_same_bits(tmp_path):
    config = plain(agents=3, trigger="period", period=4, clock="lognormal", jitter=0.2, availability=0.9, **SMALL)
    whole = simulate(config)
    interrupt(config, tmp_path, 3)
    resumed = LocalRun(config, Checkpointing(str(tmp_path)), resume=True).result()
    assert_same(whole, resumed)
    np.testing.assert_array_equal(whole.times, resumed.times)


@pytest.mark.parametrize(("rows", "message"), [
    ("0,1,0,9,9", "has no row for agent 1; agents=2 needs 0 to 1"),
    ("0,1,0,9,9\n1,0,0,9,9", "speed=0 of agent 1; expected a number above 0"),
    ("0,1,0,9,9\n1,-2,0,9,9", "speed=-2 of agent 1; expected a number above 0"),
    ("0,1,-1,9,9\n1,1,0,9,9", "latency=-1 of agent 0; expected a number at least 0"),
    ("0,1,0,9,9\n1,1,0,9,0", "down=0 of agent 1; expected a number above 0"),
    ("0,1,0,9,9\n0,1,0,9,9\n1,1,0,9,9", "agent 0 has more than one row"),
    ("0,1,0,9,9\n1,fast,0,9,9", "column 'speed' contains a value that is not a number"),
    ("0,1,0,9,9\n1,,0,9,9", "speed=nan of agent 1; expected a number above 0"),
])  # fmt: skip
def test_bad_tables_are_one_line_before_anything_starts(rows, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clock.csv").write_text(f"{HEADER}\n{rows}\n")
    command = ["run", "--clock", "trace", "--clock-table", "clock.csv", "--agents", "2", "--engine", "local"]
    assert main(command) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and lines[0].endswith(f"clock_table={str(tmp_path / 'clock.csv')!r}: {message}")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clock.csv"]


@pytest.mark.parametrize(("columns", "message"), [
    ({"agent": [0, 1], "speed": [1.0, 1.0]}, "has no column 'latency'; expected agent, speed, latency, up, down"),
    ({"agent": [0, 1], "speeds": [1.0, 1.0]}, "column 'speeds' is unknown"),
    ({"agent": [0, 1], **ALIKE, "availability": [1.0, 0.0]},
     "agent 1 is never available"),
    ({"agent": [0, 1], **ALIKE, "availability": [1.5, 1.0]},
     "availability=1.5 of agent 0; expected above 0, at most 1"),
])  # fmt: skip
def test_bad_columns(columns, message, tmp_path):
    path = tmp_path / "clock.parquet"
    pa.parquet.write_table(pa.table(columns), path)
    with pytest.raises(ValueError, match=message):
        make_clock(plain(agents=2, clock="trace", clock_table=str(path)))


@pytest.mark.parametrize("path", [None, "nowhere.csv", "clock.txt", "."])
def test_no_table(path):
    with pytest.raises(ValueError, match="clock_table="):
        make_clock(plain(clock="trace", clock_table=path))


def test_a_table_may_have_more_agents_and_availability(tmp_path):
    path = tmp_path / "clock.parquet"
    table = {"agent": [2, 1, 0], "speed": [1, 2, 3], "latency": [0, 0, 1], "up": [4, 5, 6], "down": [7, 8, 9]}
    pa.parquet.write_table(pa.table(table | {"availability": [0.0, 1.0, 0.5]}), path)
    clock = make_clock(plain(agents=2, clock="trace", clock_table=str(path)))
    assert (clock.speed.tolist(), clock.availability.tolist()) == ([3, 2], [0.5, 1])


def test_a_table_may_have_columns_of_a_dictionary(tmp_path):
    path = tmp_path / "clock.parquet"
    table = {"agent": [0, 1], "speed": pa.array([3.0, 7.0]).dictionary_encode(), "latency": [0, 0]}
    pa.parquet.write_table(pa.table(table | {"up": [1, 1], "down": [1, 1]}), path)
    assert make_clock(plain(agents=2, clock="trace", clock_table=str(path))).speed.tolist() == [3, 7]


def test_a_spread_that_would_stop_agents():
    with pytest.raises(ValueError, match=r"speed_spread=1.0: clock=uniform expects a number below 1"):
        make_clock(plain(clock="uniform", speed_spread=1.0))
