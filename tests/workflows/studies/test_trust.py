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
from helpers import plain

from fnbandit import read_run
from fnbandit.errors import SimulationError
from fnbandit.storage.checkpoints import CHECKPOINT_FOLDER
from fnbandit.storage.files import LOCK_FILE
from fnbandit.storage.records import RecordWriter
from workflows.command_line import main
from workflows.studies import locks

SMALL = ["--agents", "2", "--horizon", "20", "--width", "6", "--engine", "local", "--tracking", "none", "--no-figures"]


@pytest.fixture(autouse=True)
def in_a_directory_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def one_line(capsys):
    """What stands on stderr: one line."""
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1, printed
    return printed.splitlines()[-1]


def tampered(folder, **changes):
    """Change settings or points of a study.json as its sender might."""
    path = Path(folder) / "study.json"
    body = json.loads(path.read_text())
    body["settings"] |= changes.pop("settings", {})
    body["points"][0] |= changes.pop("point", {})
    body["points"][0]["config"] |= changes
    path.write_text(json.dumps(body))


def unfinish(folder):
    """Let a finished run's summary be lost, so that it is to be run."""
    (Path(folder) / "summary.json").unlink()


def test_checkpoints_beside_the_users_own_files(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    assert main(["run", *SMALL, "--checkpoint", "mine", "--out", "here"]) == 0
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.tex"]
    assert main(["run", *SMALL, "--checkpoint", "same", "--out", "same"]) == 0
    assert len(read_run("same").trace) == 40
    assert not (tmp_path / "same" / CHECKPOINT_FOLDER).exists()


def test_a_second_process_is_told_in_one_line(tmp_path, capsys):
    with locks.locked(tmp_path / "here"):
        assert main(["run", *SMALL, "--out", "here"]) == 2
        line = one_line(capsys)
        assert f"process {os.getpid()} on {socket.gethostname()} is writing there" in line
    assert not (tmp_path / "here" / LOCK_FILE).exists()
    assert main(["run", *SMALL, "--out", "here"]) == 0
    assert not (tmp_path / "here" / LOCK_FILE).exists()
    with locks.locked(tmp_path / "here"):
        assert main(["resume", "here"]) == 2
        assert main(["report", "here"]) == 0, "who only reads waits for nobody"


def test_a_run_of_a_sweep_is_locked_too(tmp_path, capsys):
    with locks.locked(tmp_path / "here" / "agents=3" / "seed=0"):
        assert main(["sweep", *SMALL[2:], "--agents", "2,3", "--out", "here"]) == 1
        assert "agents=3/seed=0: out=" in capsys.readouterr().err
    assert read_run("here/agents=2/seed=0").finished, "the others go on"
    assert main(["sweep", *SMALL[2:], "--agents", "2,3", "--out", "here"]) == 0


HOLD = "import sys, time; from pathlib import Path; from workflows.studies.locks import locked\n\
with locked(Path('here')): print('held', flush=True); time.sleep(60)"


def test_the_lock_of_a_killed_process_is_stale(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    with pytest.raises(ValueError, match=f"process {process.pid} on"), locks.locked(tmp_path / "here"):
        pass
    process.kill()
    process.communicate()
    assert (tmp_path / "here" / LOCK_FILE).exists()
    with locks.locked(tmp_path / "here"):
        assert json.loads((tmp_path / "here" / LOCK_FILE).read_text())["pid"] == os.getpid()


def test_the_lock_of_another_host_lives_as_long_as_it_gives_signs(tmp_path):
    lock = tmp_path / LOCK_FILE
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
        lock = tmp_path / LOCK_FILE
        os.utime(lock, (1, 1))
        deadline = time.monotonic() + 10
        while lock.stat().st_mtime == 1 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert lock.stat().st_mtime > time.time() - 60


def test_rows_are_counted_before_a_run_is_called_finished(monkeypatch, capsys):
    write, calls = RecordWriter.segment, []

    def lossy(self, segment):
        calls.append(segment)
        if len(calls) != 2:
            write(self, segment)

    monkeypatch.setattr(RecordWriter, "segment", lossy)
    assert main(["run", *SMALL, "--out", "here"]) == 1
    assert "trace.arrows: has" in one_line(capsys)
    assert read_run("here").summary["status"] == "failed"
    monkeypatch.undo()


def test_a_reader_does_not_swallow_errors_of_the_file_system(tmp_path, monkeypatch):
    from fnbandit.storage.records import read_stream

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
    writer.begin(plain(agents=2, horizon=3))
    with pytest.raises(SimulationError, match="trace.arrows: has 0 rows, expected 6"):
        writer.end("finished")
    assert not list(tmp_path.glob("*.parquet"))


def test_a_run_that_was_stopped_before_its_figures(tmp_path, monkeypatch):
    from workflows.execution import run_observers

    def stopped(directory):
        raise KeyboardInterrupt

    monkeypatch.setattr(run_observers, "draw_run", stopped)
    assert main(["run", *SMALL[:-1], "--out", "here"]) == 130
    assert read_run("here").finished
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert main(["resume", "here"]) == 0
    assert (tmp_path / "here" / "figures" / "regret.png").read_bytes()[:4] == b"\x89PNG"


def table(path, rows=40, shift=0.0):
    lines = [f"{i % 7 + shift},{i % 3},{'ab'[i % 2]}" for i in range(rows)]
    path.write_text("\n".join(["x,y,kind", *lines]) + "\n")


def test_a_table_that_has_changed_is_not_mixed_in(tmp_path, capsys):
    table(tmp_path / "t.csv")
    own = ["--environment", "t.csv", "--label", "kind", *SMALL]
    assert main(["sweep", *own[:4], *SMALL[2:], "--agents", "1,2", "--out", "here"]) == 0
    unfinish("here/agents=2/seed=0")
    table(tmp_path / "t.csv", shift=1.0)
    capsys.readouterr()
    assert main(["resume", "here"]) == 2
    assert "t.csv': the table has changed since here/agents=1/seed=0 was begun" in one_line(capsys)
    table(tmp_path / "t.csv")
    assert main(["resume", "here"]) == 0
    digest = read_run("here/agents=1/seed=0").summary["data"]
    import hashlib

    assert digest == hashlib.sha256((tmp_path / "t.csv").read_bytes()).hexdigest()


def test_a_checkpoint_knows_its_table_and_its_functions_source(tmp_path, caplog):
    from itertools import islice

    from helpers import EVERY_ROUND

    from fnbandit.runs import Checkpointing, LocalRun

    def begun(config, place):
        stream = LocalRun(config, Checkpointing(place, **EVERY_ROUND)).segments()
        list(islice(stream, 3))
        stream.close()

    table(tmp_path / "t.csv")
    config = plain(environment="t.csv", label="kind", agents=2, horizon=20, width=4, training_rate=0.01)
    begun(config, "one")
    table(tmp_path / "t.csv", rows=41)
    with pytest.raises(ValueError, match="t.csv': the table has changed since the run began"):
        LocalRun(config, Checkpointing("one"), resume=True)
    (tmp_path / "changing.py").write_text("def reward(x):\n    return x[:, 0]\n")
    config = plain(environment="changing:reward", agents=2, horizon=20, width=4)
    begun(config, "two")
    (tmp_path / "changing.py").write_text("def reward(x):\n    return x[:, 0] + 0\n")
    import linecache

    linecache.checkcache()
    LocalRun(config, Checkpointing("two"), resume=True)
    assert "environment=changing:reward: its module has changed since the run began" in caplog.text


def test_a_full_disk_is_told_with_the_file_and_what_to_do(capsys, monkeypatch):
    from fnbandit.storage.records import RecordStream

    original = RecordStream.__init__

    def on_a_full_disk(self, path, schema):
        original(self, path, schema)
        if path.name == "trace.arrows":
            import pyarrow as pa

            self._stream = pa.ipc.new_stream(pa.OSFile("/dev/full", "wb"), schema)

    monkeypatch.setattr(RecordStream, "__init__", on_a_full_disk)
    assert main(["run", *SMALL, "--out", "here"]) == 1
    line = one_line(capsys)
    assert "here/trace.arrows: no space left on the device; make room, then" in line and "resume" in line
    monkeypatch.undo()


def test_markup_in_what_is_not_ours(tmp_path, capsys):
    folder = tmp_path / "a[/x]" / "b[bold]"
    assert main(["run", *SMALL, "--out", str(folder)]) == 0
    assert "a[/x]/b[bold]" in capsys.readouterr().out
    tampered(folder, point={"label": "[/x] $\\foo$ :smile:"})
    path = folder / "study.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"title": "[/bold] $\\bar{$ :smile:"}))
    unfinish(folder)
    assert main(["resume", str(folder)]) == 0
    printed = capsys.readouterr().out
    assert "[/bold] $\\bar{$ :smile:" in printed and "[/x] $\\foo$ :smile:" in printed
    assert main(["report", str(folder)]) == 0
    assert main(["ls", str(folder)]) == 0
    assert main(["show", str(folder)]) == 0


LONG = pytest.mark.long
REDIRECTS = ["> /dev/full", "2>&- >&-", *(pytest.param(text, marks=LONG) for text in (">&-", "| true", "> out.txt"))]


@pytest.mark.parametrize("redirect", REDIRECTS)
def test_whatever_standard_output_leads_to_the_run_is_finished(redirect):
    words = " ".join([sys.executable, "-m", "workflows.run", *SMALL, "--out", "here"])
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(["sh", "-c", f"{words} {redirect}"], env=environment, capture_output=True, text=True)
    assert read_run("here").finished and len(read_run("here").trace) == 40
    assert "Traceback" not in done.stderr and "Exception" not in done.stderr
    assert done.returncode == (1 if "full" in redirect else 0)
