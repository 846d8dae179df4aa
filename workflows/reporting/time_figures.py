"""Figures of runs with a clock: regret against simulated time, and the shares of computing, waiting and sending."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from fnbandit.simulation.results import TIMES, standard_error
from fnbandit.storage.records import RunRecord
from workflows.reporting.canvas import COLOURS, Sheet, equalize, note, plain, style
from workflows.reporting.curves import PANEL_FIELDS, Groups
from workflows.reporting.grouping import describe_setting, find_differing, list_shared_settings

SPENT = TIMES[1:]
TIME_POINTS = 200


def has_time(run: RunRecord) -> bool:
    """Return True where the trace has the simulated seconds of every agent; a mean over agents would mix times."""
    return bool(run.trace.num_rows) and not any(run.trace.column(name).null_count for name in ("time", "agent"))


def average_regret(run: RunRecord, seconds: np.ndarray) -> np.ndarray:
    """Return the mean regret of all iterations of all agents finished by each time; NaN before the first."""
    times, regret = (run.trace.column(name).to_numpy() for name in ("time", "regret"))
    order = np.argsort(times, kind="stable")
    counts = np.searchsorted(times[order], seconds, side="right")
    sums = np.concatenate([[0.0], np.cumsum(regret[order])])[counts]
    return np.divide(sums, counts, out=np.full(len(seconds), np.nan), where=counts > 0)


def panels(groups: Groups) -> dict[str, dict[str, list[RunRecord]]]:
    """Return panel -> name -> runs, a panel for every task and clock."""
    configs = {label: list_shared_settings(runs[0]) for label, runs in groups.items()}
    fields = find_differing(list(configs.values()))
    found: dict[str, dict[str, list[RunRecord]]] = {}
    over = [name for name in PANEL_FIELDS if len({repr(config.get(name)) for config in configs.values()}) > 1]
    inside = [name for name in fields if name not in over]
    for label, config in configs.items():
        panel = describe_setting(config, over) if over else ""
        name = describe_setting(config, inside) if inside else label
        members = found.setdefault(panel, {})
        members[label if name in members else name] = groups[label]
    return found


def regret_against_time(groups: Groups, title: str | None, line: str) -> Figure | None:
    """Draw the average regret per iteration against simulated time; None without clocks."""
    timed = {label: runs for label, runs in groups.items() if all(has_time(run) for run in runs)}
    if not timed:
        return None
    split = panels(timed)
    columns = min(len(split), 4 if len(split) % 4 == 0 else 3)
    tasks = {runs[0].summary["config"]["environment"] for runs in timed.values()}
    rows = -(-len(split) // columns)
    sheet = Sheet(rows, columns, title, line, len(split) == 1, len(tasks) < 2)
    lines: dict[str, Line2D] = {}
    over: set[str] = set()
    for axis, (panel, members) in zip(sheet.axes, split.items(), strict=False):
        for name, runs in members.items():
            number = list(lines).index(name) if name in lines else len(lines)
            look = style(number)
            seconds, mean, error = _curve(runs)
            (drawn,) = axis.plot(seconds, mean, **look, markevery=(5 + 7 * number, 40), label=plain(name))
            lines.setdefault(name, drawn)
            if error.any():
                axis.fill_between(seconds, mean - error, mean + error, color=look["color"], alpha=0.18, linewidth=0)
                over.add(f"{len(runs)} seeds")
        axis.set_xscale("log")
        if panel:
            axis.set_title(plain(panel, 1.1 * sheet.width / columns))
    for axis in sheet.axes[len(split) :]:
        axis.set_visible(False)
    if rows > 1:
        sheet.figure.supylabel("regret per iteration so far", fontsize=8)
    else:
        sheet.axes[0].set_ylabel("regret per iteration so far")
    for axis in sheet.axes[max(0, len(split) - columns) : len(split)]:
        axis.set_xlabel("simulated seconds")
        axis.tick_params(labelbottom=True)
    firsts = [next(iter(inside.values()))[0].summary["config"]["environment"] for inside in split.values()]
    for task in tasks:
        equalize([axis for axis, first in zip(sheet.axes, firsts, strict=False) if first == task])
    sheet.legend(list(lines.values()), note("band", over))
    return sheet.figure


def _curve(runs: Sequence[RunRecord]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return seconds, from the end of everybody's first iteration to the earliest last record, mean and error."""
    times = [run.trace.column("time").to_numpy() for run in runs]
    firsts = [one[run.trace.column("iteration").to_numpy() == 1].max() for run, one in zip(runs, times, strict=True)]
    begin, end = max(firsts), min(values.max() for values in times)
    seconds = np.geomspace(begin, max(end, begin), TIME_POINTS)
    values = np.stack([average_regret(run, seconds) for run in runs])
    return seconds, values.mean(0), standard_error(values)


def time_spent(groups: Groups, title: str | None, line: str) -> Figure | None:
    """Draw simulated seconds per agent up to its last round: computing, waiting, sending, away; None without clocks."""
    spent = {label: shares for label, runs in groups.items() if (shares := _share_seconds(runs)) is not None}
    if not spent:
        return None
    sheet = Sheet(1, 1, None, "", stacked=True)
    (axis,) = sheet.axes
    # Across the figure: labels take half of its width, so that a title of the axes would be cut.
    sheet.figure.suptitle("\n".join(plain(text) for text in (title, line) if text), fontsize=7)
    sheet.figure.set_figheight(1.0 + 0.22 * len(spent))
    left = np.zeros(len(spent))
    for place in range(len(SPENT)):
        widths = np.array([shares[place] for shares in spent.values()])
        axis.barh(range(len(spent)), widths, left=left, color=COLOURS[place], height=0.7)
        left += widths
    axis.set_yticks(range(len(spent)), [plain(label, 1.6) for label in spent], fontsize=6)
    axis.margins(y=0.01)
    axis.invert_yaxis()
    axis.grid(False)
    axis.set_xlabel("simulated seconds per agent")
    handles: list[Any] = [Patch(color=COLOURS[place], label=name) for place, name in enumerate(SPENT)]
    look = {"handlelength": 1.0, "columnspacing": 1.0, "handletextpad": 0.4}
    sheet.figure.legend(handles=handles, loc="outside lower center", ncols=len(SPENT), **look)
    return sheet.figure


def _share_seconds(runs: Sequence[RunRecord]) -> np.ndarray | None:
    """Return the seconds of an agent, [SPENT], as a mean over runs; None without a clock."""
    totals = []
    for run in runs:
        if not run.rounds.num_rows or run.rounds.column("time").null_count:
            return None
        sums = np.array([run.rounds.column(name).to_numpy().sum() for name in SPENT])
        single = run.rounds.column("agent").null_count == 0
        totals.append(sums / run.summary["config"]["agents"] if single else sums)
    return np.mean(totals, axis=0)
