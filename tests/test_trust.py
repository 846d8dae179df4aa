"""Nothing of the user's is deleted, lost or mixed: folders, locks, records that were tampered with."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fnbandit import read_run
from fnbandit.checkpoints import FOLDER
from fnbandit.errors import SimulationError
from fnbandit.records import RecordWriter
from workflows import locks
from workflows.command_line import main

SMALL = ["--agents", "2", "--horizon", "20", "--width", "6", "--engine", "local", "--no-tracking"]


@pytest.fixture(autouse=True)
def in_a_directory_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def one_line(capsys, warnings=0):
    """What stands on stderr: one line, after warnings where there are some."""
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1 + warnings, printed
    return printed.splitlines()[-1]


def test_checkpoints_beside_the_users_own_files(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    assert main(["run", *SMALL, "--checkpoint", "mine", "--out", "here"]) == 0
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.tex"]
    assert main(["run", *SMALL, "--checkpoint", "same", "--out", "same"]) == 0
    assert len(read_run("same").trace) == 40
    assert not (tmp_path / "same" / FOLDER).exists()


def test_a_second_process_is_told_in_one_line(tmp_path, capsys):
    with locks.locked(tmp_path / "here"):
        assert main(["run", *SMALL, "--out", "here"]) == 2
        line = one_line(capsys)
        assert f"process {os.getpid()} on {socket.gethostname()} is writing there" in line
    assert not (tmp_path / "here" / locks.NAME).exists()
    assert main(["run", *SMALL, "--out", "here"]) == 0
    assert not (tmp_path / "here" / locks.NAME).exists()
    with locks.locked(tmp_path / "here"):
        assert main(["resume", "here"]) == 2
        assert main(["report", "here"]) == 0, "who only reads waits for nobody"


def test_a_run_of_a_sweep_is_locked_too(tmp_path, capsys):
    with locks.locked(tmp_path / "here" / "agents=3" / "seed=0"):
        assert main(["sweep", *SMALL[2:], "--agents", "2,3", "--out", "here"]) == 1
        assert "agents=3/seed=0: out=" in capsys.readouterr().err
    assert read_run("here/agents=2/seed=0").finished, "the others go on"
    assert main(["sweep", *SMALL[2:], "--agents", "2,3", "--out", "here"]) == 0


HOLD = "import sys, time; from pathlib import Path; from workflows.locks import locked\n\
with locked(Path('here')): print('held', flush=True); time.sleep(60)"


def test_the_lock_of_a_killed_process_is_stale(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    with pytest.raises(ValueError, match=f"process {process.pid} on"), locks.locked(tmp_path / "here"):
        pass
    process.kill()
    process.communicate()
    assert (tmp_path / "here" / locks.NAME).exists()
    with locks.locked(tmp_path / "here"):
        assert json.loads((tmp_path / "here" / locks.NAME).read_text())["pid"] == os.getpid()


def test_the_lock_of_another_host_lives_as_long_as_it_gives_signs(tmp_path):
    lock = tmp_path / locks.NAME
    lock.write_text(json.dumps({"host": "elsewhere", "pid": 7}))
    with pytest.raises(ValueError, match="process 7 on elsewhere is writing there"), locks.locked(tmp_path):
        pass
    assert lock.exists()
    long_ago = time.time() - locks.STALE - 1
    os.utime(lock, (long_ago, long_ago))
    with locks.locked(tmp_path):
        pass
    assert [path.name for path in tmp_path.iterdir()] == []


def test_a_holder_gives_signs(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "SIGN_EVERY", 0.05)
    with locks.locked(tmp_path):
        lock = tmp_path / locks.NAME
        os.utime(lock, (1, 1))
        deadline = time.monotonic() + 10
        while lock.stat().st_mtime == 1 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert lock.stat().st_mtime > time.time() - 60


def test_rows_are_counted_before_a_run_is_called_finished(monkeypatch, capsys):
    write, calls = RecordWriter.write, []

    def lossy(self, segment):
        calls.append(segment)
        if len(calls) != 2:
            write(self, segment)

    monkeypatch.setattr(RecordWriter, "write", lossy)
    assert main(["run", *SMALL, "--out", "here"]) == 1
    assert "trace.arrows: has" in one_line(capsys, warnings=2)
    assert read_run("here").summary["status"] == "failed"
    monkeypatch.undo()


def test_a_reader_does_not_swallow_errors_of_the_file_system(tmp_path, monkeypatch):
    from fnbandit.records import read_stream

    (tmp_path / "trace.arrows").write_bytes(b"")

    def broken(self):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "read_bytes", broken)
    with pytest.raises(PermissionError):
        read_stream(tmp_path / "trace.arrows")


def test_another_config_in_a_folder_without_its_study(tmp_path, capsys):
    assert main(["run", *SMALL, "--out", "here"]) == 0
    (tmp_path / "here" / "study.json").unlink()
    capsys.readouterr()
    before = (tmp_path / "here" / "summary.json").read_bytes()
    assert main(["run", *SMALL, "--seed", "5", "--out", "here"]) == 2
    assert "out='here': holds a run with seed=0, not 5" in one_line(capsys)
    assert (tmp_path / "here" / "summary.json").read_bytes() == before
    assert not (tmp_path / "here" / "study.json").exists()
    assert main(["run", *SMALL, "--out", "here"]) == 0


@pytest.mark.parametrize("name", ["trace.parquet", "rounds.parquet"])
def test_a_finished_run_that_has_lost_a_table(tmp_path, capsys, name):
    assert main(["run", *SMALL, "--out", "here"]) == 0
    trace = read_run("here").trace
    (tmp_path / "here" / name).unlink()
    capsys.readouterr()
    assert main(["report", "here"]) == 2
    assert f"{name}: is missing, although the run is finished" in one_line(capsys)
    assert main(["resume", "here"]) == 0
    assert read_run("here").trace.equals(trace)


def test_what_is_interrupted_between_finished_and_counted_is_an_error(tmp_path):
    writer = RecordWriter(tmp_path)
    with pytest.raises(SimulationError, match="trace.arrows: has 0 rows, expected 6"):
        writer.finish(3, 2)
    assert not list(tmp_path.glob("*.parquet"))
