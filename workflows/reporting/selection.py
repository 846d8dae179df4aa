"""Sorts and filters the rows of a listing, by the name of a column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from fnbandit.config.words import unknown
from workflows.reporting.listing import ListingRow

ROW_FIELDS = [field.name for field in fields(ListingRow)]


def sort_rows(rows: Sequence[ListingRow], column: str) -> list[ListingRow]:
    """Return rows in the order of a column, the least first; -COLUMN: the largest first. Rows without a value are last.

    Of a study's values the least counts.
    """
    name = _find_column("sort", column.removeprefix("-"))
    with_value = [row for row in rows if _values(row, name)]
    ordered = sorted(with_value, key=lambda row: min(_values(row, name)), reverse=column.startswith("-"))
    return ordered + [row for row in rows if not _values(row, name)]


def filter_rows(rows: Sequence[ListingRow], conditions: str) -> list[ListingRow]:
    """Return the rows for which all conditions hold: "algorithm=fn-ucb,agents=8"; of a path and a status, a part."""
    found = list(rows)
    for condition in conditions.split(","):
        name, equals, wanted = (part.strip() for part in condition.partition("="))
        if not equals:
            raise ValueError(f"filter={condition!r}: expected COLUMN=VALUE, several joined by a comma")
        _find_column("filter", name)
        found = [row for row in found if any(_is_like(value, wanted, name) for value in _values(row, name))]
    return found


def _find_column(flag: str, name: str) -> str:
    if name not in ROW_FIELDS:
        raise ValueError(unknown(flag, name, ROW_FIELDS))
    return name


def _values(row: ListingRow, name: str) -> list[Any]:
    value = getattr(row, name)
    return value if isinstance(value, list) else [value] if value not in (None, "") else []


def _is_like(value: Any, wanted: str, name: str) -> bool:
    if name in ("path", "status", "when"):
        return wanted in str(value)
    if isinstance(value, int | float):
        try:
            return value == float(wanted)
        except ValueError:
            return False
    return str(value) == wanted
