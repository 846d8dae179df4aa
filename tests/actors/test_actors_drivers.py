"""Drivers that die, clusters and jobs of their own, the loss of a node: nothing is lost, and nothing is left behind."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from helpers import EVERY_ROUND, assert_same, contiguous, gone
from test_actors_faults import CONFIG, ONE

from actors import Options, RayRun
from fnbandit import Config, read_run, simulate
from fnbandit.runs import Checkpointing
from fnbandit.simulation.results import collect
from fnbandit.storage.checkpoints import CheckpointStore

# Drivers

DRIVER = """
import hashlib, json, sys
from actors import Options, RayRun
from fnbandit import Config
from fnbandit.runs import Checkpointing
config, options, directory = Config(**json.loads(sys.argv[1])), Options(**json.loads(sys.argv[2])), sys.argv[3]
checkpointing = Checkpointing(directory, seconds=0, rounds=1) if directory else None
run = RayRun(config, options, checkpointing, resume=bool(directory))
for segment in run.segments():
    regret = hashlib.sha256(segment.trace.regret.tobytes()).hexdigest()
    print("segment", segment.start, segment.end, regret, *run.pids, flush=True)
"""


def segment_line(stream):
    """The driver's next line on a segment, in words; Ray may print among them. None at the end."""
    for line in stream:
        if line.startswith("segment "):
            return line.split()[1:]
    return None


def digest(array):
    return hashlib.sha256(array.tobytes()).hexdigest()


def driver(options, directory="", **changes):
    arguments = [json.dumps(asdict(CONFIG)), json.dumps(asdict(options)), str(directory)]
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **changes
    )


@pytest.mark.long
def test_a_killed_driver_leaves_what_resume_needs(ray_cluster, tmp_path):
    options = Options(agents_per_actor=2, cpus_per_actor=0.1, address=ray_cluster)
    with driver(options, tmp_path) as process:
        try:
            lines = []
            while len(lines) < 5 or len(list(tmp_path.rglob("manifest.json"))) < 2:
                lines.append(segment_line(process.stdout))
                assert lines[-1], process.stderr.read()
        finally:
            process.kill()
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    pids = [int(pid) for pid in lines[-1][3:]]
    assert len(pids) == 3
    assert gone(pids)
    saved = CheckpointStore(str(tmp_path)).latest().iteration
    assert 0 < saved < CONFIG.horizon
    run = RayRun(CONFIG, ONE, Checkpointing(str(tmp_path), **EVERY_ROUND), resume=True)
    segments = contiguous(list(run.segments()), CONFIG.horizon)
    assert saved in [segment.end for segment in segments]
    assert_same(collect(run.config, segments), simulate(CONFIG))


# Clusters of their own


def processes_of(mark):
    """Name and id of the living processes that were started with this token."""
    import psutil

    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if mark in process.environ().values():
                found.append((process.name(), process.pid))
    return found


def sockets_of(processes):
    """Process and address of every socket that these processes listen on."""
    import psutil

    found = []
    for name, pid in processes:
        with suppress(psutil.Error):
            for connection in psutil.Process(pid).net_connections(kind="inet"):
                if connection.status == psutil.CONN_LISTEN:
                    address = ipaddress.ip_address(connection.laddr.ip)
                    found.append((name, getattr(address, "ipv4_mapped", None) or address))
    return found


def semaphores_of(processes):
    """What these processes keep in shared memory by name."""
    return [path for _, pid in processes for path in Path("/dev/shm").glob(f"sem.*{pid}-*")]


def own_environment(directory, **more):
    """An environment whose Ray has its own token and files, and knows of no other Ray."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return kept | {"RAY_AUTH_TOKEN": os.urandom(32).hex(), "RAY_TMPDIR": str(directory)} | more


@pytest.fixture
def short_directory():
    """A directory with a path short enough for Ray's sockets."""
    with tempfile.TemporaryDirectory(prefix="fnb-") as name:
        yield Path(name)


def left(environment, seconds=20):
    """Processes of an environment that are still there after some seconds."""
    deadline = time.monotonic() + seconds
    while (found := processes_of(environment["RAY_AUTH_TOKEN"])) and time.monotonic() < deadline:
        time.sleep(0.2)
    return found


