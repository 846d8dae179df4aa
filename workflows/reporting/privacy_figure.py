"""Regret against epsilon: what differential privacy costs, beside agents that learn alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from fnbandit.config.registry import describe_part, resolve_part
from fnbandit.storage.records import RunRecord
from workflows.reporting.canvas import Sheet, note, plain, style
from workflows.reporting.curves import Groups, Total

NO_PRIVACY = 4.0
"""Place of runs without privacy, as a multiple of the largest epsilon"""


@dataclass
class PrivacyLine:
    """Runs of one algorithm, with noise added in one place, for one N: by epsilon, and without privacy."""

    name: str
    private: dict[float, list[RunRecord]] = field(default_factory=dict)
    free: list[RunRecord] = field(default_factory=list)

    def means(self) -> dict[float, float]:
        """Return regret per agent by epsilon."""
        return {epsilon: Total.of(runs, ["regret"]).mean for epsilon, runs in sorted(self.private.items())}

    def pays_from(self, alone: float) -> float | None:
        """Return the smallest epsilon with less regret than alone, at it and at all larger ones; None for none."""
        found = None
        for epsilon, regret in sorted(self.means().items(), reverse=True):
            if regret >= alone:
                break
            found = epsilon
        return found


def collect_privacy_lines(groups: Groups) -> tuple[dict[int, list[PrivacyLine]], dict[str, list[RunRecord]]]:
    """Return N -> lines of federated algorithms, and title -> runs of agents that never communicate."""
    lines: dict[int, dict[str, PrivacyLine]] = {}
    alone: dict[str, list[RunRecord]] = {}
    free: dict[tuple[int, str], list[RunRecord]] = {}
    for runs in groups.values():
        config = runs[0].summary["config"]
        title = describe_part("algorithm", config["algorithm"]).title
        if not resolve_part("algorithm", config["algorithm"]).traits.communicates:
            alone[title] = runs
        elif not resolve_part("privacy", config.get("privacy", "none")).is_private:
            free[config["agents"], title] = runs
        else:
            name = f"{title}, {config['privacy']}"
            line = lines.setdefault(config["agents"], {}).setdefault(name, PrivacyLine(name))
            line.private[config["privacy_epsilon"]] = runs
    for (agents, title), runs in free.items():
        for name, line in lines.get(agents, {}).items():
            if name.startswith(f"{title}, "):
                line.free = runs
    return {agents: list(lines[agents].values()) for agents in sorted(lines)}, alone


def regret_against_epsilon(groups: Groups, title: str | None, context: str) -> Figure | None:
    """Draw final regret against epsilon, a panel per N; None where fewer than two values of epsilon were run."""
    found, alone = collect_privacy_lines(groups)
    values = sorted({epsilon for lines in found.values() for line in lines for epsilon in line.private})
    if len(values) < 2:
        return None
    columns = min(len(found), 2)
    sheet = Sheet(-(-len(found) // columns), columns, title, context, len(found) == 1, True)
    names = list(dict.fromkeys(line.name for lines in found.values() for line in lines))
    handles: dict[str, Line2D] = {}
    over: set[str] = set()
    for axis, (agents, lines) in zip(sheet.axes, found.items(), strict=False):
        for line in lines:
            points = {epsilon: Total.of(runs, ["regret"]) for epsilon, runs in sorted(line.private.items())}
            look = style(names.index(line.name))
            if line.free:
                points[NO_PRIVACY * values[-1]] = Total.of(line.free, ["regret"])
            means = [total.mean for total in points.values()]
            errors = [total.error for total in points.values()]
            drawn = axis.errorbar(list(points), means, errors, capsize=1.5, elinewidth=0.7, **look)
            drawn.lines[0].set_label(plain(line.name))
            handles.setdefault(line.name, drawn.lines[0])
            over |= {total.over for total in points.values() if total.error}
        for words, runs in alone.items():
            level = axis.axhline(Total.of(runs, ["regret"]).mean, color="0.35", linestyle=(0, (1, 1)), linewidth=1.4)
            level.set_label(plain(f"{words}, alone"))
            handles.setdefault(words, level)
        axis.set_title(f"N = {agents:,}")
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.xaxis.set_major_locator(FixedLocator([*values, NO_PRIVACY * values[-1]]))
        axis.xaxis.set_minor_locator(NullLocator())
        axis.xaxis.set_major_formatter(FuncFormatter(lambda x, _: "none" if x > 2 * values[-1] else f"{x:g}"))
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_minor_locator(NullLocator())
        axis.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
        axis.tick_params(labelbottom=True)
    for axis in sheet.axes[len(found) :]:
        axis.set_visible(False)
    for axis in sheet.axes[max(0, len(found) - columns) : len(found)]:
        axis.set_xlabel("epsilon of the whole run")
    sheet.axes[0].set_ylabel("final regret per agent")
    sheet.legend(list(handles.values()), note("bar", over), False)
    return sheet.figure


def describe_break_even(groups: Groups) -> list[list[str]]:
    """Return a row per line and N: regret by epsilon, without privacy, and the epsilon from which federation pays."""
    found, alone = collect_privacy_lines(groups)
    level = min((Total.of(runs, ["regret"]).mean for runs in alone.values()), default=float("nan"))
    return [
        [f"{agents:,}", line.name, _list_regrets(line.means()),
         f"{Total.of(line.free, ['regret']).mean:.1f}" if line.free else "–", _say(line.pays_from(level))]
        for agents, lines in found.items() for line in lines
    ]  # fmt: skip


def _list_regrets(means: Mapping[float, float]) -> str:
    return ", ".join(f"{regret:.1f} ({epsilon:g})" for epsilon, regret in means.items())


def _say(epsilon: float | None) -> str:
    return "at none of them" if epsilon is None else f"from {epsilon:g} on"


BREAK_EVEN_COLUMNS: Sequence[str] = ("N", "algorithm", "regret (epsilon)", "no privacy", "pays")
