"""The sections of the page of results on further experiments: title, caption, picture and a table of final values.

An experiment is a line in FURTHER_STUDIES; its file in `workflows/experiments` has the title and the caption.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from matplotlib.figure import Figure

from fnbandit.numerics.memory import readable
from fnbandit.storage.records import RunRecord
from workflows.paper.page_data import PageData, format_finals
from workflows.paper.page_figures import against_field_figure, study_figure
from workflows.reporting.curves import BYTES, Groups, Total
from workflows.reporting.markdown import markdown_table, number, paragraph


@dataclass(frozen=True)
class StudySection:
    """An experiment that has a section of its own."""

    name: str
    against: str | None = None
    """Field of Config against which final regret is drawn; None: regret against iteration"""
    remark: str = ""
    """Sentences on what the table shows, and on what failed"""

    def draw(self, data: PageData) -> Figure | None:
        """Draw the picture; None without results."""
        runs, title = data.runs[self.name], data.studies[self.name].title or self.name
        if not runs:
            return None
        if self.against is None:
            # The usual line names one preset, also where panels compare several.
            return study_figure(without_presets(runs), title, {}, "")
        return against_field_figure(runs, title, self.against)

    def write(self, data: PageData) -> Iterator[str]:
        """Yield the section."""
        study, groups = data.studies[self.name], data.groups[self.name]
        yield f"## {study.title}"
        yield from paragraph(study.caption or "")
        if groups:
            yield f"![{study.title}](results/{self.name}.png)"
            yield ""
            if self.remark:
                yield from paragraph(self.remark)
            yield from write_totals("", groups)
        yield from data.not_run(self.name)


FURTHER_STUDIES = (
    StudySection("exact-budget"),
    StudySection("participation", against="participation_fraction"),
)
"""In the order of the page"""


def without_presets(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """Return the runs with "TASK: NAME" as labels where they have "PRESET: TASK: NAME": a panel is a task."""
    if not all((run.summary["label"] or "").count(": ") > 1 for run in runs):
        return list(runs)
    short = [run.summary | {"label": run.summary["label"].partition(": ")[2]} for run in runs]
    return [replace(run, summary=summary) for run, summary in zip(runs, short, strict=True)]


def write_totals(heading: str, groups: Groups) -> list[str]:
    """Return a table of final regret, rounds, exchanges where a round has several, and bytes."""
    totals = {
        label: [Total.of(runs, [name]).mean for name in ("rounds", "exchanges")] for label, runs in groups.items()
    }
    several = any(rounds != exchanges for rounds, exchanges in totals.values())
    rows = []
    for label, runs in groups.items():
        counts = ["–" if math.isnan(count) else number(count) for count in totals[label][: 1 + several]]
        rows.append([label, format_finals(runs), *counts, *(readable(Total.of(runs, [way]).mean) for way in BYTES)])
    counted = ["rounds", "exchanges"][: 1 + several]
    return markdown_table([heading, "regret per agent", *counted, "bytes up", "bytes down"], rows)
