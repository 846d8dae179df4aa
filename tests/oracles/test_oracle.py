"""The fast code makes the choices of the literal transcription of Algorithms 1 and 2."""

from __future__ import annotations

import itertools

import numpy as np
import oracle
import pytest
from helpers import plain, run_with_scores, theta_0

from fnbandit import Config, simulate
from fnbandit.environments import make_environment

FACTORS = {
    "algorithm": ["fn-ucb", "fn-ucb-less-comm"],
    "diagonal": [False, True],
    "trigger": ["logdet", "diagonal", "always", "period"],
    "weight": ["ramp", "theory", "constant"],
    "first_iteration_only": [False, True],
    "network": ["standard", "ntk"],
    "training_loss": ["mean", "paper"],
    "training_start": ["initial", "own", "aggregate"],
    "ablation": [{}, {"use_global": False}, {"use_local": False}, {"aggregate": False}],
    "agents": [1, 2, 3],
    "hidden_layers": [1, 2],
    "stop_training_after": [None, 35],
}


def all_pairs(factors: dict[str, list]) -> list[dict]:
    """Rows in which every pair of values of every two factors occurs, chosen greedily."""
    names = list(factors)
    missing = {
        (a, i, b, j)
        for a, b in itertools.combinations(range(len(names)), 2)
        for i in range(len(factors[names[a]]))
        for j in range(len(factors[names[b]]))
    }
    rows = []
    while missing:
        a, i, b, j = min(missing)
        row = {a: i, b: j}
        for c in range(len(names)):
            if c not in row:
                gain = [
                    sum((*sorted([(c, v), (d, w)])[0], *sorted([(c, v), (d, w)])[1]) in missing for d, w in row.items())
                    for v in range(len(factors[names[c]]))
                ]
                row[c] = int(np.argmax(gain))
        missing -= {(x, row[x], y, row[y]) for x, y in itertools.combinations(range(len(names)), 2)}
        rows.append({names[c]: factors[names[c]][v] for c, v in row.items()})
    return rows


def case(row: dict, number: int) -> Config:
    settings = {key: value for key, value in row.items() if key != "ablation"} | row["ablation"]
    # A context that no unit of a narrow ntk network answers to has the feature 0, and alpha with it.
    ratio_of_ntk = row["weight"] == "theory" and row["network"] == "ntk"
    return plain(
        environment=["cosine", "square"][number % 2],
        horizon=60,
        seed=number,
        arms=3 + number % 2,
        dim=2 if ratio_of_ntk else 4,
        noise=0.05,
        width=10 if ratio_of_ntk else 6,
        regularization=[0.1, 1.0][number % 2],
        exploration_global=0.3,
        exploration_local=0.2,
        ramp=40,
        weight_value=0.4,
        domain_sample=20,
        threshold=4.0,
        period=7,
        training_steps=6,
        training_rate=0.0005 if row["training_loss"] == "paper" else 0.01,
        network_dtype="float64",
        **settings,
    )


CASES = [case(row, number) for number, row in enumerate(all_pairs(FACTORS))]


def assert_same(config: Config, groups: int, monkeypatch, run=oracle.run) -> None:
    expected = run(config, make_environment(config), theta_0(config))
    assert_the_ratio_counts(config, expected)
    segments, scores = run_with_scores(config, groups, monkeypatch)
    traces = [segment.trace for segment in segments]
    assert [record.iteration for segment in segments for record in segment.rounds] == expected.rounds
    np.testing.assert_array_equal(np.concatenate([trace.arms for trace in traces]), expected.arms)
    np.testing.assert_allclose(scores, expected.scores, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(np.concatenate([trace.rewards for trace in traces]), expected.rewards, atol=1e-12)
    np.testing.assert_allclose(np.concatenate([trace.alpha for trace in traces]), expected.weights, atol=1e-9)
    if config.use_local:
        np.testing.assert_allclose(segments[-1].theta, expected.theta, rtol=1e-8, atol=1e-8)


def assert_the_ratio_counts(config: Config, expected: oracle.Outcome) -> None:
    """With weight=theory alpha is above 0 after every round, so that UCB^b is heard wherever it is not left out."""
    before_the_end = [alpha for t, alpha in zip(expected.rounds, expected.alphas, strict=True) if t < config.horizon]
    if config.weight != "theory" or not before_the_end:
        return
    assert min(before_the_end) > 0.01
    used = [expected.weights[t] for t in expected.rounds if t < config.horizon]  # of the iteration after a round
    if config.use_global and config.use_local:
        assert used == before_the_end
    else:
        assert set(used) == {1.0 if config.use_local else 0.0}


def test_the_cases_cover_all_pairs_and_do_something():
    assert 15 <= len(CASES) <= 60
    pairs = {(k1, str(v1), k2, str(v2)) for row in all_pairs(FACTORS) for (k1, v1), (k2, v2) in
             itertools.permutations(row.items(), 2)}  # fmt: skip
    for (k1, values1), (k2, values2) in itertools.permutations(FACTORS.items(), 2):
        assert all((k1, str(v1), k2, str(v2)) in pairs for v1 in values1 for v2 in values2)
    rounds = [len(simulate(config).rounds) for config in CASES if config.trigger in ("logdet", "diagonal")]
    assert all(2 <= count < 60 for count in rounds)
    by_theory = [config for config in CASES if config.weight == "theory" and config.use_global and config.use_local]
    assert {config.network for config in by_theory} == {"standard", "ntk"}


@pytest.mark.parametrize("config", CASES, ids=range(len(CASES)))
def test_same_choices_rounds_and_scores(config, monkeypatch):
    assert_same(config, groups=1 + config.seed % 3, monkeypatch=monkeypatch)


@pytest.mark.parametrize("algorithm", ["fn-ucb", "fn-ucb-less-comm"])
@pytest.mark.parametrize("diagonal", [False, True])
def test_same_on_a_table(algorithm, diagonal, monkeypatch):
    config = Config.preset(
        "paper", environment="magic", algorithm=algorithm, diagonal=diagonal, agents=2, horizon=40, width=4,
        ramp=30, trigger="diagonal", threshold=0.4, training_steps=5, network_dtype="float64",
    )  # fmt: skip
    assert_same(config, 2, monkeypatch)


def test_same_with_the_theory_preset(monkeypatch):
    config = Config.preset("theory", dim=3, arms=3, agents=2, horizon=30, width=16, domain_sample=16,
                           training_steps=20, network_dtype="float64")  # fmt: skip
    result = simulate(config)
    assert 1 <= len(result.rounds) < 30
    assert_same(result.config, 1, monkeypatch)
