"""Environments from a reward table: every row is a context with the rewards of all arms, so that regret is known.

A column reward:NAME has the rewards of arm NAME. Two kinds of columns are optional: cost:NAME, the costs of the arms
(constant ones may stand in the metadata of a Parquet file, as JSON), and one column of domains. All other columns are
features.
"""

from __future__ import annotations

import functools
import hashlib
import json
from pathlib import Path

import numpy as np
import pyarrow as pa

from fnbandit.config import Config
from fnbandit.environments.table_files import parse_table, read_bytes, read_domains, read_numbers
from fnbandit.environments.tables import (
    STANDARDIZATIONS,
    TableData,
    TableEnvironment,
    measure_scaling,
    prepare_classes,
    read_shipped,
    resolve_standardization,
)
from fnbandit.environments.worlds import deals_domains

REWARD, COST = "reward:", "cost:"
PRICES = b"price_per_million_output_tokens"
"""Metadata of a Parquet file with one cost per arm: {"NAME": number, ...}"""


def load_routing(config: Config) -> TableEnvironment:
    """Return the environment of the shipped table of questions and language models."""
    name = "routing.parquet"
    return make_reward_table(config, read_shipped(name), name, "none", "domain")


def load_user_table(config: Config) -> TableEnvironment:
    """Return the environment of a user's table: a reward table if it has rewards, else a classification table."""
    name = config.environment
    data = read_bytes(Path(name), name)
    columns = parse_table(data, name).column_names
    if any(column.startswith(REWARD) for column in columns):
        if config.label in columns or config.label != Config.label:
            raise ValueError(f"label={config.label!r}: {name} has rewards of all arms (reward:NAME) and needs no label")
        made = make_reward_table(config, data, name, "columns", config.domain_column)
    else:
        if config.price:
            raise ValueError(f"price={config.price}: {name} has no costs; expected columns cost:NAME and reward:NAME")
        domains = config.domain_column if deals_domains(config) else None
        if domains is not None and domains not in columns:
            raise ValueError(f"domain_column={domains!r}: {name} has no such column; it has {_list(columns)}")
        prepared = prepare_classes(data, name, config.label, resolve_standardization(config, "columns"), domains)
        made = TableEnvironment(config, prepared)
    made.digest = hashlib.sha256(data).hexdigest()
    return made


def make_reward_table(config: Config, data: bytes, name: str, usual: str, domain_column: str) -> TableEnvironment:
    """Return the environment of a reward table, with its costs subtracted from the rewards."""
    found = prepare_rewards(data, name, resolve_standardization(config, usual), domain_column)
    if deals_domains(config) and found.domains is None:
        columns = parse_table(data, name).column_names
        raise ValueError(f"domain_column={domain_column!r}: {name} has no such column; it has {_list(columns)}")
    if config.price and found.costs is None:
        raise ValueError(f"price={config.price}: {name} has no costs; expected a column cost:NAME per arm")
    return TableEnvironment(config, found.charge(config.price))


def _list(columns: list[str]) -> str:
    return ", ".join(map(repr, columns))


@functools.lru_cache(maxsize=1)
def prepare_rewards(data: bytes, name: str, standardization: str, domain_column: str) -> TableData:
    """Return the data of a reward table; cached, because the runs of a study mostly share one table."""
    table = parse_table(data, name)
    names = table.column_names
    twice = next((column for column in names if names.count(column) > 1), None)
    if twice is not None:
        raise ValueError(f"environment={name!r}: has {names.count(twice)} columns {twice!r}; expected one")
    arms = tuple(column.removeprefix(REWARD) for column in names if column.startswith(REWARD))
    if len(arms) < 2:
        raise ValueError(f"environment={name!r}: has 1 arm, {REWARD}{arms[0]}; expected at least 2 columns reward:NAME")
    features = [c for c in names if not c.startswith((REWARD, COST)) and c != domain_column]
    if not features:
        raise ValueError(f"environment={name!r}: has no column besides rewards, costs and domains; expected features")
    if not table.num_rows:
        raise ValueError(f"environment={name!r}: has no row")
    rewards = read_numbers(table.select([REWARD + arm for arm in arms]), name)
    domains = read_domains(table, domain_column, name) if domain_column in names else None
    values = read_numbers(table.select(features), name)
    scaled, scaling = STANDARDIZATIONS[standardization](values), measure_scaling(standardization, values)
    return TableData(scaled, rewards, scaling, domains, arms, _read_costs(table, arms, name))


def _read_costs(table: pa.Table, arms: tuple[str, ...], name: str) -> np.ndarray | None:
    """Return the costs of every row's arms, [rows, arms]; None where the table has none."""
    columns = [column for column in table.column_names if column.startswith(COST)]
    if columns:
        wanted = [COST + arm for arm in arms]
        odd = sorted(set(wanted) ^ set(columns))
        if odd:
            raise ValueError(f"environment={name!r}: column {odd[0]!r} is {_fault(odd[0], columns)}")
        costs = read_numbers(table.select(wanted), name)
    else:
        prices = (table.schema.metadata or {}).get(PRICES)
        if prices is None:
            return None
        known = json.loads(prices)
        missing = next((arm for arm in arms if not isinstance(known.get(arm), int | float)), None)
        if missing is not None:
            raise ValueError(f"environment={name!r}: the metadata {PRICES.decode()} has no price of {missing!r}")
        costs = np.tile([float(known[arm]) for arm in arms], (table.num_rows, 1))
    row, arm = np.unravel_index(costs.argmin(), costs.shape)
    if costs[row, arm] < 0 or not np.isfinite(costs).all():
        raise ValueError(
            f"environment={name!r}: cost of {arms[arm]!r} is {costs[row, arm]} in row {row + 1}; expected 0 or more"
        )
    return costs


def _fault(column: str, columns: list[str]) -> str:
    return (
        "the cost of an arm without rewards" if column in columns else "missing; expected costs of all arms or of none"
    )
