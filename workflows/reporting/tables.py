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
from workflows.reporting.grouping import FIELD_NAMES, find_differing, group, list_shared_settings, read_total
from workflows.reporting.naming import rank

TABLE_TOTALS = ("rounds", "exchanges", "messages_up", "messages_down", "bytes_up", "bytes_down", "simulated_seconds",
                "seconds")  # fmt: skip
HEADINGS = {
    "run": "run",
    "seeds": "seeds",
    "regret": "regret per agent",
    "rounds": "rounds",
    "exchanges": "exchanges",
    "messages": "messages",
    "bytes_up": "bytes up",
    "bytes_down": "bytes down",
    "simulated_seconds": "simulated seconds",
    "seconds": "wall seconds",
}
"""Headings by column; `messages` counts both directions"""


@dataclass(frozen=True)
class TableRow:
    """Means of the totals of runs that differ only in seed."""

    label: str
    settings: dict[str, Any]
    """Fields that distinguish this row from the others"""
    seeds: int
    regret: float
    error: float | None
    """Standard error of the regret; None for one seed of one agent"""
    over: str
    """Sample of the error: "seeds" or, with one seed, "agents"; empty where there is no error"""
    rounds: float | None
    """None where agents do not wait for others: each exchanges with the server alone"""
    exchanges: float
    messages_up: float
    messages_down: float
    bytes_up: float
    bytes_down: float
    simulated_seconds: float | None
    """None without a clock"""
    seconds: float
    """Of the machine"""
    has_liars: bool = False
    """True where some agents lie; regret is that of the others"""

    @property
    def messages(self) -> float:
        return self.messages_up + self.messages_down

    def cells(self, columns: Sequence[str]) -> list[str]:
        """Return the formatted cells of columns of HEADINGS."""
        return [self._cell(name) for name in columns]

    def _cell(self, name: str) -> str:
        if name == "run":
            return self.label
        value = getattr(self, name)
        if value is None:
            return ""
        if name == "regret":
            return f"{value:.2f}" + ("" if self.error is None else f" ± {self.error:.2f}")
        if name.startswith("bytes"):
            return readable(value)
        return f"{value:,.1f}" if name.endswith("seconds") else f"{value:,.1f}".removesuffix(".0")


def columns_of(table: Sequence[TableRow]) -> list[str]:
    """Return the columns of a table: all but the simulated seconds where no row has any."""
    timed = any(row.simulated_seconds is not None for row in table)
    return [name for name in HEADINGS if timed or name != "simulated_seconds"]


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
    one, error, over = members[0].summary, None, ""
    if len(members) > 1:
        error, over = float(standard_error(regret)), "seeds"
    elif one["config"]["agents"] > 1:
        error, over = one.get("regret_standard_error", 0.0), "agents"
    totals: dict[str, Any] = {
        name: float(np.mean([read_total(run.summary, name) for run in members])) for name in TABLE_TOTALS
    }
    if totals["exchanges"] and not totals["rounds"]:
        totals["rounds"] = None
    if "simulated_seconds" not in one:
        totals["simulated_seconds"] = None
    totals["has_liars"] = "honest_agents" in one
    return TableRow(label, settings, len(members), float(regret.mean()), error, over, **totals)


def remark(table: Sequence[TableRow]) -> str | None:
    """Explain ± and whose regret it is; None where no row has an error and nobody lies."""
    over, found = {row.over for row in table} - {""}, []
    words = {"seeds": "seeds", "agents": "agents of one seed, which learn from each other"}
    if over:
        several = "seeds; where there is one seed, over its agents"
        found.append(f"± is the standard error over {words[over.pop()] if len(over) == 1 else several}")
    if any(row.has_liars for row in table):
        found.append("regret is that of the agents that do not lie")
    return "; ".join(found) or None


def totals(runs: Sequence[RunRecord]) -> list[dict[str, Any]]:
    """Return the rows as dictionaries, for scripts: fields that differ and totals, all numbers as such."""
    return [
        {"run": row.label, **row.settings, "seeds": row.seeds, "regret": row.regret,
         "regret_standard_error": row.error, "error_over": row.over or None,
         **{name: getattr(row, name) for name in TABLE_TOTALS}}
        for row in rows(runs)
    ]  # fmt: skip


def print_table(runs: Sequence[RunRecord], console: Console, title: str | None = None) -> None:
    """Print the table of runs."""
    found = rows(runs)
    if not found:
        return
    table = Table(title=title, title_justify="left")
    columns = columns_of(found)
    for name in columns:
        table.add_column(HEADINGS[name], justify="left" if name == "run" else "right")
    for row in found:
        table.add_row(*row.cells(columns))
    console.print(table)
    if note := remark(found):
        console.print(note)


def markdown(runs: Sequence[RunRecord]) -> str:
    """Return the table in Markdown, for MLflow's note."""
    found = rows(runs)
    columns = columns_of(found)
    headings = [HEADINGS[name] for name in columns]
    lines = [headings, ["---"] + ["---:"] * (len(columns) - 1), *(row.cells(columns) for row in found)]
    text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"{text}\n\n{remark(found) or ''}".rstrip() + "\n"


def write_csv(runs: Sequence[RunRecord], path: Path) -> None:
    """Write the table in full precision, with a column for every field that distinguishes rows."""
    found = rows(runs)
    fields = list(found[0].settings) if found else []
    with atomic_write(path) as part, part.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["run", *fields, "seeds", "regret", "regret_standard_error", "error_over", *TABLE_TOTALS])
        for row in found:
            settings = [row.settings[name] for name in fields]
            totals = [getattr(row, name) for name in TABLE_TOTALS]
            writer.writerow([row.label, *settings, row.seeds, row.regret, row.error, row.over, *totals])


def pivot(table: Sequence[TableRow]) -> tuple[list[str], list[list[str]]] | None:
    """Return headings and lines of regret (rounds) by D to the right and the other fields below; None without D."""
    fields = list(table[0].settings) if table else []
    if "threshold" not in fields or len(fields) < 2:
        return None
    others = [name for name in fields if name != "threshold"]
    values = sorted({row.settings["threshold"] for row in table}, key=rank)
    lines: dict[str, list[str]] = {}
    for row in table:
        settings = [row.settings[name] for name in others]
        line = lines.setdefault(repr(settings), [_spell_value(value) for value in settings] + [""] * len(values))
        rounds = row.exchanges if row.rounds is None else row.rounds
        line[len(others) + values.index(row.settings["threshold"])] = f"{row.regret:.2f} ({rounds:,.4g})"
    symbols = [FIELD_NAMES.get(name, name.replace("_", " ")) for name in others]
    return [*symbols, *("no D" if value is None else f"D = {value:g}" for value in values)], list(lines.values())


def _spell_value(value: Any) -> str:
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
