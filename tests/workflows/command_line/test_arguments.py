"""Files and flags: each word counts once, what nothing uses is an error, and lists become the runs of a sweep."""

from __future__ import annotations

import logging
import os

import pytest

from fnbandit import Config, read_run
from workflows.command_line import main
from workflows.command_line.arguments import ConfigArguments, StudyArguments, parse_request


@pytest.fixture(autouse=True)
def in_a_directory_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.toml").write_text('agents = 2\nhorizon = 15\nengine = "local"\ntracking = "none"\n')
    (tmp_path / "my.cfg").write_text("agents = 2\n")
    (tmp_path / "bad.toml").write_text("agents = = 3")
    (tmp_path / "list.toml").write_text("agents = [3, 4]")


def run(*argv):
    """The config that `fnbandit run` would run."""
    (point,) = parse_request("fnbandit run", argv, lists=False, kind=StudyArguments).points
    return point.config


def sweep(*argv):
    """Folder -> config of what `fnbandit sweep` would run."""
    request = parse_request("fnbandit sweep", argv, lists=True, kind=StudyArguments)
    return {point.path: point.config for point in request.points}


def refused(argv, capsys):
    """The one line that a command line is refused with."""
    assert main(argv) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("fnbandit: ")
    assert printed.err.count("\n") == 1
    assert "Traceback" not in printed.out + printed.err
    assert not os.path.exists("runs")
    return printed.err


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        ("run square", "square: is no settings file"),
        ("run my.cfg", "my.cfg: is no settings file"),
        ("run missing.toml", "missing.toml: no such file"),
        ("run bad.toml", "bad.toml: is no TOML"),
        ("run my.toml bad.toml", "bad.toml: unexpected argument"),
        ("run list.toml", "agents: has several values; `fnbandit sweep` takes lists"),
        ("run --agents 1,2", "agents: has several values; `fnbandit sweep` takes lists"),
        ("sweep --agents 1 2", "2: is no settings file"),
        ("run --agnets 3", "--agnets: unknown option (did you mean --agents?)"),
        ("run --trcking", "--trcking: unknown option (did you mean --tracking?)"),
        ("run --no-agents", "--no-agents: unknown option"),
        ("run --agents", "--agents: has no value; expected a whole number, at least 1"),
        ("run --agents --horizon 3", "--agents: has no value"),
        ("run --agents 1 --agents=2", "--agents: is given twice"),
        ("run --diagonal --no-diagonal", "--no-diagonal: is given twice"),
        ("run --agents 0", "agents=0: expected a whole number, at least 1"),
        ("run --agents many", "agents='many': expected a whole number, at least 1"),
        ("run --agents 2.5", "agents='2.5': expected a whole number, at least 1"),
        ("sweep --agents 1,many", "agents='many': expected a whole number, at least 1"),
        ("run --trigger logdet --threshold -1", "threshold=-1.0: expected a number, at least 0, or 'theory'"),
        ("run --diagonal=maybe", "diagonal='maybe': expected true or false"),
        ("run --trigger sometimes", "trigger='sometimes' is unknown"),
        ("run --environment cosines", "did you mean 'cosine'"),
        ("run --preset papers", "preset='papers' is unknown (did you mean 'paper'?)"),
        ("run --engine locl", "engine='locl' is unknown (did you mean 'local'?); accepted: ray, local"),
        ("run --seeds 0", "seeds=0: expected a whole number, at least 1"),
        ("run --seeds 1,2", "seeds='1,2': expected a whole number, at least 1"),
        ("run --agents-per-actor none", "agents_per_actor='none': expected a whole number, at least 1, or 'auto'"),
        ("run --actor-timeout 0", "actor_timeout=0.0: expected a number above 0"),
        ("run --cpus-per-actor 0", "one of them must be above 0"),
        ("sweep --agents 1,1", "agents=1: duplicate value"),
        ("sweep --trigger logdet --threshold 4,4.0", "threshold=4.0: duplicate value"),
        ("sweep --seed 0,1 --seeds 2", "seed=1: duplicate run"),
        (
            "sweep --trigger always --threshold 2.5,4,5",
            "threshold: has no effect with trigger=always; --trigger logdet",
        ),
        ("run --period 5", "period: has no effect with trigger=logdet; --trigger period uses it"),
        ("run --algorithm neural-ucb --period 5", "period: has no effect with algorithm=neural-ucb"),
        (
            "run --environment shuttle --dim 5",
            "dim: has no effect with environment=shuttle; --environment cosine or square uses it",
        ),
        ("run --aggregation median --no-aggregate --training-start own", "aggregation: has no effect with aggregate=f"),
        ("run --weight theory --no-use-local", "weight: has no effect with use_local=false"),
        ("sweep --ramp 3,4 --no-use-global", "ramp: has no effect with use_global=false"),
        ("run --preset paper --training-cap 10", "training_cap: has no effect with training_steps=30"),
        ("run --algorithm linear-ucb --training-least 9", "training_least: has no effect with algorithm=linear-ucb"),
        ("sweep --weight-value 0.1,0.2", "weight_value: has no effect with weight=earned"),
        ("run --norm-bound 2", "norm_bound: has no effect with no field that is 'theory'"),
        ("sweep --delta 0.1,0.2", "delta: has no effect with no field that is 'theory'"),
        ("run --initialization normal", "initialization: has no effect with hidden_layers=1"),
        ("run --training-steps 0 --training-rate 1", "training_rate: has no effect with training_steps=0"),
        ("sweep --trigger always,period --threshold 4", "threshold: has no effect with trigger=always, trigger=period"),
    ],
)
def test_what_is_wrong_with_words_is_one_line(capsys, argv, line):
    assert line in refused(argv.split(), capsys)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("agnets = 3", "wrong.toml: key='agnets' is unknown (did you mean 'agents'?)"),
        ('file = "my.toml"', "key='file' is unknown"),
        ('engine = "locl"', "engine='locl' is unknown (did you mean 'local'?); accepted: ray, local"),
        ('trace = "all"', "trace='all' is unknown; accepted: agents, mean, none"),
        ('tracking = "no"', "tracking='no' is unknown (did you mean 'none'?)"),
        ("tracking = false", "tracking=False: expected a text"),
        ('dry_run = "no"', "dry_run='no': expected true or false"),
        ('seeds = "3"', "seeds='3': expected a whole number, at least 1"),
        ("seeds = [1, 2]", "seeds=[1, 2]: expected a whole number, at least 1"),
        ("environment = 5", "environment=5: expected a text"),
        ("algorithm = [5]", "algorithm=5: expected a text"),
        ("out = 3", "out=3: expected a text"),
        ("agents = []", "agents=[]: expected at least one value"),
        ('agents = "3"', "agents='3': expected a whole number, at least 1"),
        ("agents = [2, true]", "agents=True: expected a whole number, at least 1"),
        ("agents = [2, 2]", "agents=2: duplicate value"),
        ('preset = ["paper"]', "preset=['paper'] is unknown"),
        ("checkpoint_seconds = 0", "checkpoint_seconds=0: expected a number above 0"),
    ],
)
@pytest.mark.parametrize("command", ["run", "sweep"])
def test_what_is_wrong_with_a_file_is_one_line(tmp_path, capsys, command, text, line):
    (tmp_path / "wrong.toml").write_text(text)
    if command == "run" and text.startswith("agents = [2"):
        line = "has several values"
    assert line in refused([command, "wrong.toml"], capsys)


