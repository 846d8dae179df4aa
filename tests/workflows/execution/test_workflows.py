"""The command line as a person uses it: what it prints, what it leaves, how it fails, how it goes on."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from helpers import plain

import fnbandit
from fnbandit import Config, read_run, read_sweep
from fnbandit.storage.checkpoints import CHECKPOINT_FOLDER
from fnbandit.storage.records import ROUND_SCHEMA, TRACE_SCHEMA, read_stream
from workflows.command_line import main
from workflows.execution.preconnect import early_cluster
from workflows.studies.settings import Settings
from workflows.studies.study import RunSpec, StudyPlan

SMALL = ["--agents", "3", "--horizon", "40", "--engine", "local", "--tracking", "none", "--no-figures"]


@pytest.fixture(autouse=True)
def in_a_directory_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def test_run_leaves_what_it_promises(tmp_path, capsys):
    assert main(["run", *SMALL[:-1], "--out", "here", "--trigger", "logdet", "--threshold", "3"]) == 0
    printed = capsys.readouterr().out
    here = tmp_path / "here"
    for word in ("regret per agent", "rounds", "bytes up", "records", "figure"):
        assert word in printed
    expected = fnbandit.simulate(Config.preset("tuned", agents=3, horizon=40, trigger="logdet", threshold=3.0))
    record = read_run(here)
    assert record.finished
    assert record.trace.schema.equals(TRACE_SCHEMA)
    assert record.trace.schema.metadata[b"fnbandit.schema"] == b"2"
    assert record.rounds.schema.equals(ROUND_SCHEMA)
    columns = record.trace.to_pydict()
    assert columns["iteration"][:4] == [1, 1, 1, 2]
    assert columns["agent"][:4] == [0, 1, 2, 0]
    np.testing.assert_array_equal(np.reshape(columns["arm"], (40, 3)), expected.arms)
    np.testing.assert_array_equal(np.reshape(columns["reward"], (40, 3)), expected.rewards)
    np.testing.assert_array_equal(np.reshape(columns["regret"], (40, 3)), expected.regret)
    np.testing.assert_array_equal(np.reshape(columns["weight"], (40, 3))[:, 0], expected.alpha)
    rounds = record.rounds.to_pydict()
    assert rounds["iteration"] == expected.rounds
    assert rounds["triggered"] == [list(r.triggered) for r in expected.round_records]
    assert rounds["bytes_up"] == expected.communication.bytes_up.tolist()
    assert all(measure > 3 for measure in rounds["measure"])
    summary = record.summary
    assert summary["regret"] == pytest.approx(expected.regret.sum(0).mean())
    assert summary["rounds"] == len(expected.rounds)
    assert summary["bytes_up"] == expected.communication.total.bytes_up
    assert summary["versions"]["torch"].startswith("2.")
    assert tomllib.loads((here / "config.toml").read_text())["threshold"] == 3.0
    assert (here / "figures" / "regret.png").read_bytes()[:4] == b"\x89PNG"
    assert not list(here.glob("*.arrows"))


def test_several_seeds_and_a_file_with_flags_on_top(tmp_path):
    (tmp_path / "my.toml").write_text(
        'agents = 2\nhorizon = 30\nseeds = 2\nengine = "local"\ntracking = "none"\nfigures = false\n'
    )
    assert main(["run", "my.toml", "--horizon", "20", "--out", "here"]) == 0
    for seed in (0, 1):
        summary = read_run(f"here/seed={seed}").summary
        config = summary["config"]
        assert (config["agents"], config["horizon"], config["seed"]) == (2, 20, seed)


def test_thinned_traces(tmp_path):
    for detail, rows in (("mean", 40), ("none", 0)):
        assert main(["run", *SMALL, "--out", detail, "--trace", detail]) == 0
        trace = read_run(detail).trace
        assert len(trace) == rows
        assert read_run(detail).summary["iterations"] == 40
    full = fnbandit.simulate(Config.preset("tuned", agents=3, horizon=40))
    np.testing.assert_allclose(read_run("mean").trace["regret"].to_numpy(), full.regret.mean(1))


def test_sweep_is_one_data_set_and_goes_on_where_it_stopped(capsys):
    command = ["sweep", "--agents", "1,2", "--threshold", "2.5,4", "--trigger", "logdet", "--horizon", "30",
               "--seeds", "2",
               "--engine", "local", "--tracking", "none", "--out", "here"]  # fmt: skip
    assert main(command) == 0
    data = read_sweep("here")
    table = data.to_table()
    assert len(table) == 2 * 2 * 30 * (1 + 2)
    assert {"agents", "threshold", "seed"} <= set(table.column_names)
    assert len(data.to_table(filter=(pa.compute.field("agents") == 2) & (pa.compute.field("seed") == 1))) == 2 * 30 * 2
    for figure in ("regret", "regret-against-agents", "rounds-against-threshold"):
        assert os.path.exists(f"here/figures/{figure}.png"), figure
    before = os.path.getmtime("here/agents=1/threshold=2.5/seed=0/trace.parquet")
    capsys.readouterr()
    assert main([*command, "--no-figures"]) == 0
    assert "8 of 8 runs are finished already" in capsys.readouterr().out
    assert os.path.getmtime("here/agents=1/threshold=2.5/seed=0/trace.parquet") == before
    assert main([*command[:-1], "here", "--width", "10"]) == 2


def test_a_sweep_from_a_file(tmp_path):
    (tmp_path / "s.toml").write_text(
        'agents = [1, 2]\ntrigger = ["always", "period"]\nhorizon = 20\nengine = "local"\n'
    )
    assert main(["sweep", "s.toml", "--tracking", "none", "--no-figures", "--out", "here"]) == 0
    assert read_run("here/agents=2/trigger=period/seed=0").summary["rounds"] == 2


SLOW = """
import sys, time
sys.argv = ["fnbandit"]
import fnbandit.storage.records as records
original = records.RecordWriter.segment
def slow(self, epoch):
    original(self, epoch)
    time.sleep(0.03)
