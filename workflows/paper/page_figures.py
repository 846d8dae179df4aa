"""Figures of the page of results: those of one study, communication, sensitivity."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FixedLocator, FuncFormatter, LogLocator, NullLocator

from fnbandit.storage.files import MAKER
from fnbandit.storage.records import RunRecord, atomic_write
from workflows.reporting.canvas import COLOURS, LINES, MARKERS, STYLE, WIDTH
from workflows.reporting.curves import BYTES, Groups, Total, regret_curves
from workflows.reporting.figures import Drawing
from workflows.reporting.grouping import group
from workflows.reporting.privacy_figure import regret_against_epsilon
from workflows.reporting.total_figures import axis_words

DPI = 120
SHADES = 128
"""Number of colours of a picture: enough for lines on white, in a third of the bytes"""
TRIGGER_WORDS = {"logdet": "log det above D", "diagonal": "diagonal log det above D", "period": "period",
            "budget": "budget of rounds"}  # fmt: skip
FORMS = {"exact": "as they are", "factored": "factored", 8: "8 bits", 4: "4 bits", "diagonal": "diagonal matrices"}
"""Forms of messages, in words"""


def write_picture(figure: Figure, path: Path) -> None:
    """Write a figure as a small PNG file."""
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    buffer = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(buffer, format="png", dpi=DPI)
    image = Image.open(buffer).convert("RGB").quantize(SHADES, dither=Image.Dither.NONE)
    metadata = PngInfo()
    metadata.add_text("Software", MAKER)
    with atomic_write(path) as part:
        image.save(part, "png", optimize=True, pnginfo=metadata)


def make_grid(rows: int, columns: int, height: float, title: str) -> tuple[Figure, list[Axes]]:
    """Make a figure of two columns' width with light grids, and its axes row by row."""
    figure = Figure(figsize=(2 * WIDTH + 0.2, height), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).ravel())
    for axis in axes:
        axis.grid(color="0.92", linewidth=0.5)
        axis.set_axisbelow(True)
    figure.suptitle(title)
    return figure, axes


def study_figure(
    runs: Sequence[RunRecord], title: str, published: Mapping[str, float], line: str | None = None
) -> Figure | None:
    """Draw cumulative regret against iteration, a panel per preset; `line` replaces the line below the title."""
    with matplotlib.rc_context(STYLE):
        drawing = Drawing(runs, title, published)
        drawing.line = drawing.line if line is None else line
        return drawing.curves(regret_curves(drawing.groups), "cumulative regret per agent", published=True)


def against_agents_figure(runs: Sequence[RunRecord], title: str, published: Mapping[str, float]) -> Figure | None:
    """Draw final regret against N, presets and published values in one panel."""
    with matplotlib.rc_context(STYLE):
        return Drawing(runs, title, published).against("agents", {"final regret per agent": ["regret"]}, True)


def against_field_figure(runs: Sequence[RunRecord], title: str, field: str) -> Figure | None:
    """Draw final regret against a field of Config, a panel per task and a line per setting."""
    tasks = group_by_task(runs)
    with matplotlib.rc_context(STYLE):
        figure, axes = make_grid(1, len(tasks), 2.5, title)
        for axis, (task, members) in zip(axes, tasks.items(), strict=True):
            lines: dict[str, dict[float, list[RunRecord]]] = {}
            for run in members:
                setting, value = run.summary["label"].partition(": ")[0], run.summary["config"][field]
                lines.setdefault(setting, {}).setdefault(value, []).append(run)
            for number, (setting, points) in enumerate(sorted(lines.items(), key=lambda one: -len(one[0]))):
                totals = [(value, Total.of(points[value], ["regret"])) for value in sorted(points)]
                look = {"color": COLOURS[number], "linestyle": LINES[number], "marker": MARKERS[number]}
                axis.errorbar([x for x, _ in totals], [t.mean for _, t in totals], [t.error for _, t in totals],
                              capsize=1.5, elinewidth=0.7, label=setting, **look)  # fmt: skip
            axis.set_ylim(bottom=0)
            axis.set_title(task)
            axis.set_xlabel(axis_words(field))
        axes[0].set_ylabel("final regret per agent")
        handles = {line.get_label(): line for axis in axes for line in _handles(axis)}
        figure.legend(handles=list(handles.values()), loc="outside lower center", ncols=4)
        return figure


