"""The promise: what is refused, what is printed and kept, and the ratio of signal to noise."""

from __future__ import annotations

import json
import math
import re
import sys

import pytest
from own_parts import MeanReward

from fnbandit import Config, simulate
from fnbandit.environments import make_environment
from fnbandit.privacy.accounting import find_noise
from fnbandit.privacy.promise import make_promise
from fnbandit.runs import LocalRun
from fnbandit.storage.records import read_run
from workflows.command_line import main

FEDIGW = {"algorithm": "fedigw", "privacy": "local"}
LINEAR = {"algorithm": "dislinucb", "trigger": "geometric", "privacy": "local"}


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (LINEAR | {"trigger": "logdet"}, "trigger='logdet': privacy=local accepts always, period, geometric"),
        (LINEAR | {"trigger": "diagonal"}, "trigger='diagonal': privacy=local accepts"),
        (LINEAR | {"trigger": "determinant"}, "trigger='determinant': privacy=local accepts"),
        (LINEAR | {"trigger": "budget"}, "trigger='budget': privacy=local accepts"),
        (LINEAR | {"diagonal": True}, "diagonal=True: privacy=local accepts False"),
        (LINEAR | {"messages": "factored"}, "messages='factored': privacy=local accepts exact"),
        (LINEAR | {"messages": "quantized"}, "messages='quantized': privacy=local accepts exact"),
        (LINEAR | {"participation": "fraction"}, "participation='fraction': privacy=local accepts all"),
        (LINEAR | {"attack": "sign-flip", "byzantine_share": 0.3}, "attack='sign-flip': privacy=local accepts none"),
        (
            LINEAR | {"aggregation_statistics": "certificate"},
            "aggregation_statistics='certificate': privacy=local accepts sum",
        ),
        (
            FEDIGW | {"federation": "gradients", "reward_unit": "one", "aggregation": "median"},
            "aggregation='median': privacy=local accepts mean",
        ),
        (FEDIGW | {"federation": "exact"}, "federation='exact': privacy=local accepts average, gradients"),
        (FEDIGW | {"federation": "gauss-newton"}, "federation='gauss-newton': privacy=local accepts"),
        (FEDIGW | {"federation": "gradients"}, "reward_unit='rms': privacy=local accepts one"),
        (
            FEDIGW | {"privacy": "central", "aggregation": "median"},
            "aggregation='median': privacy=central accepts mean",
        ),
        (
            {"algorithm": "fn-linear", "trigger": "geometric", "privacy": "central"},
            "reward_unit='rms': privacy=central accepts one",
        ),
        (
            {"trigger": "geometric", "privacy": "local"},
            "use_global=True: privacy=local accepts False with algorithm=fn-ucb-less-comm: noise would drown the W",
        ),
        ({"algorithm": "fn-ucb-async", "privacy": "local"}, "privacy: has no effect with algorithm=fn-ucb-async"),
        ({"algorithm": "fedlinucb", "privacy": "local"}, "privacy: has no effect with algorithm=fedlinucb"),
        ({"algorithm": "neural-ucb", "privacy": "local"}, "privacy: has no effect with algorithm=neural-ucb"),
        (LINEAR | {"privacy_clip": 2.0}, "privacy_clip: has no effect with algorithm=dislinucb"),
        (FEDIGW | {"privacy_factorization": "tree"}, "privacy_factorization: has no effect with algorithm=fedigw"),
        (
            {"privacy_epsilon": 2.0},
            "privacy_epsilon: has no effect with privacy=none; privacy=local or central uses it",
        ),
        (LINEAR | {"privacy_epsilon": 0.0}, "privacy_epsilon=0.0: expected a number above 0"),
        (LINEAR | {"privacy_delta": 1.0}, "privacy_delta=1.0: expected a number above 0, below 1"),
        (LINEAR | {"privacy": "loca"}, "privacy='loca' is unknown (did you mean 'local'"),
    ],
)
def test_what_would_leak_is_refused_in_one_line(settings, line):
    with pytest.raises(ValueError, match=f"^{re.escape(line)}[^\n]*$"):
        Config(**settings)


def test_a_file_cannot_hide_privacy_where_it_has_no_effect():
    """A field without effect is a warning in a file; a promise that nobody keeps is an error."""
    with pytest.raises(
        ValueError, match="algorithm='fn-ucb-async': privacy=local accepts fedigw, fn-linear, dislinucb"
    ):
        Config.complete({"algorithm": "fn-ucb-async", "privacy": "local"})


def test_a_users_parts_are_asked_at_the_start():
    class Sometimes:
        measures, needs_diagonal, level, most_gain = True, False, 1.0, math.inf

        def __init__(self, config):
            pass

        def next_round(self, last_round):
            return None

    with pytest.raises(ValueError, match="the times of its rounds tell of data; privacy=local accepts"):
        simulate(Config(algorithm="dislinucb", trigger=Sometimes, privacy="local", agents=2, horizon=4))
    with pytest.raises(ValueError, match="privacy=local accepts fedigw, fn-linear, dislinucb"):
        simulate(Config(algorithm=MeanReward, trigger="always", privacy="local", agents=2, horizon=4))


