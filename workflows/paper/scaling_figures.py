"""Figures of the page of results on the number of agents: averaging, exact federation, and pooled data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from fnbandit.storage.records import RunRecord
from workflows.paper.page_figures import make_grid
from workflows.reporting.canvas import COLOURS, LINES, MARKERS, STYLE
from workflows.reporting.curves import BYTES, MESSAGES, Total
from workflows.reporting.total_figures import axis_words

SCALING_QUANTITIES: dict[str, tuple[str, ...]] = {
    "regret per agent": ("regret",),
    "rounds": ("rounds",),
    "messages": MESSAGES,
    "bytes": BYTES,
    "seconds": ("seconds",),
}
"""Totals that the scaling study shows against N"""
EXCHANGE_QUANTITIES = {
    "regret per agent": ("regret",),
    "rounds": ("rounds",),
    "exchanges": ("exchanges",),
    "bytes": BYTES,
    "seconds": ("seconds",),
}
"""The same where a round has several exchanges"""
SLOPES = {"regret per agent": -0.5, "rounds": 0.5}
"""Powers of N in the theory (Theorems 1 and 2)"""


def is_pooled(run: RunRecord) -> bool:
    """Return True where a run's exchanges have everybody's observations in every iteration; its label says so."""
    return " pooled: " in (run.summary["label"] or "")


def collect_scaling_series(runs: Sequence[RunRecord]) -> dict[tuple[str, float], dict[int, list[RunRecord]]]:
    """Return (task, D) -> N -> runs of all seeds, in order, of runs whose rounds follow a trigger."""
    found: dict[tuple[str, float], dict[int, list[RunRecord]]] = {}
    for run in runs:
        config = run.summary["config"]
        key = config["environment"], config["threshold"]
        if is_pooled(run):
            continue
        found.setdefault(key, {}).setdefault(config["agents"], []).append(run)
    return {key: dict(sorted(found[key].items())) for key in sorted(found)}


def collect_pooled_series(runs: Sequence[RunRecord]) -> dict[str, dict[int, list[RunRecord]]]:
    """Return task -> N -> runs of all seeds, in order, of runs with a round in every iteration."""
    found: dict[str, dict[int, list[RunRecord]]] = {}
    for run in runs:
        config = run.summary["config"]
        if is_pooled(run):
            found.setdefault(config["environment"], {}).setdefault(config["agents"], []).append(run)
    return {task: dict(sorted(one.items())) for task, one in found.items()}


def draw_scaling_figure(
    runs: Sequence[RunRecord], setting: str, quantities: Mapping[str, Sequence[str]]
) -> Figure | None:
    """Draw every quantity against N: colours are values of D, line styles tasks, grey lines the theory's slopes."""
    found = {key: one for key, one in collect_scaling_series(runs).items() if len(one) > 1}
    if not found:
        return None
    tasks, values = ([*dict.fromkeys(key[place] for key in found)] for place in (0, 1))
    values.sort()
    with matplotlib.rc_context(STYLE):
        sizes = [n for series in found.values() for n in series]
        figure, axes = make_grid(
            2, 3, 4.3, f"{min(sizes):,} to {max(sizes):,} agents ({setting}, T = 500, exact trigger)"
        )
        for axis, (words, names) in zip(axes, quantities.items(), strict=False):
            for (task, threshold), series in found.items():
                number = tasks.index(task)
                look = {
                    "color": COLOURS[values.index(threshold)],
                    "linestyle": LINES[number],
                    "marker": MARKERS[number],
                }
                # Other load on the machine only lengthens runs, so the fastest seed is the best estimate.
                quick = {n: [min(members, key=lambda run: run.summary["seconds"])] for n, members in series.items()}
                chosen = quick if words == "seconds" else series
                totals = [Total.of(members, names) for members in chosen.values()]
                error = [total.error for total in totals]
                axis.errorbar(list(series), [t.mean for t in totals], error, capsize=1.5, elinewidth=0.7, **look)
            _log_axes(axis, words == "bytes")
            if words in SLOPES:
                _slope(axis, SLOPES[words], found, names)
            axis.set_title("seconds, fastest seed" if words == "seconds" else words)
        for axis in axes[:5]:
            axis.set_xlabel(axis_words("agents"))
        axes[5].set_axis_off()
        colours = [Line2D([], [], color=COLOURS[i], linewidth=3, label=f"D = {d:g}") for i, d in enumerate(values)]
        kinds = [
            Line2D([], [], color="0.3", linestyle=LINES[i], marker=MARKERS[i], label=t) for i, t in enumerate(tasks)
        ]
        grey = Line2D([], [], color="0.6", linewidth=2.5, label="theory's slope")
        axes[5].legend(
            handles=[*colours, *kinds, grey], loc="center", fontsize=9, title="bars: standard error over seeds"
        )
        return figure


