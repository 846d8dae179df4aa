"""Agents and server in Ray actors: any layout has the bits of one process, and few calls suffice."""

from __future__ import annotations

import logging
import re
import threading
import time

import numpy as np
import pytest
import ray
import torch
from helpers import EVERY_ROUND, LIKE, assert_same, contiguous, gone, interrupt, plain
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group

from actors import Options, RayRun
from actors.pool import ActorPool
from fnbandit import Config, simulate
from fnbandit.config.registry import resolve_part
from fnbandit.core import Download, Rows, StatisticsUpdate
from fnbandit.environments import make_environment
from fnbandit.errors import Interrupted
from fnbandit.runs import Checkpointing, LocalRun
from fnbandit.simulation.results import collect

BASE = plain(agents=6, horizon=40)
VARIANTS = {
    "less-comm logdet": {"trigger": "logdet", "threshold": 40.0},
    "less-comm always": {"trigger": "always"},
    "less-comm diagonal logdet": {"diagonal": True, "trigger": "logdet", "threshold": 20.0},
    "less-comm diagonal always": {"diagonal": True, "trigger": "always"},
    "fn-ucb logdet": {"algorithm": "fn-ucb", "weight": "theory", "trigger": "logdet", "threshold": 20.0, "width": 8},
    "fn-ucb always": {"algorithm": "fn-ucb", "trigger": "always", "width": 8},
    "dislinucb": {"algorithm": "dislinucb", "trigger": "logdet", "threshold": 3.0},
    "fedigw": {"algorithm": "fedigw", "trigger": "geometric", "width": 8},
    "hetofedbandit": {"algorithm": "hetofedbandit", "trigger": "logdet", "threshold": 1.0, "heterogeneity": "clusters"},
    "every expert": {
        "algorithm": "fn-linear",
        "federation": "exact",
        "personalization": "auto",
        "forgetting": "window",
        "window": 20,
        "trigger": "logdet",
        "threshold": 3.0,
        "width": 6,
        "training_optimizer": "adam",
        "training_steps": 6,
        "heterogeneity": "personal",
    },
    "another world": {
        "heterogeneity": "personal",
        "drift": "switch",
        "feedback_delay": 3,
        "trigger": "logdet",
        "threshold": 20.0,
    },
    "neural-ucb": {"algorithm": "neural-ucb", "horizon": 80, "width": 8},
    "linear-ts": {"algorithm": "linear-ts", "horizon": 150},
    "median budget": {"aggregation": "median", "server_momentum": 0.5, "trigger": "budget", "round_budget": 12},
    "tuned": {
        "training_optimizer": "adam",
        "training_steps": "auto",
        "weight": "earned",
        "reward_unit": "rms",
        "trigger": "logdet",
        "threshold": 20.0,
    },
    "exact": {
        "algorithm": "fn-exact",
        "federation": "exact",
        "trigger": "logdet",
        "threshold": 20.0,
        "training_steps": "auto",
        "training_effort": 100.0,
        "training_cap": 10,
        "training_least": 8,
        "training_sample": 90,
        "newton_steps": 2,
        "reward_unit": "rms",
    },
    "quantized": {"messages": "quantized", "trigger": "period", "period": 3},
    "matrices": {"trigger": "period", "period": 9, "dim": 2, "width": 4},
    "participation": {
        "participation": "fraction",
        "participation_fraction": 0.4,
        "trigger": "logdet",
        "threshold": 20.0,
        "training_start": "aggregate",
        "averagings": 3,
    },
    "private statistics": {
        "algorithm": "fn-linear",
        "privacy": "local",
        "privacy_allow_noise": True,
        "trigger": "geometric",
        "training_cap": 6,
    },
    "private sums": {
        "algorithm": "fedigw",
        "privacy": "central",
        "privacy_allow_noise": True,
        "federation": "gradients",
        "trigger": "geometric",
        "training_steps": 3,
    },
}
LAYOUTS = {"1x6": 6, "2x3": 3, "3x2": 2, "6x1": 1}
"""Agents per actor"""
SUBSET = [
    ("less-comm logdet", "1x6"),
    ("less-comm logdet", "6x1"),
    ("less-comm diagonal logdet", "2x3"),
    ("linear-ts", "2x3"),
    ("tuned", "3x2"),
    ("participation", "3x2"),
    ("exact", "3x2"),
    ("private statistics", "3x2"),
]
MATRIX = [(variant, layout) for variant in VARIANTS for layout in LAYOUTS if (variant, layout) not in SUBSET]


