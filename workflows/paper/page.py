"""Writes the page of results, experiments/RESULTS.md, and its pictures from the shipped results.

`fnbandit reproduce --page` calls it; `page_text` is a function of the Parquet files alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fnbandit.numerics.memory import readable
from fnbandit.storage.records import atomic_write
from workflows.paper.claims import ALIKE, CLAIMS, LEVEL, USUAL_SEEDS, judge_claims, with_more_seeds
from workflows.paper.page_agents import AGENTS, draw_agents_figure, write_agents_lines
from workflows.paper.page_privacy import write_privacy_lines
from workflows.paper.page_scaling import write_scaling_lines
from workflows.paper.shipped import RESULTS, read_kept, read_published_values
from workflows.reporting.curves import BYTES, Total
from workflows.reporting.grouping import group
from workflows.reporting.markdown import format_measured, markdown_table, number, paragraph
from workflows.studies.experiments import EXPERIMENT_FOLDER, experiment
from workflows.studies.settings import Settings
from workflows.studies.study import StudyPlan

PRESET_WORDS = {"paper": "published settings", "tuned": "tuned"}
PAPER = [f"fig{name}" for name in ("1a", "1b", "1c", "1d", "2a", "2b", "2c", "2d", "3a", "3b",
                                   "4a", "4b", "4c", "4d", "5", "6a", "6b")]  # fmt: skip
COMMUNICATION = {"communication-cosine": "cosine, N = 10", "communication-shuttle": "shuttle, N = 5"}
CLOSE = ("close-calls-functions", "close-calls-tables")
OURS = [*COMMUNICATION, "scaling", "sensitivity", "privacy", *AGENTS, *CLOSE]
CELLS = {"fig1a": "cosine", "fig1b": "square", "fig2a": "shuttle, m = 20", "fig2c": "shuttle, m = 50, diagonal",
         "fig2b": "magic"}  # fmt: skip
"""Figures with published final values, and their tasks"""
ABOUT = """\
Written by `fnbandit reproduce --page` from the Parquet files in `results/`: regret per agent, mean ± standard error
over seeds. *Published* are the final values of the authors' own result files, *published settings* are their
settings, run here with networks that are really separate (the published code trains one network for all agents),
*tuned* is this project's preset. `fnbandit reproduce NAME` runs an experiment again and says how it compares with
what is shipped.
"""
STATISTICS_TEXT = """\
Every comparison is of the same seeds. It *holds*, or *does not hold*, if a one-sided paired t-test of the logarithms
says so at p < {level}, else it is *undecided*; a line of several comparisons holds if all do, and does not if one of
them does not. ≈ holds if means differ by at most {alike:.0%} of the larger one. p is that of the comparison that
decided. Numbers are means of final regret per agent in the order of what is compared, over {seeds} seeds where no
other number is said: what was close after {seeds} has seeds 0 to 9 (`fnbandit reproduce close-calls-functions
close-calls-tables`). Three choices were made after results had been seen: the logarithms, which changed none of the
six verdicts that there were then (Fig. 1a and 1b, tuned), the lines that compare the two ends of a chain alone, added
to every chain after Fig. 1a, and which curves have more seeds: those of comparisons that {seeds} seeds left undecided,
mostly with both settings, but for Fig. 2d with the published ones (below). Of so many tests, a few near {level} will
have decided by chance.
"""
REMARKS = """\
With the tuned preset Fig. 2d has values of D of its own: 1, 3, 8. With the published settings its agents communicate
in all iterations but two at most until training ends, after 2,000, also with the largest D (three seeds); rounds that
are left out later change no network, and so next to no choice. Linear and kernel methods have the published settings
in both columns. On shuttle decay can shrink a network to nothing in the first iterations, when rewards seen are nearly
all 0, and little or nothing brings it back: learners that are alone then err in most iterations. With the published
settings that is Neural UCB in seed 1, and with diagonal matrices Neural UCB, Neural TS and N=1 in seed 6; tuned, Neural
UCB in seed 4 and for a while in seed 1, and Neural TS with diagonal matrices in seed 3. Their means are mostly of these
seeds; what Fig. 2a and 2c say of two agents against Neural UCB and Neural TS is the same without them.
"""
SENT = """\
Bytes are those of Algorithms 1 and 2, or of smaller messages: factored ones are the same choices to rounding, 8 and 4
bits round what agents send, and not what the server sends to them, which is most of it.
"""
COUNTED_TRIGGERS = ("logdet", "diagonal")
"""Triggers whose rounds the page lists below a figure"""
COMPARED_ROUNDS = (15, 25)
"""Least and largest number of rounds of runs whose triggers are compared"""
EQUAL_REGRET = 1.1
"""Regret within this factor of the best counts as equally good"""


class ResultsPage:
    """The content of the page, section by section."""

    def __init__(self) -> None:
        self.studies: dict[str, StudyPlan] = {
            name: experiment(name, False, None, Settings()) for name in [*PAPER, *OURS]
        }
        self.runs = {name: read_kept(name) for name in self.studies}
        self.groups = {name: group(runs) if runs else {} for name, runs in self.runs.items()}

    def text(self) -> str:
        """Return the whole page."""
        sections = (self.head, self.cells, self.claims, self.figures, self.communication, self.write_scaling,
                    self.privacy, self.agents, self.sensitivity, self.seeds, self.origin)  # fmt: skip
        return "\n".join(line for section in sections for line in section()).rstrip() + "\n"

    def list_missing(self, name: str) -> list[str]:
        """Return the labels of an experiment's curves without results."""
        labels = dict.fromkeys(point.label for point in self.studies[name].points)
        return [label for label in labels if label and label not in self.groups[name]]

    def not_run(self, name: str) -> list[str]:
        """Return a line that lists an experiment's curves without results."""
        missing, whole = self.list_missing(name), len({point.label for point in self.studies[name].points})
        if not missing:
            return []
        few = f"{len(missing)} of {whole} curves" if 6 < len(missing) < whole else "; ".join(missing)
        return [f"Not run of `{name}`: {'all curves' if len(missing) == whole else few}.", ""]

    def head(self) -> Iterator[str]:
        yield "# Results"
        yield from paragraph(ABOUT)

    def cells(self) -> Iterator[str]:
        yield "## The published cells"
        yield "Final regret per agent after 5,000 iterations, communicating in every one."
        yield ""
        rows, short, worse, counted = [], [], [], 0
        for name, task in CELLS.items():
            short.append([task])
            for n in (1, 2, 5, 10):
                points = [p for p in self.studies[name].points if p.label == f"tuned: FN-UCB N={n}"]
                published = points[0].published if points else None
                if published is None:
                    short[-1].append("")
                    continue
                found = {preset: self.groups[name].get(f"{preset}: FN-UCB N={n}") for preset in PRESET_WORDS}
                totals = {preset: Total.of(runs, ["regret"]) if runs else None for preset, runs in found.items()}
                ratios = [f"{total.mean / published:.2f}" if total else "–" for total in totals.values()]
                cells = [format_measured(total) if total else "not run" for total in totals.values()]
                rows.append([task, str(n), f"{published:.1f}", cells[0], ratios[0], cells[1], ratios[1]])
                means = [number(total.mean) if total else "–" for total in totals.values()]
                short[-1].append(" / ".join([f"{published:.1f}", *means]))
                if tuned := totals["tuned"]:
                    counted += 1
                    worse += [f"{task}, N = {n}"] if tuned.mean > published else []
        yield from markdown_table(["published / published settings / tuned", *(f"N={n}" for n in (1, 2, 5, 10))], short)
        headings = ["task", "N", "published", "published settings", "/ published", "tuned", "/ published"]
        yield from markdown_table(headings, rows)
        said = f": {'; '.join(worse)}" if worse else ""
        yield from paragraph(f"Tuned has more regret than published in {len(worse)} of {counted} cells{said}.")

    def claims(self) -> Iterator[str]:
        yield "## What the paper says, and what holds"
        yield from paragraph(STATISTICS_TEXT.format(level=LEVEL, alike=ALIKE, seeds=USUAL_SEEDS))
        rows, groups = [], with_more_seeds(self.groups, [run for name in CLOSE for run in self.runs[name]])
        counts = {
            preset: dict.fromkeys(("holds", "does not hold", "undecided", "not run"), 0) for preset in PRESET_WORDS
        }
        for claim in CLAIMS:
            for place, comparison in enumerate(claim.comparisons):
                outcomes = {preset: judge_claims(comparison, preset, groups) for preset in PRESET_WORDS}
                for preset, outcome in outcomes.items():
                    counts[preset][outcome.verdict] += 1
                where = f"{claim.place}; {figure_name(comparison.figure)}"
                text = claim.text if place == 0 else ""
                rows.append([text, where, comparison.describe(), *(one.describe() for one in outcomes.values())])
        yield from markdown_table(["claim", "where", "compared", *PRESET_WORDS.values()], rows)
        for preset, words in PRESET_WORDS.items():
            yield f"- {words}: " + ", ".join(f"{count} {verdict}" for verdict, count in counts[preset].items() if count)
        yield ""
        yield from paragraph(REMARKS)
        for name in CLOSE:
            yield from self.not_run(name)

    def figures(self) -> Iterator[str]:
        yield "## The paper's figures"
        yield "Hollow marks are published final values, bands the standard error over seeds."
        yield ""
        for name in PAPER:
            study = self.studies[name]
            yield f"### {study.title}"
            if self.groups[name]:
                yield f"![{study.title}](results/{name}.png)"
                yield ""
            yield study.caption or ""
            yield ""
            rare = {
                label: runs
                for label, runs in self.groups[name].items()
                if runs[0].summary["config"]["trigger"] in COUNTED_TRIGGERS
            }
            if rare:
                said = [f"{label} {number(Total.of(runs, ['rounds']).mean)}" for label, runs in rare.items()]
                yield from paragraph(f"Rounds here: {'; '.join(said)}.")
            yield from self.not_run(name)

    def communication(self) -> Iterator[str]:
        yield "## Communication"
        if any(self.groups[name] for name in COMMUNICATION):
            yield "![Regret against rounds and against bytes](results/communication.png)"
            yield ""
        for name, task in COMMUNICATION.items():
            groups = self.groups[name]
            if groups:
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
                rare = sorted(
                    (totals[label].mean, label)
                    for label in groups
                    if COMPARED_ROUNDS[0] <= talks[label] <= COMPARED_ROUNDS[1]
                )
                if len(rare) > 1:
                    said = "; ".join(f"{format_measured(totals[label])} ({label})" for _, label in rare)
                    yield f"- {task}, with {COMPARED_ROUNDS[0]} to {COMPARED_ROUNDS[1]} rounds: {said}."
        yield ""
        yield from paragraph(SENT)
        for name, task in COMMUNICATION.items():
            groups = self.groups[name]
            if groups:
                rows = [
                    [label, format_measured(Total.of(runs, ["regret"])), number(Total.of(runs, ["rounds"]).mean),
                     *(readable(Total.of(runs, [way]).mean) for way in BYTES)]
                    for label, runs in groups.items()
                ]  # fmt: skip
                yield from markdown_table([task, "regret per agent", "rounds", "bytes up", "bytes down"], rows)
            yield from self.not_run(name)

    def write_scaling(self) -> Iterator[str]:
        yield "## Scaling"
        yield from write_scaling_lines(self.runs["scaling"])
        yield from self.not_run("scaling")

    def privacy(self) -> Iterator[str]:
        yield "## Privacy"
        yield from write_privacy_lines(self.runs["privacy"])
        yield from self.not_run("privacy")

    def agents(self) -> Iterator[str]:
        yield "## Agents that differ, tasks that drift"
        yield from write_agents_lines(self.runs, self.studies)
        for name in AGENTS:
            yield from self.not_run(name)

    def sensitivity(self) -> Iterator[str]:
        from workflows.paper.page_figures import SENSITIVE, sensitivity_series

        yield "## How sure: sensitivity"
        found = sensitivity_series(self.runs["sensitivity"])
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
        yield from self.not_run("sensitivity")

    def seeds(self) -> Iterator[str]:
        yield "## How sure: seeds"
        yield "Final regret per agent of every seed, from seed 0 on."
        yield ""
        rows = []
        for name, task in CELLS.items():
            for label, runs in self.groups[name].items():
                finals = np.array([run.summary["regret"] for run in runs])
                rows.append([task, label, ", ".join(map(number, finals)), f"{finals.max() / finals.min():.1f}"])
        yield from markdown_table(["task", "curve", "seeds", "largest / smallest"], rows)

    def origin(self) -> Iterator[str]:
        yield "## Where the numbers come from"
        distinct = {repr(run.summary["config"]): run for one in self.runs.values() for run in one}.values()
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


