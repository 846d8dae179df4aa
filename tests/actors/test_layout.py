"""How agents sit in actors, and what does not fit; no Ray is started."""

from __future__ import annotations

import pytest
from helpers import plain

from actors import Options
from actors.layout import Node, nodes_of, plan
from fnbandit.environments import make_environment
from fnbandit.numerics.memory import readable
from fnbandit.planning.capacity import PROCESS_BYTES, memory

BASE = plain(agents=6, horizon=40)


def planned(config, options, *nodes, runs=1):
    return plan(config, make_environment(config), options, list(nodes), runs)


def sizes(*args, **more):
    layout = planned(*args, **more)
    assert [agent for part in layout.parts for agent in part] == list(range(args[0].agents))
    return [len(part) for part in layout.parts]


@pytest.fixture
def busy(monkeypatch):
    """Runs so long that more actors always finish them first."""
    monkeypatch.setattr("actors.layout.EXTRA_ACTORS_START_COST", 0.0)
    monkeypatch.setattr("actors.layout.CALL_SECONDS", 0.0)


def test_auto_is_one_agent_per_actor_else_evenly_packed(busy):
    roomy = Node(cpus=4, gpus=0, memory=64e9)
    assert sizes(BASE, Options(), roomy, roomy) == [1] * 6
    # Six agents in four actors: two actors would have two of them, as with three actors all have.
    assert sizes(BASE, Options(), roomy) == [2, 2, 2]
    assert sizes(BASE.replace(agents=8), Options(), roomy) == [2, 2, 2, 2]
    assert sizes(BASE, Options(cpus_per_actor=0.5), roomy) == [1] * 6
    assert sizes(BASE, Options(cpus_per_actor=0.1), Node(0.6, 0, 64e9)) == [1] * 6
    assert sizes(BASE, Options(cpus_per_actor=2), roomy) == [3, 3]
    # What is left of a node joins nothing: 1 + 1 actors on 1.5 + 1.5 CPUs.
    assert sizes(BASE, Options(), Node(1.5, 0, 64e9), Node(1.5, 0, 64e9)) == [3, 3]
    assert sizes(BASE, Options(gpus_per_actor=0.5), Node(8, 2, 64e9)) == [2, 2, 2]
    assert sizes(BASE, Options(gpus_per_actor=1, cpus_per_actor=0), Node(1, 2, 64e9)) == [3, 3]


def test_runs_that_wait_share_the_cluster(busy):
    node = Node(cpus=12, gpus=0, memory=64e9)
    assert [len(sizes(BASE, Options(), node, runs=runs)) for runs in (1, 2, 4, 6, 12, 100)] == [6, 6, 3, 2, 1, 1]
    assert sizes(BASE, Options(agents_per_actor=1), node, runs=100) == [1] * 6


def test_a_run_is_split_where_that_pays():
    node = Node(cpus=2, gpus=0, memory=64e9)
    assert sizes(BASE, Options(), node) == [6]
    assert sizes(BASE.replace(horizon=150), Options(), node) == [6]
    assert sizes(BASE.replace(agents=1000, horizon=1000), Options(), node) == [500, 500]
    assert sizes(BASE.replace(agents=1000, horizon=1000), Options(), node, runs=2) == [1000]
    rare = {"trigger": "period", "period": 50}
    assert sizes(BASE.replace(agents=200, horizon=2000, **rare), Options(), node) == [100, 100]
    linear = BASE.replace(algorithm="linear-ucb")
    assert sizes(linear, Options(), node) == [6]
    assert sizes(linear.replace(agents=1000, horizon=10_000), Options(), node) == [500, 500]


