"""Figures of runs: regret, what federation and communication change, the rounds, the weight.

Every figure is one column wide, as PNG and PDF. Runs that differ only in seed are one curve.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.textpath import TextPath
from matplotlib.ticker import EngFormatter, FixedLocator, FuncFormatter, MaxNLocator, NullFormatter, NullLocator

from fnbandit.records import RunRecord, aside
from fnbandit.results import standard_error
from workflows.grouping import (
    agent_curves,
    curve,
    described,
    differing,
    group,
    means,
    round_counts,
    settings,
    shared_settings,
    unused,
)

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's palette, without the yellow that is hard to see on white"""
LINES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (6, 1.5, 1.2, 1.5)), (0, (1.2, 1.2)), (0, (3, 1, 1, 1, 1, 1)))
MARKERS = "os^Dv<>Phd"
POINTS = 1000
"""Points of a curve at most"""
WIDTH = 3.4
"""Inches: one column"""
STYLE: dict[Any, Any] = {
    "font.size": 8, "axes.titlesize": 8, "axes.linewidth": 0.6, "axes.spines.top": False, "axes.spines.right": False,
    "xtick.major.width": 0.6, "ytick.major.width": 0.6, "lines.linewidth": 1.2, "lines.markersize": 3.5,
    "legend.fontsize": 7.5, "legend.title_fontsize": 7, "legend.frameon": False, "legend.handlelength": 2.8,
    "legend.columnspacing": 1.4, "legend.labelspacing": 0.35, "legend.borderpad": 0.1, "pdf.fonttype": 42,
}  # fmt: skip


@dataclass(frozen=True)
class Curve:
    """Mean and standard error against iteration."""

    iterations: np.ndarray
    mean: np.ndarray
    error: np.ndarray
    over: str
    """What the error is over"""
    index: int
    """Which style it has: the same in all figures"""

    @classmethod
    def of(cls, curves: Sequence[tuple[np.ndarray, np.ndarray]], index: int = 0) -> Curve:
        """Over runs, as far as the shortest goes."""
        length = min(len(iterations) for iterations, _ in curves)
        values = np.stack([value[:length] for _, value in curves])
        mean, error = values.mean(axis=0), standard_error(values)
        error[error < 1e-9 * np.abs(mean)] = 0  # rounding
        return cls(curves[0][0][:length], mean, error, f"{len(curves)} seeds", index)

    def thinned(self) -> Curve:
        """At most POINTS points, the first and the last among them."""
        count = len(self.mean)
        chosen = np.unique(np.linspace(0, count - 1, min(count, POINTS)).round().astype(int))
        return replace(self, iterations=self.iterations[chosen], mean=self.mean[chosen], error=self.error[chosen])


def regret_curve(runs: Sequence[RunRecord], index: int = 0) -> Curve:
    """The cumulative regret of runs that differ in seed; a single run's error is that over its agents."""
    result = Curve.of([curve(run) for run in runs], index)
    if len(runs) == 1 and len(agents := agent_curves(runs[0])) > 1:
        return replace(result, error=standard_error(agents), over="agents")
    return result


def _style(index: int) -> dict[str, Any]:
    return {"color": COLOURS[index % 7], "linestyle": LINES[index % 5], "marker": MARKERS[index % 10]}


def _text(label: str) -> str:
    """A label as matplotlib shows it unharmed, in lines that fit, with raised a and b."""
    whole = re.sub(r" ?= ?", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}", label.lstrip("_").replace("$", r"\$"))
    lines = textwrap.wrap(whole, 48)
    return re.sub(r"UCB\^([ab])", r"UCB$^\1$", "\n".join(lines))


def _canvas(panels: int, title: str | None) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(WIDTH, 2.2 if panels == 1 else 1.6 * panels + 0.2), layout="constrained")
    axes = list(figure.subplots(panels, 1, sharex=True, squeeze=False)[:, 0])
    for axis in axes:
        axis.grid(axis="y", color="0.9", linewidth=0.5)
        axis.set_axisbelow(True)
    if title:
        axes[0].set_title(_text(title))
    return figure, axes


def _legend(figure: Figure, lines: list[Line2D], note: str | None, published: bool = False) -> None:
    """Below the axes, where it covers no data; the figure grows by its rows. One curve needs no entry."""
    if published:
        hollow = Line2D([], [], linestyle="", marker="o", color="0.3", markerfacecolor="white", label="published")
        lines = [*lines, hollow]
    elif len(lines) == 1:
        lines = []
    if not lines and note is None:
        return
    widest = max((_width(line) for line in lines), default=0)
    columns = max(1, min(len(lines), 3, int((WIDTH + 0.1) / (widest + 0.1))))
    rows = sum(str(line.get_label()).count("\n") + 1 for line in lines[::columns]) + (note is not None)
    figure.set_figheight(figure.get_figheight() + 0.16 * rows)
    figure.legend(handles=lines, loc="outside lower center", ncols=columns, title=note, borderaxespad=0.2)


