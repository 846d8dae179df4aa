"""What a dry run says: memory of every process, the price of a layout, seconds from the command to the figures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from actors.layout import ACTOR_SECONDS
from fnbandit import Config
from fnbandit.config.registry import KINDS
from fnbandit.environments import make_environment
from fnbandit.numerics.memory import readable
from fnbandit.planning.capacity import PROCESS_BYTES, memory
from fnbandit.planning.duration import TYPICAL, run_seconds
from workflows.command_line import main
from workflows.execution.dry_run import (
    RAY_SECONDS,
    RUN_FIGURES_SECONDS,
    RUN_TRACKING_SECONDS,
    START_SECONDS,
    STUDY_FIGURES_SECONDS,
    TRACKING_SECONDS,
    estimate_seconds,
    plan_lines,
)
from workflows.studies.settings import Settings
from workflows.studies.study import RunSpec, StudyPlan

CONFIG = Config(agents=8, horizon=300)


def study(*configs, **settings) -> StudyPlan:
    """A study of these configs."""
    points = [RunSpec("." if len(configs) == 1 else f"run={n}", config) for n, config in enumerate(configs)]
    return StudyPlan("study", Path("runs/study"), points, Settings(**settings))


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """Two cores, and no cluster."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    # Other tests leave this process joined to the cluster that tests share.
    monkeypatch.setattr("workflows.execution.dry_run.is_in_foreign_cluster", lambda: False)
    monkeypatch.setattr("workflows.execution.dry_run.os.cpu_count", lambda: 2)


def test_the_memory_counts_every_process_of_the_layout():
    needs = memory(CONFIG, make_environment(CONFIG))
    one, eight = (plan_lines(study(CONFIG, agents_per_actor=n)) for n in (8, 1))
    assert one[0].startswith(f"memory   about {readable(PROCESS_BYTES + needs.of(8))}: 1 actor x (270 MB")
    # Eight actors and the server have a replica of the statistics each.
    total = 9 * (PROCESS_BYTES + needs.shared) + 8 * needs.per_agent
    assert eight[0].startswith(f"memory   about {readable(total)}: 9 processes x (270 MB")
    local = plan_lines(study(CONFIG, engine="local"))
    assert local[0].startswith(f"memory   about {readable(PROCESS_BYTES + needs.of(8))}: this process 270 MB")


def test_one_actor_per_agent_says_what_it_costs():
    lines = plan_lines(study(CONFIG, agents_per_actor=1))
    assert lines[1].startswith("layout   8 actors x 1 agent,")
    assert "8 actors take about" in lines[2] and "agents_per_actor=auto about" in lines[2]
    for agents_per_actor in ("auto", 8):
        assert len(plan_lines(study(CONFIG, agents_per_actor=agents_per_actor))) == 2


def test_an_estimate_is_start_run_tracking_and_figures():
    seconds = run_seconds(CONFIG)
    local = estimate_seconds(study(CONFIG, engine="local", tracking="none"), TYPICAL, 2)
    assert local == pytest.approx(START_SECONDS + seconds + RUN_FIGURES_SECONDS)
    tracked = estimate_seconds(study(CONFIG, engine="local"), TYPICAL, 2)
    assert tracked - local == pytest.approx(TRACKING_SECONDS + RUN_TRACKING_SECONDS)
    ray = estimate_seconds(study(CONFIG, tracking="none", agents_per_actor=8), TYPICAL, 2)
    assert ray - local == pytest.approx(RAY_SECONDS), "one actor is no faster than this process"
    spread = estimate_seconds(study(CONFIG, tracking="none", agents_per_actor=1), TYPICAL, 2)
    assert spread > ray + 8 * ACTOR_SECONDS / 2
    three = [CONFIG.replace(agents=n) for n in (8, 4, 2)]
    several = estimate_seconds(study(*three, engine="local", tracking="none"), TYPICAL, 2)
    assert several == pytest.approx(START_SECONDS + sum(map(run_seconds, three)) + STUDY_FIGURES_SECONDS)
    # Two actors at a time: half of the work, or the longest run.
    side = estimate_seconds(study(*three, tracking="none", agents_per_actor=8), TYPICAL, 2)
    assert side < several + RAY_SECONDS + ACTOR_SECONDS


def test_the_messages_of_a_run_are_said(capsys):
    for flags, words in (
        ("--trigger period --period 10", "messages about 5 rounds, "),
        ("--preset exact", " exchanges in all, "),
        ("--algorithm fn-ucb-async", " exchanges of single agents, "),
    ):
        assert main(["run", "--agents", "2", "--horizon", "50", *flags.split(), "--dry-run"]) == 0
        assert words in capsys.readouterr().out
    assert main(["run", "--algorithm", "random", "--dry-run"]) == 0
    assert "messages" not in capsys.readouterr().out


def test_a_run_without_figures_has_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for flags in (["run", "--agents", "2"], ["sweep", "--agents", "1,2"]):
        line = [*flags, "--horizon", "5", "--engine", "local", "--tracking", "none", "--out", flags[0], "--no-figures"]
        assert main(line) == 0
        names = {path.name for path in (tmp_path / flags[0]).iterdir()}
        assert "study.json" in names and not names & {"figures", "report.html", "table.csv"}
    local = study(CONFIG, engine="local", tracking="none", figures=False)
    assert estimate_seconds(local, TYPICAL, 2) == pytest.approx(START_SECONDS + run_seconds(CONFIG))


def test_what_is_listed_is_there_as_json(capsys):
    line = "--agents 1,2 --horizon 20 --engine local --tracking none --dry-run --json"
    assert main(["sweep", *line.split()]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["config"]["agents"] for row in found["runs"]] == [1, 2]
    assert found["seconds"] > START_SECONDS and all(isinstance(row["memory"], int) for row in found["runs"])
    assert main(["run", "--json"]) == 2
    assert "takes --dry-run" in capsys.readouterr().err
    for command, kinds in (("algorithms", {"algorithm"}), ("environments", {"environment"}), ("parts", set(KINDS))):
        assert main([command, "--json"]) == 0
        rows = json.loads(capsys.readouterr().out)
        assert {row["kind"] for row in rows} == kinds
        assert all(row["summary"] and isinstance(row["fields"], list) for row in rows)


PEAK = """
import sys
from fnbandit import Config, simulate
from fnbandit.environments import make_environment
from fnbandit.planning.capacity import PROCESS_BYTES, memory
agents, horizon, dim = map(int, sys.argv[1:])
config = Config(agents=agents, horizon=horizon, arms=10, dim=dim)
simulate(config)
lines = dict(line.split(":") for line in open("/proc/self/status"))
peak = 1024 * int(lines["VmHWM"].split()[0])  # ru_maxrss would count the parent's memory before exec, too
print((PROCESS_BYTES + memory(config, make_environment(config)).of(agents)) / peak)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("size", [(4, 40, 10), (3, 30, 640)], ids=["small", "as wide as an image"])
def test_the_memory_is_within_a_factor_of_the_peak(size):
    done = subprocess.run([sys.executable, "-c", PEAK, *map(str, size)], capture_output=True, text=True, check=True)
    assert 1 / 1.5 < float(done.stdout) < 1.5
