"""Nodes that join and leave: a study uses those that are there, and goes on without those that are gone."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict

import pytest
from helpers import assert_records_equal
from test_actors_drivers import left, own_environment, short_directory  # noqa: F401
from test_actors_faults import CONFIG

HEAD = """
import json, logging, sys, threading, time
from pathlib import Path
import ray
from ray.cluster_utils import Cluster
from ray.util import placement_group_table

logging.basicConfig(format="LOG %(message)s", stream=sys.stdout, level=logging.WARNING)
size = {"num_cpus": 1, "object_store_memory": 100_000_000}
health = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 3}
# Without hooks of its own at the exit, which could be set in the main thread only.
cluster = Cluster(
    initialize_head=True, shutdown_at_exit=False,
    head_node_args=size | {"include_dashboard": False, "_system_config": health},
)

def nodes_in_use():
    tables = [table for table in placement_group_table().values() if table["state"] == "CREATED"]
    return {node for table in tables for node in table["bundles_to_node_id"].values()}

def wait_until(true, seconds=300):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.1)
"""

ACTORS = (
    HEAD
    + """
import hashlib
from actors import Options, RayRun
from fnbandit import Config
from fnbandit.runs import Checkpointing

config, directory = Config(**json.loads(sys.argv[1])), Path(sys.argv[2])
others = [cluster.add_node(**size) for _ in range(2)]
ray.init(address=cluster.address, log_to_driver=False)
try:
    run = RayRun(config, Options(agents_per_actor=1), Checkpointing(str(directory / "saved"), seconds=0, rounds=2))
    digest, layouts = hashlib.sha256(), []
    for segment in run.segments():
        digest.update(segment.trace.regret.tobytes())
        if run.layout not in layouts:
            layouts.append(run.layout)
            print("LAYOUT", len(nodes_in_use()), run.layout, flush=True)
        if others and list((directory / "saved").rglob("manifest.json")):
            cluster.remove_node(others.pop(), allow_graceful=False)
            others.clear()
    print("REGRET", digest.hexdigest(), flush=True)
finally:
    ray.shutdown()
    cluster.shutdown()
"""
)

STUDY = (
    HEAD
    + """
from workflows.command_line import main

ray.init(address=cluster.address, log_to_driver=False)
finished = lambda: len(list(Path("there").rglob("trace.parquet")))
running = lambda: sum("running" in path.read_text() for path in Path("there").rglob("summary.json"))

def come_and_go():
    wait_until(lambda: finished() >= 1)
    print("BEFORE", len(nodes_in_use()), flush=True)
    node = cluster.add_node(**size)
    wait_until(lambda: len(nodes_in_use()) == 2 and running() == 2)
    print("JOINED", len(nodes_in_use()), flush=True)
    time.sleep(1)
    cluster.remove_node(node, allow_graceful=False)

thread = threading.Thread(target=come_and_go)
thread.start()
try:
    print("CODE", main(sys.argv[1:]), flush=True)
    thread.join()
finally:
    ray.shutdown()
    cluster.shutdown()
"""
)


def script(text, environment, *arguments, **more):
    done = subprocess.run(
        [sys.executable, "-c", text, *arguments], env=environment, capture_output=True, text=True, timeout=400, **more
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.long
def test_an_actor_per_agent_on_three_nodes_and_the_loss_of_one(short_directory, tmp_path):  # noqa: F811
    """Twelve actors on three CPUs, then on two."""
    from test_actors_drivers import digest

    from fnbandit import simulate

    config = CONFIG.replace(agents=12, horizon=150)
    environment = own_environment(short_directory)
    lines = script(ACTORS, environment, json.dumps(asdict(config)), str(tmp_path))
    assert [line for line in lines if line.startswith("LAYOUT")] == [
        "LAYOUT 3 12 actors x 1 agent, 0.25 CPU each",
        "LAYOUT 2 12 actors x 1 agent, 0.1666 CPU each",
    ]
    assert f"REGRET {digest(simulate(config).regret)}" in lines
    assert len([line for line in lines if line.startswith("LOG") and "going on from iteration" in line]) == 1
    assert left(environment) == []


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_study_uses_a_node_that_joins_and_goes_on_when_it_leaves(short_directory, tmp_path, monkeypatch):  # noqa: F811
    from workflows.command_line import main

    monkeypatch.chdir(tmp_path)
    sweep = ["sweep", "--agents", "4", "--horizon", "600", "--trigger", "logdet", "--threshold", "2,5", "--seeds", "6",
             "--tracking", "none"]  # fmt: skip
    environment = own_environment(short_directory)
    lines = script(STUDY, environment, *sweep, "--out", "there", cwd=tmp_path)
    assert {"BEFORE 1", "JOINED 2", "CODE 0"} <= set(lines), lines
    # The run on the node that left is the only one that was lost.
    assert len([line for line in lines if line.startswith("LOG") and "going on from iteration" in line]) == 1, lines
    assert main([*sweep, "--engine", "local", "--out", "here"]) == 0
    assert_records_equal("there", "here", 12)
    assert left(environment) == []