def _width(line: Line2D) -> float:
    """Inches that a legend entry takes."""
    parts = str(line.get_label()).split("\n")
    return 0.38 + max(TextPath((0, 0), part, size=7.5).get_extents().width for part in parts) / 72


def _note(drawn: str, over: set[str]) -> str | None:
    """What a band or bar stands for."""
    words = " or ".join(over) if len(over) < 2 else "seeds (one seed: over agents)" if "agents" in over else "seeds"
    return f"{drawn}: standard error over {words}" if over else None


def _hollow(axis: Axes, x: float, y: float, index: int) -> None:
    """A published value."""
    style = {**_style(index), "linestyle": "", "markersize": 5.5, "markerfacecolor": "white"}
    axis.plot([x], [y], **style, markeredgewidth=1.1, clip_on=False, zorder=4, label="_published")


def curves_figure(
    curves: dict[str, Curve], words: str, title: str | None, published: dict[str, float] | None = None, panels: int = 1
) -> Figure:
    """Curves against iteration, in the first panel."""
    figure, axes = _canvas(panels, title)
    published = {label: value for label, value in (published or {}).items() if label in curves}
    lines = []
    for number, (label, whole) in enumerate(curves.items()):
        one, style = whole.thinned(), _style(whole.index)
        every = max(1, len(one.mean) // 6)
        marks = (min(every * (2 * number + 1) // (2 * len(curves)), len(one.mean) - 1), every)
        lines += axes[0].plot(one.iterations, one.mean, **style, label=_text(label), markevery=marks)
        if one.error.any():
            band = (one.mean - one.error, one.mean + one.error)
            axes[0].fill_between(one.iterations, *band, color=style["color"], alpha=0.18, linewidth=0)
        if label in published:
            _hollow(axes[0], one.iterations[-1], published[label], one.index)
    axes[0].set_ylabel(words)
    axes[0].set_ylim(bottom=0)
    axes[-1].set_xlabel("iteration")
    axes[-1].set_xlim(left=0)
    axes[-1].xaxis.set_major_locator(MaxNLocator(6, integer=True))
    over = {one.over for one in curves.values() if one.error.any()}
    _legend(figure, lines, _note("band", over), bool(published))
    return figure


def rounds_figure(groups: dict[str, list[RunRecord]], title: str | None) -> Figure | None:
    """Rounds up to every iteration; with one group also how long its epochs were."""
    counts = {label: [round_counts(run) for run in runs] for label, runs in groups.items()}
    curves = {label: Curve.of(counts[label], index) for index, label in enumerate(groups)}
    curves = {label: one for label, one in curves.items() if one.mean.any() and one.mean[-1] < len(one.mean)}
    if not curves:
        return None
    figure = curves_figure(curves, "communication rounds", title, panels=2 if len(curves) == 1 else 1)
    if len(curves) == 1:
        axis = figure.axes[1]
        for run in groups[next(iter(curves))]:
            ends, lengths = (run.rounds.column(name).to_numpy() for name in ("iteration", "epoch_length"))
            axis.plot(
                ends,
                lengths,
                ".",
                markersize=3.5,
                color=_style(next(iter(curves.values())).index)["color"],
                alpha=0.6,
                markeredgewidth=0,
            )
        axis.set_ylabel("epoch length")
        axis.set_ylim(bottom=0)
        axis.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        figure.align_ylabels()
    return figure


def weight_figure(groups: dict[str, list[RunRecord]], title: str | None) -> Figure | None:
    """alpha against iteration; equal curves are drawn once."""
    found: list[tuple[list[str], Curve]] = []
    for index, (label, runs) in enumerate(groups.items()):
        one = Curve.of([means(run, "weight") for run in runs], index)
        length = len(one.mean)
        equal = next((n for n, other in found if len(other.mean) == length and np.allclose(other.mean, one.mean)), None)
        if equal is not None:
            equal.append(label)
        elif one.mean.any():
            found.append(([label], one))
    if not found:
        return None
    curves = {}
    for labels, one in found:
        name = "; ".join(labels)
        curves[name if len(name) <= 40 or len(labels) == 1 else f"{labels[0]} and {len(labels) - 1} more"] = one
    figure = curves_figure(curves, "weight α of UCB$^b$", title)
    figure.axes[0].set_ylim(0, 1.05)
    return figure


@dataclass(frozen=True)
class Series:
    """Finished runs that differ in one field and seed, by the field's value."""

    runs: dict[float, list[RunRecord]]
    labels: dict[float, str]
    """The groups' labels"""

    def totals(self, x: float, names: Iterable[str]) -> np.ndarray:
        """A sum of totals, [runs]."""
        return np.array([float(sum(run.summary[name] for name in names)) for run in self.runs[x]])


def series(groups: dict[str, list[RunRecord]], field: str) -> dict[str, Series]:
    """Runs against a field, one series per combination of the others; empty if none has two values."""
    finished = {label: done for label, runs in groups.items() if (done := [run for run in runs if run.finished])}
    finished = {label: runs for label, runs in finished.items() if settings(runs[0]).get(field) is not None}
    configs = {label: shared_settings(runs[0]) for label, runs in finished.items()}
    fields = differing(list(configs.values()), leave_out=field)
    names: dict[str, str] = {}
    result: dict[str, Series] = {}
    for label, config in configs.items():
        key = repr([config.get(name) for name in fields])
        if key not in names:
            names[key] = unused(described(config, fields), result)
            result[names[key]] = Series({}, {})
        value = settings(finished[label][0])[field]
        result[names[key]].runs.setdefault(value, []).extend(finished[label])
        result[names[key]].labels[value] = label
    return result


def series_figure(
    found: dict[str, Series], field: str, panels: dict[str, tuple[str, ...]], title: str | None,
    published: dict[str, float] | None = None,
) -> Figure | None:  # fmt: skip
    """Totals against a field on an axis to base 2; `panels` maps an axis' words to the totals it sums."""
    if not any(len(one.runs) > 1 for one in found.values()):
        return None
    published = published or {}
    over: set[str] = set()
    figure, axes = _canvas(len(panels), title)
    for axis, (words, names) in zip(axes, panels.items(), strict=True):
        lines, means = [], []
        for index, (label, one) in enumerate(found.items()):
            xs = sorted(one.runs)
            totals = [one.totals(x, names) for x in xs]
            mean, error = np.array([(values.mean(), standard_error(values)) for values in totals]).T
            over |= {f"{len(values)} seeds" for values, size in zip(totals, error, strict=True) if size > 0}
            axis.errorbar(xs, mean, error, **_style(index), capsize=2, elinewidth=0.8)
            lines.append(Line2D([], [], **_style(index), label=_text(label)))
            means += list(mean)
            for x in xs:
                if one.labels[x] in published:
                    _hollow(axis, x, published[one.labels[x]], index)
        axis.set_ylabel(words)
        if min(means) > 0 and max(means) > 30 * min(means):
            axis.set_yscale("log")
            axis.yaxis.set_minor_formatter(NullFormatter())
        else:
            axis.set_ylim(bottom=0)
        if words.startswith("bytes"):
            axis.yaxis.set_major_formatter(EngFormatter(unit="B"))
    ticks = sorted({x for one in found.values() for x in one.runs})
    if ticks[0] > 0:
        axes[-1].set_xscale("log", base=2)
        axes[-1].xaxis.set_minor_locator(NullLocator())
    axes[-1].xaxis.set_major_locator(FixedLocator(ticks[:: -(-len(ticks) // 8)]))
    axes[-1].xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes[-1].set_xlabel({"agents": "agents N", "threshold": "threshold D"}[field])
    figure.align_ylabels()
    marked = any(label in published for one in found.values() for label in one.labels.values())
    _legend(figure, lines, _note("bars", over), marked)
    return figure


def figures(
    runs: Sequence[RunRecord], title: str | None = None, published: dict[str, float] | None = None
) -> dict[str, Figure]:
    """Every figure that makes sense for these runs by its name, the most important first."""
    groups = group(runs)
    drawn: dict[str, Figure | None] = {}
    with matplotlib.rc_context(STYLE):
        regret = {label: regret_curve(runs, index) for index, (label, runs) in enumerate(groups.items())}
        regret = {label: one for label, one in regret.items() if len(one.mean)}
        if regret:
            drawn["regret"] = curves_figure(regret, "cumulative regret per agent", title, published)
        against = {field: series(groups, field) for field in ("agents", "threshold")}
        for field, found in against.items():
            panels: dict[str, tuple[str, ...]] = {"final regret per agent": ("regret",)}
            drawn[f"regret-against-{field}"] = series_figure(found, field, panels, title, published)
        for field, found in against.items():
            found = {k: s for k, s in found.items() if any(r.summary["rounds"] for rs in s.runs.values() for r in rs)}
            panels = {"communication rounds": ("rounds",), "bytes sent": ("bytes_up", "bytes_down")}
            drawn[f"rounds-against-{field}"] = series_figure(found, field, panels, title)
        drawn["rounds"] = rounds_figure(groups, title)
        drawn["weight"] = weight_figure(groups, title)
    return {name: figure for name, figure in drawn.items() if figure is not None}


def draw(
    runs: Sequence[RunRecord],
    out: Path,
    title: str | None = None,
    published: dict[str, float] | None = None,
    pdf: bool = True,
) -> list[Path]:
    """Write every figure as PNG, and as PDF, into `out`; `published` maps a label to a published final regret.

    Returns the PNG files, the most important first.
    """
    out.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, figure in figures(runs, title, published).items():
        with matplotlib.rc_context(STYLE):
            with aside(out / f"{name}.png") as part:
                figure.savefig(part, format="png", dpi=200)
            if pdf:
                with aside(out / f"{name}.pdf") as part:
                    figure.savefig(part, format="pdf", metadata={"CreationDate": None})
        paths.append(out / f"{name}.png")
    return paths