def group_by_task(runs: Sequence[RunRecord]) -> dict[str, list[RunRecord]]:
    """Return the runs by their environment."""
    found: dict[str, list[RunRecord]] = {}
    for run in runs:
        found.setdefault(run.summary["config"]["environment"], []).append(run)
    return found


def _points(axis: Axes, members: Sequence[list[RunRecord]], names: Sequence[str], **look: Any) -> None:
    """Draw final regret against the mean of a total, in increasing order."""
    found = [(Total.of(runs, names).mean, Total.of(runs, ["regret"])) for runs in members]
    found.sort(key=lambda one: one[0])
    if found:
        x, totals = [x for x, _ in found], [total for _, total in found]
        error = [total.error for total in totals]
        axis.errorbar(x, [total.mean for total in totals], error, capsize=1.5, elinewidth=0.7, **look)


def front(groups: Groups) -> list[tuple[float, float, str]]:
    """Return bytes, regret and label of the Pareto front: less regret than all groups that send no more bytes."""
    found = sorted((Total.of(runs, BYTES).mean, Total.of(runs, ["regret"]).mean, name) for name, runs in groups.items())
    best: list[tuple[float, float, str]] = []
    for one in found:
        if not best or one[1] < best[-1][1]:
            best.append(one)
    return best


def form_of(run: RunRecord) -> Any:
    """Return the form of a run's messages, a key of FORMS."""
    config = run.summary["config"]
    if config["diagonal"]:
        return "diagonal"
    return config["message_bits"] if config["messages"] == "quantized" else config["messages"]


def communication_figure(tasks: Mapping[str, Sequence[RunRecord]]) -> Figure | None:
    """Draw a row per task: regret against rounds by trigger, and against bytes by form of messages, with the front."""
    tasks = {title: runs for title, runs in tasks.items() if runs}
    if not tasks:
        return None
    with matplotlib.rc_context(STYLE):
        figure, axes = make_grid(len(tasks), 2, 0.9 + 2.0 * len(tasks), "What communication buys (tuned, T = 2,000)")
        for (task, runs), left, right in zip(tasks.items(), axes[::2], axes[1::2], strict=True):
            groups = group(runs)
            for axis in (left, right):
                axis.set_xscale("log")
                axis.set_yscale("log")
                axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
                axis.yaxis.set_minor_locator(NullLocator())
            _against_rounds(left, groups)
            left.set_ylim(bottom=0.75 * left.get_ylim()[0])
            _against_bytes(right, groups)
            for axis in (left, right):
                low, high = axis.get_ylim()
                subs = (1, 2, 5) if high > 10 * low else (1, 2, 3, 4, 5, 6, 8)
                axis.yaxis.set_major_locator(LogLocator(subs=subs))
            left.set_title(f"{task}: when to communicate")
            right.set_title(f"{task}: what to send")
            left.set_ylabel("final regret per agent")
        left.set_xlabel("communication rounds")
        right.set_xlabel("bytes sent, up and down")
        handles = [[line for axis in axes[side::2] for line in _handles(axis)] for side in (0, 1)]
        unique = [list({line.get_label(): line for line in side}.values()) for side in handles]
        figure.legend(handles=unique[0], loc="outside lower left", ncols=2, title="round when (messages as they are)")
        figure.legend(
            handles=unique[1], loc="outside lower right", ncols=2, title="messages (log det, or every iteration)"
        )
        return figure


def _handles(axis: Axes) -> list[Any]:
    return [handle for handle in axis.get_legend_handles_labels()[0] if not str(handle.get_label()).startswith("_")]


def _against_rounds(axis: Axes, groups: Groups) -> None:
    plain = [runs for runs in groups.values() if form_of(runs[0]) == "exact"]
    for number, (trigger, words) in enumerate(TRIGGER_WORDS.items()):
        members = [runs for runs in plain if runs[0].summary["config"]["trigger"] == trigger]
        look = {"color": COLOURS[number], "linestyle": LINES[number], "marker": MARKERS[number]}
        _points(axis, members, ["rounds"], label=words, **look)
    exact = [runs for runs in plain if runs[0].summary["config"]["trigger"] == "logdet"]
    for number, runs in enumerate(sorted(exact, key=lambda runs: -runs[0].summary["config"]["threshold"])):
        at = Total.of(runs, ["rounds"]).mean, Total.of(runs, ["regret"]).mean
        where: dict[str, Any] = {"xytext": (2, -9), "textcoords": "offset points", "fontsize": 6.5, "ha": "right"}
        words = f"{'D = ' if number == 0 else ''}{runs[0].summary['config']['threshold']:g}"
        axis.annotate(words, at, color=COLOURS[0], **where)
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    always = [runs for runs in plain if runs[0].summary["config"]["trigger"] == "always"]
    _points(axis, always, ["rounds"], label="every iteration", color="black", marker="*", markersize=8, linestyle="")


