"""Figures of runs: regret, effects of federation and communication, rounds, alpha.

Every figure is one column wide, small multiples two, as PNG and PDF. Runs that differ only in seed form one curve.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import (
    EngFormatter,
    FixedLocator,
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    NullLocator,
)

from fnbandit.storage.files import MAKER, check_inside
from fnbandit.storage.records import RunRecord, atomic_write
from workflows.reporting.canvas import STYLE, Sheet, note, plain, style
from workflows.reporting.curves import (
    BYTES,
    Curve,
    Place,
    Series,
    Total,
    by_panel,
    keep_finished,
    numeric_fields,
    places,
    regret_curves,
    round_curves,
    series,
    style_numbers,
    weight_curves,
)
from workflows.reporting.grouping import FIELD_NAMES, group
from workflows.reporting.naming import context
from workflows.reporting.time_figures import regret_against_time, time_spent

FIGURE_POINTS = 1000
"""Maximum number of points of a curve"""
STYLES = 10
"""Number of distinct curve styles"""
LOGARITHMIC_FACTOR = 12
"""A panel with its own scale is logarithmic where its final values differ by more than this factor"""
NOTE_CHARACTERS = 12
"""Maximum length of a note beside a mark: longer ones would overlap"""


def _hollow(axis: Axes, x: float, y: float, number: int) -> None:
    """Draw a published value as a hollow mark."""
    look = {**style(number), "linestyle": "", "markersize": 5.5, "markerfacecolor": "white"}
    axis.plot([x], [y], **look, markeredgewidth=1.1, clip_on=False, zorder=4, label="_published")


class Drawing:
    """The figures of one study, with the same names and styles of runs in all of them."""

    def __init__(self, runs: Sequence[RunRecord], title: str | None, published: Mapping[str, float]) -> None:
        self.groups = group(runs)
        self._title, self._published = title, published
        self.line = context(runs) if runs else ""
        self.places = places(self.groups)
        self._own_scales = "" not in by_panel(self.groups)
        self._numbers = style_numbers(self.groups)

    def curves(self, curves: Mapping[str, Curve], words: str, published: bool = False, below: int = 0) -> Figure | None:
        """Draw curves against iteration, in one panel or in small multiples; leave `below` axes free under it."""
        if not curves:
            return None
        known = all(label in self.places for label in curves)
        at = {label: self.places[label] if known else Place("", label) for label in curves}
        order_of = {place.panel: number for number, place in enumerate(self.places.values())}
        names = sorted({place.panel for place in at.values()}, key=lambda panel: order_of.get(panel, 0))
        columns = 2 if len(names) == 4 else min(len(names), 3)
        stacked = self._own_scales or len(names) == 1
        sheet = Sheet(-(-len(names) // columns) + below, columns, self._title, self.line, stacked)
        lines: dict[str, Line2D] = {}
        marked = False
        for axis, panel in zip(sheet.axes, names, strict=False):
            inside = {label: one for label, one in curves.items() if at[label].panel == panel}
            ends: list[float] = []
            for order, (label, whole) in enumerate(inside.items()):
                name, one = at[label].name, whole.thin(FIGURE_POINTS)
                number = self._numbers.get(name, order)
                look = style(number)
                every = max(1, len(one.mean) // 6)
                marks = (min(every * (2 * order + 1) // (2 * len(inside)), len(one.mean) - 1), every)
                (line,) = axis.plot(one.iterations, one.mean, **look, label=plain(name), markevery=marks)
                lines.setdefault(name, line)
                if one.error.any():
                    band = (one.mean - one.error, one.mean + one.error)
                    axis.fill_between(one.iterations, *band, color=look["color"], alpha=0.18, linewidth=0)
                ends.append(float(one.mean[-1]))
                if published and label in self._published:
                    _hollow(axis, one.iterations[-1], self._published[label], number)
                    ends.append(self._published[label])
                    marked = True
            if panel:
                axis.set_title(plain(panel, sheet.width / columns))
            axis.set_ylim(bottom=0)
            if self._own_scales and max(ends) > LOGARITHMIC_FACTOR * min(ends) > 0:
                axis.set_yscale("log")
                axis.set_ylim(bottom=min(ends) / 4)
                axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
                axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
                axis.yaxis.set_minor_locator(NullLocator())
        for axis in sheet.axes[len(names) + below :]:
            axis.set_visible(False)
        if len(names) > columns:
            sheet.figure.supylabel(words, fontsize=8)
        else:
            sheet.axes[0].set_ylabel(words)
        for axis in sheet.axes[max(0, len(names) - columns) : len(names)] if not below else sheet.axes[-1:]:
            axis.set_xlabel("iteration")
            axis.tick_params(labelbottom=True)
            axis.set_xlim(left=0)
            axis.xaxis.set_major_locator(MaxNLocator(6 if columns == 1 else 4, integer=True))
        over = {one.over for one in curves.values() if one.error.any()}
        handles = [lines[name] for name in sorted(lines, key=lambda name: self._numbers.get(name, 0))]
        sheet.legend(handles, note("band", over), marked)
        return sheet.figure

    def rounds(self) -> Figure | None:
        """Draw the number of rounds up to every iteration; for one group also the epoch lengths."""
        curves = round_curves(self.groups)
        alone = len(curves) == 1
        figure = self.curves(curves, "communication rounds", below=1 if alone else 0)
        if figure is not None and alone:
            axis, label = figure.axes[1], next(iter(curves))
            colour = style(self._numbers[self.places[label].name])["color"]
            for run in self.groups[label]:
                ends, lengths = (run.rounds.column(name).to_numpy() for name in ("iteration", "epoch_length"))
                axis.plot(ends, lengths, ".", markersize=3.5, color=colour, alpha=0.6, markeredgewidth=0)
            axis.set_ylabel("epoch length")
            axis.set_ylim(bottom=0)
            axis.yaxis.set_major_locator(MaxNLocator(5, integer=True))
            figure.align_ylabels()
        return figure

    def weight(self) -> Figure | None:
        """Draw alpha against iteration; equal curves are drawn once."""
        curves = weight_curves(self.groups)
        found: list[tuple[list[str], Curve]] = []
        for label, one in curves.items():
            same = (n for n, other in found if len(other.mean) == len(one.mean) and np.allclose(other.mean, one.mean))
            equal = next(same, None)
            if equal is not None:
                equal.append(label)
            else:
                found.append(([label], one))
        if len(found) < len(curves):
            curves = {}
            for labels, one in found:
                name = "; ".join(labels)
                short = len(name) <= 40 or len(labels) == 1
                curves[name if short else f"{labels[0]} and {len(labels) - 1} more"] = one
        figure = self.curves(curves, "weight α of UCB$^b$")
        if figure is not None:
            figure.axes[0].set_ylim(0, 1.05)
        return figure

    def against(self, field: str, panels: Mapping[str, Sequence[str]], published: bool = False) -> Figure | None:
        """Draw totals against a field, on an axis to base 2; `panels` maps a label to the totals that its axis sums."""
        found = series(self.groups, field)
        if "regret" not in str(panels):
            found = {name: one for name, one in found.items() if _communicates(one)}
        if len(found) > STYLES:  # in a study of one field at a time, every value of another field is a single point
            found = {name: one for name, one in found.items() if len(one.runs) > 1}
        if not any(len(one.runs) > 1 for one in found.values()):
            return None
        over: set[str] = set()
        sheet = Sheet(len(panels), 1, self._title, self.line, stacked=True)
        marked: set[tuple[float, float]] = set()
        for axis, (words, names) in zip(sheet.axes, panels.items(), strict=True):
            lines, means = [], []
            for label, one in found.items():
                totals = one.totals(names)
                look = style(self._numbers[label])
                mean = [total.mean for total in totals.values()]
                axis.errorbar(list(totals), mean, [t.error for t in totals.values()], **look, capsize=2, elinewidth=0.8)
                over |= {total.over for total in totals.values() if total.error > 0}
                lines.append(Line2D([], [], **look, label=plain(label)))
                means += mean
                for x in totals if published else ():
                    value = self._published.get(one.labels[x])
                    if value is not None and (x, value) not in marked:  # presets share published values
                        _hollow(axis, x, value, self._numbers[label])
                        marked.add((x, value))
            axis.set_ylabel(words)
            _scale(axis, means)
            if words.startswith("bytes"):
                axis.yaxis.set_major_formatter(EngFormatter(unit="B"))
        _ticks(sheet.axes[-1], sorted({x for one in found.values() for x in one.runs}))
        sheet.axes[-1].set_xlabel(axis_words(field))
        sheet.figure.align_ylabels()
        sheet.legend(lines, note("bars", over), bool(marked))
        return sheet.figure

    def against_bytes(self) -> Figure | None:
        """Draw final regret against bytes sent; a line joins the groups that have a name in common."""
        groups = keep_finished(self.groups)
        if len(groups) < 2 or self._own_scales:
            return None
        points = {label: (Total.of(runs, BYTES).mean, Total.of(runs, ("regret",))) for label, runs in groups.items()}
        if not any(sent for sent, _ in points.values()):
            return None
        sheet = Sheet(1, 1, self._title, self.line, stacked=True)
        (axis,) = sheet.axes
        lines = []
        for name in dict.fromkeys(self.places[label].name for label in points):
            members = {label: point for label, point in points.items() if self.places[label].name == name}
            look = style(self._numbers[name])
            lines.append(Line2D([], [], **look, label=plain(name)))
            ordered = sorted((sent, total.mean, total.error, label) for label, (sent, total) in members.items() if sent)
            if ordered:
                sent, mean, error, labels = zip(*ordered, strict=True)
                axis.errorbar(sent, mean, error, **look, capsize=2, elinewidth=0.8)
                ends = dict.fromkeys((0, len(labels) - 1))
                for end in ends if len(self.places[labels[0]].panel) <= NOTE_CHARACTERS else ():
                    where = {"xytext": (3, 3), "textcoords": "offset points", "fontsize": 5.5, "color": look["color"]}
                    axis.annotate(plain(self.places[labels[end]].panel), (sent[end], mean[end]), **where)
            for sent_nothing in (total.mean for sent, total in members.values() if not sent):
                axis.axhline(sent_nothing, color=look["color"], linestyle=look["linestyle"], linewidth=0.9)
        sends = [sent for sent, _ in points.values() if sent]
        if max(sends) > 3 * min(sends):
            axis.set_xscale("log")
            axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if max(sends) < 30 * min(sends) else (1,)))
            axis.xaxis.set_minor_locator(NullLocator())
        axis.xaxis.set_major_formatter(EngFormatter(unit="B"))
        _scale(axis, [total.mean for _, total in points.values()])
        axis.set_xlabel("bytes sent")
        axis.set_ylabel("final regret per agent")
        over = {total.over for _, total in points.values() if total.error > 0}
        remark = note("bars", over)
        if any(sent == 0 for sent, _ in points.values()):
            remark = "; ".join(text for text in (remark, "without marks: sends nothing") if text)
        sheet.legend(lines, remark)
        return sheet.figure


def _communicates(one: Series) -> bool:
    return any(run.summary["rounds"] for runs in one.runs.values() for run in runs)


def axis_words(field: str) -> str:
    """Return the axis label of a field."""
    return {"agents": "agents N", "threshold": "threshold D"}.get(
        field, FIELD_NAMES.get(field, field.replace("_", " "))
    )


def _scale(axis: Axes, values: Sequence[float]) -> None:
    """Start the y axis at zero, or make it logarithmic where values span more than a factor of 30."""
    if min(values) > 0 and max(values) > 30 * min(values):
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


def figures(
    runs: Sequence[RunRecord], title: str | None = None, published: Mapping[str, float] | None = None
) -> dict[str, Figure]:
    """Draw every figure that applies to these runs; return them by name, the most important first.

    `published` maps a label to a published final regret.
    """
    drawing = Drawing(runs, title, published or {})
    drawn: dict[str, Figure | None] = {}
    with matplotlib.rc_context(STYLE):
        drawn["regret"] = drawing.curves(regret_curves(drawing.groups), "cumulative regret per agent", published=True)
        fields = numeric_fields(drawing.groups)
        for field in fields:
            drawn[f"regret-against-{field}"] = drawing.against(field, {"final regret per agent": ["regret"]}, True)
        for field in fields:
            panels = {"communication rounds": ["rounds"], "bytes sent": BYTES}
            drawn[f"rounds-against-{field}"] = drawing.against(field, panels)
        drawn["regret-against-bytes"] = drawing.against_bytes()
        drawn["regret-against-time"] = regret_against_time(drawing.groups, title, drawing.line)
        drawn["time"] = time_spent(drawing.groups, title, drawing.line)
        drawn["rounds"] = drawing.rounds()
        drawn["weight"] = drawing.weight()
    return {name: figure for name, figure in drawn.items() if figure is not None}


def draw(
    runs: Sequence[RunRecord],
    out: Path,
    title: str | None = None,
    published: Mapping[str, float] | None = None,
    pdf: bool = True,
) -> list[Path]:
    """Write every figure as PNG and PDF into `out`; return the PNG files, the most important first."""
    check_inside(out / "any")
    out.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, figure in figures(runs, title, published).items():
        with matplotlib.rc_context(STYLE):
            with atomic_write(out / f"{name}.png") as part:
                figure.savefig(part, format="png", dpi=200, metadata={"Software": MAKER})
            if pdf:
                with atomic_write(out / f"{name}.pdf") as part:
                    figure.savefig(part, format="pdf", metadata={"CreationDate": None, "Creator": MAKER})
        paths.append(out / f"{name}.png")
    return paths
