"""A study on Ray whose processes are killed at random moments, resumed until it is done: the same rows as undisturbed.

FNBANDIT_CHAOS_SECONDS says for how long processes are killed, FNBANDIT_CHAOS_SEED which and when (as far as the
machine's own timing lets a seed decide).
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections import Counter
from contextlib import suppress

import pytest
from helpers import plain
from test_actors_drivers import left, own_environment, processes_of, short_directory  # noqa: F401
from test_workflows_stopping import COMMAND

from fnbandit import read_run, simulate
from fnbandit.storage.records import find_runs

SECONDS = float(os.environ.get("FNBANDIT_CHAOS_SECONDS", "600"))
SEED = int(os.environ.get("FNBANDIT_CHAOS_SEED", time.time_ns() % 1_000_000))
STUDY = ["--agents=2,4", "--seeds=2", "--trigger=logdet", "--horizon=600", "--agents-per-actor=2",
         "--cpus-per-actor=0.25", "--checkpoint-seconds=0.5", "--tracking", "none", "--out=here"]  # fmt: skip
# Names as the system keeps them, 15 characters; the rest of a name follows the task.
KINDS = {"agent": "ray::AgentActor", "server": "ray::ServerActo", "raylet": "raylet", "driver": "fnbandit"}


def victims(kind, environment):
    """The living processes of a kind."""
    found = processes_of(environment["RAY_AUTH_TOKEN"])
    return [pid for name, pid in found if name.startswith(KINDS[kind])]


@pytest.mark.long
@pytest.mark.timeout(SECONDS * 2 + 1800)
def test_kills_at_random_moments_change_no_row(short_directory, capsys):  # noqa: F811
    chance = random.Random(SEED)
    environment = own_environment(short_directory)
    kills, starts = Counter(), 0
    end = time.monotonic() + SECONDS
    while True:
        starts += 1
        (short_directory / "log").touch()
        with (short_directory / "log").open("a") as log:
            arguments = (
                ["sweep", *STUDY] if not (short_directory / "here" / "study.json").exists() else ["resume", "here"]
            )
            process = subprocess.Popen(
                [COMMAND, *arguments], env=environment, cwd=short_directory, stdout=log, stderr=log
            )
        while process.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(chance.uniform(0.5, 15.0))
            kind = chance.choice(list(KINDS))
            if time.monotonic() < end and process.poll() is None and (pids := victims(kind, environment)):
                with suppress(ProcessLookupError):
                    os.kill(chance.choice(pids), signal.SIGKILL)
                    kills[kind] += 1
        if process.returncode == 0:
            if time.monotonic() >= end:
                break
            # All is done before the time is up: once more from the beginning, after a look at this one.
            check(short_directory)
            assert left(environment, 60) == []
            subprocess.run(["rm", "-r", "here"], cwd=short_directory, check=True)
        assert time.monotonic() < end + 1500, (short_directory / "log").read_text()[-3000:]
    with capsys.disabled():
        print(f"\nchaos: seed {SEED}, {SECONDS:g} s, {starts} starts, {kills.total()} kills: {dict(kills)}")
    check(short_directory)
    assert left(environment, 60) == []


def check(directory):
    """Every row of a finished study is that of an undisturbed run in one process."""
    folders = find_runs(directory / "here")
    assert len(folders) == 4
    for folder in folders:
        record = read_run(folder)
        assert record.finished
        expected = simulate(plain(**record.summary["config"]))
        trace = record.trace.sort_by([("iteration", "ascending"), ("agent", "ascending")])
        iterations, agents = expected.arms.shape
        assert trace["iteration"].to_pylist() == [t for t in range(1, iterations + 1) for _ in range(agents)]
        assert trace["agent"].to_pylist() == list(range(agents)) * iterations
        for name, values in (("arm", expected.arms), ("reward", expected.rewards), ("regret", expected.regret)):
            assert trace[name].to_pylist() == values.ravel().tolist(), (folder, name)
        assert record.rounds["iteration"].to_pylist() == expected.rounds
