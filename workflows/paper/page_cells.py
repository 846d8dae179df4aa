"""The section of the page of results on the published cells: regret of three settings beside the published values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from fnbandit.storage.records import RunRecord
from workflows.paper.claims import LEVEL, p_value
from workflows.paper.page_data import FAR, PRESET_WORDS, PageData, format_finals
from workflows.reporting.curves import Total
from workflows.reporting.markdown import markdown_table, number, paragraph

CELLS = {"fig1a": "cosine", "fig1b": "square", "fig2a": "shuttle, m = 20", "fig2c": "shuttle, m = 50, diagonal",
         "fig2b": "magic"}  # fmt: skip
"""Figures with published final values, and their tasks"""
EXACT = "exact-cells"
EXACT_TASKS = {"fig1a": "cosine", "fig1b": "square", "fig2a": "shuttle", "fig2c": "shuttle, m = 50, diagonal",
               "fig2b": "magic"}  # fmt: skip
"""The same tasks in the labels of the experiment with exact federation"""
SIZES = (1, 2, 5, 10)
PUBLISHED_SHARES = {"a half": 1 / 2, "a third": 1 / 3, "a quarter": 1 / 4}
INTRODUCTION = """\
Final regret per agent after 5,000 iterations. Published settings and tuned communicate in every iteration, exact in
the rounds that its trigger starts (D = 5). Where the largest seed is above {far:g} times the median, the median stands
beside the mean.
"""
TABLES_BEFORE = """\
Runs on tables with the tuned preset in {old} were made before networks of agents that have seen no reward other than
0 kept their parameters (commit 2ed1714), and are shown as they were run{fresh}.
"""
CELLS_ON_TABLES = ("fig2a", "fig2b", "fig2c", "fig2d")
BEFORE = ("4c53b2d6", "8ae2d85f", "9a4d1b40", "ae6dec4c", "dbffb732", "f1a40b75")
"""Commits of shipped runs in which decay could shrink a network to nothing before there was a reward"""


@dataclass(frozen=True)
class Cell:
    """A published value, and the runs of every setting."""

    task: str
    agents: int
    published: float
    runs: dict[str, list[RunRecord]] = field(repr=False)

    def mean(self, preset: str) -> float | None:
        """Return the mean final regret over seeds; None where the setting was not run."""
        return Total.of(self.runs[preset], ["regret"]).mean if self.runs[preset] else None

    def __str__(self) -> str:
        return f"{self.task}, N = {self.agents}"


def find_exact_runs(data: PageData, figure: str, agents: int) -> list[RunRecord]:
    """Return the runs with exact federation of a figure's curve of N agents."""
    return data.groups[EXACT].get(f"{EXACT_TASKS[figure]}: N={agents}", [])


def list_cells(data: PageData) -> list[Cell]:
    """Return the cells with a published value, task by task."""
    cells = []
    for name, task in CELLS.items():
        for n in SIZES:
            label = f"FN-UCB N={n}"
            values = [p.published for p in data.studies[name].points if p.label == f"tuned: {label}"]
            if values and values[0] is not None:
                runs = {preset: data.groups[name].get(f"{preset}: {label}", []) for preset in ("paper", "tuned")}
                cells.append(Cell(task, n, values[0], runs | {"exact": find_exact_runs(data, name, n)}))
    return cells


def write_cells(data: PageData) -> Iterator[str]:
    """Yield the section."""
    yield "## The published cells"
    yield from paragraph(INTRODUCTION.format(far=FAR))
    cells = list_cells(data)
    yield from _write_short_table(cells)
    rows = []
    for cell in cells:
        row = [cell.task, str(cell.agents), f"{cell.published:.1f}"]
        for preset in PRESET_WORDS:
            mean = cell.mean(preset)
            row += (
                ["not run", "–"] if mean is None else [format_finals(cell.runs[preset]), f"{mean / cell.published:.2f}"]
            )
        rounds = number(Total.of(cell.runs["exact"], ["rounds"]).mean) if cell.runs["exact"] else "–"
        rows.append([*row, rounds])
    settings = [word for words in PRESET_WORDS.values() for word in (words, "/ published")]
    yield from markdown_table(["task", "N", "published", *settings, "rounds, exact"], rows)
    yield from _write_counts(cells)
    yield from _compare_exact(cells)
    yield from _write_origin(data)
    yield from data.not_run(EXACT)