def figure_name(name: str) -> str:
    return f"Fig. {name.removeprefix('fig')}"


def page_text() -> str:
    """Return the page that the shipped results imply."""
    return ResultsPage().text()


def write_page() -> list[Path]:
    """Write the page and its pictures; return their paths."""
    from workflows.paper.page_figures import (
        against_agents_figure,
        communication_figure,
        draw_privacy_figure,
        draw_scaling_figure,
        sensitivity_figure,
        study_figure,
        write_picture,
    )

    page = ResultsPage()
    figures = {}
    for name in PAPER:
        if runs := page.runs[name]:
            make = against_agents_figure if name.startswith("fig6") else study_figure
            figures[name] = make(runs, page.studies[name].title or name, read_published_values(runs))
    figures["communication"] = communication_figure({task: page.runs[name] for name, task in COMMUNICATION.items()})
    figures["scaling"] = draw_scaling_figure(page.runs["scaling"])
    figures["privacy"] = draw_privacy_figure(page.runs["privacy"])
    figures |= {name: draw_agents_figure(name, page.runs[name], page.studies[name].title or name) for name in AGENTS}
    figures["sensitivity"] = sensitivity_figure(page.runs["sensitivity"])
    folder = Path(str(RESULTS))
    folder.mkdir(exist_ok=True)
    written = []
    for name, figure in figures.items():
        if figure is not None:
            write_picture(figure, folder / f"{name}.png")
            written.append(folder / f"{name}.png")
    path = Path(str(EXPERIMENT_FOLDER / "RESULTS.md"))
    with atomic_write(path) as part:
        part.write_text(page.text(), encoding="utf-8")
    return [path, *written]
