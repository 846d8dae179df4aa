"""Writes the page of results, experiments/RESULTS.md, and its pictures from the shipped results.

`fnbandit reproduce --page` calls it; `page_text` is a function of the Parquet files alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from fnbandit.storage.records import RunRecord, atomic_write
from workflows.paper.page_agents import AGENTS, draw_difference_figure, write_agents_lines
from workflows.paper.page_cells import CELLS, EXACT, SIZES, find_exact_runs, write_cells
from workflows.paper.page_claims import CLOSE, write_claims, write_rules
from workflows.paper.page_communication import (
    COMMUNICATION,
    EXACT_COMMUNICATION,
    collect_kinds,
    draw_exact_communication,
    write_communication,
)
from workflows.paper.page_data import PageData
from workflows.paper.page_figures import (
    SENSITIVE,
    against_agents_figure,
    communication_figure,
    draw_privacy_figure,
    sensitivity_figure,
    sensitivity_series,
    study_figure,
    write_picture,
)
from workflows.paper.page_privacy import write_privacy_lines
from workflows.paper.page_scaling import SHOWN_THRESHOLD, write_scaling
from workflows.paper.page_studies import FURTHER_STUDIES
from workflows.paper.page_summary import write_short_summary
from workflows.paper.scaling_figures import (
    EXCHANGE_QUANTITIES,
    SCALING_QUANTITIES,
    draw_agents_figure,
    draw_scaling_figure,
)
from workflows.paper.shipped import RESULTS, read_published_values
from workflows.reporting.curves import Total
from workflows.reporting.markdown import markdown_table, number, paragraph
from workflows.studies.experiments import EXPERIMENT_FOLDER

PAPER = [f"fig{name}" for name in ("1a", "1b", "1c", "1d", "2a", "2b", "2c", "2d", "3a", "3b",
                                   "4a", "4b", "4c", "4d", "5", "6a", "6b")]  # fmt: skip
OURS = [EXACT, "scaling", "exact-scaling", *COMMUNICATION, EXACT_COMMUNICATION, "sensitivity", "privacy", *AGENTS,
        *CLOSE, *(study.name for study in FURTHER_STUDIES)]  # fmt: skip
ABOUT = """\
Written by `fnbandit reproduce --page` from the Parquet files in `results/`: regret per agent, mean ± standard error
over seeds. *Published* are the final values of the authors' own result files, *published settings* are their
settings, run here with networks that are really separate (the published code trains one network for all agents),
*tuned* is this project's preset of the paper's algorithm, which averages networks. *Exact* is the preset of exact
federation, which is not in the paper: one network trained by sums over agents, and one upper confidence bound on its
features. `fnbandit reproduce NAME` runs an experiment again and says how it compares with what is shipped.
"""
COUNTED_TRIGGERS = ("logdet", "diagonal")
"""Triggers whose rounds the page lists below a figure"""


class ResultsPage:
    """The content of the page, section by section."""

    def __init__(self) -> None:
        self.data = PageData([*PAPER, *OURS])

    def text(self) -> str:
        """Return the whole page."""
        of_data = (write_cells, write_scaling, write_communication)
        parts = [self.head(), write_rules(), *(write(self.data) for write in of_data)]
        parts += [study.write(self.data) for study in FURTHER_STUDIES]
        parts += [self.privacy(), self.agents()]
        parts += [write_claims(self.data), self.figures(), self.sensitivity(), self.seeds(), self.origin()]
        return "\n".join(line for part in parts for line in part).rstrip() + "\n"

    def head(self) -> Iterator[str]:
        yield "# Results"
        yield from paragraph(ABOUT)
        yield from write_short_summary(self.data)

    def collect_runs(self, name: str) -> list[RunRecord]:
        """Return the runs of a figure of the paper, with those of exact federation as a setting of published cells."""
        exact = [
            replace(run, summary=run.summary | {"label": f"exact: FN-UCB N={n}", "published": None})
            for n in (SIZES if name in CELLS else ())
            for run in find_exact_runs(self.data, name, n)
        ]
        return self.data.runs[name] + exact

    def draw(self) -> dict[str, Figure]:
        """Draw all pictures of which there are results, by name."""
        data, figures = self.data, dict[str, Figure | None]()
        for name in PAPER:
            if data.runs[name]:
                runs, title = self.collect_runs(name), data.studies[name].title or name
                make = against_agents_figure if name.startswith("fig6") else study_figure
                figures[name] = make(runs, title, read_published_values(data.runs[name]))
        tuned, exact = data.runs["scaling"], data.runs["exact-scaling"]
        figures |= {
            "agents": draw_agents_figure(tuned, exact, SHOWN_THRESHOLD),
            "exact-scaling": draw_scaling_figure(exact, "exact federation", EXCHANGE_QUANTITIES),
            "scaling": draw_scaling_figure(tuned, "tuned", SCALING_QUANTITIES),
            "communication": communication_figure({task: data.runs[name] for name, task in COMMUNICATION.items()}),
            "communication-exact": draw_exact_communication(collect_kinds(data)),
            **{study.name: study.draw(data) for study in FURTHER_STUDIES},
            "privacy": draw_privacy_figure(data.runs["privacy"]),
            **{
                name: draw_difference_figure(name, data.runs[name], data.studies[name].title or name) for name in AGENTS
            },
            "sensitivity": sensitivity_figure(data.runs["sensitivity"]),
        }
        return {name: figure for name, figure in figures.items() if figure is not None}

    def figures(self) -> Iterator[str]:
        yield "## The paper's figures"
        yield "Hollow marks are published final values, bands the standard error over seeds. Exact has D = 5."
        yield ""
        for name in PAPER:
            study = self.data.studies[name]
            yield f"### {study.title}"
            if self.data.groups[name]:
                yield f"![{study.title}](results/{name}.png)"
                yield ""
            yield study.caption or ""
            yield ""
            rare = {
                label: runs
                for label, runs in self.data.groups[name].items()
                if runs[0].summary["config"]["trigger"] in COUNTED_TRIGGERS
            }
            if rare:
                said = [f"{label} {number(Total.of(runs, ['rounds']).mean)}" for label, runs in rare.items()]
                yield from paragraph(f"Rounds here: {'; '.join(said)}.")
            yield from self.data.not_run(name)

    def privacy(self) -> Iterator[str]:
        yield "## Privacy"
        yield from write_privacy_lines(self.data.runs["privacy"])
        yield from self.data.not_run("privacy")

    def agents(self) -> Iterator[str]:
        yield "## Agents that differ, tasks that drift"
        yield from write_agents_lines(self.data.runs, self.data.studies)
        for name in AGENTS:
            yield from self.data.not_run(name)

    def sensitivity(self) -> Iterator[str]:
        yield "## How sure: sensitivity"
        found = sensitivity_series(self.data.runs["sensitivity"])
        if found:
            yield "![Regret against the factor of a field](results/sensitivity.png)"
            yield ""
            rows = []
            for task, fields in found.items():
                for name, words in SENSITIVE.items():
                    points = {factor: Total.of(runs, ["regret"]).mean for factor, runs in sorted(fields[name].items())}
                    if len(points) > 1:
                        usual = points[1.0]
                        worst, best = max(points, key=points.__getitem__), min(points, key=points.__getitem__)
                        rows.append(
                            [task, words, number(usual), f"{number(points[worst])} at {worst:.2g} times",
                             f"{number(points[best])} at {best:.2g} times" if best != 1.0 else "the tuned value"]
                        )  # fmt: skip
            yield from markdown_table(["task", "field", "tuned", "worst", "best"], rows)
        yield from self.data.not_run("sensitivity")

    def seeds(self) -> Iterator[str]:
        yield "## How sure: seeds"
        yield "Final regret per agent of every seed, from seed 0 on."
        yield ""
        rows = []
        for name, task in CELLS.items():
            exact = {f"exact: FN-UCB N={n}": find_exact_runs(self.data, name, n) for n in SIZES}
            for label, runs in {**self.data.groups[name], **{at: runs for at, runs in exact.items() if runs}}.items():
                finals = np.array([run.summary["regret"] for run in runs])
                rows.append([task, label, ", ".join(map(number, finals)), f"{finals.max() / finals.min():.1f}"])
        yield from markdown_table(["task", "curve", "seeds", "largest / smallest"], rows)

    def origin(self) -> Iterator[str]:
        yield "## Where the numbers come from"
        distinct = {repr(run.summary["config"]): run for one in self.data.runs.values() for run in one}.values()
        hours = sum(run.summary["seconds"] for run in distinct) / 3600
        yield from paragraph(
            f"{len(distinct)} runs of {hours:.1f} hours in all, each on one core of a machine with other work to do. "
            "A Parquet file has a row per run: its config, totals, commit and versions, and its curve in few points."
        )
        commits = sorted({run.summary["commit"] for run in distinct})
        machines = sorted({run.summary["machine"] for run in distinct})
        versions = sorted({", ".join(f"{k} {v}" for k, v in run.summary["versions"].items()) for run in distinct})
        for words, values in (("commit", commits), ("machine", machines), ("versions", versions)):
            yield f"- {words}: {'; '.join(values)}"
        yield ""


def page_text() -> str:
    """Return the page that the shipped results imply."""
    return ResultsPage().text()


def write_page() -> list[Path]:
    """Write the page and its pictures; return their paths."""
    page = ResultsPage()
    folder = Path(str(RESULTS))
    folder.mkdir(exist_ok=True)
    written = []
    for name, figure in page.draw().items():
        write_picture(figure, folder / f"{name}.png")
        written.append(folder / f"{name}.png")
    path = Path(str(EXPERIMENT_FOLDER / "RESULTS.md"))
    with atomic_write(path) as part:
        part.write_text(page.text(), encoding="utf-8")
    return [path, *written]
