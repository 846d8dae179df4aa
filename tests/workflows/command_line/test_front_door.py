"""The command as a person meets it: what is listed, told, interrupted, extended, and read by scripts."""

from __future__ import annotations

import io
import json
import os
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers import plain
from rich.console import Console

from fnbandit import read_run
from fnbandit.config import FIELDS
from workflows.command_line import COMMANDS, help, main
from workflows.studies.composition import claimed_folder
from workflows.terminal.progress import Bar, Pace, Progress, duration

FNBANDIT = os.path.join(os.path.dirname(sys.executable), "fnbandit")
SMALL = ["--agents", "2", "--horizon", "12", "--width", "4", "--engine", "local", "--tracking", "none", "--no-figures"]
LATE = """
import numpy as np
from pathlib import Path
calls = 0
def late(x):
    global calls
    calls += 1
    return x[:, 0] * (np.nan if calls > 7 and not Path("mended").exists() else 1)
def fine(x):
    return x[:, 0]
"""


@pytest.fixture(autouse=True)
def in_a_directory_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def printed_json(capsys, *argv):
    capsys.readouterr()
    assert main(list(argv)) == 0
    return json.loads(capsys.readouterr().out)


def test_one_run_fails_the_others_go_on_and_resume_tries_again(tmp_path, capsys):
    (tmp_path / "two_rewards.py").write_text(LATE)
    argv = ["sweep", "--environment", "two_rewards:late,two_rewards:fine", "--agents", "1", "--horizon", "90",
            "--width", "4", "--engine", "local", "--tracking", "none", "--no-figures", "--out", "a b"]  # fmt: skip
    assert main(argv) == 1
    failed, fine = (f"environment=two_rewards:{name}/seed=0" for name in ("late", "fine"))
    told = capsys.readouterr().err.splitlines()
    assert told[0].startswith(f"fnbandit: {failed}: ") and "late" in told[0]
    assert told[-1].startswith("fnbandit: 1 of 2 runs failed, see their log.txt; `")
    assert told[-1].endswith("resume 'a b' --trust` tries them again")
    assert read_run(f"a b/{fine}").finished and not read_run(f"a b/{failed}").finished
    log = (tmp_path / "a b" / failed / "log.txt").read_text()
    assert " ERROR " in log and "Traceback" in log
    assert [row["status"] for row in printed_json(capsys, "ls", "a b", "--json")] == ["finished", "failed"]
    (tmp_path / "mended").touch()
    assert main(["resume", "a b", "--trust"]) == 0
    assert read_run(f"a b/{failed}").finished


def test_a_sweep_is_extended_or_told_what_differs(tmp_path, capsys):
    sweep = ["sweep", *SMALL[2:], "--agents", "1,2", "--out", "here"]
    assert main(sweep) == 0
    first = (tmp_path / "here" / "agents=1" / "seed=0" / "trace.parquet").stat().st_mtime_ns
    capsys.readouterr()
    assert main(["sweep", *SMALL[2:], "--agents", "1,3", "--seeds", "2", "--out", "here"]) == 0
    assert "2 of 5 runs are finished already" in capsys.readouterr().out
    assert (tmp_path / "here" / "agents=1" / "seed=0" / "trace.parquet").stat().st_mtime_ns == first
    assert len(printed_json(capsys, "ls", "here", "--json")) == 5
    assert main([*sweep, "--noise", "0.5"]) == 2
    line = capsys.readouterr().err
    assert "holds runs with noise=0.01 instead of 0.5" in line and "--overwrite" in line
    assert main([*sweep, "--noise", "0.5", "--overwrite"]) == 0
    assert len(printed_json(capsys, "ls", "here", "--json")) == 2
    assert read_run("here/agents=1/seed=0").summary["config"]["noise"] == 0.5


def test_a_study_with_a_relative_table_is_resumed_from_anywhere(tmp_path, monkeypatch):
    rows = "".join(f"{i % 7 / 7},{i % 5 / 5},{'ab'[i % 2]}\n" for i in range(40))
    (tmp_path / "table.csv").write_text(f"x,y,class\n{rows}")
    assert main(["run", "--environment", "table.csv", *SMALL, "--out", "here"]) == 0
    (tmp_path / "here" / "summary.json").unlink()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    # Its MLflow store is outside of its folder.
    assert main(["resume", str(tmp_path / "here"), "--trust"]) == 0
    assert read_run(tmp_path / "here").summary["config"]["environment"] == str(tmp_path / "table.csv")


