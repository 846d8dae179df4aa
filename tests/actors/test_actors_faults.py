"""Actors that die, functions that raise or hang: a run goes on, with the same bits, or says why."""

from __future__ import annotations

import logging
import os
import re
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from helpers import EVERY_ROUND, assert_same, contiguous, gone, plain, steps

from actors import Options, RayRun
from fnbandit import simulate
from fnbandit.errors import SimulationError
from fnbandit.federation.aggregation import Mean
from fnbandit.runs import Checkpointing
from fnbandit.simulation.results import collect

CONFIG = plain(agents=4, horizon=150, trigger="logdet", threshold=5.0)
TWO = Options(agents_per_actor=2, cpus_per_actor=0.1)
ONE = Options(agents_per_actor=4, cpus_per_actor=0.1)


def in_an_actor():
    import ray

    return ray.is_initialized() and ray.get_runtime_context().get_actor_id() is not None


# Reward functions. An environment tries a function on 2 contexts; a block has more.


def smooth(x):
    return np.cos(3 * x[:, 0])


def deadly(x):
    """Kills its actor in the second block of contexts."""
    deadly.blocks += len(x) > 2
    if deadly.blocks > 4 and in_an_actor():
        os.kill(os.getpid(), signal.SIGKILL)
    return smooth(x)


deadly.blocks = 0


def raising(x):
    if len(x) > 2:
        return smooth(x) + np.ones(3)  # a mistake of the user's own
    return smooth(x)


def sleepy(x):
    if len(x) > 2:
        time.sleep(60)
    return smooth(x)


def late_nan(x):
    return smooth(x) * (np.nan if len(x) > 2 else 1)


class Slow(Mean):
    """The mean, by a server's actor that takes its time in the first round."""

    seconds = 10.0

    def __call__(self, values, last):
        if in_an_actor():
            time.sleep(self.seconds)
            self.seconds = 0.0
        return super().__call__(values, last)


def recoveries(caplog):
    return [record.getMessage() for record in caplog.records if record.name == "fnbandit"]


# Actors


@pytest.mark.parametrize("saved", [True, False], ids=["checkpoints", "no checkpoints"])
def test_actors_killed_in_the_middle(ray_cluster, tmp_path, caplog, saved):
    """First one of the agents' actors, later the server's; without checkpoints the one that hosts all of them."""
    config = CONFIG.replace(horizon=400)  # long enough to be killed twice before its end
    run = RayRun(config, TWO, Checkpointing(str(tmp_path), **EVERY_ROUND)) if saved else RayRun(config, ONE)
    hosts_all = "actor 0 (agents 0 to 3)"
    victims = [(1, "actor 0 (agents 0 to 1)"), (0, "the server's actor")] if saved else [(0, hosts_all), (0, hosts_all)]
    segments, least, dead = [], [], []
    with caplog.at_level(logging.INFO, "fnbandit"):
        for segment in run.segments():
            segments.append(segment)
            done = [path.parent for path in tmp_path.rglob("manifest.json")]
            if len(least) == len(recoveries(caplog)) < len(victims) and segment.end > 10 and (done or not saved):
                least.append(steps(tmp_path)[0] if saved else 0)
                dead += run.pids
                os.kill(run.pids[victims[len(least) - 1][0]], signal.SIGKILL)
    assert len(recoveries(caplog)) == 2
    for line, (_, name), iteration in zip(recoveries(caplog), victims, least, strict=True):
        found = re.fullmatch(rf"{re.escape(name)} is gone: [^\n]*; going on from iteration (\d+)", line)
        assert found, line
        assert int(found[1]) >= iteration > 0 if saved else int(found[1]) == 0
    assert len(set(dead) - set(run.pids)) == 2 * (3 if saved else 1)
    assert gone(dead)
    expected = simulate(config)
    assert len(expected.rounds) > 10
    assert_same(collect(run.config, contiguous(segments, config.horizon)), expected)


def test_an_actor_whose_process_does_not_start_is_replaced(ray_cluster, caplog, monkeypatch):
    """As where Ray waits for a worker that was killed."""
    from actors import pool, watchdog

    real, calls = pool.start_actors, []

    def start_nothing_at_first(layout, place, name):
        calls.append(layout)
        if len(calls) > 1:
            monkeypatch.setattr(watchdog, "PROCESS_SECONDS", 60.0)
            return real(layout, place, name)
        server = pool.ServerActor.options(num_cpus=1000).remote([])
        return pool.ActorSet(layout, place, server, [])

    monkeypatch.setattr(pool, "start_actors", start_nothing_at_first)
    monkeypatch.setattr(watchdog, "PROCESS_SECONDS", 2.0)
    with caplog.at_level(logging.INFO, "fnbandit"):
        assert_same(RayRun(CONFIG, ONE).result(), simulate(CONFIG))
    (line,) = recoveries(caplog)
    assert line == (
        "actor 0 (agents 0 to 3) is gone: its process has not started within 2 seconds; going on from iteration 0"
    )


