"""Environments from a classification table: one arm per class (Sec. 5.2)."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from importlib import resources
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fnbandit.config import Config
from fnbandit.environments.base import Block
from fnbandit.environments.table_files import parse_table, read_domains, read_numbers
from fnbandit.numerics.coding import CODINGS, RowCoding, code_arms, unit_rows
from fnbandit.numerics.memory import check_contexts
from fnbandit.numerics.randomness import BLOCK, Purpose, generator


@dataclass(frozen=True)
class TableData:
    """The content of a table: features and the rewards of all arms of every row."""

    features: np.ndarray
    """[rows, features], standardised"""
    rewards: np.ndarray
    """[rows, arms]"""
    scaling: Scaling
    """How the features were standardised"""
    domains: tuple[np.ndarray, tuple[str, ...]] | None = None
    """Number of every row's domain, [rows], and the domains' names; None without a column of domains"""
    arm_names: tuple[str, ...] = ()
    """Names of the arms, where the table has them"""
    costs: np.ndarray | None = None
    """Costs of every row's arms, [rows, arms]; None where the table has none"""

    def charge(self, price: float) -> TableData:
        """Return the data with rewards minus price times cost / largest cost."""
        if not price or self.costs is None or not self.costs.max():
            return self
        return replace(self, rewards=self.rewards - price * self.costs / self.costs.max())


def load_shipped(config: Config) -> TableEnvironment:
    """Return the environment of one of the paper's two tables."""
    name = f"{config.environment}.parquet"
    return TableEnvironment(
        config, prepare_classes(read_shipped(name), name, "class", resolve_standardization(config, "paper"), None)
    )


def read_shipped(name: str) -> bytes:
    """Return the content of a table that the package contains."""
    return (resources.files("fnbandit") / "data" / name).read_bytes()


