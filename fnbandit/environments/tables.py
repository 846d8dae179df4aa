"""Environments from a classification table: one arm per class (Sec. 5.2)."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from fnbandit.config import Config
from fnbandit.environments.base import Block
from fnbandit.randomness import BLOCK, Purpose, generator


def shipped(config: Config) -> TableEnvironment:
    """One of the two tables of the paper."""
    path = Path(str(resources.files("fnbandit") / "data" / f"{config.environment}.parquet"))
    return TableEnvironment(config, *load_table(path, config.environment, "class"), usual="paper")


def own(config: Config) -> TableEnvironment:
    """A user's table: the column `label` is the class, the others are features."""
    table = load_table(Path(config.environment), config.environment, config.label)
    return TableEnvironment(config, *table, usual="columns")


def load_table(path: Path, name: str, label: str) -> tuple[np.ndarray, np.ndarray]:
    """Features [rows, features] and classes [rows], numbered in sorted order, of a table that errors call `name`."""
    if not path.is_file():
        raise ValueError(f"environment={name!r}: no such file; expected a .parquet or .csv table")
    try:
        table = pyarrow.csv.read_csv(path) if path.suffix == ".csv" else pyarrow.parquet.read_table(path)
    except pa.ArrowException as error:
        raise ValueError(f"environment={name!r}: cannot be read as {path.suffix[1:]} ({error})") from None
    if label not in table.column_names:
        raise ValueError(f"label={label!r}: {name} has no such column; it has {', '.join(table.column_names)}")
    labels = table[label]
    if labels.null_count:
        raise ValueError(f"label={label!r}: {labels.null_count} rows of {name} have no class")
    classes = pc.unique(labels).sort()
    if len(classes) < 2:
        raise ValueError(f"label={label!r}: {name} has one class only; expected at least 2")
    columns = table.drop_columns([label])
    if not columns.num_columns:
        raise ValueError(f"environment={name!r}: has no column beside the label; expected numeric features")
    for column_name, column in zip(columns.column_names, columns.columns, strict=True):
        if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
            raise ValueError(f"environment={name!r}: column {column_name!r} is {column.type}; expected numbers")
    features = np.column_stack([column.to_numpy().astype(np.float64) for column in columns.columns])
    if not np.isfinite(features).all():
        bad = columns.column_names[int(np.argmin(np.isfinite(features).all(axis=0)))]
        raise ValueError(f"environment={name!r}: column {bad!r} has NaN, empty or infinite values; expected numbers")
    return features, pc.index_in(labels, value_set=classes).to_numpy()


def unit_rows(features: np.ndarray) -> np.ndarray:
    """Rows scaled to unit length (rows of zeros stay)."""
    length = np.linalg.norm(features, axis=1, keepdims=True)
    return features / np.where(length == 0, 1, length)


def standard_columns(features: np.ndarray) -> np.ndarray:
    """Columns to zero mean and unit variance (constant columns to 0).

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


class TableEnvironment:
    """A row x becomes K contexts of K times its length, x in block k; reward 1 for the true class."""

    noise_bound = 0.0
    """R of Sec. 2: a class is known without noise"""

    def __init__(self, config: Config, features: np.ndarray, labels: np.ndarray, usual: str) -> None:
        chosen = usual if config.standardization == "auto" else config.standardization
        self._rows = STANDARDIZATIONS[chosen](features)
        self._labels = labels
        self._seed = config.seed
        self._horizon = config.horizon
        self.arms = int(labels.max()) + 1
        self.dim = self.arms * features.shape[1]
        self._orders: dict[tuple[int, int], np.ndarray] = {}

    def block(self, agent: int, index: int) -> Block:
        count = len(self._rows)
        steps = np.arange(index * BLOCK, (index + 1) * BLOCK)
        rows = np.array([self._order(agent, turn)[place] for turn, place in zip(*np.divmod(steps, count), strict=True)])
        means = (self._labels[rows][:, None] == np.arange(self.arms)).astype(np.float64)
        return Block(self._contexts(rows), means, np.zeros(BLOCK))

    def _order(self, agent: int, turn: int) -> np.ndarray:
        """The agent's own shuffle of the table, a new one each time it has been through it."""
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