def config_of(variant):
    return BASE.replace(**VARIANTS[variant])


def small(layout):
    return Options(agents_per_actor=LAYOUTS[layout], cpus_per_actor=0.1)


@pytest.fixture(scope="module")
def pools(ray_cluster):
    """Actors by layout that one test after another uses: to start a process takes longer than a run."""
    made = {layout: ActorPool(small(layout), fixed=False, study=layout) for layout in ("2x3", "3x2")}
    yield made
    for pool in made.values():
        pool.close()


@pytest.fixture
def free_cluster(ray_cluster, pools):
    """The cluster without the actors that other tests share."""
    for pool in pools.values():
        pool.close()


def check_layout(variant, layout, pool=None):
    config = config_of(variant)
    expected = simulate(config)
    run = RayRun(config, small(layout), pool=pool)
    segments = contiguous(list(run.segments()), config.horizon)
    actors = 6 // LAYOUTS[layout]
    assert [len(part) for part in run.parts] == [LAYOUTS[layout]] * actors
    # One actor hosts the server, too.
    assert len(set(run.pids)) == (1 if actors == 1 else 1 + actors)
    assert_same(collect(run.config, segments), expected)
    # One call to run ahead, one more where a trigger's round must be agreed on, and one per exchange.
    agreed = len(expected.rounds) if config.trigger in ("logdet", "budget") else 0
    more = sum(record.exchanges - 1 for record in expected.round_records)
    assert run.calls == (0 if actors == 1 else actors * (len(segments) + agreed + more))
    assert pool is not None or gone(run.pids)
    return run, expected


@pytest.mark.parametrize(("variant", "layout"), SUBSET)
def test_layouts_are_bit_identical(ray_cluster, pools, variant, layout):
    run, expected = check_layout(variant, layout, pools.get(layout))
    if variant == "less-comm logdet" and layout != "1x6":
        actors = 6 // LAYOUTS[layout]
        assert 3 <= len(expected.rounds) < 10
        assert run.calls <= 3 * actors * len(expected.rounds)
        assert run.calls < 0.6 * actors * run.config.horizon
    if variant == "linear-ts":
        # Nobody communicates: 150 iterations in parts of 64.
        assert run.calls == 3 * 2


@pytest.mark.long
@pytest.mark.parametrize(("variant", "layout"), MATRIX)
def test_all_layouts_are_bit_identical(ray_cluster, variant, layout):
    check_layout(variant, layout)


@pytest.mark.parametrize("per_actor", [7, pytest.param(1, marks=pytest.mark.long)])
def test_sums_of_subtrees_in_actors(ray_cluster, per_actor):
    """20 agents are a leaf of 16 and one of 4, which actors of 7 cut; p = 17, so that two rows each are summed."""
    config = plain(agents=20, horizon=12, trigger="period", period=3, dim=2, width=4, ramp=6)
    run = RayRun(config, Options(agents_per_actor=per_actor, cpus_per_actor=0.1))
    assert_same(run.result(), simulate(config))
    assert [len(part) for part in run.parts] == ([6, 7, 7] if per_actor == 7 else [1] * 20)


@pytest.mark.long
def test_all_agents_pooled_in_one_actor(ray_cluster):
    config = BASE.replace(algorithm="pooled-neural-ucb", width=8)
    run = RayRun(config, small("6x1"))
    assert_same(run.result(), simulate(config))
    assert run.parts == [range(6)]


@pytest.mark.long
def test_a_table_in_actors(ray_cluster):
    config = Config.preset("paper", environment="shuttle", agents=3, horizon=12, width=8)
    assert_same(RayRun(config, Options(agents_per_actor=1, cpus_per_actor=0.1)).result(), simulate(config))


