"""A study as one HTML file without a server: switchable curves, totals against N and D, differing fields."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fnbandit.config import FIELDS
from fnbandit.numerics.memory import readable
from fnbandit.storage.files import REPORT_FILE, TOTALS_FILE
from fnbandit.storage.records import RunRecord, atomic_write
from workflows.reporting.canvas import COLOURS
from workflows.reporting.curves import (
    BYTES,
    MESSAGES,
    Curve,
    Total,
    exchange_curves,
    keep_finished,
    numeric_fields,
    places,
    regret_curves,
    round_curves,
    series,
    style_numbers,
)
from workflows.reporting.grouping import group, list_shared_settings, read_total
from workflows.reporting.naming import context
from workflows.reporting.tables import HEADINGS, columns_of, remark, rows, write_csv
from workflows.reporting.total_figures import BYTES_AXIS, axis_words, has_rounds, is_wide

HTML_POINTS = 300
"""Maximum number of points of a curve"""
DASHES = ("solid", "dash", "dashdot", "dot", "longdashdot")
SYMBOLS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x", "pentagon", "hexagon", "star")
PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>
body {{ font: 13px/1.45 system-ui, sans-serif; margin: 1.5rem auto; max-width: 1280px; padding: 0 1rem; color: #222;
  background: #fff }}
h1 {{ font-size: 1.3rem; margin: 0 }}
h2 {{ font-size: 1.05rem; margin: 1.6rem 0 .3rem }}
h3 {{ font-size: .95rem; font-weight: 600; margin: .4rem 0 0; text-align: center }}
p {{ margin: .2rem 0 }}
.grey {{ color: #666 }}
.grid {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(330px, 1fr)); gap: .5rem }}
.grid > * {{ min-width: 0 }}
.scroll {{ overflow-x: auto }}
@media (max-width: 900px) {{ table {{ font-size: 12px }} th, td {{ padding: .15rem .3rem !important }} }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums }}
th, td {{ text-align: right; padding: .15rem .5rem; border-bottom: 1px solid #ddd; vertical-align: top }}
td {{ white-space: nowrap }}
th:first-child, td:first-child {{ text-align: left; white-space: normal; min-width: 7rem }}
th {{ cursor: pointer; font-weight: 600 }}
th[aria-sort=ascending]::after {{ content: " \2191" }}
th[aria-sort=descending]::after {{ content: " \2193" }}
</style><script>{script}</script><script>{sorting}</script></head><body>
<h1>{title}</h1>
<p class="grey">{context}</p>
<p>{caption}</p>
{parts}
</body></html>
"""


SORTING = """
document.addEventListener("click", event => {
  const head = event.target.closest("th");
  if (!head) return;
  const table = head.closest("table"), column = head.cellIndex;
  const up = head.getAttribute("aria-sort") !== "ascending";
  const value = row => row.cells[column].dataset.value ?? row.cells[column].textContent;
  const compare = (a, b) => {
    const [one, other] = [value(a), value(b)], [x, y] = [Number(one), Number(other)];
    if (one === "" || other === "") return (one === "") - (other === "");
    return (isNaN(x) || isNaN(y) ? one.localeCompare(other) : x - y) * (up ? 1 : -1);
  };
  for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
  table.tBodies[0].append(...[...table.rows].slice(1).sort(compare));
});
"""
"""Sorts a table by the column whose heading is clicked, numbers by size, empty cells last"""


def write_report(runs: Sequence[RunRecord], folder: Path, title: str, caption: str | None = None) -> list[Path]:
    """Write table.csv and report.html of a study's finished runs; return the two paths."""
    table, page = folder / TOTALS_FILE, folder / REPORT_FILE
    write_csv(runs, table)
    with atomic_write(page) as part:
        part.write_text(report_html(runs, title, caption), encoding="utf-8")
    return [table, page]


def report_html(runs: Sequence[RunRecord], title: str, caption: str | None = None) -> str:
    """Return the report of finished runs as one page, which contains the plotting library."""
    from plotly.offline import get_plotlyjs

    return PAGE.format(
        title=html.escape(title),
        script=get_plotlyjs(),
        sorting=SORTING,
        context=html.escape(context(runs)),
        caption=html.escape(caption or ""),
        parts="\n".join(HtmlPage(runs).parts()),
    )


