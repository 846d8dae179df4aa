"""Runs listed, compared and removed; figures and parts listed; help, signals and words for values."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest
from test_front_door import FNBANDIT, SMALL, command, in_a_directory_of_its_own, printed_json

from fnbandit import read_run
from workflows.command_line import main

__all__ = ["in_a_directory_of_its_own"]


@pytest.fixture
def three_runs(capsys):
    for name, argv in {"a": [], "b": ["--seed", "1", "--width", "5"], "c": ["--algorithm", "random"]}.items():
        flags = SMALL if name == "a" else [word for word in SMALL if word not in ("--width", "4")]
        assert main(["run", *flags, *argv, "--out", f"runs/{name}"]) == 0
    capsys.readouterr()


def test_ls_sorts_and_filters(three_runs, capsys):
    regret = {name: read_run(f"runs/{name}").summary["regret"] for name in "abc"}
    found = printed_json(capsys, "ls", "--json", "--sort", "regret")
    assert [row["path"] for row in found] == sorted("abc", key=regret.get)
    found = printed_json(capsys, "ls", "--json", "--sort", "-regret", "--filter", "agents=2,algorithm=fn-ucb-less-comm")
    assert [row["path"] for row in found] == sorted("ab", key=regret.get, reverse=True)
    assert [row["path"] for row in printed_json(capsys, "ls", "--json", "--filter", "seed=1,status=finish")] == ["b"]
    for argv, line in (
        (["--sort", "regrets"], "sort='regrets' is unknown (did you mean 'regret'?)"),
        (["--filter", "regret"], "filter='regret': expected COLUMN=VALUE"),
        (["--filter", "agent=2"], "filter='agent' is unknown (did you mean 'agents'?)"),
    ):
        assert main(["ls", *argv]) == 2
        assert line in capsys.readouterr().err
    assert main(["ls", "--filter", "agents=7"]) == 0
    assert capsys.readouterr().out == "runs: has no such run\n"


def test_compare_says_what_differs(three_runs, capsys):
    found = printed_json(capsys, "compare", "runs/a", "runs/b", "--json")["runs"]["."]
    assert found["width"] == [4, 5] and found["seed"] == [0, 1] and found["same choices"] == [False, False]
    assert found["regret"] == [read_run(f"runs/{name}").summary["regret"] for name in "ab"]
    assert "agents" not in found and "engine" not in found
    assert main(["compare", "runs/a", "runs/a"]) == 0
    assert "True" in capsys.readouterr().out
    assert main(["compare", "runs/a"]) == 2
    assert main(["compare", "runs", "runs/a"]) == 2
    assert "no run is in both" in capsys.readouterr().err


def test_rm_removes_what_is_ours(three_runs, capsys, tmp_path):
    assert main(["sweep", *SMALL[2:], "--agents", "1,2", "--out", "runs/several"]) == 0
    (tmp_path / "runs/several/agents=1/notes.txt").write_text("mine")
    read_run("runs/c").result.save("saved")
    capsys.readouterr()
    assert main(["rm", "runs/a", "runs/several", "saved"]) == 0
    assert "removed  runs/several: 1 other file stays" in capsys.readouterr().out
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert "runs/several/agents=1/notes.txt" in left and "runs/b/summary.json" in left
    assert not [path for path in left if path.startswith(("runs/a/", "saved/"))]
    assert not (tmp_path / "saved").exists() and not (tmp_path / "runs/several/agents=2").exists()
    assert main(["rm", "runs"]) == 2
    assert "runs: not a run or a study" in capsys.readouterr().err
    assert main(["rm"]) == 2


def test_several_are_shown_and_reported(three_runs, capsys, tmp_path):
    assert [one["config"]["seed"] for one in printed_json(capsys, "show", "runs/a", "runs/b", "--json")] == [0, 1]
    found = printed_json(capsys, "report", "runs", "--no-figures", "--json")
    assert len(found["rows"]) == 3 and "figures" not in found and not (tmp_path / "runs/figures").exists()
    (tmp_path / "runs/b/summary.json").write_text("{}")
    assert main(["report", "runs", "--no-figures", "--json"]) == 1
    printed = capsys.readouterr()
    assert "runs/b/summary.json: is damaged" in printed.err and len(json.loads(printed.out)["rows"]) == 2


def test_a_run_whose_process_is_gone_is_reported_as_stopped(three_runs, capsys, tmp_path):
    from fnbandit.storage.records import read_summary, write_summary

    write_summary(tmp_path / "runs/a", read_summary(tmp_path / "runs/a") | {"status": "running"})
    (tmp_path / "runs/a/trace.parquet").rename(tmp_path / "runs/a/trace.parquet.part")
    assert main(["report", "runs", "--no-figures"]) == 0
    assert "runs/a: stopped, 0 rows so far" in capsys.readouterr().out


def test_figures_and_parts_are_listed(capsys):
    assert main(["reproduce"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (line,) = [line for line in lines if line.split()[:1] == ["fig1a"]]
    assert "Fig. 1a: cosine" in line and "shipped" in line
    assert main(["algorithms", "fn-ucb"]) == 0
    printed = capsys.readouterr().out
    assert "training_rate" in printed and "linear-ucb" not in printed
    assert main(["algorithms", "fn-ubc"]) == 2
    assert "did you mean 'fn-ucb'" in capsys.readouterr().err
    assert main(["parts"]) == 0
    assert "training_effort, training_cap, training_least" in capsys.readouterr().out


def test_help_is_a_word_too(capsys):
    with pytest.raises(SystemExit):
        main(["help", "sweep"])
    printed = capsys.readouterr().out
    assert "-N, --agents INT,..." in printed and "1:1000:log4" in printed and "--zip TEXT" in printed
    assert main(["help"]) == 0
    assert "fnbandit rm" in capsys.readouterr().out


def test_words_complete_figures(capsys):
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    script += "\nCOMP_WORDS=(fnbandit reproduce fig1); COMP_CWORD=2; _fnbandit; echo ${COMPREPLY[@]}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["fig1a", "fig1b", "fig1c", "fig1d"]


def test_a_wrong_address_is_one_line():
    done = command("run", "--address", "localhost:1", "--tracking", "none")
    assert "Traceback" not in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert done.returncode in (1, 2) and "localhost:1" in done.stderr


def catches(process, number):
    """Return True once a process handles a signal; before, the signal ends any program. None where /proc is missing."""
    status = Path(f"/proc/{process.pid}/status")
    if not status.exists():
        return None
    caught = next(line for line in status.read_text().splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


@pytest.mark.parametrize("delay", [0.2, 1.0])
def test_a_signal_in_the_first_seconds_is_one_line(delay):
    process = subprocess.Popen([FNBANDIT, "run"], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while catches(process, signal.SIGTERM) is False:
        time.sleep(0.01)
    time.sleep(delay)
    process.send_signal(signal.SIGTERM)
    try:
        _, printed = process.communicate(timeout=120)
    finally:
        process.kill()
    assert (process.returncode, printed) == (130, "fnbandit: interrupted\n")
