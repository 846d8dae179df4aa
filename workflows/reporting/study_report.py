"""Draws the figures of runs and writes their report, both at the end of a study and for `fnbandit report`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from fnbandit.storage.files import FIGURES_FOLDER, SUMMARY_FILE
from fnbandit.storage.records import RunRecord, read_run
from workflows.reporting.tables import print_table
from workflows.studies.study import StudyPlan
from workflows.terminal.output import command_name
from workflows.terminal.secrets import mask_secrets


@dataclass(frozen=True)
class StudyReport:
    """Finished runs, and the files of their report."""

    runs: Sequence[RunRecord]
    figures: Sequence[Path]
    """PNG files"""
    pages: Sequence[Path] = ()
    """table.csv and report.html; empty for one run"""

    @property
    def files(self) -> list[Path]:
        return [*self.figures, *self.pages]

    def print_paths(self, console: Console) -> None:
        for path in self.figures:
            console.print(f"figure   {path}", soft_wrap=True)
        for path in self.pages[-1:]:
            console.print(f"report   {path}", soft_wrap=True)


def write_study_report(
    runs: Sequence[RunRecord],
    folder: Path,
    figures: Path,
    title: str | None = None,
    caption: str | None = None,
    published: Mapping[str, float] | None = None,
    name: str = "",
) -> StudyReport:
    """Draw finished runs into the folder `figures`; for several runs, write table.csv and report.html into `folder`."""
    # Imported here, so that runs start without waiting for matplotlib.
    from workflows.reporting.figures import draw
    from workflows.reporting.html_report import write_report

    drawn = draw(runs, figures, title, published)
    return StudyReport(runs, drawn, write_report(runs, folder, title or name, caption) if len(runs) > 1 else ())


def draw_run(directory: Path) -> None:
    """Draw the figures of a study of one run."""
    write_study_report([read_run(directory)], directory, directory / FIGURES_FOLDER)


def report_study(study: StudyPlan, console: Console) -> StudyReport:
    """Print a study's table and the paths of its files; draw its figures. A single run is drawn already."""
    folders = [study.directory / point.path for point in study.points]
    runs = [run for folder in folders if (folder / SUMMARY_FILE).exists() and (run := read_run(folder)).finished]
    print_table(runs, console, study.title)
    if study.caption:
        console.print(study.caption)
    figures = study.directory / FIGURES_FOLDER
    if not study.settings.figures:
        report = StudyReport(runs, ())
    elif len(study.points) == 1:
        report = StudyReport(runs, sorted(figures.glob("*.png")))
    else:
        report = write_study_report(
            runs, study.directory, figures, study.title, study.caption, study.published, study.name
        )
    for layout in dict.fromkeys(run.summary["layout"] for run in runs):
        console.print(f"layout   {layout}", soft_wrap=True)
    console.print(f"records  {study.directory}{f', copied to {study.uri}' if study.uri else ''}", soft_wrap=True)
    report.print_paths(console)
    if study.settings.uses_mlflow:
        store = study.settings.tracking_uri or ""
        page = mask_secrets(store) if store.startswith("http") else f"{command_name()} ui {study.directory}"
        console.print(f"MLflow   {page}")
    return report
