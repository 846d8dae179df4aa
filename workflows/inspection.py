"""Commands that look at what is there: runs and studies, their numbers, and the theory's."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro
from rich.table import Table

from fnbandit.registry import without_effect
from fnbandit.validation import settings
from workflows.arguments import ConfigArguments, requested
from workflows.flags import parse
from workflows.output import console
from workflows.study import load_study

if TYPE_CHECKING:
    from fnbandit.records import RunRecord


def print_json(value: Any) -> None:
    """For scripts: one JSON text, and nothing else, on standard output."""
    print(json.dumps(_finite(value), indent=2, allow_nan=False, default=str))


def _finite(value: Any) -> Any:
    """With null for what JSON has no number for."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@settings
class LsArguments:
    """Lists the runs and studies in a folder, the latest last; of a study's folder, its runs."""

    directory: tyro.conf.Positional[Path] = Path("runs")
    """Where to look."""
    json: bool = False
    """As JSON, for scripts."""


def ls(argv: Sequence[str]) -> int:
    """runs and studies in a folder: status, N, D, seed, regret, rounds, when"""
    from workflows.listing import listed

    arguments = parse(LsArguments, "fnbandit ls", argv)
    if not arguments.directory.is_dir():
        raise ValueError(f"{arguments.directory}: no such folder; expected one with runs")
    rows = listed(arguments.directory)
    if arguments.json:
        print_json([row.as_dict() for row in rows])
        return 0
    if not rows:
        console().print(f"{arguments.directory}: has no run", soft_wrap=True)
        return 0
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("", "status", "N", "D", "seed", "regret", "rounds", "when"):
        table.add_column(name, justify="right" if name in ("regret", "rounds") else "left", overflow="fold")
    for row in rows:
        table.add_row(*row.cells())
    console().print(table)
    return 0


@settings
class ShowArguments:
    """What a run or a study is, how far it is, and what came of it."""

    directory: tyro.conf.Positional[Path]
    """Of a run, a sweep or a figure."""
    json: bool = False
    """As JSON, for scripts."""


def show(argv: Sequence[str]) -> int:
    """what a run or study is, how far it is, and what came of it"""
    from workflows.listing import description

    arguments = parse(ShowArguments, "fnbandit show", argv)
    found = description(arguments.directory)
    if arguments.json:
        print_json(found)
        return 0
    table = Table.grid(padding=(0, 2))
    for name, value in found.items():
        if name == "config":
            idle = without_effect(value)
            value = {key: text for key, text in value.items() if key not in idle}
        if isinstance(value, dict):
            value = "\n".join(f"{key} = {text}" for key, text in value.items())
        elif isinstance(value, list):
            value = "\n".join(map(str, value))
        if value not in (None, ""):
            table.add_row(name, str(value))
    console().print(table, markup=False)
    return 0


@settings
class ReportArguments:
    """Figures and tables from records alone."""

    directories: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Runs, or folders of runs."""
    out: Path | None = None
    """Where the figures go; DIRECTORY/figures without it."""
    json: bool = False
    """The table as JSON, for scripts, and the figures' paths."""


def report(argv: Sequence[str]) -> int:
    """figures and tables from records alone"""
    from fnbandit.records import find_runs, read_run
    from workflows import tables
    from workflows.figures import draw
    from workflows.html_report import write_report

    arguments = parse(ReportArguments, "fnbandit report", argv)
    if not arguments.directories:
        raise ValueError("report: expected the directory of a run, sweep or figure")
    runs: dict[Path, RunRecord] = {}
    published: dict[str, float] = {}
    title = caption = None
    for directory in arguments.directories:
        found = find_runs(directory)
        if not found:
            raise ValueError(f"{directory}: has no run")
        # A run that stands in two of the directories is one observation.
        runs |= {path.resolve(): read_run(path) for path in found}
        if (directory / "study.json").exists():
            study = load_study(directory)
            title, caption = study.title, study.caption
            published |= {p.label: p.published for p in study.points if p.label and p.published is not None}
    finished = [record for record in runs.values() if record.finished]
    figures = draw(finished, arguments.out or arguments.directories[0] / "figures", title, published)
    files: list[Path] = []
    if len(finished) > 1:
        folder = arguments.out or arguments.directories[0]
        files = write_report(finished, folder, title or arguments.directories[0].absolute().name, caption)
    if arguments.json:
        print_json({"title": title, "rows": tables.totals(finished), "figures": figures, "report": files[-1:]})
        return 0
    for record in runs.values():
        if not record.finished:
            rows = f"{record.summary['status']}, {len(record.trace)} rows so far"
            console().print(f"{record.directory}: {rows}", soft_wrap=True)
    tables.show(finished, console(), title)
    for path in figures:
        console().print(f"figure   {path}", soft_wrap=True)
    for path in files[-1:]:
        console().print(f"report   {path}", soft_wrap=True)
    return 0


@settings
class TheoryArguments(ConfigArguments):
    """The theory's numbers for a simulation: a settings file, a preset, and every field of Config as a flag."""

    json: bool = False
    """As JSON, for scripts."""


def theory_numbers(argv: Sequence[str]) -> int:
    """effective dimensions, nu, D and the bounds for a config"""
    from fnbandit import theory
    from fnbandit.assumptions import remarks

    request = requested("fnbandit theory", argv, lists=False, kind=TheoryArguments)
    config = request.points[0].config
    numbers = theory.describe(config)
    lines = list(remarks(config, numbers.environment))
    if request.asked.json:
        print_json({"rows": [row._asdict() for row in theory.table(numbers)], "warnings": lines})
        return 0
    title = (
        f"{config.environment}, {config.algorithm}, network={config.network}, N = {config.agents}, m = {config.width}"
    )
    table = Table("", "value", "what it is", "in the paper", title=title)
    for row in theory.table(numbers):
        table.add_row(row.symbol, f"{row.value:.6g}", row.meaning, row.source)
    console().print(table)
    for line in lines:
        console().print(f"warning: {line}", soft_wrap=True)
    return 0