class HtmlPage:
    """The parts of a report, with the colours and names of the figures."""

    def __init__(self, runs: Sequence[RunRecord]) -> None:
        self._runs = runs
        self._groups = group(runs)
        self._numbers = style_numbers(self._groups)
        self._places = places(self._groups)

    def parts(self) -> Iterable[str]:
        totals = rows(self._runs)
        columns = columns_of(totals)
        values = [[row.label, *(getattr(row, name) for name in columns[1:])] for row in totals]
        yield '<p class="grey">Click a heading to sort.</p>'
        yield _table([HEADINGS[name] for name in columns], [row.cells(columns) for row in totals], values)
        yield f'<p class="grey">{html.escape(remark(totals) or "")}</p>'
        if curves := regret_curves(self._groups):
            yield "<h2>Cumulative regret per agent</h2>"
            yield '<p class="grey">Click a name to hide or show its curve, double-click to hide or show all others.</p>'
            yield from self._panels(curves, "cumulative regret per agent", height=420)
        for field in numeric_fields(self._groups):
            yield f"<h2>Against {axis_words(field)}</h2>"
            quantities = {
                "final regret per agent": ["regret"],
                "rounds": ["rounds"],
                "messages": MESSAGES,
                BYTES_AXIS: BYTES,
            }
            plots = [self._against(field, words, names) for words, names in quantities.items()]
            yield f'<div class="grid">{"".join(plots)}</div>'
        if any(read_total(run.summary, "exchanges") for run in self._runs):
            yield "<h2>Regret against communication</h2>"
            yield self._against_bytes()
        if curves := round_curves(self._groups):
            yield "<h2>Rounds</h2>"
            yield from self._panels(curves, "rounds", height=340)
        if curves := exchange_curves(self._groups):
            yield "<h2>Exchanges of single agents</h2>"
            yield from self._panels(curves, "exchanges of single agents", height=340)
        yield "<h2>Differing fields</h2>"
        configs = {label: list_shared_settings(runs[0]) for label, runs in self._groups.items()}
        named = list(configs.values())
        differ = [name for name in FIELDS if len({repr(config.get(name, "")) for config in named}) > 1]
        yield _table(["run", *differ], [[label, *(c.get(n, "") for n in differ)] for label, c in configs.items()])
        same = [[name, named[0][name]] for name in FIELDS if name in named[0] and name not in differ]
        table = _table(["field", "value"], same)
        yield f"<details><summary>The {len(same)} common fields</summary>{table}</details>"

    def _panels(self, curves: Mapping[str, Curve], words: str, height: int) -> Iterable[str]:
        """Yield a plot for every panel of the figures, on one scale for each task."""
        panels: dict[str, dict[str, Curve]] = {}
        for label, one in curves.items():
            panels.setdefault(self._places[label].panel, {})[label] = one
        tops: dict[str, float] = {}
        for label, one in curves.items():
            task = self._groups[label][0].summary["config"]["environment"]
            tops[task] = max(tops.get(task, 0.0), 1.05 * float((one.mean + one.error).max()))
        plots = []
        for panel, inside in panels.items():
            task = self._groups[next(iter(inside))][0].summary["config"]["environment"]
            title = f"<h3>{html.escape(panel)}</h3>" if panel else ""
            plots.append(f"<div>{title}{self._curves(inside, words, height, tops[task])}</div>")
        yield f'<div class="grid">{"".join(plots)}</div>' if len(plots) > 1 else plots[0]

    def _curves(self, curves: Mapping[str, Curve], words: str, height: int, top: float) -> str:
        traces = []
        for label, whole in curves.items():
            one, place = whole.thin(HTML_POINTS), self._places[label]
            line, colour = self._line(place.name, place.panel), COLOURS[self._numbers[place.name] % len(COLOURS)]
            xs, mean, error = one.iterations.tolist(), one.mean, one.error
            common: dict[str, Any] = {"type": "scatter", "mode": "lines", "legendgroup": label, "name": place.name}
            hover = "%{y:.4g} in iteration %{x}"
            traces.append(common | {"x": xs, "y": mean.round(6).tolist(), "line": line, "hovertemplate": hover})
            if error.any():
                band = [*(mean + error).round(6).tolist(), *(mean - error).round(6).tolist()[::-1]]
                look = {"fill": "toself", "fillcolor": colour, "opacity": 0.15, "line": {"width": 0}}
                hidden = {"showlegend": False, "hoverinfo": "skip"}
                traces.append(common | {"x": [*xs, *xs[::-1]], "y": band} | look | hidden)
        return _plot(traces, "iteration", words, height, vertical={"range": [0, top]})

    def _line(self, name: str, panel: str = "") -> dict[str, Any]:
        """Return a line style: colours distinguish names, dashes distinguish panels where there are several."""
        panels = list(dict.fromkeys(place.panel for place in self._places.values()))
        number = self._numbers[name]
        dash = DASHES[(panels.index(panel) if len(panels) > 1 and panel in panels else number) % len(DASHES)]
        return {"color": COLOURS[number % len(COLOURS)], "dash": dash, "width": 2}

    def _against(self, field: str, words: str, names: Sequence[str]) -> str:
        traces = []
        for label, one in series(self._groups, field).items():
            if names == ["rounds"] and not has_rounds(one):
                continue
            totals = one.totals(names)
            traces.append(self._points(label, list(totals), list(totals.values())))
        if not any(any(trace["y"]) for trace in traces):
            return ""
        values = sorted({x for trace in traces for x in trace["x"]})
        axis = {"tickvals": values, "type": "log" if values[0] > 0 else "linear"}
        means = [y for trace in traces for y in trace["y"]]
        vertical = _bytes_axis(means) if words == BYTES_AXIS else {"type": "log"} if is_wide(means) else {}
        return _plot(traces, axis_words(field), words, 340, axis, vertical)

    def _against_bytes(self) -> str:
        traces = []
        groups = keep_finished(self._groups)
        for name in dict.fromkeys(place.name for place in self._places.values()):
            members = [label for label in groups if self._places[label].name == name]
            points = sorted((Total.of(groups[label], BYTES).mean, label) for label in members)
            totals = [Total.of(groups[label], ["regret"]) for _, label in points]
            trace = self._points(name, [sent for sent, _ in points], totals)
            traces.append(
                trace | {"text": [label for _, label in points], "hovertemplate": "%{text}: %{y:.4g}, %{x:.4s}B"}
            )
        axis = _bytes_axis([x for trace in traces for x in trace["x"]], factor=3)
        return _plot(traces, BYTES_AXIS, "final regret per agent", 400, axis)

    def _points(self, name: str, xs: list[float], totals: Sequence[Total]) -> dict[str, Any]:
        number = self._numbers[name]
        errors = {"array": [total.error for total in totals], "thickness": 1, "width": 3}
        marker = {"symbol": SYMBOLS[number % len(SYMBOLS)], "size": 7}
        return {"type": "scatter", "mode": "lines+markers", "name": name, "x": xs, "y": [t.mean for t in totals],
                "error_y": errors, "line": self._line(name), "marker": marker}  # fmt: skip