records.RecordWriter.segment = slow
from workflows.command_line import main
if __name__ == "__main__":
    sys.exit(main({argv!r}))
"""


def start_slow(argv):
    """The command in a process of its own, slowed down so that it can be caught in the middle."""
    # As from a terminal: a test session in the background may have handed down that SIGINT is ignored.
    handler = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        command = [sys.executable, "-c", SLOW.format(argv=argv)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    finally:
        signal.signal(signal.SIGINT, handler)


def wait_for(condition, seconds=240):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.05)


def rows_in(path):
    return len(read_stream(path)) if path.exists() else 0


SIGNALS = [pytest.param(number, marks=pytest.mark.long) for number in (signal.SIGINT, signal.SIGTERM)]


@pytest.mark.parametrize("killed_by", [signal.SIGKILL, *SIGNALS])
def test_a_sweep_that_is_killed_and_resumed_equals_one_that_was_not(tmp_path, killed_by):
    argv = ["sweep", "--agents", "2,3", "--horizon", "60", "--engine", "local", "--tracking", "none",
            "--checkpoint-seconds", "0.2", "--no-figures"]  # fmt: skip
    assert main([*argv, "--out", "undisturbed"]) == 0
    process = start_slow([*argv, "--out", "killed"])
    second = tmp_path / "killed" / "agents=3" / "seed=0"
    wait_for(lambda: rows_in(second / "trace.arrows") > 60)
    process.send_signal(killed_by)
    process.communicate()
    assert process.returncode == (-9 if killed_by == signal.SIGKILL else 130)
    unfinished = read_run(second)
    assert unfinished.summary["status"] == ("running" if killed_by == signal.SIGKILL else "interrupted")
    assert 60 < len(unfinished.trace) < 180
    assert list((second / CHECKPOINT_FOLDER).glob("step-*"))
    assert main(["resume", "killed"]) == 0
    for part in ("agents=2/seed=0", "agents=3/seed=0"):
        one, other = read_run(f"undisturbed/{part}"), read_run(f"killed/{part}")
        assert one.trace.equals(other.trace)
        assert one.rounds.drop_columns(["seconds"]).equals(other.rounds.drop_columns(["seconds"]))
        assert one.summary["bytes_up"] == other.summary["bytes_up"]


def test_records_survive_a_cut_anywhere(tmp_path):
    process = start_slow(["run", *SMALL, "--out", "here"])
    stream = tmp_path / "here" / "trace.arrows"
    wait_for(lambda: rows_in(stream) > 30)
    process.kill()
    process.communicate()
    whole = read_stream(stream)
    data = stream.read_bytes()
    for cut in range(0, len(data), 97):
        stream.write_bytes(data[:cut])
        part = read_stream(stream)
        assert part.equals(whole.slice(0, len(part)))
        assert len(part) % 3 == 0


def test_a_corrupt_checkpoint_and_a_nan_reward_lose_nothing(tmp_path, capsys, monkeypatch):
    (tmp_path / "rewards_of_mine.py").write_text(
        "import numpy as np\ncalls = 0\ndef late_nan(x):\n    global calls\n    calls += len(x) > 2\n"
        "    return x[:, 0] * (np.nan if calls > 2 and len(x) > 2 else 1)\n"
    )
    argv = ["run", "--environment", "rewards_of_mine:late_nan", "--agents", "1", "--horizon", "120",
            "--engine", "local", "--tracking", "none", "--out", "here", "--checkpoint-seconds", "0.001"]  # fmt: skip
    assert main(argv) == 2
    assert "late_nan" in capsys.readouterr().err
    record = read_run("here")
    assert record.summary["status"] == "failed"
    assert len(record.trace) >= 32
    rows = len(record.trace)
    for file in (tmp_path / "here" / CHECKPOINT_FOLDER).glob("*/agents.safetensors"):
        file.write_bytes(file.read_bytes()[:-9])
    assert main(["resume", "here", "--trust"]) == 2
    assert "no valid checkpoint" in capsys.readouterr().err
    assert len(read_run("here").trace) == rows


def test_through_the_real_entry_point(tmp_path):
    command, module = os.path.join(os.path.dirname(sys.executable), "fnbandit"), [sys.executable, "-m", "workflows.run"]
    done = subprocess.run([command, "run", *SMALL, "--out", "x"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "regret per agent" in done.stdout
    done = subprocess.run([*module, *SMALL, "--print-config"], capture_output=True, text=True, timeout=120)
    assert tomllib.loads(done.stdout)["agents"] == 3, done.stderr
    done = subprocess.run([sys.executable, "-m", "workflows.run", "--agents", "0"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "fnbandit: agents=0: expected a whole number, at least 1\n"


def test_runs_and_sweeps_on_ray_leave_the_same_records(ray_cluster):
    sweep = ["sweep", "--agents", "2,4", "--horizon", "40", "--tracking", "none", "--no-figures"]
    assert main([*sweep, "--out", "ray", "--cpus-per-actor", "0.5"]) == 0
    assert main([*sweep, "--out", "local", "--engine", "local"]) == 0
    for part in ("agents=2/seed=0", "agents=4/seed=0"):
        assert read_run(f"ray/{part}").trace.equals(read_run(f"local/{part}").trace)
        assert read_run(f"ray/{part}").summary["layout"].startswith("1 actor with the server and")


def test_json_files_are_plain(tmp_path):
    assert main(["run", *SMALL, "--out", "here"]) == 0
    for name in ("summary.json", "study.json"):
        json.loads((tmp_path / "here" / name).read_text())


def readme_blocks(language):
    from pathlib import Path

    text = (Path(__file__).resolve().parents[3] / "README.md").read_text()
    parts = text.split(f"```{language}\n")[1:]
    return [part.split("```")[0] for part in parts]


@pytest.mark.long
def test_the_examples_of_the_readme(monkeypatch, capsys):
    from workflows.command_line import commands

    lines = [line.split("#")[0] for block in readme_blocks("sh") for line in block.splitlines()]
    for long, short in (("1,2,5,10", "1,5"), ("2.5,4,5", "4,5"), ("--seeds 3", "--seeds 1")):
        lines = [line.replace(long, short) for line in lines]
    typed = [line.split()[1:] for line in lines]
    assert len(typed) >= 9
    original = commands.experiment

    def smaller(*arguments):
        whole = original(*arguments)
        points = [dataclasses.replace(p, config=p.config.replace(horizon=20)) for p in whole.points[:2]]
        return dataclasses.replace(whole, points=points)

    monkeypatch.setattr(commands, "experiment", smaller)
    for words in typed:
        extra = []
        if words[0] in ("run", "sweep"):
            extra = ["--horizon", "20", "--engine", "local", "--tracking", "none"]
        if words[0] == "reproduce" and len(words) > 1:
            extra = ["--engine", "local", "--tracking", "none"]
        assert main([*words, *extra]) == 0, words
    for block in readme_blocks("python"):
        exec(block, {})


def test_ray_starts_early_only_for_studies_that_will_not_be_refused(tmp_path, monkeypatch):
    from actors import cluster

    asked = []
    monkeypatch.setattr(cluster, "cluster", lambda options: asked.append(options) or nullcontext())

    def early(engine="ray", out="new", **fields):
        config = plain(horizon=5, **fields)
        study = StudyPlan(
            "x", tmp_path / out, [RunSpec(".", config)], Settings(engine=engine, actor_timeout=7.0, out=out)
        )
        before = len(asked)
        with early_cluster(study):
            return len(asked) - before

    assert early() == 1 and asked[0].actor_timeout == 7
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "study.json").write_text("{}")
    assert early(engine="local") == early(out="old") == early(environment="table.csv") == early(device="cuda") == 0
    assert early(out="s3://bucket/new") == 0


def test_the_layout_on_a_cluster_of_our_own_is_said_before(monkeypatch):
    import ray

    from actors import cluster
    from workflows.execution.dry_run import plan_lines

    study = StudyPlan("x", Path("x"), [RunSpec(".", plain(agents=2, horizon=5))], Settings(agents_per_actor=1))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    assert plan_lines(study)[1] == "layout   decided when the cluster is joined"
    monkeypatch.setattr(cluster.STARTED_HERE, "is_set", lambda: True)
    assert plan_lines(study)[1].startswith("layout   2 actors x 1 agent, ")
