"""Asynchronous runs on Ray: any layout has the bits of one process, also after faults and resumes."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
from helpers import assert_same, contiguous, interrupt, plain

from actors import Options, RayRun
from fnbandit import simulate
from fnbandit.runs import Checkpointing, LocalRun
from fnbandit.simulation.results import collect

CONFIG = plain(
    algorithm="fn-ucb-async", agents=6, horizon=36, trigger="determinant", async_gain=20.0, training_steps=5, dim=4,
    width=8, clock="lognormal", latency=0.2, jitter=0.3, slow_share=0.2, weight="earned", staleness="polynomial",
)  # fmt: skip
SELDOM = {"seconds": 0.0, "rounds": 4}
LINEAR = CONFIG.replace(algorithm="fedlinucb", async_gain=0.5, horizon=80)


def options(agents: int) -> Options:
    return Options(agents_per_actor=agents, cpus_per_actor=0.1)


def assert_same_times(one, other):
    assert_same(one, other)
    np.testing.assert_array_equal(one.times, other.times)


SIX_ACTORS = pytest.param(CONFIG, 1, marks=pytest.mark.long)
LINEAR_TOO = pytest.param(LINEAR, 3, marks=pytest.mark.long)


@pytest.mark.parametrize(("config", "agents"), [(CONFIG, 6), (CONFIG, 4), SIX_ACTORS, LINEAR_TOO],
                         ids=["one actor", "4 and 2", "six actors", "linear"])  # fmt: skip
def test_layouts(ray_cluster, config, agents):
    here = simulate(config)
    run = RayRun(config, options(agents))
    assert_same_times(here, run.result())
    assert len(run.parts) == -(-6 // agents)
    # Coarse: many agents and events per call.
    assert agents == 1 or run.calls / max(1, len(run.parts)) < 1.5 * len(here.round_records)


@pytest.mark.long
def test_actors_killed_in_the_middle(ray_cluster, tmp_path):
    """First one of the agents' actors, later the server's."""
    run = RayRun(CONFIG, options(3), Checkpointing(str(tmp_path), **SELDOM))
    segments, killed = [], set()
    for segment in run.segments():
        segments.append(segment)
        for iteration, victim in ((10, 1), (22, 0)):
            if segment.end >= iteration and victim not in killed:
                killed.add(victim)
                os.kill(run.pids[victim], signal.SIGKILL)
    assert killed == {0, 1}
    assert_same_times(simulate(CONFIG), collect(CONFIG, contiguous(segments, CONFIG.horizon)))


@pytest.mark.long
def test_a_run_goes_on_elsewhere(ray_cluster, tmp_path):
    """Begun in this process, gone on with on Ray, and the other way round."""
    whole = simulate(CONFIG)
    interrupt(CONFIG, tmp_path / "a", 3)
    assert_same_times(whole, RayRun(CONFIG, options(2), Checkpointing(str(tmp_path / "a")), resume=True).result())
    run = RayRun(CONFIG, options(3), Checkpointing(str(tmp_path / "b"), **SELDOM))
    stream = run.segments()
    while next(stream).end < 20:
        pass
    stream.close()
    resumed = LocalRun(CONFIG, Checkpointing(str(tmp_path / "b")), resume=True, groups=2)
    assert_same_times(whole, resumed.result())
