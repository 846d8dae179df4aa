"""The table of a study's runs: those that differ only in seed are one row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from fnbandit.capacity import readable
from fnbandit.records import RunRecord
from fnbandit.results import standard_error
from workflows.grouping import group

MEANS = ("regret", "rounds", "bytes_up", "bytes_down", "seconds")


def totals(runs: Sequence[RunRecord]) -> list[dict[str, Any]]:
    """A row per group of runs: means over its seeds, and the standard error of the regret, with what it is over."""
    rows = []
    for label, members in group(runs).items():
        columns = {name: np.array([float(run.summary[name]) for run in members]) for name in MEANS}
        error, over = float(standard_error(columns["regret"])), "seeds"
        if len(members) == 1:
            error, over = members[0].summary["regret_standard_error"], "agents"
        means = {name: float(values.mean()) for name, values in columns.items()}
        rows.append({"run": label, "seeds": len(members), **means, "regret_standard_error": error, "over": over})
    return rows


def show(runs: Sequence[RunRecord], console: Console, title: str | None = None) -> None:
    """Print the table, and what its standard errors are over."""
    rows = totals(runs)
    if not rows:
        return
    table = Table(title=title, title_justify="left")
    table.add_column("run")
    for name in ("seeds", "regret per agent", "rounds", "bytes up", "bytes down", "seconds"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            row["run"],
            str(row["seeds"]),
            f"{row['regret']:.2f} ± {row['regret_standard_error']:.2f}",
            f"{row['rounds']:.1f}".removesuffix(".0"),
            readable(row["bytes_up"]),
            readable(row["bytes_down"]),
            f"{row['seconds']:.1f}",
        )
    console.print(table)
    over = {row["over"] for row in rows}
    words = over.pop() if len(over) == 1 else "seeds, of a single seed over its agents"
    console.print(f"± is the standard error over {words}")
