"""The figure of runs in which agents lie: final regret of the honest against the share of liars, attacks by rules."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from fnbandit.config import Config
from fnbandit.storage.records import RunRecord
from workflows.reporting.canvas import Sheet, note, plain, style
from workflows.reporting.curves import Total
from workflows.reporting.grouping import describe_setting, effective

OF_ATTACKS = ("attack", "byzantine_share", "attack_scale", "attack_arm")
RULES = ("aggregation_statistics", "aggregation", "trim", "clipping_radius")
TOLERATED = 2.0
"""Regret, relative to that without liars and without a rule, up to which figures are grey"""


def has_liars(run: RunRecord) -> bool:
    """Return True where some agents of a run lie."""
    return "honest_agents" in run.summary


def regret_against_liars(runs: Sequence[RunRecord], title: str | None) -> Figure | None:
    """Draw a panel per task and attack, a line per rule; None where no agents lie or their share does not differ."""
    if len({run.summary["config"]["byzantine_share"] for run in runs if has_liars(run)}) < 2:
        return None
    panels: dict[tuple[str, str], dict[str, dict[float, list[RunRecord]]]] = {}
    honest: dict[str, dict[str, list[RunRecord]]] = {}
    for run in runs:
        # With the fields that are newer than the run, so that runs of several versions share panels.
        config = effective(dataclasses.asdict(Config.from_record(run.summary["config"])))
        rule = _describe(config, RULES)
        task = json.dumps({k: v for k, v in config.items() if k not in (*OF_ATTACKS, *RULES)}, sort_keys=True)
        if has_liars(run):
            lines = panels.setdefault((task, _describe(config, ("attack", "attack_scale"))), {})
            lines.setdefault(rule, {}).setdefault(config["byzantine_share"], []).append(run)
        else:
            honest.setdefault(task, {}).setdefault(rule, []).append(run)
    return _draw(panels, honest, title)


def _describe(config: dict[str, Any], fields: Sequence[str]) -> str:
    return describe_setting({name: config.get(name) for name in fields if config.get(name) != 1.0}, fields) or "sum"


def _draw(
    panels: dict[tuple[str, str], dict[str, dict[float, list[RunRecord]]]],
    honest: dict[str, dict[str, list[RunRecord]]],
    title: str | None,
) -> Figure:
    columns = max(sum(task == other for other, _ in panels) for task, _ in panels)
    columns = columns if columns <= 4 else 3
    sheet = Sheet(-(-len(panels) // columns), columns, title, "", stacked=False, share=False)
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    over: set[str] = set()
    for axis, ((task, attack), lines) in zip(sheet.axes, panels.items(), strict=False):
        for name, points in lines.items():
            there = {0.0: honest[task][name]} | points if name in honest.get(task, {}) else points
            totals = {share: Total.of(members, ["regret"]) for share, members in sorted(there.items())}
            over |= {total.over for total in totals.values() if total.error > 0}
            axis.errorbar(list(totals), [t.mean for t in totals.values()], [t.error for t in totals.values()],
                          capsize=1.5, elinewidth=0.7, **style(names.index(name)))  # fmt: skip
        first = next(iter(honest.get(task, {}).values()), None)
        if first is not None:
            axis.axhspan(0, TOLERATED * Total.of(first, ["regret"]).mean, color="0.92", zorder=0)
        axis.set_yscale("log")
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.yaxis.set_minor_locator(NullLocator())
        axis.set_title(plain(f"{json.loads(task)['environment']}: {attack}", 7.2 / columns))
        axis.set_xlabel("share of agents that lie")
    for start in range(0, len(panels), columns):
        limits = [axis.get_ylim() for axis in sheet.axes[start : min(start + columns, len(panels))]]
        for axis in sheet.axes[start : start + columns]:
            axis.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
            axis.label_outer()
    for axis in sheet.axes[len(panels) :]:
        axis.set_axis_off()
    for axis in sheet.axes[::columns]:
        axis.set_ylabel("regret per honest agent")
    handles: list[Any] = [Line2D([], [], **style(number), label=plain(name)) for number, name in enumerate(names)]
    grey = Line2D([], [], color="0.88", linewidth=6, label=plain("up to twice the regret without liars"))
    sheet.figure.set_figheight(sheet.figure.get_figheight() + 0.15 * len(sheet.axes) / columns)
    sheet.legend([*handles, grey], note("bars", over))
    return sheet.figure
