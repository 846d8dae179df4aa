"""A study as one HTML file without a server: switchable curves, totals against N and D, differing fields."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fnbandit.config import FIELDS
from fnbandit.storage.files import REPORT_FILE, TOTALS_FILE
from fnbandit.storage.records import RunRecord, atomic_write
from workflows.reporting.canvas import COLOURS
from workflows.reporting.curves import (
    BYTES,
    Curve,
    Total,
    keep_finished,
    numeric_fields,
    places,
    regret_curves,
    round_curves,
    series,
    style_numbers,
)
from workflows.reporting.figures import axis_words
from workflows.reporting.grouping import group, list_shared_settings
from workflows.reporting.naming import context
from workflows.reporting.tables import HEADINGS, columns_of, remark, rows, write_csv

HTML_POINTS = 300
"""Maximum number of points of a curve"""
DASHES = ("solid", "dash", "dashdot", "dot", "longdashdot")
SYMBOLS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x", "pentagon", "hexagon", "star")
PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>
body {{ font: 14px/1.45 system-ui, sans-serif; margin: 1.5rem auto; max-width: 1280px; padding: 0 1rem; color: #222;
  background: #fff }}
h1 {{ font-size: 1.3rem; margin: 0 }}
h2 {{ font-size: 1.05rem; margin: 1.6rem 0 .3rem }}
p {{ margin: .2rem 0 }}
.grey {{ color: #666 }}
.grid {{ display: grid; grid-template-columns: repeat(3, minmax(0, 1fr)); gap: .5rem }}
@media (max-width: 800px) {{ .grid {{ grid-template-columns: minmax(0, 1fr) }} }}
.scroll {{ overflow-x: auto }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums }}
th, td {{ text-align: right; padding: .15rem .7rem; border-bottom: 1px solid #ddd; white-space: nowrap }}
th:first-child, td:first-child {{ text-align: left }}
</style><script>{script}</script></head><body>
<h1>{title}</h1>
<p class="grey">{context}</p>
<p>{caption}</p>
{parts}
</body></html>
"""


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
        yield _table([HEADINGS[name] for name in columns], [row.cells(columns) for row in totals])
        yield f'<p class="grey">{html.escape(remark(totals) or "")}</p>'
        if curves := regret_curves(self._groups):
            yield "<h2>Cumulative regret per agent</h2>"
            yield '<p class="grey">Click a name to hide or show its curve, double-click to hide or show all others.</p>'
            yield self._curves(curves, "cumulative regret per agent", height=480)
        for field in numeric_fields(self._groups):
            yield f"<h2>Against {axis_words(field)}</h2>"
            quantities = {"final regret per agent": ["regret"], "communication rounds": ["rounds"], "bytes sent": BYTES}
            plots = [self._against(field, words, names) for words, names in quantities.items()]
            yield f'<div class="grid">{"".join(plots)}</div>'
        if any(run.summary["rounds"] for run in self._runs):
            yield "<h2>Regret against communication</h2>"
            yield self._against_bytes()
        if curves := round_curves(self._groups):
            yield "<h2>Communication rounds</h2>"
            yield self._curves(curves, "communication rounds", height=360)
        yield "<h2>Differing fields</h2>"
        configs = {label: list_shared_settings(runs[0]) for label, runs in self._groups.items()}
        named = list(configs.values())
        differ = [name for name in FIELDS if len({repr(config.get(name, "")) for config in named}) > 1]
        yield _table(["run", *differ], [[label, *(c.get(n, "") for n in differ)] for label, c in configs.items()])
        same = [[name, named[0][name]] for name in FIELDS if name in named[0] and name not in differ]
        table = _table(["field", "value"], same)
        yield f"<details><summary>The {len(same)} common fields</summary>{table}</details>"

    def _curves(self, curves: Mapping[str, Curve], words: str, height: int) -> str:
        traces = []
        for label, whole in curves.items():
            one, place = whole.thin(HTML_POINTS), self._places[label]
            line, colour = self._line(place.name, place.panel), COLOURS[self._numbers[place.name] % len(COLOURS)]
            xs, mean, error = one.iterations.tolist(), one.mean, one.error
            common: dict[str, Any] = {"type": "scatter", "mode": "lines", "legendgroup": label, "name": label}
            hover = "%{y:.4g} in iteration %{x}"
            traces.append(common | {"x": xs, "y": mean.round(6).tolist(), "line": line, "hovertemplate": hover})
            if error.any():
                band = [*(mean + error).round(6).tolist(), *(mean - error).round(6).tolist()[::-1]]
                look = {"fill": "toself", "fillcolor": colour, "opacity": 0.15, "line": {"width": 0}}
                hidden = {"showlegend": False, "hoverinfo": "skip"}
                traces.append(common | {"x": [*xs, *xs[::-1]], "y": band} | look | hidden)
        return _plot(traces, "iteration", words, height)

    def _line(self, name: str, panel: str = "") -> dict[str, Any]:
        """Return a line style: colours distinguish names, dashes distinguish panels where there are several."""
        panels = list(dict.fromkeys(place.panel for place in self._places.values()))
        number = self._numbers[name]
        dash = DASHES[(panels.index(panel) if len(panels) > 1 and panel in panels else number) % len(DASHES)]
        return {"color": COLOURS[number % len(COLOURS)], "dash": dash, "width": 2}

    def _against(self, field: str, words: str, names: Sequence[str]) -> str:
        traces = []
        for label, one in series(self._groups, field).items():
            totals = one.totals(names)
            traces.append(self._points(label, list(totals), list(totals.values())))
        values = sorted({x for trace in traces for x in trace["x"]})
        axis = {"tickvals": values, "type": "log" if values[0] > 0 else "linear"}
        return _plot(traces, axis_words(field), words, 340, axis, bytes_on_y=words.startswith("bytes"))

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
        smallest = min(x for trace in traces for x in trace["x"])
        axis = {"tickformat": "~s", "ticksuffix": "B"} | ({"type": "log", "dtick": "D2"} if smallest > 0 else {})
        return _plot(traces, "bytes sent", "final regret per agent", 400, axis)

    def _points(self, name: str, xs: list[float], totals: Sequence[Total]) -> dict[str, Any]:
        number = self._numbers[name]
        errors = {"array": [total.error for total in totals], "thickness": 1, "width": 3}
        marker = {"symbol": SYMBOLS[number % len(SYMBOLS)], "size": 7}
        return {"type": "scatter", "mode": "lines+markers", "name": name, "x": xs, "y": [t.mean for t in totals],
                "error_y": errors, "line": self._line(name), "marker": marker}  # fmt: skip


