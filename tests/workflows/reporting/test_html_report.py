"""The report of a study: one file that needs nothing else, with the numbers of the records."""

from __future__ import annotations

import csv
import json
import re

import numpy as np
import pytest
from helpers import plain
from small_records import record

from workflows.reporting.figures import figures
from workflows.reporting.html_report import report_html, write_report
from workflows.reporting.naming import context, run_names
from workflows.reporting.tables import rows
from workflows.studies.study import RunSpec


def study():
    """N x D x 2 seeds; 2 rounds at D = 2.5, else 1."""
    return [
        record(np.full((4, n), 8 / n + s), rounds=(1, 3) if d == 2.5 else (2,), trigger="diagonal", threshold=d, seed=s)
        for n in (1, 2, 10)
        for d in (2.5, 5.0)
        for s in (0, 1)
    ]


def plots(page):
    """The data and the layout of every plot, as the page hands them to the library."""
    decoder, found = json.JSONDecoder(), []
    for match in re.finditer(r'Plotly\.newPlot\(\s*"[^"]+",\s*', page):
        data, end = decoder.raw_decode(page, match.end())
        layout, _ = decoder.raw_decode(page, page.index("{", end))
        found.append((data, layout))
    return found


def test_the_report_has_curves_to_switch_and_totals_against_n_and_d():
    found = plots(report_html(study(), "My study", "What it shows"))
    titles = [(layout["xaxis"]["title"]["text"], layout["yaxis"]["title"]["text"]) for _, layout in found]
    assert titles == [
        *[("iteration", "cumulative regret per agent")] * 2,  # a panel per D, as in the figures
        *(("agents N", words) for words in ("final regret per agent", "rounds", "bytes, up and down")),
        *(("threshold D", words) for words in ("final regret per agent", "rounds", "bytes, up and down")),
        ("bytes, up and down", "final regret per agent"),
        *[("iteration", "rounds")] * 2,
    ]
    curves, first = found[0]
    assert first["yaxis"]["range"] == found[1][1]["yaxis"]["range"], "the same quantity has the same axis"
    shown = [trace for trace in curves if trace.get("showlegend") is not False]
    assert [trace["name"] for trace in shown] == ["N = 1", "N = 2", "N = 10"]
    # A click on a name switches a curve together with its band.
    for trace in shown:
        assert len([other for other in curves if other["legendgroup"] == trace["legendgroup"]]) == 2
    assert numbers(shown[0]["y"]) == pytest.approx([8.5, 17, 25.5, 34])
    against_n, _ = found[2]
    assert [trace["name"] for trace in against_n] == ["D = 2.5", "D = 5"]
    assert numbers(against_n[0]["x"]) == [1, 2, 10]
    assert numbers(against_n[0]["y"]) == pytest.approx([34, 18, 5.2])
    bytes_against_d, _ = found[7]
    assert numbers(bytes_against_d[1]["y"]) == [12000, 6000]  # N = 2: 3,000 an agent and round


def numbers(values):
    assert isinstance(values, list), "as numbers, which every version of the library reads"
    return values


def test_an_axis_of_bytes_is_that_of_the_figures_with_units_at_all_ticks():
    runs = [record(np.ones((2, n)), rounds=(1, 2), label=None) for n in (1, 10, 100)]
    ((_, layout),) = [
        one for one in plots(report_html(runs, "")) if one[1]["yaxis"]["title"]["text"].startswith("bytes")
    ]
    drawn = figures(runs)["rounds-against-agents"].axes[-1]
    assert (layout["yaxis"]["type"], drawn.get_yscale()) == ("log", "log")
    texts = dict(zip(layout["yaxis"]["tickvals"], layout["yaxis"]["ticktext"], strict=True))
    # 3,000 bytes an agent and round.
    assert min(texts) <= 6000 and max(texts) >= 600_000
    assert texts[10_000.0] == "10 kB" and all(text.endswith("B") for text in texts.values())


