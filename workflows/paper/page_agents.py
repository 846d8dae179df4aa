"""The section of the page of results on agents that differ: personal heads, forgetting, and the choice of models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from fnbandit.simulation.results import standard_error
from fnbandit.storage.records import RunRecord
from workflows.reporting.canvas import STYLE
from workflows.reporting.curves import Groups, Total, regret_curves
from workflows.reporting.figures import Drawing
from workflows.reporting.grouping import curve, group
from workflows.reporting.markdown import format_measured, markdown_table, paragraph
from workflows.reporting.routing_figure import ROUTING_COLUMNS, compare_choices, reward_against_choices
from workflows.studies.study import StudyPlan

AGENTS = ("personal", "drift", "routing")
"""Experiments with agents that differ, or with tasks that drift"""
CLOSE_TO_BEST = 1.1
"""Regret of `auto` relative to the best at the same share up to which it is near it"""
ROUTING_TEXT = """\
Choices in italics know the whole table; they count the 14 domains alike, as the agents do. Dollars are those of answers
of a thousand tokens in the second half, from the prices of the models per million tokens.
"""


def write_agents_lines(runs: Mapping[str, Sequence[RunRecord]], studies: Mapping[str, StudyPlan]) -> Iterator[str]:
    """Yield the lines of the section, without its heading; none for experiments without results."""
    for name, write in (("personal", _write_personal), ("drift", _write_drift), ("routing", _write_routing)):
        if runs[name]:
            yield f"### {studies[name].title}"
            yield f"![{studies[name].title}](results/{name}.png)"
            yield ""
            yield from paragraph(studies[name].caption or "")
            yield from write(group(list(runs[name])))


def collect_shares(groups: Groups) -> dict[str, dict[float, list[RunRecord]]]:
    """Return method -> personal share -> runs; a method is the part of a label before its comma."""
    found: dict[str, dict[float, list[RunRecord]]] = {}
    for label, runs in groups.items():
        found.setdefault(label.partition(",")[0], {})[runs[0].summary["config"]["personal_share"]] = runs
    return {method: dict(sorted(one.items())) for method, one in found.items()}


def find_distance(methods: Mapping[str, Mapping[float, Sequence[RunRecord]]], share: float) -> float:
    """Return the regret of `auto` relative to the smallest of all methods, itself included, at a share."""
    regret = {method: Total.of(one[share], ["regret"]).mean for method, one in methods.items() if share in one}
    return regret["auto"] / min(regret.values())


def _write_personal(groups: Groups) -> Iterator[str]:
    methods = collect_shares(groups)
    shares = sorted({share for one in methods.values() for share in one})
    rows = [
        [method, *(format_measured(Total.of(one[share], ["regret"])) if share in one else "–" for share in shares)]
        for method, one in methods.items()
    ]
    yield from markdown_table(["regret per agent", *(f"rho = {share:g}" for share in shares)], rows)
    if "auto" in methods:
        far = {share: find_distance(methods, share) for share in methods["auto"]}
        said = ", ".join(f"{ratio:.2f} at {share:g}" for share, ratio in far.items())
        near = f"{sum(ratio <= CLOSE_TO_BEST for ratio in far.values())} of {len(far)}"
        yield from paragraph(
            f"auto relative to the best of all at each share: {said}; within {CLOSE_TO_BEST - 1:.0%} of it at {near}."
        )


def divide_regret(run: RunRecord) -> tuple[float, float]:
    """Return a run's regret per agent before and after iteration T/2, which a switch comes after."""
    iterations, regret = curve(run)
    half = float(np.interp(run.summary["config"]["horizon"] / 2, iterations, regret))
    return half, float(regret[-1]) - half


def _write_drift(groups: Groups) -> Iterator[str]:
    rows = []
    for label, runs in groups.items():
        parts = np.array([divide_regret(run) for run in runs])
        errors = standard_error(parts) if len(runs) > 1 else np.zeros(2)
        over = f"{len(runs)} seeds" if len(runs) > 1 else ""
        rows.append([label, *(format_measured(Total(*pair, over)) for pair in zip(parts.mean(0), errors, strict=True))])
    yield from markdown_table(["regret per agent", "before the switch", "after it"], rows)


def _write_routing(groups: Groups) -> Iterator[str]:
    yield from paragraph(ROUTING_TEXT)
    yield from markdown_table(list(ROUTING_COLUMNS), compare_choices(groups))


def draw_difference_figure(name: str, runs: Sequence[RunRecord], title: str) -> Figure | None:
    """Draw the figure of one of the AGENTS; None without results."""
    if not runs:
        return None
    with matplotlib.rc_context(STYLE):
        if name == "routing":
            return reward_against_choices(group(list(runs)), title, "")
        drawing = Drawing(runs, title, {})
        if name == "personal":
            return drawing.against("personal_share", {"final regret per agent": ["regret"]})
        return drawing.curves(regret_curves(drawing.groups), "cumulative regret per agent")
