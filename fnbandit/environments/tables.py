"""Environments from a classification table: one arm per class (Sec. 5.2)."""

from __future__ import annotations

import functools
import hashlib
import logging
from importlib import resources
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from fnbandit.config import Config
from fnbandit.environments.base import Block
from fnbandit.numerics.memory import check_contexts
from fnbandit.numerics.randomness import BLOCK, Purpose, generator

log = logging.getLogger("fnbandit")


def load_shipped(config: Config) -> TableEnvironment:
    """Return the environment of one of the paper's two tables."""
    data = (resources.files("fnbandit") / "data" / f"{config.environment}.parquet").read_bytes()
    return TableEnvironment(
        config, *prepare_table(data, f"{config.environment}.parquet", "class", resolve_standardization(config, "paper"))
    )


def load_user_table(config: Config) -> TableEnvironment:
    """Return the environment of a user's table: the column `config.label` is the class, the others are features."""
    data = read_bytes(Path(config.environment), config.environment)
    made = TableEnvironment(
        config, *prepare_table(data, config.environment, config.label, resolve_standardization(config, "columns"))
    )
    made.digest = hashlib.sha256(data).hexdigest()
    return made


def read_bytes(path: Path, name: str) -> bytes:
    """Return the content of a user's table."""
    if not path.is_file():
        raise ValueError(f"environment={name!r}: no such file; expected a .parquet or .csv table")
    try:
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"environment={name!r}: cannot be read ({error.strerror})") from None


def load_table(data: bytes, name: str, label: str) -> tuple[np.ndarray, np.ndarray]:
    """Return features [rows, features] and classes [rows], numbered in sorted order; errors call the table `name`."""
    kind = name.rpartition(".")[2]
    source = pa.BufferReader(data)
    try:
        table = pyarrow.csv.read_csv(source) if kind == "csv" else pyarrow.parquet.read_table(source)
        names = table.column_names  # raises unless names are UTF-8
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = (str(error).splitlines() or [""])[0]
        raise ValueError(f"environment={name!r}: cannot be read as {kind} ({reason})") from None
    count = names.count(label)
    if count != 1:
        fault = f"{name} has {count} such columns" if count else f"{name} has no such column"
        raise ValueError(f"label={label!r}: {fault}; it has {', '.join(map(repr, names))}")
    classes = class_numbers(table[label], name, label)
    columns = table.drop_columns([label])
    if not columns.num_columns:
        raise ValueError(f"environment={name!r}: has no column besides the label; expected numeric features")
    other = {
        column_name: column.type
        for column_name, column in zip(columns.column_names, columns.columns, strict=True)
        if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type))
    }
    if other:
        first, kind_of_first = next(iter(other.items()))
        more = f" (and {_quote(list(other)[1:])})" if len(other) > 1 else ""
        raise ValueError(
            f"environment={name!r}: column {first!r}{more} is {kind_of_first}; expected numbers: drop it or encode it "
            "(one column of 0 and 1 per category)"
        )
    features = np.column_stack([column.to_numpy().astype(np.float64) for column in columns.columns])
    finite = np.isfinite(features)
    if not finite.all():
        good = finite.all(axis=0)
        bad = [column_name for place, column_name in enumerate(columns.column_names) if not good[place]]
        raise ValueError(
            f"environment={name!r}: column {_quote(bad)} has NaN, empty or infinite values in "
            f"{int((~finite.all(axis=1)).sum())} of {len(features)} rows; expected numbers: fill them in or drop them"
        )
    for column_name, values in zip(columns.column_names, features.T, strict=True):
        if column_name.strip() in INDEX_NAMES and np.array_equal(values, values[0] + np.arange(len(values))):
            log.warning(
                "fnbandit: environment=%r: column %r numbers the rows, as pandas' index does, and is a feature; "
                "write the table with index=False", name, column_name,
            )  # fmt: skip
    return features, classes


