"""Figures of totals: final regret, rounds, messages and bytes against a field, and regret against bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from matplotlib.ticker import EngFormatter, FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from fnbandit.storage.records import RunRecord
from workflows.reporting.canvas import Sheet, note, plain, style
from workflows.reporting.curves import (
    BYTES,
    PANEL_SERIES,
    Series,
    Total,
    by_panel,
    keep_finished,
    places,
    series,
    style_numbers,
)
from workflows.reporting.grouping import FIELD_NAMES, describe_setting, exchanges_alone, group, read_total
from workflows.reporting.naming import context

BYTES_AXIS = "bytes, up and down"
NOTED_POINTS = 4
"""Largest number of points of a line of which each has a note; of more points only the ends have one"""
NOTE_CHARACTERS = 12
"""Maximum length of a note beside a mark: longer ones would overlap"""
STYLES = 10
"""Number of distinct curve styles"""


def draw_hollow(axis: Axes, x: float, y: float, number: int) -> None:
    """Draw a published value as a hollow mark."""
    look = {**style(number), "linestyle": "", "markersize": 5.5, "markerfacecolor": "white"}
    axis.plot([x], [y], **look, markeredgewidth=1.1, clip_on=False, zorder=4, label="_published")


def axis_words(field: str) -> str:
    """Return the axis label of a field."""
    return {"agents": "agents N", "threshold": "threshold D"}.get(
        field, FIELD_NAMES.get(field, field.replace("_", " "))
    )


def is_wide(values: Sequence[float], factor: float = 30) -> bool:
    """Return True where values need a logarithmic axis: all are positive, and span more than a factor."""
    return min(values) > 0 and max(values) > factor * min(values)


def _scale(axis: Axes, values: Sequence[float]) -> None:
    """Start the y axis at zero, or make it logarithmic where values span more than a factor of 30."""
    if is_wide(values):
        axis.set_yscale("log")
        axis.yaxis.set_minor_formatter(NullFormatter())
    else:
        axis.set_ylim(bottom=0)


def _ticks(axis: Axes, ticks: Sequence[float]) -> None:
    if ticks[0] > 0:
        axis.set_xscale("log", base=2)
        axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_locator(FixedLocator(ticks[:: -(-len(ticks) // 8)]))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


class TotalFigures:
    """Figures of totals of one study, with the same names and styles of runs in all of them."""

    def __init__(self, runs: Sequence[RunRecord], title: str | None, published: Mapping[str, float]) -> None:
        self.groups = group(runs)
        self._title, self._published = title, published
        self.line = context(runs) if runs else ""
        self.places = places(self.groups)
        self._own_scales = "" not in by_panel(self.groups)
        tasks = {runs[0].summary["config"]["environment"] for runs in self.groups.values()}
        self._share = len(tasks) < 2
        self._numbers = style_numbers(self.groups)

    def _task_of(self, label: str) -> str:
        """Return the task of a group; of curves that stand for several groups, none."""
        return str(self.groups[label][0].summary["config"]["environment"]) if label in self.groups else ""

    def against(self, field: str, panels: Mapping[str, Sequence[str]], published: bool = False) -> Figure | None:
        """Draw totals against a field, on an axis to base 2; `panels` maps a label to the totals that its axis sums.

        Several tasks, and more than PANEL_SERIES series, stand in columns beside each other.
        """
        found = series(self.groups, field)
        if "regret" not in str(panels):
            found = {name: one for name, one in found.items() if _communicates(one)}
        if len(found) > STYLES:  # in a study of one field at a time, every value of another field is a single point
            found = {name: one for name, one in found.items() if len(one.runs) > 1}
        if not any(len(one.runs) > 1 for one in found.values()):
            return None
        panels = {words: names for words, names in panels.items() if _counts(found, names)}
        columns = _columns(found)
        over: set[str] = set()
        sheet = Sheet(len(panels), len(columns), self._title, self.line, stacked=True)
        marked: set[tuple[float, float]] = set()
        lines: dict[str, Line2D] = {}
        numbers: dict[str, int] = {}
        for place, axis in enumerate(sheet.axes):
            (title, members), (words, names) = (
                columns[place % len(columns)],
                list(panels.items())[place // len(columns)],
            )
            means = []
            for label, one in members.items():
                totals = one.totals(names)
                if names == ["rounds"] and not has_rounds(one):
                    continue
                name = label.removeprefix(f"{title}, ") if title else label
                number = self._numbers[label] if not title else numbers.setdefault(name, len(numbers))
                look = style(number)
                mean = [total.mean for total in totals.values()]
                axis.errorbar(list(totals), mean, [t.error for t in totals.values()], **look, capsize=2, elinewidth=0.8)
                over |= {total.over for total in totals.values() if total.error > 0}
                lines[name] = Line2D([], [], **look, label=plain(name))
                means += mean
                for x in totals if published else ():
                    value = self._published.get(one.labels[x])
                    if value is not None and (x, value) not in marked:  # presets share published values
                        draw_hollow(axis, x, value, number)
                        marked.add((x, value))
            if place % len(columns) == 0:
                axis.set_ylabel(words)
            if title and place < len(columns):
                axis.set_title(plain(title, sheet.width / len(columns)))
            if means:
                _scale(axis, means)
            if words.startswith("bytes"):
                axis.yaxis.set_major_formatter(EngFormatter(unit="B"))
        for axis in sheet.axes[-len(columns) :]:
            _ticks(axis, sorted({x for one in found.values() for x in one.runs}))
            axis.set_xlabel(axis_words(field))
        sheet.figure.align_ylabels()
        sheet.legend(list(lines.values()), note("bars", over), bool(marked))
        return sheet.figure

    def against_bytes(self) -> Figure | None:
        """Draw final regret against bytes, a panel for every task; a line joins groups that have a name in common."""
        groups = keep_finished(self.groups)
        if len(groups) < 2 or self._own_scales:
            return None
        names = dict.fromkeys(self.places[label].name for label in groups)
        if len(names) > PANEL_SERIES:
            return None  # every name would be a single point
        points = {label: (Total.of(runs, BYTES).mean, Total.of(runs, ("regret",))) for label, runs in groups.items()}
        if not any(sent for sent, _ in points.values()):
            return None
        tasks = list(dict.fromkeys(self._task_of(label) for label in points))
        sheet = Sheet(1, len(tasks), self._title, self.line, stacked=True)
        for axis, task in zip(sheet.axes, tasks, strict=True):
            there = {label: point for label, point in points.items() if self._task_of(label) == task}
            for name in names:
                self._join(axis, name, {label: p for label, p in there.items() if self.places[label].name == name})
            sends = [sent for sent, _ in there.values() if sent]
            if sends and max(sends) > 3 * min(sends):
                axis.set_xscale("log")
                axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if max(sends) < 30 * min(sends) else (1,)))
                axis.xaxis.set_minor_locator(NullLocator())
            axis.xaxis.set_major_formatter(EngFormatter(unit="B"))
            _scale(axis, [total.mean for _, total in there.values()])
            axis.set_xlabel(BYTES_AXIS)
            if len(tasks) > 1:
                axis.set_title(describe_setting({"environment": task}, ["environment"]))
        sheet.axes[0].set_ylabel("final regret per agent")
        over = {total.over for _, total in points.values() if total.error > 0}
        remark = note("bars", over)
        if any(sent == 0 for sent, _ in points.values()):
            remark = "; ".join(text for text in (remark, "without marks: sends nothing") if text)
        sheet.legend([Line2D([], [], **style(self._numbers[name]), label=plain(name)) for name in names], remark)
        return sheet.figure

    def _join(self, axis: Axes, name: str, members: Mapping[str, tuple[float, Total]]) -> None:
        """Draw the groups of one name by their bytes, with notes that say their panels."""
        look = style(self._numbers[name])
        ordered = sorted((sent, total.mean, total.error, label) for label, (sent, total) in members.items() if sent)
        if ordered:
            sent, mean, error, labels = zip(*ordered, strict=True)
            axis.errorbar(sent, mean, error, **look, capsize=2, elinewidth=0.8)
            several = range(len(labels)) if len(labels) <= NOTED_POINTS else dict.fromkeys((0, len(labels) - 1))
            for end in several if len(self.places[labels[0]].panel) <= NOTE_CHARACTERS else ():
                where = {"xytext": (3, 3), "textcoords": "offset points", "fontsize": 5.5, "color": look["color"]}
                text = axis.annotate(plain(self.places[labels[end]].panel), (sent[end], mean[end]), **where)
                text.set(zorder=5, path_effects=[withStroke(linewidth=1.6, foreground="white")])
        for sent_nothing in (total.mean for sent, total in members.values() if not sent):
            axis.axhline(sent_nothing, color=look["color"], linestyle=look["linestyle"], linewidth=0.9)


def _communicates(one: Series) -> bool:
    return any(read_total(run.summary, "exchanges") for runs in one.runs.values() for run in runs)


def has_rounds(one: Series) -> bool:
    """Return False where agents exchange alone."""
    return not any(exchanges_alone(run) for runs in one.runs.values() for run in runs)


def _counts(found: Mapping[str, Series], names: Sequence[str]) -> bool:
    """Return True where some run has one of the totals."""
    able = [one for one in found.values() if names != ["rounds"] or has_rounds(one)]
    runs = [run for one in able for members in one.runs.values() for run in members]
    return any(read_total(run.summary, name) for run in runs for name in names)


def _columns(found: Mapping[str, Series]) -> list[tuple[str, dict[str, Series]]]:
    """Divide series by their task, and where there are many into equal parts; return titles and members."""
    tasks: dict[str, dict[str, Series]] = {}
    for label, one in found.items():
        first = next(iter(one.runs.values()))[0]
        tasks.setdefault(describe_setting(first.summary["config"], ["environment"]), {})[label] = one
    columns = []
    for task, members in tasks.items():
        count = -(-len(members) // PANEL_SERIES)
        size = -(-len(members) // count)
        pairs = list(members.items())
        parts = [dict(pairs[start : start + size]) for start in range(0, len(pairs), size)]
        columns += [(task if len(tasks) > 1 else "", part) for part in parts]
    return columns