def _write_short_table(cells: list[Cell]) -> list[str]:
    rows = {cell.task: [cell.task, *[""] * len(SIZES)] for cell in cells}
    for cell in cells:
        means = [number(mean) if (mean := cell.mean(preset)) is not None else "–" for preset in PRESET_WORDS]
        rows[cell.task][1 + SIZES.index(cell.agents)] = " / ".join([f"{cell.published:.1f}", *means])
    headings = [" / ".join(["published", *PRESET_WORDS.values()]), *(f"N={n}" for n in SIZES)]
    return markdown_table(headings, list(rows.values()))


def _write_counts(cells: list[Cell]) -> list[str]:
    """Return a table of the number of cells in which each setting is above, and far below, the published value."""
    rows = []
    for preset, words in PRESET_WORDS.items():
        ratios = [mean / cell.published for cell in cells if (mean := cell.mean(preset)) is not None]
        counts = [
            sum(ratio > 1 for ratio in ratios),
            *(sum(r <= share for r in ratios) for share in PUBLISHED_SHARES.values()),
        ]
        rows.append([words, str(len(ratios)), *map(str, counts)])
    columns = ["cells", "above published", *(f"at most {words} of it" for words in PUBLISHED_SHARES)]
    return markdown_table(["", *columns], rows)


def compare_settings(cells: list[Cell], one: str, other: str) -> list[tuple[Cell, float]]:
    """Return the cells with runs of two settings, and the one-sided p of `one` having more regret than `other`.

    The test is paired by seed, of logarithms.
    """
    found = []
    for cell in cells:
        finals = [{run.summary["seed"]: run.summary["regret"] for run in cell.runs[preset]} for preset in (one, other)]
        seeds = sorted(finals[0].keys() & finals[1].keys())
        if len(seeds) > 1:
            ratios = np.array([np.log(finals[0][seed] / finals[1][seed]) for seed in seeds])
            found.append((cell, p_value(ratios)))
    return found


def _compare_exact(cells: list[Cell]) -> list[str]:
    """Return a sentence on the cells in which exact federation has more regret than the tuned preset."""
    from scipy.stats import false_discovery_control

    compared = compare_settings(cells, "exact", "tuned")
    if not compared:
        return []
    means = [(cell, cell.mean("exact") or 0.0, cell.mean("tuned") or 0.0) for cell, _ in compared]
    worse = [f"{cell}: {number(exact)} against {number(tuned)}" for cell, exact, tuned in means if exact > tuned]
    sides = np.array([p for _, p in compared])
    twice = np.minimum(1.0, 2 * np.minimum(sides, 1 - sides))
    stands = false_discovery_control(twice) < LEVEL
    more, less = int((stands & (sides < 0.5)).sum()), int((stands & (sides > 0.5)).sum())
    said = f" ({'; '.join(worse)})" if worse else ""
    rounds = [Total.of(cell.runs["exact"], ["rounds"]).mean for cell, exact, tuned in means if exact > tuned]
    why = (
        f" Where it has more, it has {number(min(rounds))} to {number(max(rounds))} rounds, tuned 5,000; whether more "
        "rounds close the gap was not run."
        if worse
        else ""
    )
    return paragraph(
        f"Exact has more regret than tuned in {len(worse)} of {len(compared)} cells{said}. Of these {len(compared)} "
        f"comparisons, paired by seed, {less} find less regret and {more} more, at a false discovery rate of {LEVEL:g} "
        f"(three seeds decide little).{why}"
    )


def _write_origin(data: PageData) -> list[str]:
    """Return a sentence on shipped runs on tables that are older than a cure of dead networks."""
    old, fresh = [], []
    for name, runs in data.runs.items():
        tuned = [run for run in runs if run.summary["config"]["environment"] in ("shuttle", "magic")
                 and not (run.summary["label"] or "").startswith("paper: ")]  # fmt: skip
        if any(run.summary["commit"].startswith(BEFORE) for run in tuned):
            old.append(f"`{name}`")
        elif tuned and name in CELLS_ON_TABLES:
            fresh.append(f"`{name}`")
    if not old:
        return []
    again = f"; run again since then: {', '.join(fresh)}" if fresh else ""
    return paragraph(TABLES_BEFORE.format(old=", ".join(old), fresh=again))
