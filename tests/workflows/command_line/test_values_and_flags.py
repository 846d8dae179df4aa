"""Words that users try: letters, ranges, expressions, zipped lists, printed configs, and what is refused at once."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys

import pytest
from test_arguments import in_a_directory_of_its_own, refused, run

from fnbandit import read_run
from workflows.command_line import main
from workflows.command_line.arguments import StudyArguments, SweepArguments, parse_request
from workflows.studies.composition import compose

__all__ = ["in_a_directory_of_its_own"]


def sweep(*argv):
    """Folder -> config of what `fnbandit sweep` would run."""
    request = parse_request("fnbandit sweep", argv, lists=True, kind=SweepArguments)
    return {point.path: point.config for point in request.points}


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        ("run --engine local --address foo:1", "address: has no effect with engine=local"),
        ("run --engine local --cpus-per-actor 2", "cpus_per_actor: has no effect with engine=local"),
        ("run --engine local --agents-per-actor 4", "agents_per_actor: has no effect with engine=local"),
        ("run --engine local --actor-timeout 5", "actor_timeout: has no effect with engine=local"),
        ("run --tracking none --experiment foo", "experiment: has no effect with tracking=none"),
        ("run --tracking jsonl --tracking-uri http://h:1", "tracking_uri: has no effect with tracking=jsonl"),
        ("run --tracking-uri foo://me:secret@bar", "tracking_uri='foo://...': MLflow knows no such store"),
        ("run --experiment=", "experiment='': expected a text that is not empty (an unset variable?)"),
        ("run --out=", "out='': expected a text that is not empty"),
        ("reproduce fig1a --engine local --address foo:1", "address: has no effect with engine=local"),
        ("show", "directory: is missing; expected a path"),
        ("resume", "directory: is missing; expected a text"),
        ("completion", "shell: is missing; expected 'bash' or 'zsh' or 'fish'"),
        ("completion tcsh", "shell='tcsh' is unknown; accepted: bash, zsh, fish"),
        ("sweep --agents 1, 2, 5", "5: unexpected argument; lists are written 1,2,5, without spaces"),
        ("sweep --agents 1 2 5", "5: unexpected argument; lists are written 1,2,5, without spaces"),
        ("sweep", "sweep: expected a list of values, as --agents 1,2,5"),
        ("sweep --agents 5", "sweep: expected a list of values, as --agents 1,2,5"),
        ("run --N 5", "--N: unknown option (did you mean -N, --agents?)"),
        ("run -N", "--agents: has no value"),
        ("run -qv", "quiet=True, verbose=True: at most one of them"),
        ("run -qx", "-qx: unknown option"),
        ("run --config my.toml", "--config: unknown option (a settings file is a word of its own: FILE.toml)"),
        ("run --steps 5", "--steps: unknown option (did you mean --newton-steps or --training-steps"),
        ("run --algorithm FN-UCB", "algorithm='FN-UCB' is unknown (did you mean 'fn-ucb'?)"),
        ("run --algorithm linucb", "(did you mean 'linear-ucb' or"),
        ("run --environment gone.csv", "gone.csv': no such file; expected a .parquet or .csv table"),
        ("run --environment no_such_module:f", "cannot import it (No module named 'no_such_module'); expected package"),
        ("run --messages exact+no_such_module:f", "cannot import it (No module named 'no_such_module')"),
        ("run --device gpu", "device='gpu': expected auto, cpu, cuda or cuda:INDEX"),
        ("run --clock trace", "clock_table=None: clock=trace needs the path of a table (.csv or .parquet)"),
        ("run --clock trace --clock-table gone.csv", "gone.csv': no such file; expected a .parquet"),
        ("sweep --agents 1:x:log4", "agents='1:x:log4': expected FIRST:LAST:logCOUNT or FIRST:LAST:linCOUNT"),
        ("sweep --agents 0:10:log4", "a logarithmic range needs numbers above 0"),
        ("sweep --agents 1:10:log1", "expected a count of 2 to 1000"),
        ("sweep --agents 1,2 --trigger logdet --threshold 25/(N-1)", "threshold='25/(N-1)': expected numbers, N"),
        ("sweep --agents 1,2 --trigger logdet --threshold N**N**N**9", "threshold='N**N**N**9': expected numbers, N"),
        ("run --trigger logdet --threshold 25/M", "threshold='25/M': expected a number, at least 0, or 'theory'"),
        ("run --agents N/2", "agents='N/2': expected a whole number; N is the number of agents"),
        ("run --trigger period --period 4/N", "period='4/N': is 0.5 for N = 8; expected a whole number, at least 1"),
        ("sweep --agents 1,2 --ramp 3,4,5 --zip agents,ramp", "expected two or more lists of the same length"),
        ("sweep --agents 1,2 --zip agents,ramp", "expected two or more lists of the same length; 'ramp' has no values"),
        ("run --agents 1 --zip agents,ramp", "--zip: unknown option"),
        ("run --json --print-config", "json=True: takes --dry-run"),
        ("run --dry-run --print-config", "print_config=True, dry_run=True: at most one of them"),
        ("run --seeds 2 --agents 1,2 --print-config", "agents: has several values"),
        ("sweep --agents 1,2 --print-config", "print_config=True: expected one run, with one or several seeds"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line(capsys, argv, line):
    assert line in refused(argv.split(), capsys)


def test_what_is_wrong_is_told_before_torch_and_ray_are_imported():
    code = (
        "import sys\nfrom workflows.command_line import main\n"
        "for words in sys.argv[1:]:\n"
        "    assert main(['run', *words.split()]) == 2\n"
        "assert not {'torch', 'ray'} & set(sys.modules)\n"
    )
    words = ["--environment gone.csv", "--environment no_such_module:f", "--device gpu", "--clock trace",
             "--engine local --address foo:1", "--out=", "--tracking-uri foo://bar", "--period 5"]  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("\n") == len(words) and not done.stdout


def test_letters_of_the_paper_are_flags():
    config = run("-N", "3", "-T=40", "--trigger", "logdet", "-D", "2.5")
    assert (config.agents, config.horizon, config.threshold) == (3, 40, 2.5)
    assert parse_request("fnbandit run", ["-q"], False, StudyArguments).arguments.display.quiet


def test_ranges_stand_for_their_values():
    assert [config.agents for config in sweep("--agents", "1:1000:log4").values()] == [1, 10, 100, 1000]
    assert [config.agents for config in sweep("--agents", "1:3:log5").values()] == [1, 2, 3]
    assert [config.ramp for config in sweep("--ramp", "100:300:lin3,7").values()] == [100, 200, 300, 7]
    found = sweep("--trigger", "logdet", "--threshold", "0.5:8:log3").values()
    assert [config.threshold for config in found] == [0.5, 2.0, 8.0]


def test_a_number_may_depend_on_the_number_of_agents():
    argv = ["--agents", "1,10,100", "--trigger", "logdet"]
    found = sweep(*argv, "--threshold", "25/N")
    assert {path: config.threshold for path, config in found.items()} == {
        "agents=1/seed=0": 25.0, "agents=10/seed=0": 2.5, "agents=100/seed=0": 0.25,
    }  # fmt: skip
    found = sweep(*argv, "--threshold", "25/N,2.5")  # at N = 10 both are the same run
    assert sorted((c.agents, c.threshold) for c in found.values()) == [
        (1, 2.5),
        (1, 25),
        (10, 2.5),
        (100, 0.25),
        (100, 2.5),
    ]
    assert run("--agents", "4", "--ramp", "2 * (N + 1)**2").ramp == 50
    assert run("--ramp", "10*N").ramp == 80
    points, _ = compose("paper", {"environment": ["shuttle"], "ramp": ["-3*-N"]})
    assert points[0].config.ramp == 15  # the preset's N


def test_zipped_lists_vary_together():
    found = sweep("--agents", "1,10,100", "--trigger", "logdet", "--threshold", "25,2.5,2.5", "--zip",
                  "agents,threshold")  # fmt: skip
    assert {path: (c.agents, c.threshold) for path, c in found.items()} == {
        "agents=1/threshold=25.0/seed=0": (1, 25.0),
        "agents=10/threshold=2.5/seed=0": (10, 2.5),
        "agents=100/threshold=2.5/seed=0": (100, 2.5),
    }


@pytest.mark.parametrize(
    "argv",
    [
        "--agents 3 --horizon 40 --seeds 2",
        "--preset paper --environment shuttle",
        "--preset theory --agents 2",
        "--algorithm fn-ucb-async --clock lognormal --trigger determinant",
        "--algorithm linear-ucb --environment square",
        "--environment wheel --messages quantized --trigger logdet -D 3",
    ],
)
def test_a_printed_config_runs_again_without_a_warning(tmp_path, capsys, caplog, argv):
    assert main(["run", *argv.split(), "--print-config"]) == 0
    text = capsys.readouterr().out
    (tmp_path / "printed.toml").write_text(text)
    with caplog.at_level(logging.WARNING, "fnbandit"):
        again = parse_request("fnbandit run", ["printed.toml"], False, StudyArguments)
    assert not caplog.messages
    first = parse_request("fnbandit run", argv.split(), False, StudyArguments)
    assert [point.config.effective for point in again.points] == [point.config.effective for point in first.points]
    assert main(["run", "printed.toml", "--print-config"]) == 0
    assert capsys.readouterr().out == text


def test_the_config_of_a_run_runs_again_with_the_same_bits(capsys):
    assert main(["run", "my.toml", "--out", "here"]) == 0
    argv = ["run", "here/config.toml", "--engine", "local", "--tracking", "none", "--out", "again"]
    capsys.readouterr()
    assert main(argv) == 0
    assert capsys.readouterr().err == ""
    assert read_run("again").trace.equals(read_run("here").trace)
    assert "period" not in read_run("here").directory.joinpath("config.toml").read_text()


def test_a_dry_run_of_the_theory_computes_no_theory(capsys, monkeypatch):
    def compute(*_):
        raise AssertionError("d~_max takes minutes")

    monkeypatch.setattr("fnbandit.theory.effective_dimension", compute)
    monkeypatch.setattr("fnbandit.theory.ntk", compute)
    assert main(["run", "--preset", "theory", "--threshold", "5", "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "theory (`fnbandit theory` computes it)" in printed and re.search(r"^time +about", printed, re.M)


def test_long_work_of_the_theory_and_empty_bounds_are_told(caplog, capsys, monkeypatch):
    monkeypatch.setattr("fnbandit.theory.LONG_WORK", 2 * 400.0**3 - 1)
    with caplog.at_level(logging.WARNING, "fnbandit"):
        assert main(["theory", "--preset", "theory", "-N", "2", "-T", "100", "--arms", "4", "--json"]) == 0
    assert any("computing the theory's effective dimensions, on 400 contexts of 2 agents" in m for m in caplog.messages)
    assert any(line.startswith("App. F: D-bar is assumed") for line in json.loads(capsys.readouterr().out)["warnings"])