def test_a_run_without_a_cluster_starts_one_and_stops_it(short_directory):
    """Whatever cluster this machine remembers."""
    (short_directory / "ray").mkdir()
    (short_directory / "ray" / "ray_current_cluster").write_text("127.0.0.1:1")
    environment = own_environment(short_directory)
    with driver(Options(agents_per_actor=2, cpus_per_actor=0.5), env=environment) as process:
        lines = [segment_line(process.stdout)]
        running = processes_of(environment["RAY_AUTH_TOKEN"])
        listening, folders = sockets_of(running), list(short_directory.glob("ray-*"))
        modes = [stat.S_IMODE(folder.stat().st_mode) for folder in folders]
        semaphores = semaphores_of(running)
        while line := segment_line(process.stdout):
            lines.append(line)
        err = process.stderr.read()
    assert process.returncode == 0, err
    assert "Traceback" not in err
    assert {"raylet", "gcs_server"} <= {name for name, _ in running}
    assert {int(pid) for pid in lines[0][3:]} <= {pid for _, pid in running}
    assert {"raylet", "gcs_server"} <= {name for name, _ in listening}
    assert [found for found in listening if not found[1].is_loopback] == []
    assert modes == [stat.S_IRWXU]
    assert not any(folder.exists() for folder in folders)
    assert semaphores and not any(path.exists() for path in semaphores)
    assert int(lines[-1][1]) == CONFIG.horizon
    regret = simulate(CONFIG).regret
    assert [line[2] for line in lines] == [digest(regret[int(line[0]) : int(line[1])]) for line in lines]
    assert left(environment) == []


NODES = """
import dataclasses, json, logging, sys
from pathlib import Path
import numpy as np, ray
from ray.cluster_utils import Cluster
from ray.util import placement_group_table
from actors import RayRun
from fnbandit import Config
from fnbandit.runs import Checkpointing

logging.basicConfig(format="LOG %(message)s", stream=sys.stdout, level=logging.WARNING)
config, directory = Config(**json.loads(sys.argv[1])), Path(sys.argv[2])
size = {"num_cpus": 1, "object_store_memory": 100_000_000}
health = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 3}
cluster = Cluster(
    initialize_head=True, head_node_args=size | {"include_dashboard": False, "_system_config": health}
)
second = cluster.add_node(**size)
ray.init(address=cluster.address, log_to_driver=False)
try:
    for name in ("undisturbed", "removed"):
        run = RayRun(config, None, Checkpointing(str(directory / name), seconds=0, rounds=2))
        segments, layouts = [], []
        for segment in run.segments():
            segments.append(segment)
            if run.parts not in layouts:
                layouts.append(run.parts)
                tables = [t for t in placement_group_table().values() if t["state"] == "CREATED"]
                print("NODES", name, *sorted(len(set(t["bundles_to_node_id"].values())) for t in tables), flush=True)
            if name == "removed" and second and (directory / name).is_dir() and any((directory / name).iterdir()):
                cluster.remove_node(second, allow_graceful=False)
                second = None
        print("LAYOUTS", name, *("+".join(str(len(p)) for p in parts) for parts in layouts), flush=True)
        np.savez(
            directory / f"{name}.npz",
            **{f: np.concatenate([getattr(s.trace, f) for s in segments]) for f in ("arms", "rewards", "regret")},
            alpha=np.concatenate([s.trace.alpha for s in segments]), theta=segments[-1].theta,
            starts=[s.start for s in segments], ends=[s.end for s in segments],
        )
        rounds = [dataclasses.asdict(s.round) for s in segments if s.round]
        (directory / f"{name}.json").write_text(json.dumps(rounds))
finally:
    ray.shutdown()
    cluster.shutdown()
"""


