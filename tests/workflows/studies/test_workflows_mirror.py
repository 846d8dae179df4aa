"""Records and checkpoints in an object store: a real server of the S3 protocol on loopback."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers import assert_records_equal

from fnbandit.storage.records import read_run
from workflows.command_line import main
from workflows.studies.mirror import Mirror
from workflows.studies.study import load_study

SECRET = "a-secret-that-nobody-may-read"
STUDY = ["sweep", "--agents", "1,2", "--horizon", "30", "--trigger", "logdet", "--engine", "local"]
URI = "s3://bucket/deep/study"


@pytest.fixture(scope="module")
def server():
    """Where an S3 server of this machine's own listens."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with contextlib.redirect_stdout(None):
        server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
        server.start()
        yield f"http://127.0.0.1:{server.get_host_and_port()[1]}"
        server.stop()


@pytest.fixture
def bucket(server, tmp_path, monkeypatch):
    """A bucket of its own for a test; who may write to it is in the environment, and nowhere else."""
    import boto3

    monkeypatch.chdir(tmp_path)
    for name, value in {
        "AWS_ACCESS_KEY_ID": "somebody",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_ENDPOINT_URL": server,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    bucket = boto3.resource("s3").Bucket("bucket")
    bucket.create()
    yield bucket
    bucket.objects.all().delete()
    bucket.delete()


def keys(bucket):
    return {item.key for item in bucket.objects.all()}


def contents(bucket):
    return {item.key: item.get()["Body"].read() for item in bucket.objects.all()}


@pytest.mark.filterwarnings("ignore")  # MLflow's own, of which there are many
@pytest.mark.long
def test_a_study_in_a_bucket_has_the_same_records_and_no_secret(bucket, tmp_path, capsys):
    assert main([*STUDY, "--out", URI]) == 0
    printed = capsys.readouterr()
    assert f"records  {URI}" in printed.out
    assert printed.err == ""
    there = keys(bucket)
    names = ("config.toml", "log.txt", "mlflow.json", "rounds.parquet", "summary.json", "trace.parquet")
    runs = {f"deep/study/agents={agents}/seed=0/{name}" for agents in (1, 2) for name in names}
    study = {f"deep/study/{name}" for name in ("study.json", "report.html", "table.csv", "mlflow.json")}
    figures = {f"deep/study/{path.relative_to('runs/study')}" for path in Path("runs/study/figures").iterdir()}
    assert figures
    assert {key for key in there if not key.endswith("/")} == runs | study | figures
    assert main([*STUDY, "--out", "here", "--tracking", "none"]) == 0
    # Elsewhere, from the bucket alone: nothing is computed again.
    shutil.rmtree("runs")
    assert main(["resume", URI, "--trust"]) == 0
    assert "2 of 2 runs are finished already" in capsys.readouterr().out
    assert_records_equal("runs/study", "here", 2)
    # MLflow's store and files are in this folder, too.
    left = contents(bucket) | {path: path.read_bytes() for path in filter(Path.is_file, tmp_path.rglob("*"))}
    assert any("mlflow.db" in str(path) for path in left)
    left |= {"out": printed.out.encode(), "err": printed.err.encode()}
    assert not [path for path, data in left.items() if SECRET.encode() in data]


@pytest.mark.long
def test_a_killed_study_goes_on_elsewhere_from_the_bucket(bucket):
    long = ["run", "--agents", "2", "--horizon", "300", "--engine", "local", "--tracking", "none", "--trace", "mean"]
    command = [sys.executable, "-m", "workflows.run", *long[1:], "--out", URI, "--checkpoint-seconds", "0.5"]
    path = str(Path(__file__).parents[3])
    with subprocess.Popen(command, env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 120
        while not any(key.endswith("manifest.json") for key in keys(bucket)):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
        process.send_signal(signal.SIGKILL)
    shutil.rmtree("runs")
    assert main(["resume", URI]) == 0
    record = read_run("runs/study")
    assert main([*long, "--out", "here"]) == 0
    assert record.trace.equals(read_run("here").trace)
    assert not [key for key in keys(bucket) if "fnbandit-checkpoints" in key]
    assert "deep/study/trace.parquet" in keys(bucket)


def test_what_cannot_be_copied_stays_here_and_goes_later(bucket, monkeypatch, capsys):
    original = Mirror._send

    def broken(self, path):
        if "agents=2" in str(path) and path.name == "trace.parquet":
            raise OSError("the network is down")
        original(self, path)

    monkeypatch.setattr(Mirror, "_send", broken)
    assert main([*STUDY, "--out", URI, "--tracking", "none", "--no-figures"]) == 1
    error = capsys.readouterr().err
    assert "fnbandit: s3://bucket/deep/study: has no copy of runs/study/agents=2/seed=0 (the network is down)" in error
    assert "fnbandit resume s3://bucket/deep/study` tries again" in error
    assert read_run("runs/study/agents=2/seed=0").finished
    # Its summary goes last, so that nobody takes it for a run that is there.
    assert "deep/study/agents=2/seed=0/summary.json" not in keys(bucket)
    assert "deep/study/agents=1/seed=0/summary.json" in keys(bucket)
    monkeypatch.setattr(Mirror, "_send", original)
    assert main(["resume", "runs/study"]) == 2
    assert "copies its records to s3://bucket/deep/study; --trust allows it" in capsys.readouterr().err
    assert main(["resume", "runs/study", "--trust"]) == 0
    assert {f"deep/study/agents=2/seed=0/{name}.parquet" for name in ("trace", "rounds")} <= keys(bucket)
    local = Path("runs/study/agents=2/seed=0/summary.json").read_bytes()
    assert contents(bucket)["deep/study/agents=2/seed=0/summary.json"] == local


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("s3://nowhere/study", "out='s3://nowhere/study': cannot be used ("),
        ("nothing://nowhere/study", "out='nothing://nowhere/study': cannot be used ("),
        (f"s3://somebody:{SECRET}@bucket/study", "out='s3://***@bucket/study': has a password in it"),
    ],
)
def test_a_place_that_cannot_be_used_is_one_line_before_anything_starts(uri, said, bucket, capsys):
    assert main([*STUDY, "--out", uri, "--tracking", "none"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"fnbandit: {said}")
    assert SECRET not in line
    assert not list(Path().rglob("summary.json"))


def test_a_folder_of_another_study_is_not_mixed_with_one_of_a_bucket(bucket, capsys):
    assert main([*STUDY, "--out", "runs/study", "--tracking", "none", "--no-figures"]) == 0
    before = Path("runs/study/study.json").read_bytes()
    assert main([*STUDY, "--out", URI, "--tracking", "none"]) == 2
    assert "runs/study is for a study whose records are there alone" in capsys.readouterr().err
    assert Path("runs/study/study.json").read_bytes() == before and not keys(bucket)


@pytest.mark.long
def test_overwriting_removes_our_files_there_and_no_others(bucket):
    assert main([*STUDY, "--out", URI, "--tracking", "none"]) == 0
    bucket.put_object(Key="deep/study/mine.txt", Body=b"mine")
    fewer = [word if word != "1,2" else "2,3" for word in STUDY]
    assert main([*fewer, "--out", URI, "--tracking", "none", "--overwrite"]) == 0
    there = {key for key in keys(bucket) if key.endswith(("summary.json", "mine.txt"))}
    assert there == {"deep/study/mine.txt", *(f"deep/study/agents={n}/seed=0/summary.json" for n in (2, 3))}
    assert [point.config.agents for point in load_study(Path("runs/study")).points] == [2, 3]


def test_what_is_fetched_stays_in_the_folder(bucket, tmp_path):
    """Whoever wrote to the bucket."""
    (tmp_path / "a").mkdir()
    for key in ("deep/study/../../summary.json", "deep/study/x/evil.py", "deep/study/x/summary.json"):
        bucket.put_object(Key=key, Body=b"{}")
    Mirror(URI, tmp_path / "a" / "b").fetch()
    assert [path.relative_to(tmp_path).as_posix() for path in filter(Path.is_file, tmp_path.rglob("*"))] == [
        "a/b/x/summary.json"
    ]