def test_without_dp_accounting_a_line_says_what_to_install(monkeypatch):
    find_noise.cache_clear()
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(ValueError, match=r"^privacy: needs dp-accounting; pip install 'fnbandit\[privacy\]'$"):
        find_noise(1.25, 1e-4)


@pytest.mark.parametrize("trust", ["local", "central"])
def test_the_ratio_of_networks_by_hand(trust):
    """C over the norm of 2 C z / N times 241 standard normal numbers, ten rounds; N times the variance, if local."""
    config = Config(algorithm="fedigw", privacy=trust, agents=1000, horizon=100, trigger="period", period=10)
    promise = make_promise(config, make_environment(config))
    z = math.sqrt(10) * find_noise(1.0, 1e-5)
    noise = 2 * z / 1000 * math.sqrt(241 * (1000 if trust == "local" else 1))
    assert promise.ratio == pytest.approx(1 / noise) and promise.z == {"networks": pytest.approx(z)}
    assert (promise.unit, promise.trust, promise.rounds) == ("agent", trust, 10)


@pytest.mark.parametrize(
    ("algorithm", "k", "central", "local"), [("dislinucb", 10, 22, 2.2), ("fn-exact", 241, 0.2, 0.02)]
)
def test_the_ratio_of_statistics_is_that_of_the_feasibility_table(algorithm, k, central, local):
    """N = 100, t = 500, 20 rounds, epsilon 1, delta 1e-6: raw contexts work, all tangent features drown."""
    own = {} if algorithm == "dislinucb" else {"reward_unit": "one", "stop_training_after": 1, "federation": "average"}
    for trust, expected in (("central", central), ("local", local)):
        config = Config(algorithm=algorithm, privacy=trust, agents=100, horizon=500, trigger="period", period=25,
                        privacy_delta=1e-6, privacy_allow_noise=True, **own)  # fmt: skip
        promise = make_promise(config, make_environment(config))
        c = [math.comb(2 * j, j) / 4**j for j in range(20)]
        squares = sum(one**2 for one in c)
        # || c || of the sensitivity, and || c || of the last running sum.
        noise = find_noise(1.0, 1e-6) * 2 * math.sqrt(2) * squares * math.sqrt(2 * k * (100 if trust == "local" else 1))
        assert promise.ratio == pytest.approx(100 * 500 / 2 / k / noise)
        assert promise.ratio == pytest.approx(expected, rel=0.15)


def test_a_run_that_would_drown_is_refused_and_a_dry_run_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    argv = ["run", "--algorithm", "fedigw", "--privacy", "local", "--engine", "local", "--tracking", "none"]
    assert main([*argv, "--dry-run"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "epsilon 1, delta 1e-05, unit: an agent's whole history, neighbours replace it" in said
    assert "signal to noise 0.0077: a run is refused below 1" in said
    assert "uses its own raw data freely" in said and "whoever knows the seed can subtract it" in said
    assert main(argv) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and "signal to noise 0.0077 is below 1" in lines[0] and "privacy_allow_noise" in lines[0]
    config = Config(**FEDIGW)
    with pytest.raises(ValueError, match="is below 1"):
        LocalRun(config)


def test_a_run_keeps_its_promise_in_its_summary_and_tracker(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    argv = ["run", "--agents", "3", "--horizon", "20", "--algorithm", "dislinucb", "--trigger", "geometric",
            "--privacy", "local", "--privacy-allow-noise", "--engine", "local", "--tracking", "jsonl",
            "--out", "it"]  # fmt: skip
    assert main(argv) == 0
    assert "trust local: every agent adds noise" in capsys.readouterr().out
    record = read_run(tmp_path / "it")
    promise = record.summary["privacy"]
    assert promise["unit"] == "event" and promise["trust"] == "local" and promise["rounds"] == 4
    assert promise["releases"] == {"networks": 0, "statistics": 4} and "toeplitz" in promise["mechanism"]
    assert promise["released_epsilon"] == pytest.approx(1.0) and promise["epsilon"] == 1.0
    assert any("arms" in line for line in promise["not_covered"]) and "server" in promise["observer"]
    assert record.rounds.column("iteration").to_pylist() == [1, 3, 7, 15]
    # Up: the triangle of W (55 numbers for d = 10) and B, of 3 agents in 4 rounds.
    assert record.summary["numbers_up"] == 3 * 4 * (55 + 10)
    tracked = [line for path in tmp_path.rglob("*.jsonl") for line in path.read_text().splitlines()]
    params = next(found for line in tracked if "privacy_unit" in str(found := json.loads(line)))
    assert "'privacy_trust': 'local'" in str(params) and "'privacy_z'" in str(params)


def test_an_interrupted_run_has_released_less():
    config = Config(algorithm="dislinucb", trigger="geometric", privacy="local", agents=2, horizon=40)
    config = config.replace(privacy_allow_noise=True)
    promise = make_promise(config, make_environment(config))
    spent = [promise.summary(config, t)["released_epsilon"] for t in (0, 2, 10, 40)]
    assert spent[0] == 0 < spent[1] < spent[2] < spent[3] == pytest.approx(1.0)
