"""Tables of totals: on the screen, as CSV, in MLflow's note and in the report."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from fnbandit.numerics.memory import readable
from fnbandit.simulation.results import standard_error
from fnbandit.storage.records import RunRecord, atomic_write
from workflows.reporting.grouping import find_differing, group, list_shared_settings

TABLE_TOTALS = ("rounds", "bytes_up", "bytes_down", "seconds")


@dataclass(frozen=True)
class TableRow:
    """Means of the totals of runs that differ only in seed."""

    label: str
    settings: dict[str, Any]
    """Fields that distinguish this row from the others"""
    seeds: int
    regret: float
    error: float
    """Standard error of the regret"""
    over: str
    """Sample of the error: "seeds" or, with one seed, "agents"; empty for one seed of one agent"""
    rounds: float
    bytes_up: float
    bytes_down: float
    seconds: float

    def cells(self) -> list[str]:
        """Return the formatted cells, in the order of HEADINGS."""
        error = f" ± {self.error:.2f}" if self.over else ""
        rounds = f"{self.rounds:.1f}".removesuffix(".0")
        sent = [readable(self.bytes_up), readable(self.bytes_down)]
        return [self.label, str(self.seeds), f"{self.regret:.2f}{error}", rounds, *sent, f"{self.seconds:.1f}"]


HEADINGS = ("run", "seeds", "regret per agent", "rounds", "bytes up", "bytes down", "seconds")


def rows(runs: Sequence[RunRecord]) -> list[TableRow]:
    """Return a row for every group of runs that differ only in seed, in the order of `group`."""
    groups = group(runs)
    configs = {label: list_shared_settings(members[0]) for label, members in groups.items()}
    fields = find_differing(list(configs.values()))
    return [
        _row(label, members, {name: configs[label].get(name) for name in fields}) for label, members in groups.items()
    ]


def _row(label: str, members: list[RunRecord], settings: dict[str, Any]) -> TableRow:
    regret = np.array([run.summary["regret"] for run in members])
    if len(members) > 1:
        error, over = float(standard_error(regret)), "seeds"
    else:
        one = members[0].summary
        error, over = one.get("regret_standard_error", 0.0), "agents" if one["config"]["agents"] > 1 else ""
    totals = {name: float(np.mean([run.summary.get(name, 0) for run in members])) for name in TABLE_TOTALS}
    return TableRow(label, settings, len(members), float(regret.mean()), error, over, **totals)


def remark(table: Sequence[TableRow]) -> str | None:
    """Explain ±; None where no row has an error."""
    over = {row.over for row in table} - {""}
    if not over:
        return None
    words = {"seeds": "seeds", "agents": "agents (one seed)"}
    return "± is the standard error over " + (
        words[over.pop()] if len(over) == 1 else "seeds, over agents where there is one seed"
    )


def totals(runs: Sequence[RunRecord]) -> list[dict[str, Any]]:
    """Return the rows as dictionaries, for scripts."""
    return [
        {"run": row.label, "seeds": row.seeds, "regret": row.regret,
         **{name: getattr(row, name) for name in TABLE_TOTALS}, "regret_standard_error": row.error, "over": row.over}
        for row in rows(runs)
    ]  # fmt: skip


def print_table(runs: Sequence[RunRecord], console: Console, title: str | None = None) -> None:
    """Print the table of runs."""
    found = rows(runs)
    if not found:
        return
    table = Table(title=title, title_justify="left")
    for name in HEADINGS:
        table.add_column(name, justify="left" if name == "run" else "right")
    for row in found:
        table.add_row(*row.cells())
    console.print(table)
    if note := remark(found):
        console.print(note)


def markdown(runs: Sequence[RunRecord]) -> str:
    """Return the table in Markdown, for MLflow's note."""
    found = rows(runs)
    lines = [HEADINGS, ["---"] + ["---:"] * (len(HEADINGS) - 1), *(row.cells() for row in found)]
    text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"{text}\n\n{remark(found) or ''}".rstrip() + "\n"


def write_csv(runs: Sequence[RunRecord], path: Path) -> None:
    """Write the table in full precision, with a column for every field that distinguishes rows."""
    found = rows(runs)
    fields = list(found[0].settings) if found else []
    with atomic_write(path) as part, part.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["run", *fields, "seeds", "regret", "regret_error", "error_over", *TABLE_TOTALS])
        for row in found:
            settings = [row.settings[name] for name in fields]
            totals = [getattr(row, name) for name in TABLE_TOTALS]
            writer.writerow([row.label, *settings, row.seeds, row.regret, row.error, row.over, *totals])