def test_ls_and_show(tmp_path, capsys):
    assert main(["run", *SMALL, "--trigger", "logdet", "--threshold", "2", "--out", "runs/one"]) == 0
    assert main(["sweep", *SMALL[2:], "--agents", "1,2", "--out", "runs/several"]) == 0
    one, several = printed_json(capsys, "ls", "--json")
    assert (one["path"], one["status"], one["runs"], one["agents"], one["seed"]) == ("one", "finished", 1, [2], [0])
    assert (one["environment"], one["algorithm"], one["threshold"]) == (["cosine"], ["fn-ucb-less-comm"], [2.0])
    assert one["regret"] == [read_run("runs/one").summary["regret"]]
    assert (several["path"], several["runs"], several["agents"]) == ("several", 2, [1, 2])
    assert one["horizon"] == several["horizon"] == [read_run("runs/one").summary["config"]["horizon"]]
    assert main(["ls"]) == 0
    text = capsys.readouterr().out
    assert re.match(r" +status +task +algorithm +N +T +D +seed +regret +rounds +exchanges +when", text)
    assert re.search(r"one +finished +cosine +fn-ucb-less\S+ +2 +\d+ +2 +0 +\d+\.\d\d", text)
    found = printed_json(capsys, "show", "runs/one", "--json")
    assert found["config"]["threshold"] == 2.0 and found["status"] == "finished" and "versions" in found
    assert main(["show", "runs/several"]) == 0
    assert "2 in runs/several" in capsys.readouterr().out
    assert main(["show", "runs"]) == 2
    assert main(["ls", "nowhere"]) == 2


def test_a_run_whose_process_is_gone_is_not_running(tmp_path, capsys):
    from fnbandit.storage.records import read_summary, write_summary

    assert main(["run", *SMALL, "--out", "runs/one"]) == 0
    summary = read_summary(tmp_path / "runs" / "one")
    write_summary(tmp_path / "runs" / "one", summary | {"status": "running"})
    assert printed_json(capsys, "ls", "--json")[0]["status"] == "stopped"


def test_json_of_report_and_theory(capsys):
    assert main(["run", *SMALL, "--seeds", "2", "--out", "here"]) == 0
    found = printed_json(capsys, "report", "here", "--json")
    regrets = [read_run(f"here/seed={seed}").summary["regret"] for seed in (0, 1)]
    (row,) = found["rows"]
    assert row["seeds"] == 2 and row["error_over"] == "seeds" and row["regret"] == pytest.approx(sum(regrets) / 2)
    # Of two values the standard error from n - 1 is half their distance.
    error = next(value for name, value in row.items() if "error" in name)
    assert error == pytest.approx(abs(regrets[0] - regrets[1]) / 2)
    found = printed_json(capsys, "theory", "--agents", "2", "--horizon", "20", "--json")
    assert {"symbol", "value", "meaning", "source"} == set(found["rows"][0])


def test_json_of_plans_and_lists(capsys):
    line = ["sweep", *SMALL, "--preset", "theory", "--seed", "1,2", "--dry-run", "--json"]
    found = printed_json(capsys, *line)
    assert [run["config"]["seed"] for run in found["runs"]] == [1, 2]
    assert {run["config"]["threshold"] for run in found["runs"]} == {"theory"}
    (row,) = printed_json(capsys, "algorithms", "linear-ucb", "--json")
    assert row["name"] == "linear-ucb" and "regularization" in row["fields"]
    assert {row["kind"] for row in printed_json(capsys, "parts", "drift", "clock", "--json")} == {"drift", "clock"}
    assert "cosine" in [row["name"] for row in printed_json(capsys, "environments", "--json")]


def test_quiet_and_verbose(capsys):
    assert main(["run", *SMALL, "-q", "--out", "quiet"]) == 0
    printed = capsys.readouterr()
    assert printed.out == printed.err == ""
    assert main(["run", *SMALL, "-v", "--out", "loud"]) == 0
    assert "begins" in capsys.readouterr().err
    assert main(["ls", "-q"]) == 2
    assert "-q: unknown option" in capsys.readouterr().err


def test_folders_of_the_same_second_differ(tmp_path, monkeypatch):
    monkeypatch.setattr(time, "strftime", lambda _: "now")
    with claimed_folder(None, plain()) as first, claimed_folder(None, plain()) as second:
        name = "cosine-fn-ucb-less-comm-now"
        assert (first, second) == (Path("runs") / name, Path("runs") / f"{name}-2")
        (second / "study.json").touch()
    assert not first.exists() and second.exists(), "a folder that stays empty is removed"
    with claimed_folder(None, plain(), dry_run=True) as dry:
        assert not dry.exists()