@pytest.mark.long
def test_two_nodes_and_the_loss_of_one(short_directory, tmp_path):
    """Actors on both nodes give the same bits; a node that vanishes without a word is one line in the log."""
    config = CONFIG.replace(agents=2)
    environment = own_environment(short_directory)
    done = subprocess.run(
        [sys.executable, "-c", NODES, json.dumps(asdict(config)), str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("NODES")] == [
        "NODES undisturbed 2",
        "NODES removed 2",
        "NODES removed 1",
    ]
    assert [line for line in lines if line.startswith("LAYOUTS")] == [
        "LAYOUTS undisturbed 1+1",
        "LAYOUTS removed 1+1 2",
    ]
    (log,) = [line for line in lines if line.startswith("LOG")]
    assert re.search(r"is gone: .*; going on from iteration [1-9]\d*$", log)
    expected = simulate(config)
    for name in ("undisturbed", "removed"):
        with np.load(tmp_path / f"{name}.npz") as found:
            for field in ("arms", "rewards", "regret", "weight", "theta"):
                np.testing.assert_array_equal(found[field], getattr(expected, field), err_msg=f"{name} {field}")
            np.testing.assert_array_equal(found["starts"], [0, *found["ends"][:-1]])
            assert found["ends"][-1] == config.horizon
        rounds = json.loads((tmp_path / f"{name}.json").read_text())
        assert rounds == json.loads(json.dumps([asdict(r) for r in expected.round_records]))
    assert left(environment) == []


# A cluster as a user has it, and a job on it

JOB = """
import hashlib
import fnbandit, actors, ray
run = actors.RayRun(fnbandit.Config(agents=2, horizon=30, trigger="logdet"), actors.Options(agents_per_actor=1))
result = run.result()
assert not ray.is_initialized()
print("regret", hashlib.sha256(result.regret.tobytes()).hexdigest(), "actors", len(run.parts))
"""


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


@pytest.mark.long
def test_a_job_submitted_to_a_running_cluster(short_directory, tmp_path):
    """With a token, as `ray start` and `ray job submit` find it in their environment; without it they are refused."""
    import psutil

    ray = str(Path(sys.executable).with_name("ray"))
    environment = own_environment(short_directory, RAY_AUTH_MODE="token")
    gcs, dashboard, client, agent, metrics = free_ports(5)
    head = subprocess.Popen(
        [ray, "start", "--head", "--block", f"--port={gcs}", "--num-cpus=2", "--object-store-memory=100000000",
         f"--temp-dir={short_directory / 'ray'}", "--include-dashboard=true", "--dashboard-host=127.0.0.1",
         f"--dashboard-port={dashboard}", f"--ray-client-server-port={client}",
         f"--dashboard-agent-listen-port={agent}", f"--metrics-export-port={metrics}", "--disable-usage-stats"],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        address = f"http://127.0.0.1:{dashboard}"
        (tmp_path / "job.py").write_text(JOB)

        def submit(*command, **changes):
            return subprocess.run(
                [ray, "job", "submit", "--address", address, "--working-dir", ".", "--", sys.executable,
                 *(command or ("job.py",))],
                env=environment | changes, cwd=tmp_path, capture_output=True, text=True, timeout=120,
            )  # fmt: skip

        deadline = time.monotonic() + 60
        while (done := submit()).returncode and time.monotonic() < deadline and head.poll() is None:
            time.sleep(1)
        assert done.returncode == 0, done.stdout + done.stderr
        config = Config(agents=2, horizon=30, trigger="logdet")
        assert f"regret {digest(simulate(config).regret)} actors 2" in done.stdout
        for refused in (submit(RAY_AUTH_TOKEN="0" * 64), submit(RAY_AUTH_MODE="disabled")):
            assert refused.returncode != 0
            assert "authentication token" in refused.stderr
            assert "regret" not in refused.stdout
        sweep = ("-m", "workflows.sweep", "--agents", "1,2", "--horizon", "20", "--tracking", "none")
        refused = submit(*sweep)
        assert refused.returncode != 0
        assert "would be deleted with the job's working directory; give --out" in refused.stdout + refused.stderr
        done = submit(*sweep, "--out", str(tmp_path / "there"))
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"records  {tmp_path / 'there'}" in done.stdout
        for agents in (1, 2):
            summary = read_run(tmp_path / "there" / f"agents={agents}" / "seed=0").summary
            assert summary["status"] == "finished" and summary["job"]["submission_id"] in done.stdout
        joined = Options(agents_per_actor=4, cpus_per_actor=0.5, address=f"127.0.0.1:{gcs}")
        with driver(joined, env=environment) as process:
            out, err = process.communicate()
        assert process.returncode == 0, err
        assert int(out.splitlines()[-1].split()[2]) == CONFIG.horizon
        del environment["RAY_AUTH_MODE"]
        with driver(joined, env=environment) as process:
            _, err = process.communicate()
        assert process.returncode == 1
        assert re.search("ValueError: address=.*no Ray cluster answers there.*needs RAY_AUTH_MODE=token", err)
        assert head.poll() is None
    finally:
        started = psutil.Process(head.pid).children(recursive=True)
        head.terminate()
        head.communicate(timeout=30)
        for process in psutil.wait_procs(started, timeout=10)[1]:
            process.kill()
    assert left(environment) == []


def test_a_cluster_that_does_not_answer(short_directory):
    (port,) = free_ports(1)
    environment = own_environment(short_directory)
    with driver(Options(address=f"127.0.0.1:{port}"), env=environment) as process:
        _, err = process.communicate()
    assert process.returncode == 1
    assert f"ValueError: address='127.0.0.1:{port}': no Ray cluster answers there" in err