def _log_axes(axis: Axes, sent: bool) -> None:
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.xaxis.set_major_locator(FixedLocator([10**power for power in range(5)]))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axis.yaxis.set_minor_formatter(NullFormatter())
    low, high = axis.get_ylim()
    if sent:
        axis.yaxis.set_major_formatter(EngFormatter(unit="B", sep=""))
    elif high < 1e5:
        subs = (1, 2, 5) if high < 100 * low else (1,)
        axis.yaxis.set_major_locator(LogLocator(subs=subs))
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))


def _slope(axis: Axes, power: float, found: Mapping[Any, Mapping[int, list[RunRecord]]], names: Sequence[str]) -> None:
    """Draw a line with the theory's slope through the geometric mean of the values at the smallest N."""
    low, high = min(min(series) for series in found.values()), max(max(series) for series in found.values())
    start = np.exp(np.mean([np.log(Total.of(series[min(series)], names).mean) for series in found.values()]))
    y = [start * (n / low) ** power for n in (low, high)]
    limits = axis.get_ylim()
    axis.plot([low, high], y, color="0.6", linewidth=2.5, zorder=0)
    axis.set_ylim(min(limits[0], 0.8 * min(y)), max(limits[1], 1.2 * max(y)))
    place = high**0.75 * low**0.25
    look: dict[str, Any] = {"ha": "right", "va": "top" if power < 0 else "bottom", "color": "0.4", "fontsize": 9}
    axis.annotate(f"$N^{{{power:g}}}$", (place, start * (place / low) ** power), **look)


def draw_agents_figure(tuned: Sequence[RunRecord], exact: Sequence[RunRecord], threshold: float) -> Figure | None:
    """Draw regret per agent against N, a panel per task: averaging and exact federation with one D, bands for others.

    A black line is the learner that sees all observations in every iteration, a grey one the theory's slope.
    """
    settings = {"averaged networks": tuned, "exact federation": exact}
    found = {setting: collect_scaling_series(runs) for setting, runs in settings.items()}
    tasks = list(dict.fromkeys(task for series in found.values() for task, d in series if d == threshold))
    if not tasks:
        return None
    pooled = collect_pooled_series(exact)
    with matplotlib.rc_context(STYLE):
        figure, axes = make_grid(1, len(tasks), 2.75, "More agents, less regret per agent (T = 500)")
        for axis, task in zip(axes, tasks, strict=True):
            for number, (setting, series) in enumerate(found.items()):
                look = {"color": COLOURS[1 - number], "linestyle": LINES[1 - number], "marker": MARKERS[1 - number]}
                every = {d: _finals(one) for (name, d), one in series.items() if name == task}
                _band(axis, list(every.values()), look["color"])
                if threshold in every:
                    sizes, means, errors = every[threshold]
                    axis.errorbar(sizes, means, errors, capsize=1.5, elinewidth=0.7, label=setting, **look)
            if task in pooled:
                sizes, means, errors = _finals(pooled[task])
                axis.errorbar(sizes, means, errors, color="black", linestyle=LINES[3], elinewidth=0.7,
                              label="all raw data pooled")  # fmt: skip
            _log_axes(axis, False)
            every_size = {key[1]: one for series in found.values() for key, one in series.items() if key[0] == task}
            _slope(axis, SLOPES["regret per agent"], every_size, ["regret"])
            axis.set_title(task)
            axis.set_xlabel(axis_words("agents"))
        axes[0].set_ylabel("final regret per agent")
        handles = {line.get_label(): line for axis in axes for line in axis.get_legend_handles_labels()[0]}
        grey = Line2D([], [], color="0.6", linewidth=2.5, label="theory's slope")
        title = f"lines: D = {threshold:g}; bands: the smallest and largest D; bars: standard error over seeds"
        figure.legend(handles=[*handles.values(), grey], loc="outside lower center", ncols=4, title=title)
        return figure


def _finals(series: Mapping[int, list[RunRecord]]) -> tuple[list[int], list[float], list[float]]:
    totals = [Total.of(runs, ["regret"]) for runs in series.values()]
    return list(series), [total.mean for total in totals], [total.error for total in totals]


def _band(axis: Axes, every: Sequence[tuple[list[int], list[float], list[float]]], colour: str) -> None:
    """Fill the range of several curves, where at least two of them have a value."""
    values: dict[int, list[float]] = {}
    for sizes, means, _ in every:
        for n, mean in zip(sizes, means, strict=True):
            values.setdefault(n, []).append(mean)
    shared = {n: found for n, found in sorted(values.items()) if len(found) > 1}
    if len(shared) > 1:
        low, high = ([pick(found) for found in shared.values()] for pick in (min, max))
        axis.fill_between(list(shared), low, high, color=colour, alpha=0.15, linewidth=0, zorder=0)


def fit_slope(series: Mapping[int, list[RunRecord]], names: Sequence[str], among: Callable[[int], bool]) -> float:
    """Fit a power of N to a total (least squares of logarithms), over the N for which `among` is True."""
    chosen = [n for n in series if among(n)]
    y = [np.log(Total.of(series[n], names).mean) for n in chosen]
    return float(np.polyfit(np.log(chosen), y, 1)[0])