@pytest.mark.parametrize(
    ("text", "flags", "line"),
    [
        ('engine = "foo"', "--engine local", "wrong.toml: engine='foo' is unknown"),
        ("agents = 0", "--agents 2", "wrong.toml: agents=0: expected a whole number, at least 1"),
        ('algorithm = "fn-ucp"', "--algorithm random", "wrong.toml: algorithm='fn-ucp' is unknown"),
        ("agents = [2, 0]", "--agents 2", "wrong.toml: agents=0: expected a whole number, at least 1"),
        ("horizon = 1.5", "--horizon 5", "wrong.toml: horizon=1.5: expected a whole number, at least 1"),
    ],
)
def test_a_wrong_value_that_a_flag_overrides_is_wrong(tmp_path, capsys, text, flags, line):
    (tmp_path / "wrong.toml").write_text(text)
    assert line in refused(["run", "wrong.toml", *flags.split()], capsys)


@pytest.mark.parametrize(
    "argv", ["my.toml --tracking none", "--tracking none my.toml", "--dry-run=false my.toml", "--engine local my.toml"]
)
def test_a_file_counts_wherever_it_stands(argv):
    assert main(["run", *argv.split(), "--out", "here"]) == 0
    config = read_run("here").summary["config"]
    assert (config["agents"], config["horizon"]) == (2, 15)


