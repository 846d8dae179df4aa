"""A team's MLflow on PostgreSQL, killed half way of two sweeps and brought back: nothing lost, nothing twice."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest
from test_workflows_tracking import client_of, free_port, runs_of

from fnbandit import read_run

COMMAND = Path(sys.executable).with_name("fnbandit")
PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))


@pytest.fixture
def database(tmp_path):
    """The URI of an empty database of a PostgreSQL server of this test's own, on loopback."""
    if not PROGRAMS:
        pytest.skip("PostgreSQL is not installed (Debian's package postgresql)")
    pytest.importorskip("psycopg2", reason="PostgreSQL's driver psycopg2 is not installed")
    home, port, programs = tmp_path / "postgres", free_port(), PROGRAMS[-1].parent
    home.mkdir()
    tmp_path.chmod(0o755)
    user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.getuid() == 0 else []
    if user:
        shutil.chown(home, "postgres", "postgres")
        for folder in (tmp_path, *tmp_path.parents[:2]):
            folder.chmod(0o755)
    run = {"cwd": home, "check": True, "stdout": subprocess.DEVNULL}
    subprocess.run([*user, programs / "initdb", "-D", home / "data", "-U", "fnbandit", "-A", "trust"], **run)
    options = ["-p", str(port), "-c", "listen_addresses=127.0.0.1", "-k", home]
    with subprocess.Popen([*user, programs / "postgres", "-D", home / "data", *options], cwd=home) as process:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", port), timeout=2).close()
                break
            time.sleep(0.2)
        yield f"postgresql+psycopg2://fnbandit@127.0.0.1:{port}/postgres"
        process.send_signal(signal.SIGQUIT)


def serve(database, folder, port):
    """Start MLflow's server and wait until it answers."""
    command = [sys.executable, "-m", "mlflow", "server", "--artifacts-destination", str(folder), "--host", "127.0.0.1",
               "--port", str(port), "--workers", "1"]  # fmt: skip
    process = subprocess.Popen(command, env=os.environ | {"MLFLOW_BACKEND_STORE_URI": database}, start_new_session=True,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    end = time.monotonic() + 180
    while time.monotonic() < end:
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2):
            return process
        time.sleep(0.3)
    raise AssertionError("the server does not start")


@pytest.mark.long
def test_a_server_on_postgresql_that_is_killed_half_way(database, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    port = free_port()
    uri = f"http://127.0.0.1:{port}"
    server = serve(database, tmp_path / "artifacts", port)
    drivers = []
    try:
        for name, seed in (("one", 0), ("two", 100)):
            argv = f"sweep --agents 1,2,3,4,5 --seeds 2 --seed {seed} --horizon 100 --width 8 --engine local"
            argv = [*argv.split(), "--tracking-uri", uri, "--out", name]
            drivers.append(subprocess.Popen([COMMAND, *argv], cwd=tmp_path, stdout=subprocess.DEVNULL))
        while len(list(tmp_path.glob("*/agents=*/seed=*/trace.parquet"))) < 6:
            assert all(driver.poll() is None for driver in drivers)
            time.sleep(0.2)
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
        assert [driver.wait(600) for driver in drivers] == [0, 0], "a server that is down costs no run"
        server = serve(database, tmp_path / "artifacts", port)
        for name in ("one", "two"):
            assert (
                subprocess.run(
                    [COMMAND, "resume", name, "--tracking-uri", uri], cwd=tmp_path, stdout=subprocess.DEVNULL
                ).returncode
                == 0
            )
        client = client_of(uri)
        runs = runs_of(client)
        parents = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
        assert sorted(run.info.run_name for run in parents) == ["one", "two"]
        assert {run.info.status for run in runs} == {"FINISHED"} and len(runs) == 22
        for run in (run for run in runs if run not in parents):
            regret = sorted(client.get_metric_history(run.info.run_id, "regret"), key=lambda point: point.step)
            assert [point.step for point in regret] == list(range(1, 101)), "each step once"
            record = read_run(run.data.tags["folder"])
            assert regret[-1].value == pytest.approx(record.summary["regret"], rel=1e-4)
            assert "trace.parquet" in {item.path for item in client.list_artifacts(run.info.run_id)}
        assert len({run.data.tags["folder"] for run in runs}) == 22
    finally:
        for driver in drivers:
            driver.kill()
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()
