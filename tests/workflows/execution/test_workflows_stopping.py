"""Ctrl-C, SIGTERM, SIGHUP and processes that have stopped: a study ends in seconds, and can be resumed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from helpers import gone, plain
from test_actors_drivers import left, own_environment, processes_of, short_directory  # noqa: F401

from fnbandit import read_run, simulate
from workflows.terminal.stopping import SIGNALS, Stop

CONFIG = plain(agents=4, horizon=1500, trigger="logdet", threshold=5.0)
COMMAND = Path(sys.executable).with_name("fnbandit")
SLEEPY = "import time\n\ndef reward(x):\n    time.sleep(3600 * (len(x) > 2))\n    return x[:, 0]\n"


@pytest.fixture
def own_handlers():
    earlier = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in earlier.items():
        signal.signal(number, handler)


def test_the_first_signal_interrupts_and_later_ones_do_not(own_handlers):
    with Stop() as stop:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        assert stop.event.is_set()
        signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGHUP)


def test_without_a_signal_nothing_stays(own_handlers):
    with Stop():
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_must_not_be_cut_in_two_ends_first(own_handlers):
    done = []

    def work(stop):
        with stop.held():
            signal.raise_signal(signal.SIGINT)
            done.append("all")
        done.append("more")

    with Stop() as stop:
        with pytest.raises(KeyboardInterrupt):
            work(stop)
        assert done == ["all"]


def test_what_is_ignored_stays_so(own_handlers):
    """As nohup starts a command."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with Stop() as stop:
        signal.raise_signal(signal.SIGHUP)
        assert not stop.event.is_set()


def fnbandit(*arguments, **changes):
    return subprocess.Popen([COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **changes)


def wait_for(found, process, seconds=120):
    deadline = time.monotonic() + seconds
    while not (value := found()):
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.05)
    return value


def status(directory):
    return json.loads((directory / "summary.json").read_text())["status"]


def test_ctrl_c_ends_a_function_that_hangs(tmp_path):
    (tmp_path / "mine.py").write_text(SLEEPY)
    arguments = ["run", "--environment", "mine:reward", "--engine", "local", "--tracking", "none", "--out", "here"]
    with fnbandit(*arguments, cwd=tmp_path) as process:
        wait_for((tmp_path / "here" / "trace.arrows").exists, process)
        time.sleep(0.5)
        for _ in range(2):
            process.send_signal(signal.SIGINT)
            time.sleep(0.1)
        _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "resume here --trust` goes on" in err
    assert status(tmp_path / "here") == "interrupted"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
@pytest.mark.parametrize("moment", ["at once", "while Ray starts"])
def test_signals_in_the_first_seconds_are_one_line(short_directory, moment, number):  # noqa: F811
    environment = own_environment(short_directory)
    arguments = ["--agents=2", "--horizon=2000", "--tracking=none", "--out=here"]
    with fnbandit("run", *arguments, env=environment, cwd=short_directory) as process:
        process.stdout.readline()
        if moment == "while Ray starts":
            wait_for(lambda: processes_of(environment["RAY_AUTH_TOKEN"])[1:], process)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert len(err.splitlines()) == 1 and err.startswith("fnbandit: interrupted")
    assert left(environment) == []


# On Ray


@pytest.fixture
def study(short_directory):  # noqa: F811
    """A study on a cluster of its own, after its first checkpoint; its processes by name, as Ray names them."""
    environment = own_environment(short_directory)
    arguments = [f"--{name}={getattr(CONFIG, name)}" for name in ("agents", "horizon", "trigger", "threshold")]
    arguments += ["--preset=paper", "--agents-per-actor=2", "--cpus-per-actor=0.5", "--actor-timeout=5"]
    arguments += ["--checkpoint-seconds=0.5", "--tracking", "none", "--out=here"]
    with fnbandit("run", *arguments, env=environment, cwd=short_directory) as process:
        wait_for(lambda: list(short_directory.glob("here/**/manifest.json")), process)
        # The system keeps 15 characters of a name; the rest follows the task.
        found = {name.split(".")[0][:15]: pid for name, pid in processes_of(environment["RAY_AUTH_TOKEN"])}
        yield process, found, short_directory, environment
        process.kill()
    for pid in found.values():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def finish(directory, environment):
    """Resume it to its end; the same values as without a fault."""
    with fnbandit("resume", "here", env=environment, cwd=directory) as process:
        _, err = process.communicate()
    assert process.returncode == 0, err
    found = read_run(directory / "here").trace.sort_by([("iteration", "ascending"), ("agent", "ascending")])
    record = json.loads((directory / "here" / "summary.json").read_text())
    expected = simulate(plain(**record["config"]))
    assert len(found) == CONFIG.horizon * CONFIG.agents
    for name, values in (("arm", expected.arms), ("reward", expected.rewards), ("regret", expected.regret)):
        np.testing.assert_array_equal(found[name].to_numpy(), values.ravel(), err_msg=name)


@pytest.mark.long
@pytest.mark.parametrize(
    "signals", [(signal.SIGINT, signal.SIGINT), (signal.SIGTERM,), (signal.SIGHUP,)], ids=lambda s: s[0].name
)
def test_signals_end_a_study_whose_actor_is_stuck(study, signals):
    process, found, directory, environment = study
    os.kill(found["ray::AgentActor"], signal.SIGSTOP)
    time.sleep(1)
    for number in signals:
        process.send_signal(number)
        time.sleep(0.3)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert err.splitlines()[-1].endswith("resume here` goes on")
    assert "SIGTERM received" not in err
    assert status(directory / "here") == "interrupted"
    assert gone(found.values())
    finish(directory, environment)


@pytest.mark.long
@pytest.mark.parametrize(
    ("victim", "line"),
    [
        ("ray::ServerActo", "fnbandit: the server's actor has not answered for 5 seconds"),
        ("raylet", "fnbandit: a raylet has not answered for 5 seconds"),
    ],
)
def test_who_has_stopped_is_named(study, victim, line):
    process, found, directory, environment = study
    os.kill(found[victim], signal.SIGSTOP)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert err.splitlines() == [line]
    assert status(directory / "here") == "failed"
    assert gone(found.values())
    finish(directory, environment)


@pytest.mark.long
@pytest.mark.parametrize("victim", ["raylet", "gcs_server"])
def test_a_cluster_of_its_own_that_is_gone_is_one_line(study, victim):
    process, found, directory, environment = study
    began = time.monotonic()
    os.kill(found[victim], signal.SIGKILL)
    _, err = process.communicate(timeout=90)
    assert time.monotonic() - began < 20
    assert process.returncode == 1
    cause = f"the Ray cluster that this command started is gone: its {victim} has ended"
    assert len(err.splitlines()) == 1
    assert err.startswith(f"fnbandit: {cause}; `") and err.endswith("fnbandit resume here` goes on\n")
    assert status(directory / "here") == "failed"
    assert gone(found.values())
    finish(directory, environment)