def _against_bytes(axis: Axes, groups: Groups) -> None:
    best = front(groups)
    axis.step([x for x, _, _ in best], [y for _, y, _ in best], where="post", color="0.8", linewidth=4, zorder=0,
              label="the front, all runs")  # fmt: skip
    for number, (form, words) in enumerate(FORMS.items()):
        wanted = ("logdet", "always") if form != "diagonal" else ("diagonal", "always")
        members = [
            runs
            for runs in groups.values()
            if form_of(runs[0]) == form and runs[0].summary["config"]["trigger"] in wanted
        ]
        look = {"color": COLOURS[number], "linestyle": LINES[number], "marker": MARKERS[number]}
        _points(axis, members, BYTES, label=words, **look)
    axis.xaxis.set_major_formatter(EngFormatter(unit="B", sep=""))
    axis.xaxis.set_minor_locator(NullLocator())


def draw_privacy_figure(runs: Sequence[RunRecord]) -> Figure | None:
    """Draw regret against epsilon, a panel per N."""
    with matplotlib.rc_context(STYLE):
        return regret_against_epsilon(group(list(runs)), "What privacy costs (cosine, T = 200)", "") if runs else None


SENSITIVE = {
    "training_rate": "rate", "training_effort": "steps", "ramp": "ramp", "regularization": "λ",
    "exploration_local": "local ν", "exploration_global": "global ν",
}  # fmt: skip
"""Fields of the sensitivity study"""


def sensitivity_series(runs: Sequence[RunRecord]) -> dict[str, dict[str, dict[float, list[RunRecord]]]]:
    """Return task -> field -> factor of its tuned value -> runs; factor 1 has the tuned runs in every field."""
    tasks: dict[str, list[RunRecord]] = {}
    for run in runs:
        tasks.setdefault(run.summary["label"].partition(": ")[0], []).append(run)
    found: dict[str, dict[str, dict[float, list[RunRecord]]]] = {}
    for task, members in tasks.items():
        base = [run for run in members if run.summary["label"].endswith(": tuned")]
        if not base:
            continue
        usual = base[0].summary["config"]
        fields = found.setdefault(task, {name: {1.0: base} for name in SENSITIVE})
        for run in members:
            config = run.summary["config"]
            for name in SENSITIVE:
                if config[name] != usual[name]:
                    fields[name].setdefault(config[name] / usual[name], []).append(run)
    return found


def sensitivity_figure(runs: Sequence[RunRecord]) -> Figure | None:
    """Draw final regret against the factor of a field's tuned value, a panel per task."""
    found = sensitivity_series(runs)
    if not any(len(factors) > 1 for fields in found.values() for factors in fields.values()):
        return None
    with matplotlib.rc_context(STYLE):
        figure, axes = make_grid(1, len(found), 2.7, "One field at a time (tuned, T = 1,000)")
        for axis, (task, fields) in zip(axes, found.items(), strict=True):
            for number, (name, words) in enumerate(SENSITIVE.items()):
                points = sorted(fields[name].items())
                totals = [Total.of(members, ["regret"]) for _, members in points]
                look = {"color": COLOURS[number], "linestyle": LINES[number % 5], "marker": MARKERS[number]}
                error = [total.error for total in totals]
                axis.errorbar([x for x, _ in points], [t.mean for t in totals], error, capsize=1.5, elinewidth=0.7,
                              label=words, **look)  # fmt: skip
            axis.set_xscale("log")
            axis.set_yscale("log")
            axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.yaxis.set_minor_locator(NullLocator())
            axis.xaxis.set_major_locator(FixedLocator([0.1, 1 / 3, 1, 3, 10]))
            axis.xaxis.set_minor_locator(NullLocator())
            axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: {1 / 3: "1/3"}.get(value, f"{value:g}")))
            axis.set_xlabel("times its tuned value")
            axis.set_title(task)
        axes[0].set_ylabel("final regret per agent")
        figure.legend(handles=_handles(axes[0]), loc="outside lower center", ncols=len(SENSITIVE))
        return figure
