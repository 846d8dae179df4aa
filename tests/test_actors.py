"""Agents and server in Ray actors: any layout has the bits of one process; what fits, and how calls are counted."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
from test_checkpoints import EVERY_ROUND, assert_same, contiguous, interrupt

from actors import Checkpointing, LocalRun, Options, RayRun, SimulationError
from actors.layout import ACTOR_BYTES, Node, nodes_of, plan
from actors.server import news_of
from fnbandit import Config, simulate
from fnbandit.capacity import memory, readable
from fnbandit.environments import make_environment
from fnbandit.messages import Broadcast
from fnbandit.server import GlobalStatistics
from fnbandit.simulation import collect

BASE = Config(agents=6, horizon=40)
VARIANTS = {
    "less-comm logdet": {"trigger": "logdet", "threshold": 40.0},
    "less-comm always": {"trigger": "always"},
    "less-comm diagonal logdet": {"diagonal": True, "trigger": "logdet", "threshold": 20.0},
    "less-comm diagonal always": {"diagonal": True, "trigger": "always"},
    "fn-ucb logdet": {"algorithm": "fn-ucb", "weight": "theory", "trigger": "logdet", "threshold": 20.0, "width": 8},
    "fn-ucb always": {"algorithm": "fn-ucb", "trigger": "always", "width": 8},
    "dislinucb": {"algorithm": "dislinucb", "trigger": "logdet", "threshold": 3.0},
    "neural-ucb": {"algorithm": "neural-ucb", "horizon": 80, "width": 8},
    "linear-ts": {"algorithm": "linear-ts", "horizon": 150},
    "matrices": {"trigger": "period", "period": 9, "dim": 2, "width": 4},
}
LAYOUTS = {"1x6": 6, "2x3": 3, "3x2": 2, "6x1": 1}
"""Agents per actor"""
SUBSET = [
    ("less-comm logdet", "2x3"),
    ("less-comm logdet", "6x1"),
    ("less-comm always", "3x2"),
    ("less-comm diagonal logdet", "2x3"),
    ("fn-ucb logdet", "3x2"),
    ("linear-ts", "2x3"),
    ("matrices", "2x3"),
]
MATRIX = [(variant, layout) for variant in VARIANTS for layout in LAYOUTS if (variant, layout) not in SUBSET]


def config_of(variant):
    return BASE.replace(**VARIANTS[variant])


def small(layout):
    return Options(agents_per_actor=LAYOUTS[layout], cpus_per_actor=0.1)


def gone(pids):
    """Whether these processes end within some seconds."""
    import psutil

    processes = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    return not psutil.wait_procs(processes, timeout=20)[1]


def check_layout(variant, layout):
    config = config_of(variant)
    expected = simulate(config)
    run = RayRun(config, small(layout))
    epochs = contiguous(list(run.epochs()), config.horizon)
    actors = 6 // LAYOUTS[layout]
    assert [len(part) for part in run.parts] == [LAYOUTS[layout]] * actors
    assert len(set(run.pids)) == 1 + actors
    assert_same(collect(run.config, epochs), expected)
    # One call to run ahead, one more where a trigger's round must be agreed on: none per iteration.
    agreed = len(expected.rounds) if config.trigger == "logdet" else 0
    assert run.calls == actors * (len(epochs) + agreed)
    assert gone(run.pids)
    return run, expected


@pytest.mark.parametrize(("variant", "layout"), SUBSET)
def test_layouts_are_bit_identical(ray_cluster, variant, layout):
    run, expected = check_layout(variant, layout)
    if variant == "less-comm logdet":
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


def test_a_local_checkpoint_is_resumed_in_actors_and_back(ray_cluster, tmp_path):
    config = config_of("less-comm logdet")
    first = interrupt(config, tmp_path, epochs=4)
    run = RayRun(config, small("2x3"), Checkpointing(str(tmp_path), **EVERY_ROUND), resume=True)
    epochs = []
    for epoch in run.epochs():
        epochs.append(epoch)
        if epoch.end > 25:
            break
    assert first in [epoch.end for epoch in epochs]
    assert gone(run.pids)
    back = LocalRun(config, Checkpointing(str(tmp_path)), resume=True)
    epochs = contiguous(list(back.epochs()), config.horizon)
    assert_same(collect(back.config, epochs), simulate(config))
    assert len(epochs[0].trace.arms) == epochs[0].end


def test_where_changes_travel_and_where_matrices():
    like = torch.empty(0, dtype=torch.float64)
    random = np.random.default_rng(0)

    def travels(config, *lengths):
        """What is sent after each of some rounds."""
        statistics = GlobalStatistics(config, config.dim, like)
        p = statistics.features.parameters
        for k in lengths:
            contexts = torch.from_numpy(random.standard_normal((config.agents, k, config.dim)))
            local = torch.from_numpy(random.standard_normal((config.agents, k, p))) / 99 if config.networked else None
            broadcast = Broadcast(9, contexts, like.new_zeros(p), statistics.parameters, 0.0, local)
            statistics.apply(broadcast, own=range(0))
            yield next(iter(news_of(broadcast, statistics)))

    # p = 8 (2 + 1) + 8 + 1 = 33, and k rows of three agents are 99 k numbers of local inverses and 6 k of contexts,
    # with two vectors; against two matrices (2,178), or at most 16 rows each before that, with four vectors.
    small = Config(agents=3, dim=2, width=8)
    assert list(travels(small, 1, 1, 6, 22, 1)) == ["rows", "rows", "rows", "state", "rows"]
    # FN-UCB: against 1 + N matrices, 4,356.
    assert list(travels(small.replace(algorithm="fn-ucb"), 40, 45)) == ["rows", "state"]
    # DisLinUCB has no local inverses: 6 k against a matrix of 4 and three vectors of 2.
    assert list(travels(small.replace(algorithm="dislinucb"), 1, 2)) == ["rows", "state"]


# What fits


def planned(config, options, *nodes):
    return plan(config, make_environment(config), options, list(nodes))


def sizes(*args):
    parts = planned(*args)
    assert [agent for part in parts for agent in part] == list(range(args[0].agents))
    return [len(part) for part in parts]


def test_auto_is_one_agent_per_actor_else_evenly_packed():
    roomy = Node(cpus=4, gpus=0, memory=64e9)
    assert sizes(BASE, Options(), roomy, roomy) == [1] * 6
    assert sizes(BASE, Options(), roomy) == [1, 2, 1, 2]
    assert sizes(BASE, Options(cpus_per_actor=0.5), roomy) == [1] * 6
    assert sizes(BASE, Options(cpus_per_actor=0.1), Node(0.6, 0, 64e9)) == [1] * 6
    assert sizes(BASE, Options(cpus_per_actor=2), roomy) == [3, 3]
    # What is left of a node joins nothing: 1 + 1 actors on 1.5 + 1.5 CPUs.
    assert sizes(BASE, Options(), Node(1.5, 0, 64e9), Node(1.5, 0, 64e9)) == [3, 3]
    assert sizes(BASE, Options(gpus_per_actor=0.5), Node(8, 2, 64e9)) == [1, 2, 1, 2]
    assert sizes(BASE, Options(gpus_per_actor=1, cpus_per_actor=0), Node(1, 2, 64e9)) == [3, 3]


def test_auto_packs_where_memory_is_short():
    needs = memory(BASE, make_environment(BASE))
    three = 3 * (ACTOR_BYTES + needs.of(2))
    assert sizes(BASE, Options(), Node(8, 0, three)) == [2, 2, 2]
    assert sizes(BASE, Options(), Node(8, 0, three - 1)) == [3, 3]
    assert sizes(BASE, Options(), Node(8, 0, ACTOR_BYTES + needs.of(6))) == [6]


def test_asked_for_layouts():
    node = Node(cpus=6, gpus=0, memory=64e9)
    assert sizes(BASE, Options(agents_per_actor=1), node) == [1] * 6
    assert sizes(BASE, Options(agents_per_actor=2), node) == [2, 2, 2]
    assert sizes(BASE, Options(agents_per_actor=4), node) == [3, 3]
    assert sizes(BASE, Options(agents_per_actor=100), node) == [6]
    pooled = BASE.replace(algorithm="pooled-neural-ucb")
    for options in (Options(), Options(agents_per_actor=1)):
        assert sizes(pooled, options, node) == [6]


def refusal(config, options, *nodes):
    with pytest.raises(ValueError, match="fit") as caught:
        planned(config, options, *nodes)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_too_many_actors_for_the_cpus():
    node = Node(cpus=2, gpus=0, memory=64e9)
    assert refusal(BASE, Options(agents_per_actor=1), node, node) == (
        "agents_per_actor=1: 6 actors x 1 CPU do not fit on 2 nodes with 4 CPU, 0 GPU; 4 actors fit: agents_per_actor=2"
    )
    assert "1 actors x 3 CPU do not fit on 1 nodes with 2 CPU" in refusal(BASE, Options(cpus_per_actor=3), node)
    assert "0 nodes" in refusal(BASE, Options())


def test_gpus_asked_for_where_none_are():
    message = refusal(BASE, Options(agents_per_actor=3, gpus_per_actor=0.5), Node(8, 0, 64e9))
    assert message == (
        "agents_per_actor=3: 2 actors x 1 CPU and 0.5 GPU do not fit on 1 nodes with 8 CPU, 0 GPU; "
        "0 actors fit: no node has what one asks for"
    )


def test_too_much_memory():
    needs = memory(BASE, make_environment(BASE))
    each = ACTOR_BYTES + needs.shared + 2 * needs.per_agent
    enough = Node(8, 0, 3 * each)
    assert sizes(BASE, Options(agents_per_actor=2), enough) == [2, 2, 2]
    message = refusal(BASE, Options(agents_per_actor=2), Node(8, 0, 3 * each - 1))
    assert message == (
        f"agents=6: 3 actors x (250 MB + {readable(needs.shared)} shared + 2 agents x {readable(needs.per_agent)}) = "
        f"{readable(3 * each)} of memory, the 1 nodes have {readable(3 * each - 1)}; about 3 agents fit, "
        "or use diagonal=true"
    )
    # Enough altogether, too little on each: 2 actors on one node, none on the others.
    third = Node(8, 0, each - 1)
    refusal(BASE, Options(agents_per_actor=2), Node(8, 0, 2 * each), third, third)
    diagonal = refusal(BASE.replace(diagonal=True), Options(), Node(8, 0, 1e6))
    assert "about 0 agents fit" in diagonal and "diagonal=true" not in diagonal


def test_only_living_nodes_count():
    described = [
        {"Alive": True, "Resources": {"CPU": 2.0, "GPU": 1.0, "memory": 5e9, "node:10.0.0.1": 1.0}},
        {"Alive": False, "Resources": {"CPU": 64.0, "memory": 5e9}},
        {"Alive": True, "Resources": {"memory": 1e9}},
    ]
    assert nodes_of(described) == [Node(2.0, 1.0, 5e9), Node(0.0, 0.0, 1e9)]


@pytest.mark.parametrize(
    ("changes", "pattern"),
    [
        ({"agents_per_actor": 0}, "agents_per_actor=0: expected auto or a whole number, at least 1"),
        ({"agents_per_actor": 1.5}, "agents_per_actor=1.5: expected auto"),
        ({"agents_per_actor": True}, "agents_per_actor=True: expected auto"),
        ({"agents_per_actor": "all"}, "agents_per_actor='all': expected auto"),
        ({"cpus_per_actor": -1}, "cpus_per_actor=-1: expected a number, at least 0"),
        ({"cpus_per_actor": float("nan")}, "cpus_per_actor=nan: expected a number"),
        ({"gpus_per_actor": "1"}, "gpus_per_actor='1': expected a number, at least 0"),
        ({"cpus_per_actor": 0}, "cpus_per_actor=0, gpus_per_actor=0: one of them must be above 0"),
        ({"actor_timeout": 0}, "actor_timeout=0: expected a number above 0"),
        ({"actor_timeout": float("inf")}, "actor_timeout=inf: expected a number"),
    ],
)
def test_bad_options(changes, pattern):
    with pytest.raises(ValueError, match=pattern):
        Options(**changes)
    assert Options(cpus_per_actor=0, gpus_per_actor=0.25).gpus_per_actor == 0.25


def test_a_run_that_does_not_fit_starts_nothing(ray_cluster):
    run = RayRun(BASE, Options(agents_per_actor=1, cpus_per_actor=4))
    with pytest.raises(ValueError, match="6 actors x 4 CPU do not fit on 1 nodes with 8 CPU, 0 GPU; 2 actors fit"):
        next(run.epochs())
    with pytest.raises(ValueError, match="1 actors x 1 CPU and 1 GPU do not fit"):
        next(RayRun(BASE, Options(gpus_per_actor=1)).epochs())
    assert run.pids == []
    with pytest.raises(ValueError, match="device='cuda:7'.*CUDA devices here"):
        RayRun(BASE.replace(device="cuda:7"))


def test_a_cluster_that_others_use(ray_cluster, monkeypatch, caplog):
    from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group

    monkeypatch.setattr("actors.engine.START_SECONDS", 2.0)
    others = placement_group([{"CPU": 7.5}])
    assert others.wait(20)
    try:
        with caplog.at_level(logging.WARNING, "fnbandit"), pytest.raises(SimulationError) as caught:
            next(RayRun(BASE, Options(agents_per_actor=3)).epochs())
        assert str(caught.value) == "no place for 2 actors x 1 CPU after 2 seconds: others are using the cluster"
        assert not caplog.records
    finally:
        remove_placement_group(others)
    assert {table["state"] for table in placement_group_table().values()} == {"REMOVED"}
