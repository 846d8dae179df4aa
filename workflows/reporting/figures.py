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
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullLocator,
)

from fnbandit.storage.files import MAKER, check_inside
from fnbandit.storage.records import RunRecord, atomic_write
from workflows.reporting.canvas import STYLE, Sheet, equalize, note, plain, style
from workflows.reporting.curves import (
    BYTES,
    MESSAGES,
    PANEL_SERIES,
    Curve,
    Place,
    exchange_curves,
    numeric_fields,
    regret_curves,
    round_curves,
    weight_curves,
)
from workflows.reporting.liar_figures import regret_against_liars
from workflows.reporting.privacy_figure import regret_against_epsilon
from workflows.reporting.routing_figure import reward_against_choices
from workflows.reporting.time_figures import regret_against_time, time_spent
from workflows.reporting.total_figures import BYTES_AXIS, TotalFigures, draw_hollow

FIGURE_POINTS = 1000
"""Maximum number of points of a curve"""
LOGARITHMIC_FACTOR = 12
"""A panel with its own scale is logarithmic where its final values differ by more than this factor"""
INDISTINCT = 0.005
"""Curves of alpha that differ less look like one"""


class Drawing(TotalFigures):
    """The figures of one study, with the same names and styles of runs in all of them."""

    def curves(self, curves: Mapping[str, Curve], words: str, published: bool = False, below: int = 0) -> Figure | None:
        """Draw curves against iteration, in one panel or in small multiples; leave `below` axes free under it."""
        if not curves:
            return None
        known = all(label in self.places for label in curves)
        at = {label: self.places[label] if known else Place("", label) for label in curves}
        order_of = {place.panel: number for number, place in enumerate(self.places.values())}
        names = sorted({place.panel for place in at.values()}, key=lambda panel: order_of.get(panel, 0))
        columns = 2 if len(names) == 4 else min(len(names), 3 if len(names) % 4 else 4)
        stacked = self._own_scales or len(names) == 1
        sheet = Sheet(-(-len(names) // columns) + below, columns, self._title, self.line, stacked, self._share)
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
                    draw_hollow(axis, one.iterations[-1], self._published[label], number)
                    ends.append(self._published[label])
                    marked = True
            if panel:
                axis.set_title(plain(panel, 1.1 * sheet.width / columns))
            if self._own_scales and max(ends) > LOGARITHMIC_FACTOR * min(ends) > 0:
                axis.set_yscale("log")
                axis.set_ylim(bottom=min(ends) / 4)
                axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
                axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
                axis.yaxis.set_minor_locator(NullLocator())
        # After all curves: a limit that is set stops axes that share it from growing.
        tasks: dict[str, list[Axes]] = {}
        for axis, panel in zip(sheet.axes, names, strict=False):
            label = next(label for label in curves if at[label].panel == panel)
            task = f"{panel}" if self._own_scales else self._task_of(label)
            tasks.setdefault(task, []).extend([axis] if axis.get_yscale() == "linear" else [])
        for axes in tasks.values():
            equalize(axes)
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
            axis.xaxis.set_major_locator(MaxNLocator(6 if columns == 1 else 4, integer=True, steps=[1, 2, 5, 10]))
            axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        over = {one.over for one in curves.values() if one.error.any()}
        handles = [lines[name] for name in sorted(lines, key=lambda name: self._numbers.get(name, 0))]
        sheet.legend(handles, note("band", over), marked)
        return sheet.figure

    def rounds(self) -> Figure | None:
        """Draw the number of rounds up to every iteration; for one group also the epoch lengths."""
        curves = round_curves(self.groups)
        alone = len(curves) == 1
        figure = self.curves(curves, "rounds", below=1 if alone else 0)
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

    def exchanges(self) -> Figure | None:
        """Draw the number of exchanges up to every iteration of agents that do not wait for others."""
        return self.curves(exchange_curves(self.groups), "exchanges of single agents")

    def weight(self) -> Figure | None:
        """Draw alpha against iteration; curves that cannot be told apart are drawn once."""
        curves = weight_curves(self.groups)
        found: list[tuple[list[str], Curve]] = []
        for label, one in curves.items():
            same = (
                n
                for n, other in found
                if len(other.mean) == len(one.mean) and np.allclose(other.mean, one.mean, rtol=0, atol=INDISTINCT)
            )
            equal = next(same, None)
            if equal is not None:
                equal.append(label)
            else:
                found.append(([label], one))
        if len(found) < len(curves) <= PANEL_SERIES:
            curves = {}
            for labels, one in found:
                name = "; ".join(labels)
                short = len(name) <= 40 or len(labels) == 1
                curves[name if short else f"{labels[0]} and {len(labels) - 1} more"] = one
        figure = self.curves(curves, "weight α of UCB$^b$")
        if figure is not None:
            for axis in figure.axes:
                axis.set_ylim(0, 1.05)
        return figure


def figures(
    runs: Sequence[RunRecord], title: str | None = None, published: Mapping[str, float] | None = None
) -> dict[str, Figure]:
    """Draw every figure that applies to these runs; return them by name, the most important first.

    `published` maps a label to a published final regret.
    """
    drawing = Drawing(runs, title, published or {})
    drawn: dict[str, Figure | None] = {}
    with matplotlib.rc_context(STYLE):
        drawn["regret-against-epsilon"] = regret_against_epsilon(drawing.groups, title, drawing.line)
        drawn["regret-against-liars"] = regret_against_liars(runs, title)
        drawn["reward"] = reward_against_choices(drawing.groups, title, drawing.line)
        drawn["regret"] = drawing.curves(regret_curves(drawing.groups), "cumulative regret per agent", published=True)
        fields = numeric_fields(drawing.groups)
        for field in fields:
            drawn[f"regret-against-{field}"] = drawing.against(field, {"final regret per agent": ["regret"]}, True)
        for field in fields:
            panels = {"rounds": ["rounds"], "messages": MESSAGES, BYTES_AXIS: BYTES}
            drawn[f"rounds-against-{field}"] = drawing.against(field, panels)
        drawn["regret-against-bytes"] = drawing.against_bytes()
        drawn["regret-against-time"] = regret_against_time(drawing.groups, title, drawing.line)
        drawn["time"] = time_spent(drawing.groups, title, drawing.line)
        drawn["rounds"] = drawing.rounds()
        drawn["exchanges"] = drawing.exchanges()
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