def _plot(
    traces: list[dict[str, Any]], x: str, y: str, height: int, axis: dict[str, Any] | None = None,
    bytes_on_y: bool = False,
) -> str:  # fmt: skip
    """Return a plot as a part of the page."""
    from plotly.graph_objects import Figure

    vertical: dict[str, Any] = {"title": {"text": y}, "rangemode": "tozero"}
    if bytes_on_y:
        vertical |= {"tickformat": "~s", "ticksuffix": "B"}
    layout = {
        "template": "plotly_white", "height": height, "margin": {"l": 60, "r": 10, "t": 10, "b": 45},
        "xaxis": {"title": {"text": x}} | (axis or {}), "yaxis": vertical, "showlegend": len(traces) > 1,
        "font": {"size": 12}, "legend": {"orientation": "h", "y": -0.2, "yanchor": "top"} if height < 350 else {},
    }  # fmt: skip
    figure = Figure(data=traces, layout=layout)
    return figure.to_html(full_html=False, include_plotlyjs=False, config={"displaylogo": False, "responsive": True})


def _table(headings: Iterable[Any], lines: Iterable[Iterable[Any]]) -> str:
    head = "".join(f"<th>{html.escape(str(cell))}</th>" for cell in headings)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in line) + "</tr>" for line in lines)
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'