def _bytes_axis(values: Sequence[float], factor: float = 30) -> dict[str, Any]:
    """Return an axis of bytes with units at all ticks: logarithmic where values span more than a factor."""
    if not is_wide(values, factor):
        return {"tickformat": "~s", "ticksuffix": "B"}
    powers = range(math.floor(math.log10(min(values))), math.ceil(math.log10(max(values))) + 1)
    digits = (1, 2, 5) if max(values) < 100 * min(values) else (1,)
    ticks = [digit * 10.0**power for power in powers for digit in digits]
    return {"type": "log", "tickvals": ticks, "ticktext": [readable(tick) for tick in ticks]}


def _plot(
    traces: list[dict[str, Any]], x: str, y: str, height: int, axis: dict[str, Any] | None = None,
    vertical: dict[str, Any] | None = None,
) -> str:  # fmt: skip
    """Return a plot as a part of the page; its tool bar is above it, its legend below."""
    from plotly.graph_objects import Figure

    names = sum(trace.get("showlegend", True) for trace in traces)  # a line each, where the plot is narrow
    layout = {
        "template": "plotly_white", "height": height + 18 * names, "margin": {"l": 60, "r": 10, "t": 34, "b": 45},
        "xaxis": {"title": {"text": x}} | (axis or {}),
        "yaxis": {"title": {"text": y}, "rangemode": "tozero"} | (vertical or {}), "showlegend": len(traces) > 1,
        "font": {"size": 12}, "legend": {"orientation": "h", "yref": "container", "y": 0.0, "yanchor": "bottom"},
    }  # fmt: skip
    figure = Figure(data=traces, layout=layout)
    return figure.to_html(full_html=False, include_plotlyjs=False, config={"displaylogo": False, "responsive": True})


def _table(
    headings: Iterable[Any], lines: Iterable[Iterable[Any]], values: Iterable[Iterable[Any]] | None = None
) -> str:
    """Return a table; `values` are the numbers by which its cells are sorted, where these are formatted."""
    head = "".join(f"<th>{html.escape(str(cell))}</th>" for cell in headings)
    texts = [[html.escape(str(cell)) for cell in line] for line in lines]
    marks = [["" if v is None else f' data-value="{html.escape(str(v))}"' for v in row] for row in values or ()]
    marks = marks or [[""] * len(line) for line in texts]
    body = "".join(
        "<tr>" + "".join(f"<td{mark}>{cell}</td>" for cell, mark in zip(line, row, strict=True)) + "</tr>"
        for line, row in zip(texts, marks, strict=True)
    )
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'
