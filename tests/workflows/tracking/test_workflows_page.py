"""`fnbandit ui`: the page of the store that a run used, and no process left behind."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from helpers import put_store

from workflows.command_line import main
from workflows.studies.tracking_uri import is_own, store_uri
from workflows.tracking.mlflow_store import artifact_location

pytestmark = pytest.mark.filterwarnings("ignore")  # MLflow's own warnings


@pytest.fixture(autouse=True)
def in_a_directory_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def serving(port):
    """The processes of MLflow's server on a port."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if f"--port\0{port}\0".encode() in (line := path.read_bytes()) and b"mlflow" in line:
                found.append(path.parent.name)
    return found


def tracked_run(*flags):
    argv = ["run", "--agents", "1", "--horizon", "5", "--engine", "local", "--out", "here", "--no-figures", *flags]
    assert main(argv) == 0


@pytest.mark.long
def test_the_page_of_a_study_is_served_until_the_command_ends(tmp_path):
    tracked_run("--tracking-uri", "sqlite:///own.db", "--experiment", "mine")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    code = "from workflows.command_line import entry; entry()"
    command = [sys.executable, "-c", code, "ui", str(tmp_path / "here"), "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd="/", start_new_session=True)
    try:
        assert process.stdout is not None
        store, page = process.stdout.readline(), process.stdout.readline()
        assert f"sqlite:///{tmp_path}/own.db" in store
        address = re.search(r"http\S+", page)
        assert address and "/#/experiments/1/runs?workflowType=machine_learning&viewStateShareKey=" in address[0]
        question = f"http://127.0.0.1:{port}/ajax-api/2.0/mlflow/experiments/get?experiment_id=1"
        with urllib.request.urlopen(question, timeout=30) as answer:
            assert b'"mine"' in answer.read()
        assert len(serving(port)) >= 2, "the server, and its worker"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert serving(port) == []
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait()


def test_a_taken_port_is_one_line(capsys):
    put_store("mlflow.db")
    tracked_run()
    capsys.readouterr()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        assert main(["ui", "--port", str(port)]) == 2
    assert f"port={port}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        ([], "no store yet"),
        (["--tracking-uri", "sqlite:///nowhere/none.db"], "no store yet"),
        (["--tracking-uri", "postgresql://me:open-sesame@127.0.0.1:1/mlflow", "--port", "5999"], "***@127.0.0.1"),
        (["nothing"], "has no study.json"),
    ],
)
def test_what_cannot_be_opened_is_one_line(argv, told, capsys, monkeypatch):
    monkeypatch.setattr("workflows.tracking.mlflow_page._server", lambda *_: contextlib.nullcontext())
    assert main(["ui", *argv]) in (1, 2)
    errors = capsys.readouterr().err
    assert told in errors and "open-sesame" not in errors
    assert errors.count("\n") == 1


def test_a_study_without_tracking_has_no_page(capsys):
    tracked_run("--tracking", "none")
    assert main(["ui", "here"]) == 2
    assert "--tracking none" in capsys.readouterr().err
    assert main(["ui", "here", "--tracking-uri", "sqlite:///a.db"]) == 2


def test_stores_have_a_place(tmp_path, monkeypatch):
    assert store_uri() == f"sqlite:///{tmp_path}/mlflow.db"
    assert store_uri("sqlite:///a/b.db") == f"sqlite:///{tmp_path}/a/b.db"
    assert store_uri("http://somewhere:5000") == "http://somewhere:5000"
    assert artifact_location("sqlite:///a/b.db") == f"file://{tmp_path}/a/mlartifacts"
    assert artifact_location("http://somewhere:5000") is None
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://elsewhere")
    assert store_uri() == "http://elsewhere"


def test_only_the_store_that_has_a_folders_run_is_its_own(tmp_path, monkeypatch):
    tracked_run("--tracking-uri", "sqlite:///own.db")
    (tmp_path / "else").mkdir()
    monkeypatch.chdir(tmp_path / "else")
    own, here = f"sqlite:///{tmp_path}/own.db", tmp_path / "here"
    assert is_own(own, here)
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "mlflow.json").write_text('{"run_id": "0123456789abcdef0123456789abcdef"}')
    assert not is_own(own, tmp_path / "foreign")
    assert not is_own(own, tmp_path / "else")
    assert not is_own(f"sqlite:///{tmp_path}/none.db", here)
    assert not (tmp_path / "none.db").exists(), "asking makes no file"
    assert not is_own("http://somewhere", here)
    assert is_own(f"sqlite:///{tmp_path}/else/mlflow.db", here), "this directory's"
