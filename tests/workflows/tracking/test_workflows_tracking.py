"""MLflow: what is there afterwards, read back through its own client; a server that is down."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from helpers import plain, put_store
from small_records import record

from fnbandit import read_run
from fnbandit.config.registry import without_effect
from fnbandit.runs import Checkpointing, LocalRun
from fnbandit.storage.totals import SECONDARY_METRIC_STRIDE, STEPS, RunTotals
from workflows.command_line import main
from workflows.studies.settings import Settings
from workflows.studies.study import RunSpec, StudyPlan
from workflows.studies.tracking_uri import store_uri
from workflows.tracking.base import RunArtifacts, RunMetadata
from workflows.tracking.metadata import describe_run, describe_study, study_metrics
from workflows.tracking.mlflow_names import name_by_axis, shorten
from workflows.tracking.mlflow_tracker import MlflowRun, MlflowTracker

pytestmark = pytest.mark.filterwarnings("ignore")  # MLflow's own warnings, of which there are many


@pytest.fixture(autouse=True)
def in_a_directory_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # an interrupted study leaves it ignored


@pytest.fixture
def store(tmp_path):
    put_store(tmp_path / "mlflow.db")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.fixture
def server(tmp_path):
    """Where a real MLflow server listens, on loopback."""
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
    yield uri
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, 9)
    process.wait()


def client_of(uri):
    from mlflow import MlflowClient

    return MlflowClient(uri)


def runs_of(client, name="fnbandit"):
    experiment = client.get_experiment_by_name(name)
    return client.search_runs([experiment.experiment_id])


def parent_and_children(client):
    runs = runs_of(client)
    (parent,) = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
    children = [run for run in runs if run is not parent]
    assert {run.data.tags["mlflow.parentRunId"] for run in children} == {parent.info.run_id}
    return parent, children


def check_run(client, run, record):
    assert run.info.status == "FINISHED"
    config = record.summary["config"]
    idle = without_effect(config)
    assert run.data.params == {key: str(value) for key, value in config.items() if key not in idle}
    metrics = run.data.metrics
    assert metrics["regret"] == pytest.approx(record.summary["regret"], rel=1e-4)
    assert metrics["rounds"] == record.summary["rounds"]
    assert metrics["MB"] == pytest.approx((record.summary["bytes_up"] + record.summary["bytes_down"]) / 1e6, rel=1e-4)
    names = {"regret", "rounds", "MB", "regret_now", "alpha", "loss", "steps", "seconds"}
    assert set(metrics) == names
    history = client.get_metric_history(run.info.run_id, "regret")
    assert [m.step for m in history] == list(range(1, config["horizon"] + 1))
    total = record.trace.group_by("iteration").aggregate([("regret", "mean")])["regret_mean"].to_numpy().cumsum()
    assert [m.value for m in sorted(history, key=lambda m: m.step)] == pytest.approx(total.tolist(), rel=1e-4)
    tags = {"folder", "command", "host", "user", "git_commit", "device", "engine", "version.torch", "mlflow.user"}
    assert tags <= set(run.data.tags)
    assert run.data.tags["folder"] == str(record.directory.absolute())
    names = {item.path for item in client.list_artifacts(run.info.run_id)}
    assert {"config.toml", "summary.json", "trace.parquet", "rounds.parquet", "log.txt"} <= names
    assert run.data.tags["device"] == "cpu"
    assert run.inputs.dataset_inputs[0].dataset.name == "cosine"


def test_a_sweep_in_sqlite_is_a_parent_with_children(tmp_path, monkeypatch):
    job = {"metadata": {"job_submission_id": "raysubmit_x"}}
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", json.dumps(job))
    argv = ["sweep", "--agents", "1,2", "--trigger", "logdet", "--horizon", "30", "--engine", "local", "--out", "here"]
    assert main(argv) == 0
    client = client_of(f"sqlite:///{tmp_path}/mlflow.db")
    parent, children = parent_and_children(client)
    assert parent.info.status == "FINISHED"
    assert parent.data.params["agents"] == "1, 2"
    assert parent.data.params["seeds"] == "0"
    assert parent.data.params["environment"] == "cosine"
    assert parent.data.tags["folder"] == str(tmp_path / "here")
    assert parent.data.tags["submission_id"] == "raysubmit_x"
    assert {"command", "host", "user", "git_commit"} <= set(parent.data.tags)
    figures = {item.path for item in client.list_artifacts(parent.info.run_id, "figures")}
    assert {"figures/regret-against-agents.png", "figures/regret-against-bytes.png"} <= figures
    assert {"report.html", "table.csv"} <= {item.path for item in client.list_artifacts(parent.info.run_id)}
    note = parent.data.tags["mlflow.note.content"]
    assert "| N = 2 |" in note
    assert f"![regret-against-agents](get-artifact?path=overview.png&run_uuid={parent.info.run_id})" in note
    assert "overview.png" in {item.path for item in client.list_artifacts(parent.info.run_id)}
    best = min((read_run(f"here/agents={n}/seed=0").summary for n in (1, 2)), key=lambda found: found["regret"])
    assert parent.data.tags["best"] == f"N = {best['config']['agents']}"
    totals = (best["regret"], best["rounds"], (best["bytes_up"] + best["bytes_down"]) / 1e6)
    assert [parent.data.metrics[name] for name in ("regret", "rounds", "MB")] == pytest.approx(totals, rel=1e-4)
    records = {agents: read_run(f"here/agents={agents}/seed=0") for agents in ("1", "2")}
    for name in ("regret", "rounds"):
        history = client.get_metric_history(parent.info.run_id, f"{name} by N")
        expected = [(int(agents), pytest.approx(record.summary[name], rel=1e-4)) for agents, record in records.items()]
        assert sorted((m.step, m.value) for m in history) == expected
    by_agents = {run.data.params["agents"]: run for run in children}
    assert set(by_agents) == {"1", "2"}
    for agents, run in by_agents.items():
        assert run.info.run_name == f"N={agents} D=2 s0 cosine fn-ucb-less-comm"
        check_run(client, run, records[agents])
        assert parent.info.start_time <= run.info.start_time <= run.info.end_time <= parent.info.end_time


def test_totals_of_two_axes_have_metrics_that_say_the_second():
    runs = [record(np.full((2, n), 1.0 + s), rounds=(1,), trigger="diagonal", threshold=d, seed=s)
            for n in (1, 4) for d in (2.5, 5.0) for s in (0, 1)]  # fmt: skip
    steps = dict(study_metrics(runs))
    assert set(steps) == {1, 4}
    totals = {"regret": 3, "rounds": 1, "bytes": 12000}  # regret 2 and 4; 1,000 up and 2,000 down per agent
    assert steps[4] == {f"{name}/D {d}": value for name, value in totals.items() for d in ("2.5", "5")}


def test_fractions_are_numbered_steps_beside_their_values():
    runs = [record([[d]], trigger="diagonal", threshold=d) for d in (5.0, 2.5)]
    (one, first), (two, second) = study_metrics(runs)
    assert (one, first["threshold"], first["regret"]) == (1, 2.5, 2.5)
    assert (two, second["threshold"], second["regret"]) == (2, 5, 5)
    assert [step for step, _ in study_metrics([record([[1]], algorithm=a) for a in ("fn-ucb", "neural-ucb")])] == [1, 2]
    assert study_metrics([record([[1]], seed=s) for s in (0, 1)]) == []


def interrupted_after(monkeypatch, segments):
    """Runs save at every round, and Ctrl-C comes after so many segments of the second run that is begun."""
    every_round = lambda self, directory, path: Checkpointing(str(directory / path / "checkpoints"), 0, 1)  # noqa: E731
    monkeypatch.setattr("workflows.studies.settings.Settings.choose_checkpointing", every_round)
    counts, add = {}, RunTotals.segment

    def counting(self, segment):
        counts[self] = counts.get(self, 0) + 1
        if len(counts) == 2 and counts[self] == segments:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1.5)  # The main thread gets it, and tells the run after its segment.
        return add(self, segment)

    monkeypatch.setattr(RunTotals, "segment", counting)


def test_a_resumed_sweep_goes_on_in_its_own_runs(store, tmp_path, monkeypatch):
    argv = ["sweep", "--agents", "2,3", "--horizon", "20", "--engine", "local", "--out", "here", "--no-figures"]
    with monkeypatch.context() as patch:
        interrupted_after(patch, 8)
        assert main(argv) == 130
    client = client_of(f"sqlite:///{tmp_path}/mlflow.db")
    parent, children = parent_and_children(client)
    assert parent.info.status == "KILLED"
    first = {run.data.params["agents"]: run for run in children}
    assert (first["2"].info.status, first["3"].info.status) == ("FINISHED", "KILLED")
    seconds = read_run("here/agents=3/seed=0").summary["seconds"]
    assert seconds > 0
    monkeypatch.chdir(tmp_path / "here")  # from anywhere
    monkeypatch.setattr("sys.argv", ["/usr/bin/fnbandit", "resume", str(tmp_path / "here")])
    assert main(["resume", str(tmp_path / "here")]) == 0
    again, children = parent_and_children(client)
    assert (again.info.run_id, again.info.status) == (parent.info.run_id, "FINISHED")
    assert (
        again.data.tags["command"] == parent.data.tags["command"]
        and again.data.tags["resumed_by"] == f"fnbandit resume {tmp_path}/here"
    )
    assert again.info.start_time == parent.info.start_time < parent.info.end_time < again.info.end_time
    last = {run.data.params["agents"]: run for run in children}
    assert {agents: run.info.run_id for agents, run in last.items()} == {a: run.info.run_id for a, run in first.items()}
    assert last["2"].info.end_time == first["2"].info.end_time
    assert last["3"].info.start_time == first["3"].info.start_time
    for agents, run in last.items():
        record = read_run(f"{tmp_path}/here/agents={agents}/seed=0")
        check_run(client, run, record)
    whole = read_run(f"{tmp_path}/here/agents=3/seed=0").summary["seconds"]
    assert whole > seconds
    assert last["3"].data.metrics["seconds"] == pytest.approx(whole, abs=1)
    assert len(client.get_metric_history(again.info.run_id, "regret by N")) == 2


def raise_signal(*_):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(5)


def test_a_study_stopped_in_its_figures_is_completed_by_resume(store, tmp_path, monkeypatch):
    argv = ["sweep", "--agents", "1,2", "--horizon", "8", "--engine", "local", "--out", "here"]
    with monkeypatch.context() as patch:
        patch.setattr("workflows.execution.worker.report_study", raise_signal)
        assert main(argv) == 130
    client = client_of(f"sqlite:///{tmp_path}/mlflow.db")
    assert parent_and_children(client)[0].info.status == "KILLED"
    assert main(["resume", "here"]) == 0
    parent, children = parent_and_children(client)
    assert parent.info.status == "FINISHED" and {run.info.status for run in children} == {"FINISHED"}
    assert len(client.get_metric_history(parent.info.run_id, "regret by N")) == 2
    assert "report.html" in {item.path for item in client.list_artifacts(parent.info.run_id)}
    changed = parent.info.end_time
    assert main(["resume", "here"]) == 0
    assert parent_and_children(client)[0].info.end_time == changed, "complete: nothing is sent"


def test_an_extended_study_is_one_parent_with_all_that_it_has_now(store, tmp_path):
    argv = ["sweep", "--horizon", "8", "--engine", "local", "--out", "here", "--no-figures"]
    assert main([*argv, "--agents", "1,2"]) == 0
    client = client_of(f"sqlite:///{tmp_path}/mlflow.db")
    first, _ = parent_and_children(client)
    assert main([*argv, "--agents", "1,2,4", "--seeds", "2"]) == 0
    parent, children = parent_and_children(client)
    assert len(children) == 6 and parent.info.run_id != first.info.run_id
    names = ("agents", "seeds", "runs")
    assert [parent.data.params[name] for name in names] == ["1, 2, 4", "0, 1", "6"]
    history = client.get_metric_history(parent.info.run_id, "regret by N")
    means = {n: np.mean([read_run(f"here/agents={n}/seed={s}").summary["regret"] for s in (0, 1)]) for n in (1, 2, 4)}
    assert {point.step: point.value for point in history} == pytest.approx(means, rel=1e-4) and len(history) == 3


def test_runs_that_a_dead_server_did_not_take_are_sent_by_the_next_resume(store, tmp_path, monkeypatch):
    argv = ["sweep", "--agents", "1,2", "--horizon", "8", "--engine", "local", "--out", "here", "--no-figures"]
    with monkeypatch.context() as patch:
        patch.setattr(MlflowRun, "_end", lambda *_: 1 / 0)
        assert main(argv) == 0
    client = client_of(f"sqlite:///{tmp_path}/mlflow.db")
    for run in runs_of(client):
        if run.data.params["agents"] == "2":
            client.delete_run(run.info.run_id)
    assert main(["resume", "here"]) == 0
    parent, children = parent_and_children(client)
    assert parent.info.status == "FINISHED"
    assert {run.data.params["agents"]: run.info.status for run in children} == {"1": "FINISHED", "2": "FINISHED"}
    for run in children:
        record = read_run(f"here/agents={run.data.params['agents']}/seed=0")
        history = client.get_metric_history(run.info.run_id, "regret")
        total = record.trace.group_by("iteration").aggregate([("regret", "mean")])["regret_mean"].to_numpy().cumsum()
        assert [m.value for m in sorted(history, key=lambda m: m.step)] == pytest.approx(total.tolist(), rel=1e-4)


def test_charts_of_a_study_are_in_numeric_order():
    steps = [(1, {"bytes/D 5": 4e6, "regret/D 5": 1.0, "regret/D 2.5 x 7": 2.0, "regret/D 25": 3.0, "rounds/D 5": 5.0})]
    names = ["regret by N/D 02.5 x 7", "regret by N/D 05", "regret by N/D 25", "rounds by N/D 05", "sent MB by N/D 05"]
    shown = shorten(name_by_axis(steps, "agents")[0][1])
    assert sorted(shown) == names, "regret is the first chart"
    assert shown["sent MB by N/D 05"] == 4.0


def test_the_experiment_is_a_field_and_opens_with_a_table_that_says_something(tmp_path):
    argv = ["run", "--agents", "1", "--horizon", "5", "--engine", "local", "--out", "here", "--experiment", "mine"]
    assert main([*argv, "--tracking-uri", "sqlite:///own.db", "--trigger", "always"]) == 0
    client = client_of(f"sqlite:///{tmp_path}/own.db")
    assert len(runs_of(client, "mine")) == 1
    tags = client.get_experiment_by_name("mine").tags
    assert tags["mlflow.experimentKind"] == "custom_model_development"
    view = json.loads(tags["mlflow.sharedViewState.fnbandit-runs"])
    columns = json.loads(view["state"])["selectedColumns"]
    metrics = ["regret", "rounds", "MB"]
    params = ["agents", "threshold", "horizon", "environment", "algorithm", "trigger", "seed"]
    assert columns == [*(f"metrics.`{name}`" for name in metrics), *(f"params.`{name}`" for name in params)]
    (run,) = runs_of(client, "mine")
    assert set(metrics) <= set(run.data.metrics) and set(params) - {"threshold"} <= set(run.data.params)
    assert "threshold" not in run.data.params, "there is no D with a round in every iteration"
    stored = json.loads(Path("here/study.json").read_text())["settings"]["tracking_uri"]
    assert stored == f"sqlite:///{tmp_path}/own.db", "a relative path would be another store elsewhere"


@pytest.mark.long
def test_a_real_server(server):
    uri = server
    assert (
        main(["run", "--agents", "2", "--horizon", "25", "--engine", "local", "--tracking-uri", uri, "--out", "here"])
        == 0
    )
    client = client_of(uri)
    (run,) = runs_of(client)
    check_run(client, run, read_run("here"))
    assert "figures/regret.png" in {item.path for item in client.list_artifacts(run.info.run_id, "figures")}


def test_a_server_that_is_down_costs_a_warning(caplog):
    uri = f"http://127.0.0.1:{free_port()}"
    with caplog.at_level(logging.WARNING, logger="fnbandit"):
        argv = ["run", "--agents", "2", "--horizon", "25", "--engine", "local", "--tracking-uri", uri, "--out", "here"]
        assert main([*argv, "--no-figures"]) == 0
    assert read_run("here").finished
    messages = [record.getMessage() for record in caplog.records if record.name == "fnbandit"]
    assert any("trying again at the end" in message for message in messages)
    assert any("records are complete" in message for message in messages)


def test_a_server_that_never_answers_is_given_up(caplog, monkeypatch):
    """It takes connections, and reads nothing; one request after another is tried, and the last at the end."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    taken = []
    with socket.create_server(("127.0.0.1", 0)) as listener, caplog.at_level(logging.WARNING, logger="fnbandit"):

        def take():
            with contextlib.suppress(OSError):
                while True:
                    taken.append(listener.accept())

        threading.Thread(target=take, daemon=True).start()
        uri = f"http://127.0.0.1:{listener.getsockname()[1]}"
        argv = ["run", "--agents", "2", "--horizon", "25", "--engine", "local", "--tracking-uri", uri, "--out", "here"]
        assert main([*argv, "--no-figures"]) == 0
        listener.shutdown(socket.SHUT_RDWR)
    assert read_run("here").finished
    messages = [record.getMessage() for record in caplog.records if record.name == "fnbandit"]
    assert len(messages) == 2
    assert re.search("did not take everything of .*cosine.*; the records are complete", messages[1])
    assert 1 <= len(taken) <= 6


