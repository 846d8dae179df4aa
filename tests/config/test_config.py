"""Config: presets, and one clear line for what is wrong."""

from __future__ import annotations

import dataclasses
import itertools
import subprocess
import sys

import pytest
import torch

from fnbandit import Config, simulate


@pytest.mark.parametrize(
    ("settings", "pattern"),
    [
        ({"algorithm": "fn-ubc"}, "algorithm='fn-ubc' is unknown.*did you mean 'fn-ucb'"),
        ({"network": "convolutional"}, "network='convolutional'.*standard, ntk"),
        ({"trigger": "logdets"}, "trigger='logdets'.*did you mean 'logdet'"),
        ({"agents": 0}, "agents=0: expected a whole number, at least 1"),
        ({"agents": 2.5}, "agents=2.5"),
        ({"agents": True}, "agents=True"),
        ({"horizon": -1}, "horizon=-1"),
        ({"arms": 1}, "arms=1.*at least 2"),
        ({"trigger": "logdet", "threshold": -1.0}, "threshold=-1.0: expected a number, at least 0, or 'theory'"),
        ({"trigger": "logdet", "threshold": float("nan")}, "threshold=nan"),
        ({"trigger": "logdet", "threshold": "big"}, "threshold='big'"),
        ({"noise": "theory"}, "noise='theory': expected a number, at least 0$"),
        ({"regularization": 0}, "regularization=0: expected a number above 0, or 'theory'"),
        ({"training_rate": float("inf")}, "training_rate=inf"),
        ({"weight": "constant", "weight_value": 1.5}, "weight_value=1.5"),
        ({"trigger": "logdet", "threshold": "theory", "delta": 0.0}, "delta=0.0"),
        ({"network": "ntk", "width": 5}, "width=5.*even"),
        ({"use_global": False, "use_local": False}, "use_global"),
        ({"diagonal": "yes"}, "diagonal='yes': expected true or false"),
        ({"seed": -1}, "seed=-1"),
    ],
)
def test_bad_values(settings, pattern):
    with pytest.raises(ValueError, match=pattern) as error:
        Config(**settings)
    assert "\n" not in str(error.value)


def test_bad_names_and_presets():
    with pytest.raises(ValueError, match=r"field='agent' is unknown \(did you mean 'agents'\?\)"):
        Config.preset("paper", agent=3)
    with pytest.raises(ValueError, match="field='treshold'.*'threshold'"):
        Config().replace(treshold=3)
    with pytest.raises(ValueError, match="preset='papers'.*'paper'"):
        Config.preset("papers")
    with pytest.raises(ValueError, match="environment=5: expected a text"):
        Config.preset("paper", environment=5)
    with pytest.raises(ValueError, match="algorithm='fn-ubc' is unknown"):
        Config.preset("paper", algorithm="fn-ubc")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_cuda_where_there_is_none():
    with pytest.raises(ValueError, match="device='cuda'.*accepted: auto, cpu"):
        simulate(Config(device="cuda"))
    with pytest.raises(ValueError, match="device='gpu'.*expected auto, cpu, cuda"):
        simulate(Config(device="gpu"))