def test_a_cpu_each_or_the_share_that_fits():
    twelve, one_each = BASE.replace(agents=12), Options(agents_per_actor=1)
    laptop = Node(cpus=2, gpus=0, memory=64e9)
    layout = planned(twelve, one_each, laptop)
    assert (len(layout.parts), layout.cpus, layout.gpus) == (12, 0.1666, 0.0)  # 2 / 12, in steps of 0.0001
    assert str(layout) == "12 actors x 1 agent, 0.1666 CPU each"
    assert planned(twelve, one_each, Node(12, 0, 64e9)).cpus == 1
    assert planned(twelve, one_each, Node(64, 0, 64e9)).cpus == 1
    # 4 + 4 + 4 actors of 0.5 CPU; with 3 + 8 CPUs 3 + 9 of 0.8888.
    assert planned(twelve, one_each, laptop, laptop, laptop).cpus == 0.5
    assert planned(twelve, one_each, Node(3, 0, 64e9), Node(8, 0, 64e9)).cpus == 0.8888
    # The first node has memory for two actors only: ten on the second.
    short = Node(8, 0, 2.5 * (PROCESS_BYTES + memory(twelve, make_environment(twelve)).of(1)))
    assert planned(twelve, one_each, short, Node(8, 0, 64e9)).cpus == 0.8
    # Whoever asks for a number gets it.
    assert "12 actors x 0.5 CPU do not fit" in refusal(twelve, Options(agents_per_actor=1, cpus_per_actor=0.5), laptop)
    assert planned(BASE, Options(), Node(0.5, 0, 64e9)).cpus == 0.5
    whole = planned(BASE, Options(), laptop, runs=9)
    assert str(whole) == "1 actor with the server and 6 agents, 1 CPU"


def test_a_gpu_each_or_the_share_that_fits_for_cuda():
    one_each = Options(agents_per_actor=1)
    node = Node(cpus=8, gpus=2, memory=64e9)
    assert planned(BASE, one_each, node).gpus == 0
    cuda = BASE.replace(device="cuda")
    layout = planned(cuda, one_each, node)
    assert (len(layout.parts), layout.cpus, layout.gpus) == (6, 1.0, 0.3333)
    assert str(layout) == "6 actors x 1 agent, 1 CPU and 0.3333 GPU each"
    assert planned(cuda, one_each, node, node, node).gpus == 1
    # Nodes without a GPU hold none of them, so that two CPUs serve six.
    both = planned(cuda, one_each, Node(2, 2, 64e9), Node(64, 0, 64e9))
    assert (both.cpus, both.gpus) == (0.3333, 0.3333)
    assert len(planned(cuda, Options(), node, runs=2).parts) == 1
    assert "no node has 1 CPU and 1 GPU for one actor; 1 node with 8 CPU, 0 GPU" in refusal(
        cuda, Options(), Node(8, 0, 64e9)
    )


def test_auto_keeps_agents_that_do_not_wait_together_while_memory_lasts(busy):
    config = BASE.replace(algorithm="fn-ucb-async")
    assert sizes(config, Options(), Node(cpus=4, gpus=0, memory=64e9)) == [6]
    assert sizes(config, Options(agents_per_actor=2), Node(cpus=4, gpus=0, memory=64e9)) == [2, 2, 2]
    needs = memory(config, make_environment(config))
    small = Node(cpus=1, gpus=0, memory=PROCESS_BYTES + needs.of(3))
    assert sizes(config, Options(), small, small) == [3, 3]


def test_auto_packs_where_memory_is_short(busy):
    needs = memory(BASE, make_environment(BASE))
    three = 3 * (PROCESS_BYTES + needs.of(2))
    assert sizes(BASE, Options(), Node(8, 0, three)) == [2, 2, 2]
    assert sizes(BASE, Options(), Node(8, 0, three - 1)) == [3, 3]
    assert sizes(BASE, Options(), Node(8, 0, PROCESS_BYTES + needs.of(6))) == [6]
    # No node holds all agents, however many runs wait.
    half = Node(8, 0, PROCESS_BYTES + needs.of(3))
    assert sizes(BASE, Options(), half, half, runs=100) == [3, 3]


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
    with pytest.raises(ValueError, match="fit|no node") as caught:
        planned(config, options, *nodes)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_too_many_actors_for_the_cpus():
    node = Node(cpus=2, gpus=0, memory=64e9)
    assert refusal(BASE, Options(agents_per_actor=1, cpus_per_actor=1), node, node) == (
        "agents_per_actor=1: 6 actors x 1 CPU do not fit on 2 nodes with 4 CPU, 0 GPU; 4 actors fit: agents_per_actor=2"
    )
    assert "cpus_per_actor=3: no node has 3 CPU for one actor; 1 node with 2 CPU" in refusal(
        BASE, Options(cpus_per_actor=3), node
    )
    assert "0 nodes" in refusal(BASE, Options())


