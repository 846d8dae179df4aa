"""A study as a Ray job: what it leaves outlives the job, or it does not start."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fnbandit.storage.records import read_summary
from workflows.command_line import main

SMALL = ["run", "--agents", "2", "--horizon", "20", "--engine", "local", "--no-figures"]
JOB = {
    "runtime_env": {"env_vars": {"AWS_SECRET_ACCESS_KEY": "a-secret-of-the-job"}},
    "metadata": {"job_submission_id": "raysubmit_x", "job_name": "mine", "of the user": "another-secret"},
}


@pytest.fixture
def job(tmp_path, monkeypatch):
    """This process as Ray starts it for a job."""
    here = tmp_path / "ray" / "session_x" / "runtime_resources" / "working_dir_files" / "_ray_pkg_0"
    here.mkdir(parents=True)
    monkeypatch.chdir(here)
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", json.dumps(JOB))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return here


@pytest.mark.parametrize(
    ("flags", "lost"),
    [
        ([], ["--out", "--tracking-uri"]),
        (["--tracking", "none"], ["--out"]),
        (["--out", "relative", "--tracking", "none"], ["--out"]),
        (["--out", "{}/there"], ["--tracking-uri"]),
        (["--out", "{}/there", "--tracking-uri", "sqlite:///here.db"], ["--tracking-uri"]),
        (["--out", "{}/there", "--tracking-uri", "mlruns"], ["--tracking-uri"]),
        (["--out", "{}/there", "--tracking", "none", "--checkpoint", "saved"], ["--checkpoint"]),
    ],
)
def test_what_would_be_deleted_with_the_job_is_refused(flags, lost, job, tmp_path, capsys):
    assert main([*SMALL, *(flag.format(tmp_path) for flag in flags)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert "would be deleted with the job's working directory; give" in line
    cures = line.partition("; give ")[2].split()
    named = [flag for flag in ("--out", "--checkpoint", "--tracking-uri") if flag in cures]
    assert named == lost
    assert not (tmp_path / "there").exists() and list(job.iterdir()) == []


@pytest.mark.filterwarnings("ignore")  # MLflow's own, of which there are many
def test_where_a_job_leaves_what_is_said_first_and_which_job_it_was_is_kept(job, tmp_path, capsys):
    there = tmp_path / "there"
    store = f"sqlite:///{there}/mlflow.db"
    there.mkdir()
    assert main([*SMALL, "--out", str(there / "study"), "--tracking-uri", store]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[1:5] == [
        "job      submission_id raysubmit_x, job_name mine",
        f"records  {there}/study",
        f"checkpoints in {there}/study",
        f"MLflow   {store}",
    ]
    assert read_summary(there / "study")["job"] == {"submission_id": "raysubmit_x", "job_name": "mine"}
    assert list(job.iterdir()) == []
    for path in filter(Path.is_file, there.rglob("*")):
        assert not any(secret in path.read_bytes() for secret in (b"a-secret-of-the-job", b"another-secret")), path


def test_outside_of_a_job(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([*SMALL, "--tracking", "none", "--out", "here"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "folder   here"
    assert read_summary(tmp_path / "here")["job"] == {}