def test_a_slow_server_has_one_request_in_flight(tmp_path):
    tracker = MlflowTracker(None, tmp_path, Settings(tracking_uri="http://127.0.0.1:1"))
    taken, free = threading.Event(), threading.Event()
    tracker.put(lambda: (taken.set(), free.wait()))
    assert taken.wait(60)
    run = tracker.start_run(RunMetadata("slow", {}, {}), tmp_path)
    run._begin = run._send = lambda: None
    for step in range(20):
        run.log(step, {"regret": 1.0})
        run._last -= 10
    waiting = tracker._queue.qsize()
    free.set()
    assert waiting <= 2  # the beginning, and one that sends all there is by then


@pytest.mark.long
def test_ten_first_runs_at_once_share_a_new_store(tmp_path):
    command = [sys.executable, "-m", "workflows.run", "--agents=1", "--horizon=5", "--engine=local"]
    runs = [
        subprocess.Popen([*command, f"--out={i}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for i in range(10)
    ]
    for process in runs:
        _, err = process.communicate(timeout=280)
        assert (process.returncode, err) == (0, "")
    tracked = runs_of(client_of(f"sqlite:///{tmp_path}/mlflow.db"))
    assert [run.info.status for run in tracked] == ["FINISHED"] * 10
    assert [path.name for path in tmp_path.glob("mlflow.db*")] == ["mlflow.db"]


def test_a_broken_store_is_one_line(tmp_path, caplog):
    (tmp_path / "mlflow.db").write_bytes(b"no store " * 1000)
    with caplog.at_level(logging.WARNING, logger="fnbandit"):
        assert main(["run", "--agents", "1", "--horizon", "5", "--engine", "local", "--out", "here"]) == 0
    messages = [record.getMessage() for record in caplog.records if record.name == "fnbandit"]
    assert "file is not a database" in messages[0]
    assert not any("\n" in message for message in messages)
    assert read_run("here").finished


def test_what_failed_on_the_way_is_sent_at_the_end(store, tmp_path, monkeypatch):
    original = MlflowRun._send
    failures = []

    def failing(self):
        if not failures:  # one send is in flight at a time: the next is the one at the end
            failures.append(1)
            raise ConnectionError("gone for a moment")
        original(self)

    monkeypatch.setattr(MlflowRun, "_send", failing)
    original_log = MlflowRun.log

    def eager(self, step, metrics):
        self._last = -1e9
        original_log(self, step, metrics)

    monkeypatch.setattr(MlflowRun, "log", eager)
    assert main(["run", "--agents", "2", "--horizon", "25", "--engine", "local", "--out", "here"]) == 0
    assert len(failures) == 1
    client = client_of(f"sqlite:///{tmp_path}/mlflow.db")
    check_run(client, runs_of(client)[0], read_run("here"))


def test_tracking_takes_under_a_second_a_run(store, tmp_path):
    """Of this process, by its own clock: other processes' load does not count. The store's opening is left out."""
    points = [RunSpec(f"seed={seed}", plain(agents=2, horizon=500, seed=seed)) for seed in range(9)]
    study = StudyPlan("big", tmp_path / "big", points, Settings())
    facts = {"commit": "c", "device": "cpu", "engine": "local", "versions": {"torch": "2"}}
    tracker = MlflowTracker(describe_study(study, facts), study.directory, study.settings)
    ready, began = threading.Event(), 0.0
    for point in points:
        metadata = describe_run(study, point, point.path, point.config, facts)
        run = tracker.start_run(metadata, study.directory / point.path)
        for step in range(1, 501):
            side = {}
            if step % SECONDARY_METRIC_STRIDE == 0:
                side = dict.fromkeys(("regret_now", "alpha", "loss", "steps", "seconds"), 1.0)
            run.log(step, {"regret": float(step), "rounds": float(step), "bytes": float(step), **side})
        run.finish("finished", RunArtifacts())
        if point is points[0]:
            tracker.put(ready.set)
            assert ready.wait(120)
            began = time.process_time()
    tracker.finish("finished", RunArtifacts())
    assert (time.process_time() - began) / (len(points) - 1) < 1
    client = client_of(store_uri())
    _, children = parent_and_children(client)
    assert len(children) == 9
    assert {len(client.get_metric_history(run.info.run_id, "regret")) for run in children} == {500}


def test_metrics_are_thinned():
    config = plain(agents=2, horizon=1203, algorithm="linear-ucb")
    totals, steps = RunTotals(), []
    totals.begin(config)
    for segment in LocalRun(config).segments():
        totals.segment(segment)
        steps += [iteration for iteration, _ in totals.due]
    assert len(steps) <= STEPS
    assert steps[-1] == 1203
    assert steps[:3] == [3, 6, 9]


def test_nothing_secret_is_tracked(store, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "open-sesame")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "open-sesame")
    assert main(["run", "--agents", "1", "--horizon", "10", "--engine", "local", "--out", "here"]) == 0
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert b"open-sesame" not in path.read_bytes(), path
