"""Hosts with networks of their own: a head and two workers, one of which is cut off while it works.

Network namespaces make several hosts of this machine. Their addresses are theirs alone; nothing leaves them.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from helpers import assert_records_equal, plain
from test_actors_drivers import own_environment, processes_of, short_directory  # noqa: F401

from actors import Options
from actors.pool import ActorPool
from fnbandit.environments import make_environment

SWEEP = ["sweep", "--agents", "6", "--horizon", "400", "--trigger", "logdet", "--threshold", "2,5", "--seeds", "2",
         "--agents-per-actor", "2", "--tracking", "none"]  # fmt: skip
STATE = """
import ray
ray.init(address="10.77.0.1:6379", log_to_driver=False, logging_level="ERROR")
print("NODES", *sorted(node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]))
"""


def test_a_run_that_waits_takes_the_place_of_one_that_has_ended(ray_cluster):
    """Whose actors are kept for the next run, and hold what the waiting one needs."""
    options = Options(agents_per_actor=1, cpus_per_actor=1)
    pool, config = ActorPool(options, fixed=False), plain(agents=6, horizon=10)
    environment, taken = make_environment(config), []

    def second():
        with pool.acquire(config, environment) as actor_set:
            taken.append(actor_set.place.id)

    thread = threading.Thread(target=second)
    try:
        with pool.acquire(config, environment) as actor_set:
            thread.start()
            thread.join(3)
            assert thread.is_alive() and not taken
        thread.join(20)
        assert taken == [actor_set.place.id]
    finally:
        pool.stop()
        thread.join()
        pool.close()


def ip(*words):
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


@pytest.fixture
def hosts():
    """Three namespaces on one bridge, 10.77.0.1 to 10.77.0.3; the bridge is in a fourth."""
    if shutil.which("ip") is None:
        pytest.skip("there is no `ip` (iproute2) on this machine")
    names = [f"fnb{os.getpid()}-{number}" for number in range(4)]
    made = []
    try:
        try:
            for name in names:
                ip("netns", "add", name)
                made.append(name)
                ip("-n", name, "link", "set", "lo", "up")
            ip("-n", names[0], "link", "add", "name", "hub", "type", "bridge")
            ip("-n", names[0], "link", "set", "hub", "up")
            for number, name in enumerate(names[1:], 1):
                port = f"port{number}"
                ip("-n", names[0], "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
                ip("-n", names[0], "link", "set", port, "master", "hub", "up")
                ip("-n", name, "addr", "add", f"10.77.0.{number}/24", "dev", "eth0")
                ip("-n", name, "link", "set", "eth0", "up")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no right to make network namespaces here ({error.stderr.strip()})")
        yield names
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "del", name], check=False)


def wait_for(true, seconds=240):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.5)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_study_over_three_hosts_and_the_loss_of_one(hosts, short_directory, tmp_path, monkeypatch):  # noqa: F811
    from workflows.command_line import main

    monkeypatch.chdir(tmp_path)
    root = str(Path(__file__).parents[2])
    health = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 1000, "health_check_failure_threshold": 5}
    environment = own_environment(short_directory, RAY_AUTH_MODE="token", PYTHONPATH=root)
    environment |= {f"RAY_{name}": str(value) for name, value in health.items()}

    running = []

    def inside(number, *words, **more):
        command = ["ip", "netns", "exec", hosts[number], sys.executable, *words]
        return subprocess.Popen(command, env=environment, cwd=tmp_path, text=True, **more)

    def started(number, *words):
        ray = ["-m", "ray.scripts.scripts", "start", "--block", f"--node-ip-address=10.77.0.{number}", "--num-cpus=2"]
        ray += ["--object-store-memory=100000000", "--disable-usage-stats", *words]
        with open(short_directory / f"host{number}.txt", "w") as log:
            running.append(inside(number, *ray, stdout=log, stderr=subprocess.STDOUT))

    def nodes():
        with inside(1, "-c", STATE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as asking:
            return [line.split()[1:] for line in asking.communicate()[0].splitlines() if line.startswith("NODES")]

    addresses = [f"10.77.0.{number}" for number in (1, 2, 3)]
    try:
        started(1, "--head", "--port=6379", f"--temp-dir={short_directory / 'ray1'}", "--include-dashboard=false")
        wait_for(lambda: nodes() == [addresses[:1]])
        for number in (2, 3):
            started(number, "--address=10.77.0.1:6379")
        wait_for(lambda: nodes() == [addresses])
        command = ["-m", "workflows.sweep", *SWEEP[1:], "--address", "10.77.0.1:6379", "--out", "there", "--verbose"]
        study = inside(1, *command, "--checkpoint-seconds", "1", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        running.append(study)
        wait_for(lambda: list(Path("there").rglob("manifest.json")) or study.poll() is not None)
        assert study.poll() is None, study.communicate()[0]
        ip("-n", hosts[0], "link", "set", "port3", "down")
        said, _ = study.communicate(timeout=500)
        assert study.returncode == 0, said
        assert "going on from iteration" in said, said
        assert nodes() == [addresses[:2]]
        assert main([*SWEEP[:-4], "--tracking", "none", "--engine", "local", "--out", "here"]) == 0
        assert_records_equal("there", "here", 4)
    finally:
        for _, pid in processes_of(environment["RAY_AUTH_TOKEN"]):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in running:
            process.communicate()
