"""MLflow: what is there afterwards, read back through its own client; a server that goes away."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

import fnbandit
from fnbandit import Config, read_run
from workflows.command_line import main
from workflows.tally import STEPS, Tally

pytestmark = pytest.mark.filterwarnings("ignore")  # MLflow's own warnings, of which there are many


@pytest.fixture(autouse=True)
def in_a_directory_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.fixture
def server(tmp_path):
    """A real MLflow server on loopback."""
    port = free_port()
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", f"sqlite:///{tmp_path}/server.db",
               "--artifacts-destination", str(tmp_path / "artifacts"), "--host", "127.0.0.1", "--port", str(port),
               "--workers", "1"]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    uri = f"http://127.0.0.1:{port}"
    end = time.monotonic() + 90
    while True:
        try:
            with urllib.request.urlopen(f"{uri}/health", timeout=2) as answer:
                if answer.status == 200:
                    break
        except OSError:
            assert time.monotonic() < end, "the server does not start"
            time.sleep(0.2)
    yield uri, process
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, 9)
    process.wait()


def client_of(uri):
    from mlflow import MlflowClient

    return MlflowClient(uri)


def runs_of(client):
    experiment = client.get_experiment_by_name("fnbandit")
    return client.search_runs([experiment.experiment_id])


def check_run(client, run, record):
    assert run.info.status == "FINISHED"
    config = record.summary["config"]
    assert run.data.params == {key: str(value) for key, value in config.items()}
    metrics = run.data.metrics
    assert metrics["regret"] == pytest.approx(record.summary["regret"])
    assert metrics["rounds"] == record.summary["rounds"]
    assert metrics["bytes"] == record.summary["bytes_up"] + record.summary["bytes_down"]
    names = {"regret", "regret_now", "alpha", "rounds", "messages", "bytes", "loss", "steps", "seconds", "speed"}
    assert set(metrics) == names
    history = client.get_metric_history(run.info.run_id, "regret")
    assert [m.step for m in history] == list(range(1, config["horizon"] + 1))
    total = record.trace.group_by("iteration").aggregate([("regret", "mean")])["regret_mean"].to_numpy().cumsum()
    assert [m.value for m in sorted(history, key=lambda m: m.step)] == pytest.approx(total.tolist())
    assert {"git_commit", "device", "engine", "version.torch"} <= set(run.data.tags)
    names = {item.path for item in client.list_artifacts(run.info.run_id)}
    assert {"config.toml", "summary.json", "trace.parquet", "rounds.parquet"} <= names
    assert run.inputs.dataset_inputs[0].dataset.name == "cosine"


def test_a_sweep_in_sqlite_is_a_parent_with_children(tmp_path):
    argv = ["sweep", "--agents", "1,2", "--trigger", "logdet", "--horizon", "30", "--engine", "local", "--out", "here"]
    assert main(argv) == 0
    client = client_of(f"sqlite:///{tmp_path}/mlflow.db")
    runs = runs_of(client)
    parents = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
    assert len(parents) == 1
    assert parents[0].info.status == "FINISHED"
    figures = {item.path for item in client.list_artifacts(parents[0].info.run_id, "figures")}
    assert "figures/regret-against-agents.png" in figures
    children = {run.data.params["agents"]: run for run in runs if run is not parents[0]}
    assert set(children) == {"1", "2"}
    for agents, run in children.items():
        assert run.data.tags["mlflow.parentRunId"] == parents[0].info.run_id
        assert f"N={agents}" in run.info.run_name
        assert "D=5.0" in run.info.run_name
        check_run(client, run, read_run(f"here/agents={agents}/seed=0"))


def test_a_real_server(server):
    uri, _ = server
    assert (
        main(["run", "--agents", "2", "--horizon", "25", "--engine", "local", "--tracking-uri", uri, "--out", "here"])
        == 0
    )
    client = client_of(uri)
    (run,) = runs_of(client)
    check_run(client, run, read_run("here"))
    assert "figures/regret.png" in {item.path for item in client.list_artifacts(run.info.run_id, "figures")}


def test_a_server_that_goes_away_costs_a_warning(server, caplog):
    uri, process = server
    os.killpg(process.pid, 9)
    process.wait()
    with caplog.at_level(logging.WARNING, logger="fnbandit"):
        argv = ["run", "--agents", "2", "--horizon", "25", "--engine", "local", "--tracking-uri", uri, "--out", "here"]
        assert main(argv) == 0
    assert read_run("here").finished
    messages = [record.getMessage() for record in caplog.records if record.name == "fnbandit"]
    assert any("trying again at the end" in message for message in messages)
    assert any("records are complete" in message for message in messages)


def test_what_failed_on_the_way_is_sent_at_the_end(tmp_path, monkeypatch):
    from workflows import tracking

    original = tracking.RunTracker._send
    failures = []

    def failing(self):
        if len(failures) < 2:
            failures.append(1)
            raise ConnectionError("gone for a moment")
        original(self)

    monkeypatch.setattr(tracking.RunTracker, "_send", failing)
    original_log = tracking.RunTracker.log

    def eager(self, due):
        self._last = -1e9
        original_log(self, due)

    monkeypatch.setattr(tracking.RunTracker, "log", eager)
    assert main(["run", "--agents", "2", "--horizon", "25", "--engine", "local", "--out", "here"]) == 0
    assert len(failures) == 2
    client = client_of(f"sqlite:///{tmp_path}/mlflow.db")
    check_run(client, runs_of(client)[0], read_run("here"))


def test_metrics_are_thinned():
    config = Config(agents=2, horizon=1203, algorithm="linear-ucb")
    tally, steps = Tally(config), []
    from fnbandit.simulation import LocalCohort, run_segments

    for epoch in run_segments(config, LocalCohort(config, fnbandit.environments.make_environment(config)), None):
        steps += [iteration for iteration, _ in tally.add(epoch)]
    assert len(steps) <= STEPS
    assert steps[-1] == 1203
    assert steps[:3] == [3, 6, 9]


def test_nothing_secret_is_tracked(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "open-sesame")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "open-sesame")
    assert main(["run", "--agents", "1", "--horizon", "10", "--engine", "local", "--out", "here"]) == 0
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert b"open-sesame" not in path.read_bytes(), path