@pytest.mark.long
def test_a_local_checkpoint_is_resumed_in_actors_and_back(ray_cluster, tmp_path):
    config = config_of("less-comm logdet")
    first = interrupt(config, tmp_path, segments=4)
    run = RayRun(config, small("2x3"), Checkpointing(str(tmp_path), **EVERY_ROUND), resume=True)
    segments = []
    for segment in run.segments():
        segments.append(segment)
        if segment.end > 25:
            break
    assert first in [segment.end for segment in segments]
    assert gone(run.pids)
    back = LocalRun(config, Checkpointing(str(tmp_path)), resume=True)
    segments = contiguous(list(back.segments()), config.horizon)
    assert_same(collect(back.config, segments), simulate(config))
    assert len(segments[0].trace.arms) == segments[0].end


def test_where_changes_travel_and_where_matrices():
    random = np.random.default_rng(0)

    def travels(config, *lengths):
        """What is sent after each of some rounds."""
        shared = resolve_part("algorithm", config.algorithm).make_replica(config, make_environment(config), LIKE)
        p = len(shared.estimate.sum_of_moments)
        for k in lengths:
            contexts = torch.from_numpy(random.standard_normal((config.agents, k, config.dim)))
            change = torch.from_numpy(random.standard_normal((config.agents, k, p))) / 99
            broadcast = Download(
                range(config.agents),
                iteration=9,
                statistics=StatisticsUpdate(Rows(contexts.flatten(0, 1)), LIKE.new_zeros(p)),
                theta=shared.theta,
                inverses=None if shared.inverses is None else shared.inverses.combine(Rows(change)),
                trained=True,
            )
            shared.apply([broadcast], own=range(0))
            yield "rows" if shared.encode([broadcast])["state"] is None else "state"

    # p = 8 (2 + 1) + 8 + 1 = 33, and k rows of three agents are 99 k numbers of local inverses and 6 k of contexts,
    # with two vectors; against two matrices (2,178), or at most 24 rows each before that, with three vectors.
    small = plain(agents=3, dim=2, width=8)
    assert list(travels(small, 1, 1, 6, 22, 1)) == ["rows", "rows", "rows", "state", "rows"]
    # FN-UCB: against 1 + N matrices, 4,356.
    assert list(travels(small.replace(algorithm="fn-ucb"), 40, 45)) == ["rows", "state"]
    # DisLinUCB has no local inverses: 6 k and a vector of 2 against a matrix of 4, two such vectors, four numbers and
    # an iteration for each agent, 15.
    assert list(travels(small.replace(algorithm="dislinucb"), 1, 3)) == ["rows", "state"]


def test_a_run_that_does_not_fit_on_an_own_cluster_starts_nothing(ray_cluster):
    def refused(options, pattern):
        run = RayRun(BASE, options, pool=ActorPool(options, fixed=True))
        with pytest.raises(ValueError, match=pattern):
            next(run.segments())
        assert run.pids == []

    refused(
        Options(agents_per_actor=1, cpus_per_actor=4),
        "6 actors x 4 CPU do not fit on 1 node with 8 CPU, 0 GPU; 2 actors fit",
    )
    refused(Options(gpus_per_actor=1), "no node has 1 CPU and 1 GPU for one actor")
    with pytest.raises(ValueError, match="device='cuda:7'.*CUDA devices available"):
        RayRun(BASE.replace(device="cuda:7"))


def waiting(pool, options, until):
    """Start a run in a thread and wait until the log says so; the thread, and what it will have found."""
    found = {}

    def work():
        try:
            found["result"] = RayRun(BASE, options, pool=pool).result()
        except Interrupted as error:
            found["error"] = error

    thread = threading.Thread(target=work)
    thread.start()
    deadline = time.monotonic() + 20
    while not until() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert until()
    return thread, found