def test_the_help_has_every_flag_in_a_group(capsys):
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    printed = capsys.readouterr().out
    titles = [line for line in printed.splitlines() if line in (*help.GROUPS, "output", "examples")]
    assert titles == [*help.GROUPS, "output", "examples"]
    output = printed.split("\noutput\n")[1].split("\nexamples\n")[0]
    assert not [name for name in FIELDS if f"--{name.replace('_', '-')} " in output]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_command_and_flag(capsys, shell):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    flags = {"bash": "--{}", "zsh": "--{}", "fish": "-l {}"}[shell]
    for name in [*FIELDS, "dry_run", "no_diagonal", "port"]:
        assert flags.format(name.replace("_", "-")) in script, name
    assert all(name in script for name in COMMANDS)
    assert main(["completion", "tcsh"]) == 2


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["re"], {"replay", "report", "reproduce", "resume"}),
        (["run", "--agents-"], {"--agents-per-actor"}),
        (["run", "--no-di"], {"--no-diagonal"}),
        (["sweep", "--engine", ""], {"ray", "local"}),
        (["run", "--trigger", "d"], {"diagonal", "determinant"}),
        (["run", "--threshold", ""], {"theory"}),
        (["run", "--tracking", ""], {"mlflow", "jsonl", "none"}),
        (["completion", ""], {"bash", "zsh", "fish"}),
        (["resume", ""], set()),
        (["ls", "--j"], {"--json"}),
    ],
)
def test_bash_completes(capsys, words, expected):
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    typed = " ".join(f"'{word}'" for word in ["fnbandit", *words])
    script += f'\nCOMP_WORDS=({typed}); COMP_CWORD={len(words)}; _fnbandit; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == expected, done.stderr


def command(*argv, **more):
    return subprocess.run([FNBANDIT, *argv], text=True, capture_output=True, **more)


def test_help_takes_a_few_times_as_long_as_an_empty_program():
    """An empty Python program takes some 25 ms, so help takes less than a quarter of a second.

    Measured in the processor's time, and relative to the empty program: the machine may be slow, and busy.
    """

    def spend(*argv):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(argv, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    pairs = [(spend(FNBANDIT, "--help"), spend(sys.executable, "-c", "")) for _ in range(5)]
    helps, empties = zip(*pairs, strict=True)
    assert min(helps) < 8 * min(empties), pairs


def test_readers_that_leave_and_disks_that_are_full():
    shell = ["bash", "-c", f"set -o pipefail; {FNBANDIT} run --help | head -1"]
    done = subprocess.run(shell, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    shell = ["bash", "-c", f"{FNBANDIT} run {' '.join(SMALL)} --out here > /dev/full"]
    done = subprocess.run(shell, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "fnbandit: standard output: No space left on device\n")
    assert read_run("here").finished, "the run is not lost"
    done = command("show", "here", env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0 and done.stdout.isascii()


def test_time_left_is_reckoned_after_the_start():
    now = [0.0]
    pace = Pace(clock=lambda: now[0])
    pace.note(500)  # restored at once
    now[0] = 0.5
    pace.note(505)
    assert pace.estimate_left(505, 1000) is None
    now[0] = 1.0
    pace.note(510)
    assert pace.estimate_left(510, 1000) is None, "nothing is said of the first second"
    now[0] = 3.0
    pace.note(530)
    assert pace.speed(530) == pytest.approx(10.0)
    assert pace.estimate_left(530, 1000) == pytest.approx(47.0)
    assert [duration(s) for s in (8, 200, 7500, 200_000)] == ["8 s", "3 min", "2 h 5 min", "2 days"]


def screen(progress, height):
    """What a terminal of a height shows."""
    console = Console(width=100, height=height, force_terminal=True, color_system=None)
    progress._console = console
    with console.capture() as capture:
        console.print(progress.picture())
    return capture.get().splitlines()


def test_every_running_run_is_on_the_screen():
    progress = Progress(Console(width=100, height=24, file=io.StringIO()), 500, 500.0)
    bars = [Bar(progress, f"N={n} D=5.0 s0", 1.0) for n in range(300)]
    for n, bar in enumerate(bars):
        bar.begin(plain(horizon=100))
        bar.iterations = n % 100
    lines = screen(progress, 24)
    assert len(lines) <= 24
    assert "N=0 D=5.0 s0   0%" in lines[0] and lines[-1].startswith("0 of 500 runs")
    more = int(re.match(r"and (\d+) more, 0% to 99%", lines[-2])[1])
    assert sum(line.count("D=5.0") for line in lines) + more == 300
    for bar in bars[:290]:
        bar.end("finished")
    lines = screen(progress, 24)
    assert len(lines) == 11 and lines[0].startswith("N=290 D=5.0 s0") and lines[-1].startswith("290 of 500 runs")


def test_a_dry_run_says_how_long(capsys):
    assert main(["sweep", "--agents", "1,20", "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "time on a core" in printed and re.search(
        r"^time +about \d+.* from the command to the figures", printed, re.M
    )


def test_what_will_run_is_said_before_torch_is_imported():
    code = (
        "import sys\nfrom workflows.command_line import main\nfrom workflows.execution import study\n"
        "def stop(*_):\n    raise SystemExit('torch' in sys.modules)\n"
        "study.early_cluster = stop\n"
        "main(['sweep', '--agents', '1,2', '--seeds', '2'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("4 runs of fn-ucb-less-comm on cosine, N = 1, 2, T = 2000, seed 0, 1\nfolder   runs/")
