"""The replay estimate against its formula and the truth; logs that are refused in one line."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from fnbandit.policy import Policy
from fnbandit.storage.replay import read_log, replay_log

FACTS = {"agent": 0, "algorithm": "a", "environment": "e", "iterations": 1, "arms": 3, "dim": 3, "global_scale": 0.0,
         "arm_names": ["u", "v", "w"], "coding": ["disjoint", False]}  # fmt: skip
POLICY = Policy(
    FACTS, {"solution": np.array([1.0, 0.0, -1.0]), "inverse": np.eye(3), "shift": np.zeros(1), "scale": np.ones(1)}
)
"""Scores x, 0, -x of its arms for a row with the one feature x: the first arm where x > 0, else the last"""


def log_of(count, probabilities, seed=0):
    """A log of `count` choices with given probabilities of the arms, and the truth: mean of 0.2, 0.5 or 0.8."""
    random = np.random.default_rng(seed)
    x = random.standard_normal(count)
    arms = random.choice(3, size=count, p=probabilities)
    rewards = (random.random(count) < np.array([0.8, 0.2, 0.5])[arms]).astype(float)
    return {"context": [[value] for value in x], "arm": arms, "reward": rewards,
            "probability": np.array(probabilities)[arms]}  # fmt: skip


def written(tmp_path, columns):
    pyarrow.parquet.write_table(pa.table(columns), tmp_path / "log.parquet")
    return tmp_path / "log.parquet"


def test_equal_probabilities_give_the_mean_of_matching_rows(tmp_path):
    columns = log_of(6000, [1 / 3] * 3)
    found = replay_log(POLICY, read_log(written(tmp_path, columns), POLICY))
    x = np.array(columns["context"])[:, 0]
    rewards = columns["reward"][columns["arm"] == np.where(x > 0, 0, 2)]
    assert (found.rows, found.matched) == (6000, len(rewards))
    assert found.mean == pytest.approx(rewards.mean())
    assert found.standard_error == pytest.approx(rewards.std() / len(rewards) ** 0.5)
    assert found.effective == pytest.approx(len(rewards))


def test_unequal_probabilities_are_weighted(tmp_path):
    """Half of the rows have x > 0: the truth is (0.8 + 0.5) / 2, and matching rows are mostly of the first arm."""
    errors, unweighted = [], []
    for seed in range(20):
        columns = log_of(5000, [0.6, 0.2, 0.2], seed)
        found = replay_log(POLICY, read_log(written(tmp_path, columns), POLICY))
        errors.append((found.mean - 0.65) / found.standard_error)
        x = np.array(columns["context"])[:, 0]
        unweighted.append(columns["reward"][columns["arm"] == np.where(x > 0, 0, 2)].mean())
        assert found.effective < found.matched
    # 20 estimates, each with its standard error: their mean has one of 1 / sqrt(20).
    assert abs(np.mean(errors)) < 4 / 20**0.5
    assert 0.5 < np.std(errors) < 1.7
    assert np.mean(unweighted) > 0.7


def test_names_of_arms_and_whole_contexts(tmp_path):
    columns = log_of(4000, [1 / 3] * 3)
    expected = replay_log(POLICY, read_log(written(tmp_path, columns), POLICY))
    named = columns | {"arm": np.array(["u", "v", "w"])[columns["arm"]]}
    assert replay_log(POLICY, read_log(written(tmp_path, named), POLICY)) == expected
    contexts = [np.diag([x[0]] * 3).ravel().tolist() for x in columns["context"]]
    assert replay_log(POLICY, read_log(written(tmp_path, columns | {"context": contexts}), POLICY)) == expected


@pytest.mark.parametrize(
    ("count", "probabilities", "pattern"),
    [
        (1200, [1 / 3] * 3, r"chooses the logged arm in \d+ of 1200 rows; expected at least 1000"),
        (1300, [0.05, 0.05, 0.9], "expected at least 1000"),
    ],
)
def test_too_few_rows(tmp_path, count, probabilities, pattern):
    with pytest.raises(ValueError, match=pattern):
        replay_log(POLICY, read_log(written(tmp_path, log_of(count, probabilities)), POLICY))


def test_too_few_successes(tmp_path):
    columns = log_of(6000, [1 / 3] * 3)
    rare = columns | {"reward": (np.arange(6000) % 20 == 0).astype(float)}
    with pytest.raises(ValueError, match=r"\d+ of \d+ matching rows have reward 1; expected at least 500"):
        replay_log(POLICY, read_log(written(tmp_path, rare), POLICY))
    # Rewards that are not 0 or 1 have no successes to count.
    assert (
        replay_log(POLICY, read_log(written(tmp_path, rare | {"reward": 0.1 * rare["reward"]}), POLICY)).matched > 1000
    )


@pytest.mark.parametrize(
    ("columns", "pattern"),
    [
        ({"probability": None}, "has no column 'probability'"),
        ({"probability": [0.5, 0.0]}, "column 'probability' is 0.0 in row 2; expected above 0"),
        ({"probability": [1.5, 0.5]}, "column 'probability' is 1.5 in row 1"),
        ({"arm": [0, 3]}, "column 'arm' is 3 in row 2; expected a whole number from 0 to 2"),
        ({"arm": ["u", "z"]}, "column 'arm' is 'z' in row 2; expected u, v, w"),
        ({"reward": [1.0, float("nan")]}, "column 'reward' has no finite number in row 2"),
        ({"reward": ["1", "2"]}, "column 'reward' is string; expected numbers"),
        ({"context": [[1.0], [1.0, 2.0]]}, "column 'context' has 2 numbers in row 2; expected 1 or 9"),
        ({"context": [[1.0], None]}, "column 'context' has -1 numbers in row 2"),
        ({"context": [[1.0], [float("inf")]]}, "column 'context' has no finite number in row 2"),
        ({"context": [1.0, 2.0]}, "column 'context' is double; expected lists"),
    ],
)
def test_bad_logs(tmp_path, columns, pattern):
    whole = {"context": [[1.0], [2.0]], "arm": [0, 1], "reward": [1.0, 0.0], "probability": [0.5, 0.5]} | columns
    path = written(tmp_path, {name: values for name, values in whole.items() if values is not None})
    with pytest.raises(ValueError, match=pattern) as caught:
        read_log(path, POLICY)
    assert "\n" not in str(caught.value)


def test_files_that_are_no_log(tmp_path):
    with pytest.raises(ValueError, match="no such file; expected a .parquet table with context, arm"):
        read_log(tmp_path / "nowhere.parquet", POLICY)
    (tmp_path / "bad.parquet").write_text("x")
    with pytest.raises(ValueError, match="cannot be read as parquet"):
        read_log(tmp_path / "bad.parquet", POLICY)