def test_presets():
    paper = Config.preset("paper", environment="square")
    assert (paper.regularization, paper.exploration_global, paper.exploration_local) == (0.1, 0.1, 0.1)
    assert (paper.width, paper.hidden_layers, paper.ramp, paper.trigger) == (20, 1, 700, "always")
    assert (paper.training_steps, paper.training_rate, paper.training_start) == (30, 0.01, "own")
    assert (paper.stop_training_after, paper.horizon, paper.noise, paper.arms, paper.dim) == (2000, 5000, 0.01, 4, 10)
    table = Config.preset("paper", environment="shuttle")
    assert (table.regularization, table.exploration_global, table.exploration_local) == (10.0, 0.1, 0.01)
    assert Config.preset("paper", algorithm="kernel-ts").regularization == 1.0
    letter = Config.preset("theory")
    assert (letter.algorithm, letter.network, letter.weight, letter.trigger) == ("fn-ucb", "ntk", "theory", "logdet")
    assert letter.threshold == letter.regularization == letter.exploration_global == "theory"
    assert (letter.training_loss, letter.training_start) == ("paper", "initial")
    tuned = Config.preset("tuned")
    assert (tuned.training_optimizer, tuned.training_steps, tuned.weight) == ("adam", "auto", "earned")
    assert Config.preset("tuned", environment="my.csv").regularization == 1.0 != tuned.regularization
    assert Config.preset("tuned", algorithm="dislinucb").trigger == "logdet"
    assert Config.preset("tuned", hidden_layers=3).training_rate == pytest.approx(tuned.training_rate / 3)
    with pytest.raises(ValueError, match="hidden_layers=0: expected a whole number, at least 1"):
        Config.preset("tuned", hidden_layers=0)
    # The published code has nu under the square root, so that its 0.01 is a multiplier of 0.1.
    assert Config.preset("paper", environment="magic", algorithm="neural-ts").exploration_local == 0.1
    assert Config.preset("tuned", agents=3).agents == 3


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"agents": 3},
        {"environment": "magic"},
        {"environment": "my.csv", "training_rate": 0.5},
        {"environment": "shuttle", "agents": 8},
        {"algorithm": "kernel-ucb"},
        {"algorithm": "fn-ucb-async"},
        {"hidden_layers": 3},
        {"environment": "wheel", "algorithm": "dislinucb", "seed": 3},
    ],
)
def test_a_config_is_what_the_command_runs(changes):
    from workflows.command_line.arguments import StudyArguments, parse_request

    argv = [word for name, value in changes.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    (point,) = parse_request("fnbandit run", argv, lists=False, kind=StudyArguments).points
    expected = Config(**changes)
    if expected.environment.endswith(".csv"):
        expected = expected.replace(environment=point.config.environment)
    assert expected == point.config
    assert Config(**changes) == Config.preset("tuned", **changes)
    # A copy keeps what it has.
    assert Config(**changes).replace(seed=5) == Config(**changes | {"seed": 5})


def test_values_by_place_are_tuned_too():
    assert Config("magic", "linear-ucb", 4) == Config(environment="magic", algorithm="linear-ucb", agents=4)


def test_files_keep_the_values_from_before_a_field_existed():
    whole = dataclasses.asdict(Config(agents=3))
    assert Config.from_record(whole) == Config(agents=3)
    older = {name: value for name, value in whole.items() if name not in ("reward_unit", "training_optimizer")}
    assert (Config.from_record(older).reward_unit, Config.from_record(older).training_optimizer) == ("one", "gd")


def test_every_field_is_documented():
    import ast
    from pathlib import Path

    from fnbandit import config

    tree = ast.parse(Path(config.__file__).read_text())
    body = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Config").body
    for node, following in itertools.pairwise(body):
        if isinstance(node, ast.AnnAssign):
            assert isinstance(following, ast.Expr), ast.unparse(node)
            assert isinstance(following.value, ast.Constant), ast.unparse(node)


def test_the_science_imports_neither_ray_nor_mlflow():
    code = (
        "import sys; sys.modules['ray'] = sys.modules['mlflow'] = None\n"
        "import fnbandit, fnbandit.theory\n"
        "print(fnbandit.simulate(fnbandit.Config(agents=2, horizon=5)).arms.shape)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "(5, 2)"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"period": 5}, "period: has no effect with trigger=logdet; trigger=period uses it"),
        ({"groups": 2}, "groups: has no effect with heterogeneity=none; heterogeneity=clusters uses it"),
        ({"newton_steps": 2}, "newton_steps: has no effect with federation=average; federation=gauss-newton or exact"),
        ({"price": 0.1}, "price: has no effect with environment=cosine; environment=routing uses it"),
        ({"algorithm": "linear-ucb", "width": 4}, "width: has no effect with algorithm=linear-ucb"),
        ({"environment": "shuttle", "dim": 3}, "dim: has no effect with environment=shuttle"),
        ({"delta": 0.2}, "delta: has no effect with no field that is 'theory'"),
    ],
)
def test_a_config_refuses_what_the_command_line_refuses(settings, reason):
    for make in (Config, lambda **fields: Config.preset("tuned", **fields)):
        with pytest.raises(ValueError, match=reason):
            make(**settings)
    # In a loop over algorithms or triggers a field may have no effect in some.
    config = Config().replace(**settings)
    assert Config(**config.effective).effective == config.effective
    assert Config.complete(dataclasses.asdict(config)) == config


def test_exact_federation_trains_by_gradients_on_tables():
    functions, table = Config.preset("exact", "square"), Config.preset("exact", "my.csv")
    assert (functions.federation, functions.training_sample) == ("exact", "auto")
    assert (table.federation, table.training_sample, table.training_rate) == ("gradients", 32_000, 0.01)
    assert Config(algorithm="fn-exact", environment="my.csv") == table
