"""Estimates the mean reward of a policy from logged choices of another policy (replay, Li et al. 2011).

A log is a Parquet table with a row per choice: `context` (a list: the features of a table's row, or the contexts of
all arms one after the other), `arm` (its number, or its name), `reward`, and `probability`, with which the logging
policy chose that arm. Rows in which the policy chooses the logged arm match. The estimate is the mean reward of the
matching rows, each with weight 1 / probability; with equal probabilities it is Li et al.'s replay.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from fnbandit.policy import Policy

LOG_COLUMNS = ("context", "arm", "reward", "probability")
LEAST_MATCHED, LEAST_SUCCESSES = 1000, 500
"""Matching rows, and ones among their rewards where all rewards are 0 or 1, below which there is no estimate"""


@dataclass(frozen=True)
class Replay:
    """The estimate of a policy's mean reward."""

    mean: float
    standard_error: float
    rows: int
    """Rows of the log"""
    matched: int
    """Rows in which the policy chooses the logged arm"""
    effective: float
    """Number of rows of equal weight with the same precision, (sum w)^2 / sum w^2"""


@dataclass(frozen=True)
class Log:
    """Logged choices; every array has one entry per row."""

    contexts: np.ndarray
    """[rows, arms, dim]"""
    arms: np.ndarray
    rewards: np.ndarray
    probabilities: np.ndarray


def read_log(path: str | Path, policy: Policy) -> Log:
    """Read a log for a policy; raise a ValueError that names the column and the first bad row."""
    name = f"log={str(path)!r}"
    if not Path(path).is_file():
        raise ValueError(f"{name}: no such file; expected a .parquet table with {', '.join(LOG_COLUMNS)}")
    try:
        table = pyarrow.parquet.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{name}: cannot be read as parquet ({(str(error).splitlines() or [''])[0]})") from None
    missing = next((column for column in LOG_COLUMNS if column not in table.column_names), None)
    if missing is not None:
        raise ValueError(f"{name}: has no column {missing!r}; it has {', '.join(map(repr, table.column_names))}")
    rewards, probabilities = (_numbers(table[column], column, name) for column in ("reward", "probability"))
    bad = np.flatnonzero((probabilities <= 0) | (probabilities > 1))
    if len(bad):
        raise ValueError(
            f"{name}: column 'probability' is {probabilities[bad[0]]} in row {bad[0] + 1}; expected above 0, at most 1"
        )
    return Log(_contexts(table["context"], name, policy), _arms(table["arm"], name, policy), rewards, probabilities)


def _numbers(values: pa.ChunkedArray, column: str, name: str) -> np.ndarray:
    if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        raise ValueError(f"{name}: column {column!r} is {values.type}; expected numbers")
    numbers = values.to_numpy().astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(numbers))
    if len(bad):
        raise ValueError(f"{name}: column {column!r} has no finite number in row {bad[0] + 1}")
    return numbers


def _arms(values: pa.ChunkedArray, name: str, policy: Policy) -> np.ndarray:
    """Return the numbers of the logged arms, [rows]."""
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        numbers = pc.fill_null(pc.index_in(values, value_set=pa.array(policy.arm_names, values.type)), -1).to_numpy()
        accepted = ", ".join(policy.arm_names) or f"numbers from 0 to {policy.arms - 1}"
    else:
        numbers, accepted = _numbers(values, "arm", name), f"a whole number from 0 to {policy.arms - 1}"
    bad = np.flatnonzero((numbers < 0) | (numbers >= policy.arms) | (numbers != np.floor(numbers)))
    if len(bad):
        raise ValueError(
            f"{name}: column 'arm' is {values[int(bad[0])].as_py()!r} in row {bad[0] + 1}; expected {accepted}"
        )
    return numbers.astype(np.int64)


def _contexts(values: pa.ChunkedArray, name: str, policy: Policy) -> np.ndarray:
    """Return the contexts of all arms of every row, [rows, arms, dim]."""
    kind = values.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        raise ValueError(f"{name}: column 'context' is {kind}; expected lists of numbers")
    coding, whole = policy.row_coding, policy.arms * policy.dim
    accepted = {whole} if coding is None else {whole, len(coding.shift)}
    lengths = pc.fill_null(pc.list_value_length(values), -1).to_numpy()
    bad = np.flatnonzero(~np.isin(lengths, list(accepted)) | (lengths != lengths[:1]))
    if len(bad):
        raise ValueError(
            f"{name}: column 'context' has {lengths[bad[0]]} numbers in row {bad[0] + 1}; expected "
            f"{' or '.join(map(str, sorted(accepted)))} in every row"
        )
    numbers = pc.list_flatten(values).to_numpy().astype(np.float64).reshape(len(values), -1)
    bad = np.flatnonzero(~np.isfinite(numbers).all(axis=1))
    if len(bad):
        raise ValueError(f"{name}: column 'context' has no finite number in row {bad[0] + 1}")
    return policy.contexts(numbers if numbers.shape[1] != whole else numbers.reshape(-1, policy.arms, policy.dim))


def replay_log(policy: Policy, log: Log) -> Replay:
    """Estimate the mean reward of a policy; raise a one-line ValueError where too few rows match."""
    matches = policy.act(log.contexts) == log.arms
    matched, rewards, weights = int(matches.sum()), log.rewards[matches], 1 / log.probabilities[matches]
    if matched < LEAST_MATCHED:
        raise ValueError(
            f"log: the policy chooses the logged arm in {matched} of {len(matches)} rows; expected at least "
            f"{LEAST_MATCHED} for an estimate"
        )
    is_binary = bool(np.isin(log.rewards, (0, 1)).all())
    if is_binary and rewards.sum() < LEAST_SUCCESSES:
        raise ValueError(
            f"log: {int(rewards.sum())} of {matched} matching rows have reward 1; expected at least {LEAST_SUCCESSES} "
            "for an estimate"
        )
    total = weights.sum()
    mean = float((weights * rewards).sum() / total)
    error = math.sqrt(float((weights**2 * (rewards - mean) ** 2).sum())) / float(total)
    return Replay(mean, error, len(matches), matched, float(total**2 / (weights**2).sum()))
