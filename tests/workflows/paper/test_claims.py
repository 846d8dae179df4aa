"""The paper's claims and what runs say of them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ttest_rel
from small_records import record

from workflows.paper.claims import (
    CLAIMS,
    Comparison,
    Outcome,
    find_standing,
    judge_claims,
    p_value,
    with_more_seeds,
)
from workflows.studies.experiments import experiment
from workflows.studies.settings import Settings


def curves(**finals):
    """Figure -> label -> runs with these final regrets, one per seed; "early" of them in the first half."""
    found = {}
    for name, values in finals.items():
        runs = [record([[value / 4], [3 * value / 4]], seed=seed) for seed, value in enumerate(values)]
        for seed, run in enumerate(runs):
            run.summary["seed"] = seed
        found[f"paper: {name}"] = runs
    return {"fig": found}


def test_p_is_that_of_a_paired_test():
    one, other = np.array([3.0, 5.0, 4.5, 7.0]), np.array([2.5, 5.5, 3.0, 4.0])
    assert p_value(one - other) == pytest.approx(ttest_rel(one, other, alternative="greater").pvalue)
    assert (p_value(np.ones(3)), p_value(-np.ones(3)), p_value(np.zeros(3))) == (0.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("kind", "finals", "verdict"),
    [
        ("below", {"a": [1, 2, 3], "b": [2.1, 4, 6]}, "holds"),  # twice as much in every seed
        ("below", {"a": [2.1, 4, 6], "b": [1, 2, 3]}, "does not hold"),
        ("below", {"a": [1, 2, 3], "b": [2, 1, 3.3]}, "undecided"),
        ("below", {"a": [1, 2, 3], "b": [2.1, 4, 6], "c": [1, 2.1, 2.9]}, "undecided"),
        ("below", {"a": [2.1, 4, 6], "b": [1, 2, 3], "c": [9, 18, 28]}, "does not hold"),
        ("below", {"a": [1], "b": [2]}, "undecided"),  # one seed says nothing of others
        ("rising", {"a": [1, 2, 3], "b": [2.1, 4, 6], "c": [4, 8, 13]}, "holds"),
        ("rising", {"a": [1, 2, 3], "b": [4, 8, 13], "c": [2.1, 4, 6]}, "does not hold"),
        ("alike", {"a": [4, 5, 6], "b": [4, 4, 4.5]}, "holds"),  # 5 and 4.17
        ("alike", {"a": [4, 5, 6], "b": [1, 1.2, 1.6]}, "does not hold"),
        ("alike", {"a": [1, 9, 2], "b": [4, 0.5, 2.5]}, "undecided"),
        ("below", {"a": [1, 2, 3]}, "not run"),
    ],
)
def test_verdicts(kind, finals, verdict):
    labels = ("a", "b", "c") if "c" in finals else ("a", "b")
    outcome = judge_claims(Comparison("fig", kind, labels), "paper", curves(**finals))
    assert outcome.verdict == verdict
    assert outcome.means == pytest.approx(
        [np.mean(values) for values in finals.values()] if verdict != "not run" else []
    )


def test_only_common_seeds_are_compared():
    runs = curves(a=[1, 2, 3], b=[2.1, 4, 6, 0.1])
    outcome = judge_claims(Comparison("fig", "below", ("a", "b")), "paper", runs)
    assert (outcome.verdict, outcome.seeds) == ("holds", 3)
    assert outcome.means == pytest.approx([2, 12.1 / 3])


def test_further_seeds_join_the_curves_of_their_config():
    curves = {"paper: a": [record([[1.0]], seed=0)], "paper: b": [record([[1.0, 1.0]], seed=0)]}
    more = [record([[value]], seed=seed) for seed, value in ((3, 2.0), (4, 6.0))]
    found = with_more_seeds({"fig": curves}, more)
    assert {label: [run.summary["config"]["seed"] for run in runs] for label, runs in found["fig"].items()} == {
        "paper: a": [0, 3, 4],
        "paper: b": [0],
    }
    assert len(curves["paper: a"]) == 1


def test_more_seeds_than_usual_are_said():
    outcome = judge_claims(Comparison("fig", "below", ("a", "b")), "paper", curves(a=[1, 2, 3, 4], b=[2.1, 4, 6, 8.4]))
    assert outcome.describe().startswith("**holds** (p < 0.0001, 4 seeds): 2.5, 5.1")
    outcome = judge_claims(Comparison("fig", "alike", ("a", "b")), "paper", curves(a=[1, 2, 3], b=[1, 2, 3.1]))
    assert outcome.describe() == "**holds**: 2.0, 2.0"


def test_verdicts_that_fall_with_many_tests():
    """Benjamini and Hochberg by hand: of p = 0.01, 0.02, 0.04, 0.9 times 4 / rank, 0.04, 0.04, 0.053, 0.9."""
    outcomes = [Outcome("holds", [], p, 3, p) for p in (0.04, 0.01, 0.9, 0.02)]
    outcomes += [Outcome("holds", [], None, 3), Outcome("not run", [], None, 0)]
    outcomes[2] = Outcome("undecided", [], 0.9, 3, 0.9)
    assert find_standing(outcomes) == [False, True, True, True, True, True]
    assert outcomes[0].describe(False).startswith("**holds**°")
    assert find_standing([]) == []


def test_the_p_of_many_tests_is_of_both_sides_and_of_all_pairs():
    runs = curves(a=[1, 2, 3], b=[2.1, 4, 6], c=[4, 8, 13])
    rising = judge_claims(Comparison("fig", "rising", ("a", "b", "c")), "paper", runs)
    pairs = [ttest_rel(*(np.log([run.summary["regret"] for run in runs["fig"][f"paper: {name}"]]) for name in pair),
                       alternative="greater").pvalue for pair in ("ba", "cb")]  # fmt: skip
    assert rising.family == pytest.approx(2 * max(pairs))
    falling = judge_claims(Comparison("fig", "rising", ("c", "b", "a")), "paper", runs)
    assert falling.family == pytest.approx(2 * 2 * min(pairs))


def test_a_comparison_at_the_beginning():
    outcome = judge_claims(Comparison("fig", "below", ("a", "b"), at=1), "paper", curves(a=[1, 2], b=[8, 4]))
    assert outcome.means == pytest.approx([1.5 / 4, 6 / 4])


def test_what_is_compared_in_words():
    assert Comparison("fig2c", "below", ("FN-UCB N=1", "fig2a/FN-UCB N=1")).describe() == "N=1 < N=1 of Fig. 2a"
    assert Comparison("fig1a", "rising", ("a", "b", "c")).describe() == "a < b < c"
    assert Comparison("fig1a", "alike", ("a", "b", "c"), at=100).describe() == "a ≈ b, c after 100 iterations"


def test_claims_name_curves_that_there_are():
    from workflows.paper.claims import OTHERS, TUNED_LABELS

    for claim in CLAIMS:
        for comparison in claim.comparisons:
            for label in comparison.labels:
                figure, _, name = label.rpartition("/")
                there = {point.label for point in experiment(figure or comparison.figure, False, 1, Settings()).points}
                assert f"paper: {name}" in there
                assert f"tuned: {TUNED_LABELS.get(name, name)}" in there or name in OTHERS