def test_tables_are_sorted_by_numbers():
    """The script sorts by what the cells hold, not by their text: 12 kB after 3 kB."""
    page = report_html(study(), "My study")
    assert 'addEventListener("click"' in page and page.count("<th>") > 10
    found = re.findall(r"<tr><td[^>]*>(N = \d+, D = [\d.]+)</td>(.*?)</tr>", page)
    sent = [float(re.findall(r'data-value="([^"]*)"', cells)[-3]) for _, cells in found[:6]]
    assert sent == [2000, 1000, 4000, 2000, 20000, 10000]


def test_the_same_name_has_one_colour_in_all_plots():
    colours: dict[str, set[str]] = {}
    for data, _ in plots(report_html(study(), "My study")):
        for trace in data:
            if trace["mode"] == "lines+markers":
                colours.setdefault(trace["name"], set()).add(trace["line"]["color"])
    assert set(colours) == {"N = 1", "N = 2", "N = 10", "D = 2.5", "D = 5"}
    assert all(len(found) == 1 for found in colours.values())
    assert len({colour for found in colours.values() for colour in found}) == 5


def test_the_report_stands_alone_and_says_what_differs():
    page = report_html(study(), "<b>My</b> & study", "A caption with <i>")
    ours = page[: page.index("<script>")] + page[page.index("</script></head>") :]
    assert not re.search(r"""(src|href)=|url\(|@import|https?://(?!plot)""", ours)
    assert "<b>My" not in page and "&lt;b&gt;My&lt;/b&gt; &amp; study" in page
    assert "A caption with &lt;i&gt;" in page
    assert "<th>agents</th><th>threshold</th>" in page
    assert "<td>N = 10, D = 5</td><td>10</td><td>5.0</td>" in page
    assert "<td>width</td>" in page, "what does not differ is there, too"
    assert context(study()) in page


def test_the_table_is_written_in_full(tmp_path):
    table, page = write_report(study(), tmp_path, "My study")
    assert page.stat().st_size > 4e6, "with the library that draws it"
    with table.open() as file:
        first, *_ = found = list(csv.DictReader(file))
    assert [row["run"] for row in found] == [f"N = {n}, D = {d}" for n in (1, 2, 10) for d in ("2.5", "5")]
    assert (first["agents"], first["threshold"], first["seeds"], first["error_over"]) == ("1", "2.5", "2", "seeds")
    # 32 and 36: mean 34, deviation 4 / sqrt(2), error 2.
    assert (float(first["regret"]), float(first["regret_standard_error"])) == pytest.approx((34, 2))
    assert (float(first["rounds"]), float(first["bytes_up"]), float(first["bytes_down"])) == (2, 2000, 4000)


def test_rows_say_what_their_error_is_over():
    two, alone = record([[1.0, 3.0]], seed=0), record([[2.0]], algorithm="neural-ucb")
    two.summary["regret_standard_error"] = 1.0
    assert {row.label: (row.error, row.over) for row in rows([two, alone])} == {
        "FN-UCB (less comm.)": (1.0, "agents"),
        "Neural UCB": (None, ""),
    }


def test_names_begin_with_n_and_d():
    def names(*configs, label=None):
        points = [RunSpec(str(place), run.summary["config"], label) for place, run in enumerate(configs)]
        return list(run_names([RunSpec(p.path, as_config(p.config), p.label) for p in points]).values())

    agents = [record(np.ones((1, n)), trigger="logdet", threshold=d, seed=n) for n, d in ((10, 2.5), (2, 5.0))]
    assert names(*agents) == ["N=10 D=2.5 s10 cosine fn-ucb-less-comm", "N=2 D=5 s2 cosine fn-ucb-less-comm"]
    other = [record([[1.0]], ramp=r, environment=e) for r, e in ((5, "cosine"), (7, "square"))]
    assert names(*other) == ["N=1 cosine ramp=5 s0 fn-ucb-less-comm", "N=1 square ramp=7 s0 fn-ucb-less-comm"]
    assert names(record([[1.0]], seed=3)) == ["N=1 s3 cosine fn-ucb-less-comm"]
    assert names(*agents, label="FN-UCB")[0] == "FN-UCB s10"


def as_config(fields):

    return plain(**fields)