def test_a_dry_run_with_a_file_is_dry_and_of_the_file(capsys):
    assert main(["run", "--dry-run", "my.toml"]) == 0
    assert "2 agents in this process" in capsys.readouterr().out
    assert not os.path.exists("runs")


@pytest.mark.parametrize(
    ("argv", "diagonal"),
    [
        ("--diagonal", True),
        ("--diagonal true", True),
        ("--diagonal=true", True),
        ("--diagonal True", True),
        ("--diagonal --agents 3", True),
        ("--diagonal my.toml", True),
        ("--diagonal=false", False),
        ("--diagonal false", False),
        ("--no-diagonal", False),
    ],
)
def test_switches_do_what_they_say(argv, diagonal):
    assert run(*argv.split()).diagonal is diagonal
    argv = argv.replace("diagonal", "dry-run").split()
    assert parse_request("fnbandit run", argv, lists=False, kind=StudyArguments).arguments.dry_run is diagonal


@pytest.mark.parametrize("argv", [["run", "\n"], ["run", "--a\nb", "1"], ["run", "-\n"], ["resume", "a", "b\nc"]])
def test_words_of_several_lines_are_told_in_one(capsys, argv):
    refused(argv, capsys)


def test_presets_then_the_file_then_flags(tmp_path):
    (tmp_path / "paper.toml").write_text('preset = "paper"\nagents = 3\nwidth = 10\nenvironment = "shuttle"\n')
    config = run("paper.toml", "--width", "30")
    assert config == Config.preset("paper", environment="shuttle", agents=3, width=30)
    assert run("paper.toml", "--preset", "tuned", "--environment", "square") == Config.preset(
        "tuned", environment="square", agents=3, width=10
    )


def test_a_flag_may_mend_what_a_file_alone_would_not_allow(tmp_path):
    (tmp_path / "odd.toml").write_text('network = "ntk"\nwidth = 5\n')
    assert run("odd.toml", "--width", "6").width == 6


def test_settings_of_files_and_flags(tmp_path):
    (tmp_path / "s.toml").write_text('out = "there"\nagents_per_actor = 4\ncpus_per_actor = 1\ntrace = "mean"\n')
    settings = parse_request(
        "fnbandit run", ["s.toml", "--trace", "none", "--checkpoint", "s3://a/b=c"], False, StudyArguments
    ).arguments.settings
    assert (str(settings.out), settings.trace, settings.checkpoint) == ("there", "none", "s3://a/b=c")
    assert settings.options().agents_per_actor == 4
    request = parse_request("fnbandit run", ["--agents-per-actor", "3"], False, StudyArguments)
    assert request.arguments.settings.agents_per_actor == 3


def test_a_sweep_is_the_product_of_its_lists(tmp_path):
    configs = sweep("list.toml", "--trigger", "logdet", "--threshold", "2.5,4,theory")
    assert list(configs) == [f"agents={n}/threshold={d}/seed=0" for n in (3, 4) for d in (2.5, 4.0, "theory")]
    for path, config in configs.items():
        assert path == f"agents={config.agents}/threshold={config.threshold}/seed=0"
        assert config == Config.preset("tuned", agents=config.agents, trigger="logdet", threshold=config.threshold)
    assert sweep("list.toml", "--agents", "7") == {".": Config.preset("tuned", agents=7)}