def test_a_cluster_that_others_use_is_waited_for(free_cluster, monkeypatch, caplog):
    monkeypatch.setattr("actors.pool.FIRST_WORD", 1.0)
    others = placement_group([{"CPU": 7.5}])
    assert others.wait(20)
    options = Options(agents_per_actor=3, cpus_per_actor=1)
    pool = ActorPool(options, fixed=False, study="mine")
    try:
        with caplog.at_level(logging.WARNING, "fnbandit"):
            thread, found = waiting(pool, options, lambda: caplog.records)
    finally:
        remove_placement_group(others)
    thread.join(60)
    names = {found["name"] for found in ray.util.list_named_actors(all_namespaces=True)}
    assert {"mine 1 server", "mine 1 actor 0", "mine 1 actor 1"} <= names
    (line,) = (record.getMessage() for record in caplog.records)
    assert re.fullmatch(
        r"waiting for 2 actors x 1 CPU \(\d seconds so far\): 0.5 of 8 CPU are free; Ctrl-C stops", line
    )
    assert_same(found["result"], simulate(BASE))
    pool.close()
    assert {table["state"] for table in placement_group_table().values()} == {"REMOVED"}


def test_whoever_waits_can_be_stopped(free_cluster, monkeypatch, caplog):
    """What does not fit on the nodes that are there waits for others to join."""
    monkeypatch.setattr("actors.pool.FIRST_WORD", 1.0)
    options = Options(agents_per_actor=1, cpus_per_actor=4)
    pool = ActorPool(options, fixed=False)
    with caplog.at_level(logging.WARNING, "fnbandit"):
        thread, found = waiting(pool, options, lambda: caplog.records)
    pool.stop()
    thread.join(10)
    assert isinstance(found["error"], Interrupted)
    (line,) = (record.getMessage() for record in caplog.records)
    assert re.fullmatch(
        r"waiting for 6 actors x 4 CPU \(\d seconds so far\): agents_per_actor=1: 6 actors x 4 CPU do not fit "
        r"on 1 node with 8 CPU, 0 GPU; 2 actors fit: agents_per_actor=3; Ctrl-C stops",
        line,
    )
    assert {table["state"] for table in placement_group_table().values()} == {"REMOVED"}


# Run after run


@pytest.mark.long
@pytest.mark.parametrize("layout", ["1x6", "2x3"])
def test_actors_host_one_run_after_another(ray_cluster, layout):
    """With other agents, algorithms and environments, and the same processes."""
    options = small(layout)
    pool = ActorPool(options, fixed=False)
    first = config_of("less-comm logdet")
    own = {"environment": lambda x: x[:, 0] ** 2}
    pids = set()
    for config, more in (
        (first, {}),
        (first.replace(seed=1), {}),
        (config_of("linear-ts"), {}),
        (first, own),
        (config_of("fn-ucb always").replace(agents=LAYOUTS[layout] + 6 // LAYOUTS[layout] - 1), {}),
        (first, {}),
    ):
        run = RayRun(config, options, pool=pool, **more)
        assert_same(run.result(), simulate(config, **more))
        pids.add(tuple(run.pids))
    assert len(pids) == 1
    # A run that is left before its end takes its actors with it.
    next(RayRun(first, options, pool=pool).segments())
    assert gone(*pids)
    after = RayRun(first, options, pool=pool)
    assert_same(after.result(), simulate(first))
    pool.close()
    assert gone(after.pids)


def test_memory_and_open_files_do_not_grow_from_run_to_run(ray_cluster):
    import psutil

    options = Options(agents_per_actor=2, cpus_per_actor=0.1)
    pool = ActorPool(options, fixed=False)
    config = plain(agents=2, horizon=3)
    seen = []
    for seed in range(40):
        run = RayRun(config.replace(seed=seed), options, pool=pool)
        run.result()
        processes = [psutil.Process(), *map(psutil.Process, run.pids)]
        seen.append([(process.num_fds(), process.memory_info().rss) for process in processes])
    pool.close()
    for (files, memory), (early_files, early_memory) in zip(seen[-1], seen[9], strict=True):
        assert files <= early_files + 2
        assert memory <= early_memory + 10_000_000