def test_gpus_asked_for_where_none_are():
    message = refusal(BASE, Options(agents_per_actor=3, gpus_per_actor=0.5), Node(8, 0, 64e9))
    assert message == ("gpus_per_actor=0.5: no node has 1 CPU and 0.5 GPU for one actor; 1 node with 8 CPU, 0 GPU")


def test_too_much_memory():
    needs, smaller = memory(BASE, make_environment(BASE)), BASE.replace(diagonal=True)
    each = PROCESS_BYTES + needs.shared + 2 * needs.per_agent
    enough = Node(8, 0, 3 * each)
    assert sizes(BASE, Options(agents_per_actor=2), enough) == [2, 2, 2]
    message = refusal(BASE, Options(agents_per_actor=2), Node(8, 0, 3 * each - 1))
    assert message == (
        f"agents=6: 3 actors x (270 MB + {readable(needs.shared)} shared + 2 agents x {readable(needs.per_agent)}) = "
        f"{readable(3 * each)} of memory, 1 node in all with {readable(3 * each - 1)}; about 3 agents fit, "
        f"or use --diagonal, which needs {readable(memory(smaller, make_environment(smaller)).of(6))}"
    )
    # Enough altogether, too little on each: 2 actors on one node, none on the others.
    third = Node(8, 0, each - 1)
    refusal(BASE, Options(agents_per_actor=2), Node(8, 0, 2 * each), third, third)
    diagonal = refusal(BASE.replace(diagonal=True), Options(), Node(8, 0, 1e6))
    assert "about 0 agents fit" in diagonal and "--diagonal" not in diagonal


@pytest.mark.parametrize("algorithm", ["random", "linear-ts", "kernel-ucb", "fn-ucb-async", "pooled-neural-ucb"])
def test_diagonal_matrices_are_advised_where_they_need_less(algorithm):
    message = refusal(BASE.replace(algorithm=algorithm), Options(), Node(8, 0, 1e6))
    assert "about 0 agents fit" in message
    assert ("--diagonal" in message) == (algorithm == "pooled-neural-ucb")


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
        ({"agents_per_actor": 0}, "agents_per_actor=0: expected a whole number, at least 1, or 'auto'"),
        ({"agents_per_actor": 1.5}, "agents_per_actor=1.5: expected a whole number, at least 1, or 'auto'"),
        ({"agents_per_actor": True}, "agents_per_actor=True: expected a whole number"),
        ({"agents_per_actor": "all"}, "agents_per_actor='all': expected a whole number, at least 1, or 'auto'"),
        ({"cpus_per_actor": -1}, "cpus_per_actor=-1: expected a number, at least 0, or 'auto'"),
        ({"cpus_per_actor": float("nan")}, "cpus_per_actor=nan: expected a number"),
        ({"gpus_per_actor": "1"}, "gpus_per_actor='1': expected a number, at least 0"),
        ({"cpus_per_actor": 0}, "cpus_per_actor=0, gpus_per_actor=auto: one of them must be above 0"),
        ({"cpus_per_actor": 0, "gpus_per_actor": 0}, "cpus_per_actor=0, gpus_per_actor=0: one of them must be above 0"),
        ({"actor_timeout": 0}, "actor_timeout=0: expected a number above 0"),
        ({"actor_timeout": float("inf")}, "actor_timeout=inf: expected a number"),
    ],
)
def test_bad_options(changes, pattern):
    with pytest.raises(ValueError, match=pattern):
        Options(**changes)
    assert Options(cpus_per_actor=0, gpus_per_actor=0.25).gpus_per_actor == 0.25