def test_switches_and_seeds_are_swept():
    assert sweep("--diagonal", "true,false") == {
        f"diagonal={value}/seed=0": Config.preset("tuned", diagonal=value) for value in (True, False)
    }
    assert sweep("--seed", "0,1,5") == {f"seed={seed}": Config.preset("tuned", seed=seed) for seed in (0, 1, 5)}
    configs = sweep("--seed", "0,2", "--seeds", "2", "--agents", "1,2")
    assert sorted(configs) == sorted(f"agents={n}/seed={s}" for s in (0, 1, 2, 3) for n in (1, 2))


def test_presets_belong_to_the_point():
    configs = sweep("--preset", "paper", "--environment", "cosine,shuttle", "--algorithm", "fn-ucb,linear-ucb")
    for config in configs.values():
        own = {"environment": config.environment, "algorithm": config.algorithm}
        assert config == Config.preset("paper", **own, agents=10)
    assert len({config.regularization for config in configs.values()}) == 3


def test_a_sweep_over_tasks_has_one_number_of_agents():
    """The paper has 10 agents on functions and 5 on tables: a comparison of tasks keeps the first task's number."""
    assert Config.preset("paper", environment="shuttle").agents == 5
    for tasks, agents in (("cosine,shuttle", 10), ("shuttle,cosine", 5)):
        configs = sweep("--preset", "paper", "--environment", tasks)
        assert [config.agents for config in configs.values()] == [agents, agents]
    configs = sweep("--preset", "paper", "--environment", "cosine,shuttle", "--agents", "3")
    assert [config.agents for config in configs.values()] == [3, 3]
    assert {config.agents for config in sweep("--environment", "cosine,shuttle,magic").values()} == {8}


def test_runs_that_differ_in_nothing_that_matters_are_one():
    assert sweep("--trigger", "always,logdet", "--threshold", "1,2") == {
        "trigger=always/seed=0": Config.preset("tuned", trigger="always"),
        "trigger=logdet/threshold=1.0/seed=0": Config.preset("tuned", trigger="logdet", threshold=1.0),
        "trigger=logdet/threshold=2.0/seed=0": Config.preset("tuned", trigger="logdet", threshold=2.0),
    }
    configs = sweep("--algorithm", "neural-ucb,fn-ucb", "--trigger", "logdet,always", "--threshold", "1,2")
    assert list(configs) == [
        "algorithm=neural-ucb/seed=0",
        "algorithm=fn-ucb/trigger=logdet/threshold=1.0/seed=0",
        "algorithm=fn-ucb/trigger=logdet/threshold=2.0/seed=0",
        "algorithm=fn-ucb/trigger=always/seed=0",
    ]


@pytest.mark.parametrize("threshold", ["3.0", "[3.0, 4.0]"])
def test_a_file_may_have_fields_without_effect(tmp_path, caplog, threshold):
    (tmp_path / "shared.toml").write_text(f"threshold = {threshold}\n")
    with caplog.at_level(logging.WARNING, "fnbandit"):
        assert len(sweep("shared.toml", "--trigger", "always")) == 1
        assert caplog.messages == ["fnbandit: shared.toml: threshold has no effect with trigger=always"]
        caplog.clear()
        sweep("shared.toml")
        assert not caplog.messages


def test_bounds_of_the_theory_count_where_something_asks_for_them():
    assert run("--norm-bound", "2", "--threshold", "theory", "--trigger", "logdet").norm_bound == 2.0
    request = parse_request("fnbandit theory", ["--norm-bound", "2"], False, ConfigArguments)
    assert request.points[0].config.norm_bound == 2


def test_paths_are_stored_from_the_root_on(tmp_path):
    assert run("--environment", "data/a.csv").environment == str(tmp_path / "data" / "a.csv")
    arguments = parse_request("fnbandit run", ["--checkpoint", "there"], False, StudyArguments).arguments
    assert arguments.settings.checkpoint == str(tmp_path / "there")


def test_values_that_no_folder_can_be_called_are_quoted():
    assert list(sweep("--environment", "data/a.csv,cosine")) == [
        "environment=data%2Fa.csv/seed=0",
        "environment=cosine/seed=0",
    ]
