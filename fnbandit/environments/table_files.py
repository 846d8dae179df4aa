"""Reads tables from Parquet and CSV files; a fault is one line that names the column and the row."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet


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
    """Return a table's columns as finite numbers, [rows, columns]."""
    columns = zip(table.column_names, table.columns, strict=True)
    return np.column_stack([read_column(values, column, name) for column, values in columns])


def read_column(values: pa.ChunkedArray, column: str, name: str) -> np.ndarray:
    """Return a column as finite numbers, [rows]; raise a ValueError that names the column and the first bad row."""
    if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        row = _first_word(values)
        where = "" if row is None else f", the first other one is {str(values[row].as_py())[:40]!r} in row {row + 1}"
        raise ValueError(f"environment={name!r}: column {column!r} is {values.type}; expected numbers{where}")
    numbers = values.to_numpy().astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(numbers))
    if len(bad):
        raise ValueError(
            f"environment={name!r}: column {column!r} has NaN, empty or infinite values, the first in row "
            f"{bad[0] + 1}; expected numbers"
        )
    return numbers


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