def _quote(names: list[str]) -> str:
    """Return names in quotes, at most five of them."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(map(repr, names[:5])) + more


INDEX_NAMES = ("", "Unnamed: 0", "index", "__index_level_0__")
"""Names under which pandas writes the numbers of rows"""
MOST_CLASSES = 20
"""Number of classes that need no second row each"""
NO_CLASS = ("", "nan", "null", "na", "n/a", "#n/a")
"""Texts that mean a missing label, in any case and with any surrounding space"""


def class_numbers(labels: pa.ChunkedArray, name: str, label: str) -> np.ndarray:
    """Return the classes [rows] of a label column, numbered in sorted order; errors call the table `name`."""
    kind = labels.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
        labels = labels.cast(kind)
    if pa.types.is_float16(kind):
        labels = labels.cast(pa.float32())
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    if pa.types.is_floating(kind):
        known = pc.is_finite(labels)
    elif is_text:
        labels = labels.cast(pa.large_string())
        known = pc.invert(pc.is_in(pc.utf8_lower(pc.utf8_trim_whitespace(labels)), value_set=pa.array(NO_CLASS)))
    elif pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind):
        known = pc.is_valid(labels)
    else:
        raise ValueError(f"label={label!r}: is {kind} in {name}; expected text, numbers or booleans")
    bad = np.flatnonzero(~pc.and_kleene(pc.is_valid(labels), pc.fill_null(known, False)).to_numpy())
    if len(bad):
        raise ValueError(
            f"label={label!r}: {len(bad)} of {len(labels)} rows of {name} have no class, the first is row {bad[0] + 1}"
        )
    classes = pc.unique(labels).sort()
    if len(classes) < 2:
        found = f"{len(classes)} class{'es' if len(classes) != 1 else ''}"
        raise ValueError(f"label={label!r}: {name} has {found}; expected at least 2")
    if len(classes) > max(MOST_CLASSES, len(labels) // 2):
        raise ValueError(
            f"label={label!r}: {len(classes):,} classes in {len(labels):,} rows of {name}: is this a label? expected a "
            "column of classes with several rows each"
        )
    return pc.index_in(labels, value_set=classes).to_numpy()


def unit_rows(features: np.ndarray) -> np.ndarray:
    """Return rows scaled to unit length (rows of zeros unchanged)."""
    length = np.linalg.norm(features, axis=1, keepdims=True)
    return features / np.where(length == 0, 1, length)


def standard_columns(features: np.ndarray) -> np.ndarray:
    """Return columns scaled to zero mean and unit variance (constant columns to 0).

    A column is divided by its largest entry first, so that no square overflows.
    """
    largest = np.abs(features).max(axis=0)
    columns = features / np.where(largest == 0, 1, largest)
    deviation = columns.std(axis=0)
    return (columns - columns.mean(axis=0)) / np.where(deviation == 0, 1, deviation)


STANDARDIZATIONS = {
    "paper": lambda features: standard_columns(unit_rows(features)),
    "columns": standard_columns,
    "none": lambda features: features,
}


def resolve_standardization(config: Config, usual: str) -> str:
    """Return the standardization that `config.standardization` names; `usual` for auto."""
    return usual if config.standardization == "auto" else config.standardization


@functools.lru_cache(maxsize=1)
def prepare_table(data: bytes, name: str, label: str, standardization: str) -> tuple[np.ndarray, np.ndarray]:
    """Return standardised rows and classes of a table; cached, because the runs of a study mostly share one table."""
    features, labels = load_table(data, name, label)
    return STANDARDIZATIONS[standardization](features), labels


class TableEnvironment:
    """A row x becomes K contexts of K times its length, with x in block k of context k; reward 1 for the true class."""

    noise_bound = 0.0
    """R of Sec. 2: classes have no noise"""
    digest: str | None = None
    """SHA-256 of the content of a user's table; None for the paper's"""

    def __init__(self, config: Config, rows: np.ndarray, labels: np.ndarray) -> None:
        self._rows = rows
        self._labels = labels
        self._seed = config.seed
        self._horizon = config.horizon
        self.arms = int(labels.max()) + 1
        self.dim = self.arms * rows.shape[1]
        check_contexts(self.arms, self.dim)
        self._orders: dict[tuple[int, int], np.ndarray] = {}

    def block(self, agent: int, index: int) -> Block:
        count = len(self._rows)
        steps = np.arange(index * BLOCK, (index + 1) * BLOCK)
        rows = np.array([self._order(agent, turn)[place] for turn, place in zip(*np.divmod(steps, count), strict=True)])
        means = (self._labels[rows][:, None] == np.arange(self.arms)).astype(np.float64)
        return Block(self._contexts(rows), means, np.zeros(BLOCK))

    def _order(self, agent: int, turn: int) -> np.ndarray:
        """Return the agent's own order of the table's rows, a new one for each pass over the table."""
        if (agent, turn) not in self._orders:
            order = generator(self._seed, Purpose.SHUFFLE, agent, turn).permutation(len(self._rows))
            last = max(BLOCK, self._horizon + BLOCK - turn * len(order))
            self._orders[agent, turn] = order[:last].astype(np.int32)
        return self._orders[agent, turn]

    def _contexts(self, rows: np.ndarray) -> np.ndarray:
        width = self._rows.shape[1]
        contexts = np.zeros((len(rows), self.arms, self.arms, width))
        for arm in range(self.arms):
            contexts[:, arm, arm] = self._rows[rows]
        return contexts.reshape(len(rows), self.arms, self.dim)

    def domain(self, count: int) -> np.ndarray:
        total = len(self._rows) * self.arms
        random = generator(self._seed, Purpose.DOMAIN)
        chosen = np.arange(total) if count >= total else random.choice(total, size=count, replace=False)
        rows, arms = np.divmod(chosen, self.arms)
        contexts = np.zeros((len(rows), self.arms, self._rows.shape[1]))
        contexts[np.arange(len(rows)), arms] = self._rows[rows]
        return contexts.reshape(len(rows), self.dim)