def load_table(data: bytes, name: str, label: str, domain_column: str | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return features [rows, features] and classes [rows], numbered in sorted order.

    A column of domains is no feature. Errors call the table `name`.
    """
    table = parse_table(data, name)
    names = table.column_names
    count = names.count(label)
    if count != 1:
        fault = f"{name} has {count} such columns" if count else f"{name} has no such column"
        hint = " (separated by semicolons? expected commas)" if len(names) == 1 and ";" in names[0] else ""
        raise ValueError(f"label={label!r}: {fault}; it has {', '.join(map(repr, names))}{hint}")
    classes = class_numbers(table[label], name, label)
    columns = [column for column in names if column not in (label, domain_column)]
    if not columns:
        raise ValueError(f"environment={name!r}: has no column besides the label; expected numeric features")
    return read_numbers(table.select(columns), name), classes


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


class Scaling(NamedTuple):
    """A standardization as a function of single rows: (x - shift) / scale, of unit length before if `is_unit`."""

    is_unit: bool
    shift: np.ndarray
    """[features]"""
    scale: np.ndarray
    """[features]"""


def measure_scaling(standardization: str, features: np.ndarray) -> Scaling:
    """Return the scaling that a standardization applies to a table's features."""
    count = features.shape[1]
    if standardization == "none":
        return Scaling(False, np.zeros(count), np.ones(count))
    is_unit = standardization == "paper"
    columns = unit_rows(features) if is_unit else features
    largest = np.abs(columns).max(axis=0)
    divided = columns / np.where(largest == 0, 1, largest)
    deviation = divided.std(axis=0)
    return Scaling(is_unit, divided.mean(axis=0) * largest, np.where(deviation == 0, 1, deviation * largest))


def resolve_standardization(config: Config, usual: str) -> str:
    """Return the standardization that `config.standardization` names; `usual` for auto."""
    return usual if config.standardization == "auto" else config.standardization


@functools.lru_cache(maxsize=1)
def prepare_classes(data: bytes, name: str, label: str, standardization: str, domain_column: str | None) -> TableData:
    """Return the data of a classification table; cached, because the runs of a study mostly share one table.

    The reward is 1 for the arm of the true class, else 0.
    """
    features, labels = load_table(data, name, label, domain_column)
    arms = int(labels.max()) + 1
    check_contexts(arms, arms)
    rewards = labels[:, None] == np.arange(arms)
    domains = None if domain_column is None else read_domains(parse_table(data, name), domain_column, name)
    scaling = measure_scaling(standardization, features)
    return TableData(STANDARDIZATIONS[standardization](features), rewards, scaling, domains)


class TableEnvironment:
    """A row x becomes one context per arm, as `config.coding` says; every arm's reward is in the table."""

    noise_bound = 0.0
    """R of Sec. 2: rewards of tables have no noise"""
    codes_arms = True
    """Contexts tell arms apart"""
    digest: str | None = None
    """SHA-256 of the content of a user's table; None for those of the package"""

    def __init__(self, config: Config, data: TableData) -> None:
        self._data = data
        self._seed = config.seed
        self._horizon = config.horizon
        self._coding = config.coding
        self.arms = data.rewards.shape[1]
        self.dim = code_arms(config.coding, data.features[:1], self.arms).shape[2]
        check_contexts(self.arms, self.dim)
        self._members: list[np.ndarray] = []
        """Rows of every domain, where agents receive rows of their own domain only"""
        self._orders: dict[tuple[int, int], np.ndarray] = {}

    def deal_domains(self) -> None:
        """Let agent i receive rows of domain i mod the number of domains only."""
        if self._data.domains is not None:
            numbers, names = self._data.domains
            self._members = [np.flatnonzero(numbers == domain) for domain in range(len(names))]

    @property
    def domain_names(self) -> tuple[str, ...]:
        """Names of the domains; agent i has domain i mod their number with heterogeneity=domain."""
        return () if self._data.domains is None else self._data.domains[1]

    @property
    def arm_names(self) -> tuple[str, ...]:
        """Names of the arms; empty where they have none."""
        return self._data.arm_names

    @property
    def costs(self) -> np.ndarray | None:
        """Mean costs of the arms, [arms]; None where the table has none."""
        return None if self._data.costs is None else self._data.costs.mean(0)

    @property
    def row_coding(self) -> RowCoding:
        """How a row of raw features becomes contexts, for policies in use."""
        scaling = self._data.scaling
        return RowCoding(self._coding, self.arms, scaling.is_unit, scaling.shift, scaling.scale)

    def block(self, agent: int, index: int) -> Block:
        members = self._members[agent % len(self._members)] if self._members else None
        count = len(self._data.features) if members is None else len(members)
        steps = np.arange(index * BLOCK, (index + 1) * BLOCK)
        turns = zip(*np.divmod(steps, count), strict=True)
        rows = np.array([self._order(agent, int(turn), count)[place] for turn, place in turns])
        if members is not None:
            rows = members[rows]
        contexts = code_arms(self._coding, self._data.features[rows], self.arms)
        return Block(contexts, self._data.rewards[rows].astype(np.float64), np.zeros(BLOCK))

    def _order(self, agent: int, turn: int, count: int) -> np.ndarray:
        """Return the agent's own order of its `count` rows, a new one for each pass over them."""
        if (agent, turn) not in self._orders:
            order = generator(self._seed, Purpose.SHUFFLE, agent, turn).permutation(count)
            last = max(BLOCK, self._horizon + BLOCK - turn * len(order))
            self._orders[agent, turn] = order[:last].astype(np.int32)
        return self._orders[agent, turn]

    def domain(self, count: int) -> np.ndarray:
        total = len(self._data.features) * self.arms
        random = generator(self._seed, Purpose.DOMAIN)
        picked = np.arange(total) if count >= total else random.choice(total, size=count, replace=False)
        rows, arms = np.divmod(picked, self.arms)
        return CODINGS[self._coding](self._data.features[rows], np.eye(self.arms)[arms])
