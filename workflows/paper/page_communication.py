"""The section of the page of results on communication: when and what to send, averaging and exact federation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, NullFormatter, NullLocator

from fnbandit.config import Config
from fnbandit.numerics.memory import readable
from fnbandit.storage.records import RunRecord
from workflows.paper.page_data import PageData, format_finals
from workflows.paper.page_figures import make_grid
from workflows.paper.page_studies import write_totals
from workflows.reporting.canvas import COLOURS, LINES, MARKERS, STYLE
from workflows.reporting.curves import BYTES, Groups, Total
from workflows.reporting.grouping import read_total
from workflows.reporting.markdown import format_measured, markdown_table, number, paragraph

COMMUNICATION = {"communication-cosine": "cosine, N = 10", "communication-shuttle": "shuttle, N = 5"}
EXACT_COMMUNICATION = "communication-exact"
AVERAGED = ("log det", "factored, log det", "8 bits, log det")
"""Beginnings of the labels of averaged networks that stand beside exact federation"""
SENT = """\
Bytes are those of Algorithms 1 and 2, or of smaller messages: factored ones are the same choices to rounding, 8 and 4
bits round what agents send, and not what the server sends to them, which is most of it.
"""
LINKS_TEXT = """\
Averaged networks, averaged networks with statistics of the last layer alone (`fn-linear`), and exact federation, on
the same tasks for T = 2,000 with the exact trigger. A round of exact federation has several exchanges. Seconds are
those of messages alone, on links that are alike for all agents: {links}. Agents that ask for a round, and all others,
wait for two messages more in each.
"""
COMPARED_ROUNDS = (15, 25)
"""Least and largest number of rounds of runs whose triggers are compared"""
EQUAL_REGRET = 1.1
"""Regret within this factor of the best counts as equally good"""


@dataclass(frozen=True)
class Link:
    """A connection between an agent and the server."""

    name: str
    latency: float
    """Seconds of any message"""
    up: float
    """Bytes per second to the server"""
    down: float

    def time_messages(self, summary: dict[str, Any]) -> float:
        """Return the seconds of a run's messages, as clock=uniform without spread counts them.

        Every exchange is an upload and a download; a round for which agents ask has two signals before.
        """
        config = summary["config"]
        exchanges, rounds = read_total(summary, "exchanges"), summary["rounds"]
        asking = rounds if summary["messages_up"] > exchanges * config["agents"] else 0
        sizes = summary["bytes_up"] / self.up + summary["bytes_down"] / self.down
        return float(2 * self.latency * (exchanges + asking) + sizes / config["agents"])

    def mean_seconds(self, runs: Sequence[RunRecord]) -> float:
        """Return the mean over runs."""
        return sum(self.time_messages(run.summary) for run in runs) / len(runs)


LINKS = (
    Link("data centre", 0.0005, 1.25e9, 1.25e9),
    Link("phone", Config.latency, Config.bandwidth_up, Config.bandwidth_down),
)


def write_communication(data: PageData) -> Iterator[str]:
    """Yield the section."""
    yield "## Communication"
    yield from _write_exact(data)
    yield "### When to communicate and what to send: averaged networks"
    if any(data.groups[name] for name in COMMUNICATION):
        yield "![Regret against rounds and against bytes](results/communication.png)"
        yield ""
    for name, task in COMMUNICATION.items():
        if data.groups[name]:
            yield from _write_best(task, data.groups[name])
    yield ""
    yield from paragraph(SENT)
    for name, task in COMMUNICATION.items():
        if data.groups[name]:
            yield from write_totals(task, data.groups[name])
        yield from data.not_run(name)


def _write_best(task: str, groups: Groups) -> Iterator[str]:
    totals = {label: Total.of(runs, ["regret"]) for label, runs in groups.items()}
    least = min(total.mean for total in totals.values())
    good = [label for label in groups if totals[label].mean <= EQUAL_REGRET * least]
    rounds = {label: Total.of(groups[label], ["rounds"]).mean for label in good}
    sent = {label: Total.of(groups[label], BYTES).mean for label in good}
    best = min(totals, key=lambda label: totals[label].mean)
    few, small = (min(values, key=values.__getitem__) for values in (rounds, sent))
    yield (
        f"- {task}: the least regret is {format_measured(totals[best])} ({best}). "
        f"Within {EQUAL_REGRET - 1:.0%} of it, the fewest rounds are {number(rounds[few])} "
        f"({few}: {format_measured(totals[few])}), the fewest bytes {readable(sent[small])} "
        f"({small}: {format_measured(totals[small])})."
    )
    talks = {label: Total.of(runs, ["rounds"]).mean for label, runs in groups.items()}
    rare = sorted((totals[at].mean, at) for at in groups if COMPARED_ROUNDS[0] <= talks[at] <= COMPARED_ROUNDS[1])
    if len(rare) > 1:
        said = "; ".join(f"{format_measured(totals[label])} ({label})" for _, label in rare)
        yield f"- {task}, with {COMPARED_ROUNDS[0]} to {COMPARED_ROUNDS[1]} rounds: {said}."


def collect_kinds(data: PageData) -> dict[str, Groups]:
    """Return the curves on cosine by how agents learn together, and by the form of messages."""
    kinds: dict[str, dict[str, list[RunRecord]]] = {}
    averaged = {
        label: runs for label, runs in data.groups["communication-cosine"].items() if label.startswith(AVERAGED)
    }
    for label, runs in [*averaged.items(), *data.groups[EXACT_COMMUNICATION].items()]:
        name = label.rpartition("D=")[0].rstrip(", ")
        words = {"exact:": "exact", "exact: 8 bits": "exact, 8 bits", "tuned: fn-linear": "last layer, averaged"}
        kinds.setdefault(words.get(name, f"averaged, {name}".removesuffix(", log det")), {})[label] = runs
    return dict(kinds)


def _write_exact(data: PageData) -> Iterator[str]:
    yield "### Averaged networks, the last layer, exact federation"
    kinds = collect_kinds(data)
    if data.groups[EXACT_COMMUNICATION]:
        yield "![Regret against rounds, exchanges, bytes and seconds](results/communication-exact.png)"
        yield ""
        yield from paragraph(LINKS_TEXT.format(links="; ".join(map(describe_link, LINKS))))
        rows = []
        for kind, groups in kinds.items():
            for runs in sorted(groups.values(), key=lambda runs: runs[0].summary["config"]["threshold"]):
                counts = [number(Total.of(runs, [name]).mean) for name in ("rounds", "exchanges")]
                sent = [readable(Total.of(runs, [way]).mean) for way in BYTES]
                seconds = [number(link.mean_seconds(runs)) for link in LINKS]
                threshold = f"{runs[0].summary['config']['threshold']:g}"
                rows.append([kind, threshold, format_finals(runs), *counts, *sent, *seconds])
        headings = ["cosine, N = 10", "D", "regret per agent", "rounds", "exchanges", "bytes up", "bytes down"]
        yield from markdown_table([*headings, *(f"seconds, {link.name}" for link in LINKS)], rows)
    yield from data.not_run(EXACT_COMMUNICATION)


def describe_link(link: Link) -> str:
    """Return a link in words."""
    speeds = " and ".join(f"{readable(speed)}/s {way}" for speed, way in ((link.up, "up"), (link.down, "down")))
    return f"{link.name}, {1000 * link.latency:g} ms and {speeds}"


def draw_exact_communication(kinds: Mapping[str, Groups]) -> Figure | None:
    """Draw regret against rounds, exchanges, bytes and seconds on two links, a line per kind, a mark per D."""
    if not any(kind.startswith("exact") for kind in kinds):
        return None
    measures: dict[str, Any] = {
        "rounds": lambda runs: Total.of(runs, ["rounds"]).mean,
        "exchanges": lambda runs: Total.of(runs, ["exchanges"]).mean,
        "bytes, up and down": lambda runs: Total.of(runs, BYTES).mean,
        **{f"seconds of messages, {link.name}": link.mean_seconds for link in LINKS},
    }
    with matplotlib.rc_context(STYLE):
        figure, axes = make_grid(2, 3, 4.3, "Regret against the cost of communication (cosine, N = 10, T = 2,000)")
        for axis, (words, measure) in zip(axes, measures.items(), strict=False):
            for place, (kind, groups) in enumerate(kinds.items()):
                points = [(measure(runs), Total.of(runs, ["regret"])) for runs in groups.values()]
                points.sort(key=lambda point: point[0])
                look = {"color": COLOURS[place], "linestyle": LINES[place % 5], "marker": MARKERS[place]}
                axis.errorbar([x for x, _ in points], [t.mean for _, t in points], [t.error for _, t in points],
                              capsize=1.5, elinewidth=0.7, label=kind, **look)  # fmt: skip
            axis.set_xscale("log")
            axis.set_yscale("log")
            axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.yaxis.set_minor_locator(NullLocator())
            axis.xaxis.set_minor_formatter(NullFormatter())
            unit = EngFormatter(unit="B", sep="") if words.startswith("bytes") else None
            axis.xaxis.set_major_formatter(unit or FuncFormatter(lambda value, _: f"{value:,g}"))
            axis.set_xlabel(words)
        axes[0].set_ylabel("final regret per agent")
        axes[3].set_ylabel("final regret per agent")
        axes[5].set_axis_off()
        axes[5].legend(*axes[0].get_legend_handles_labels(), loc="center", title="marks: values of D")
        return figure