@pytest.mark.long
@pytest.mark.parametrize("seconds", [0.0, 0.3, 1.0, 2.0])
def test_a_second_actor_killed_while_actors_are_started_again(ray_cluster, tmp_path, caplog, seconds):
    import psutil

    config = CONFIG.replace(horizon=400)
    run = RayRun(config, TWO, Checkpointing(str(tmp_path), **EVERY_ROUND))

    def agent_processes():
        return {process.pid for process in psutil.Process().children(recursive=True) if "AgentActor" in process.name()}

    def kill_a_new_one(old):
        while not (new := agent_processes() - old):
            time.sleep(0.01)
        time.sleep(seconds)
        os.kill(new.pop(), signal.SIGKILL)

    segments, thread = [], None
    with caplog.at_level(logging.INFO, "fnbandit"):
        for segment in run.segments():
            segments.append(segment)
            if thread is None and segment.end > 10:
                thread = threading.Thread(target=kill_a_new_one, args=(agent_processes(),))
                thread.start()
                os.kill(run.pids[1], signal.SIGKILL)
    thread.join()
    assert 1 <= len(recoveries(caplog)) <= 2
    assert_same(collect(run.config, contiguous(segments, config.horizon)), simulate(config))


def test_three_failures_without_progress_end_a_run(ray_cluster, caplog):
    config = CONFIG.replace(environment="test_actors_faults:deadly")
    run = RayRun(config, ONE)
    segments = []
    with caplog.at_level(logging.INFO, "fnbandit"), pytest.raises(SimulationError) as caught:
        segments.extend(run.segments())
    # An attempt from which more iterations arrive before its actor dies than from the last one is progress.
    assert len(recoveries(caplog)) >= 2
    assert "3 failures in a row without progress at iteration" in str(caught.value)
    assert "actor 0 (agents 0 to 3) is gone" in str(caught.value)
    # What Ray knows of the worker's end.
    assert str(run.pids[0]) in str(caught.value) and "SYSTEM_ERROR" in str(caught.value)


def test_a_function_that_raises_ends_the_run_at_once(ray_cluster, caplog):
    run = RayRun(CONFIG.replace(environment="test_actors_faults:raising"), ONE)
    with caplog.at_level(logging.INFO, "fnbandit"), pytest.raises(SimulationError) as caught:
        run.result()
    assert recoveries(caplog) == []
    text = str(caught.value)
    assert text.startswith("environment='test_actors_faults:raising' raised ValueError\nTraceback")
    assert text.splitlines()[-1].startswith("ValueError: operands could not be broadcast together")
    line = next(i for i, row in enumerate(Path(__file__).read_text().splitlines(), 1) if "a mistake of the user" in row)
    assert re.search(rf'test_actors_faults.py", line {line}, in raising', text)
    assert "/ray/" not in text
    assert gone(run.pids)


def test_what_a_function_may_not_return_is_one_line(ray_cluster, caplog):
    run = RayRun(CONFIG.replace(environment="test_actors_faults:late_nan"), ONE)
    with pytest.raises(ValueError, match="late_nan.*NaN.*expected one finite number per context") as caught:
        run.result()
    assert "\n" not in str(caught.value)
    assert recoveries(caplog) == []


def test_an_actor_that_hangs_is_named(ray_cluster, caplog):
    run = RayRun(CONFIG.replace(horizon=2000), Options(agents_per_actor=2, cpus_per_actor=0.1, actor_timeout=3))
    segments = run.segments()
    next(segment for segment in segments if segment.end > 10)
    os.kill(run.pids[2], signal.SIGSTOP)
    with pytest.raises(SimulationError) as caught:
        list(segments)
    assert str(caught.value) == "actor 1 (agents 2 to 3) has not answered for 3 seconds"
    assert recoveries(caplog) == []
    assert gone(run.pids)


@pytest.mark.long
def test_a_server_that_hangs_is_named(ray_cluster, caplog):
    run = RayRun(CONFIG.replace(horizon=2000), Options(agents_per_actor=2, cpus_per_actor=0.1, actor_timeout=3))
    segments = run.segments()
    next(segment for segment in segments if segment.end > 10)
    os.kill(run.pids[0], signal.SIGSTOP)
    with pytest.raises(SimulationError) as caught:
        list(segments)
    assert str(caught.value) == "the server's actor has not answered for 3 seconds"
    assert recoveries(caplog) == []
    assert gone(run.pids)


@pytest.mark.long
def test_a_server_that_computes_for_long_does_not_hang(ray_cluster, caplog):
    """Longer than twice the time that an actor has to answer in."""
    config = CONFIG.replace(agents=2, horizon=20, aggregation="test_actors_faults:Slow")
    run = RayRun(config, Options(agents_per_actor=1, cpus_per_actor=0.1, actor_timeout=4))
    began = time.monotonic()
    assert_same(run.result(), simulate(config))
    assert time.monotonic() - began > Slow.seconds
    assert recoveries(caplog) == []


@pytest.mark.long
def test_a_function_that_hangs_is_named(ray_cluster, caplog):
    run = RayRun(
        CONFIG.replace(environment="test_actors_faults:sleepy"),
        Options(agents_per_actor=4, cpus_per_actor=0.1, actor_timeout=3),
    )
    with pytest.raises(SimulationError) as caught:
        run.result()
    assert str(caught.value) == "actor 0 (agents 0 to 3) has not answered for 3 seconds"
    assert recoveries(caplog) == []
    assert gone(run.pids)
