"""Reads tables from Parquet and CSV files; a fault is one line that names the column and the row."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

log = logging.getLogger("fnbandit")

INDEX_NAMES = ("", "Unnamed: 0", "index", "__index_level_0__")
"""Names under which pandas writes the numbers of rows"""


def read_bytes(path: Path, name: str) -> bytes:
    """Return the content of a user's table."""
    if not path.is_file():
        raise ValueError(f"environment={name!r}: no such file; expected a .parquet or .csv table")
    try:
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"environment={name!r}: cannot be read ({error.strerror})") from None


def parse_table(data: bytes, name: str) -> pa.Table:
    """Return the table of a file's content; errors call it `name`."""
    kind = name.rpartition(".")[2]
    source = pa.BufferReader(data)
    try:
        table = pyarrow.csv.read_csv(source) if kind == "csv" else pyarrow.parquet.read_table(source)
        _ = table.column_names  # raises unless names are UTF-8
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = (str(error).splitlines() or [""])[0]
        raise ValueError(f"environment={name!r}: cannot be read as {kind} ({reason})") from None
    return table


def read_numbers(table: pa.Table, name: str) -> np.ndarray:
    """Return a table's columns as finite numbers, [rows, columns]; a fault names the columns and the first bad row."""
    columns = dict(zip(table.column_names, table.columns, strict=True))
    other = [column for column, values in columns.items() if not _has_numbers(values)]
    if other:
        first = columns[other[0]]
        more = f" (and {_quote(other[1:])})" if len(other) > 1 else ""
        row = _first_word(first)
        where = "" if row is None else f"; the first other one is {str(first[row].as_py())[:40]!r} in row {row + 1}"
        raise ValueError(
            f"environment={name!r}: column {other[0]!r}{more} is {first.type}; expected numbers: drop it or encode it "
            f"(one column of 0 and 1 per category){where}"
        )
    numbers = np.column_stack([column.to_numpy().astype(np.float64) for column in table.columns])
    bad = ~np.isfinite(numbers)
    if bad.any():
        faulty = [table.column_names[place] for place in np.flatnonzero(bad.any(axis=0))]
        rows = np.flatnonzero(bad.any(axis=1))
        raise ValueError(
            f"environment={name!r}: column {_quote(faulty)} has NaN, empty or infinite values in {len(rows)} of "
            f"{len(numbers)} rows, the first in row {rows[0] + 1}; expected numbers: fill them in or drop them"
        )
    for column, values in zip(table.column_names, numbers.T, strict=True):
        if column.strip() in INDEX_NAMES and np.array_equal(values, values[0] + np.arange(len(values))):
            log.warning(
                "fnbandit: environment=%r: column %r numbers the rows, as pandas' index does, and is a feature; "
                "write the table with index=False", name, column,
            )  # fmt: skip
    return numbers


def _has_numbers(values: pa.ChunkedArray) -> bool:
    return pa.types.is_integer(values.type) or pa.types.is_floating(values.type)


def _quote(names: list[str]) -> str:
    """Return names in quotes, at most five of them."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(map(repr, names[:5])) + more


def _first_word(values: pa.ChunkedArray) -> int | None:
    """Return the first row of a column of text whose value is no number; None where there is none."""
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type) or pa.types.is_null(values.type)):
        return None
    for row, value in enumerate(values):
        try:
            float(value.as_py())
        except (TypeError, ValueError):
            return row
    return None


def read_domains(table: pa.Table, column: str, name: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the domain of every row, numbered in sorted order, and the domains' names."""
    values = table[column]
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if not (
        pa.types.is_integer(values.type) or pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
    ):
        raise ValueError(f"environment={name!r}: column {column!r} is {values.type}; expected text or whole numbers")
    empty = pc.is_null(values) if pa.types.is_integer(values.type) else pc.equal(pc.fill_null(values, ""), "")
    missing = np.flatnonzero(empty.to_numpy())
    if len(missing):
        raise ValueError(f"environment={name!r}: column {column!r} names no domain in row {missing[0] + 1}")
    kinds = pc.unique(values).sort()
    return pc.index_in(values, value_set=kinds).to_numpy(), tuple(str(kind) for kind in kinds.to_pylist())
