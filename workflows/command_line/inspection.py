"""The commands that read records and compute numbers: ls, show, report, theory."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from fnbandit.config.combinations import count_liars
from fnbandit.config.fields import settings
from fnbandit.config.registry import without_effect
from fnbandit.storage.files import FIGURES_FOLDER, STUDY_FILE
from workflows.command_line.arguments import ConfigArguments, parse_request
from workflows.command_line.flags import Positional, parse
from workflows.execution.failures import FAILED
from workflows.studies.study import load_study
from workflows.terminal.output import console, errors

if TYPE_CHECKING:
    from fnbandit.storage.records import RunRecord


def print_json(value: Any) -> None:
    """Print one JSON text, and nothing else, on standard output, for scripts."""
    print(json.dumps(_finite(value), indent=2, allow_nan=False, default=str))


def _finite(value: Any) -> Any:
    """Return a value with None in place of numbers that JSON does not have."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@settings
class LsArguments:
    """Lists the runs and studies in a folder, the latest last; of a study's folder, its runs."""

    directory: Positional[Path] = Path("runs")
    """Where to look."""
    sort: str | None = None
    """Column to sort by, as regret, agents or environment; -regret: the largest first."""
    filter: str | None = None
    """Show only some rows: COLUMN=VALUE, as algorithm=fn-ucb,agents=8 or status=failed."""
    json: bool = False
    """As JSON, for scripts."""


def ls(argv: Sequence[str]) -> int:
    """List the runs and studies in a folder."""
    from workflows.reporting.listing import COLUMNS, list_folder
    from workflows.reporting.selection import filter_rows, sort_rows

    arguments = parse(LsArguments, "fnbandit ls", argv)
    if not arguments.directory.is_dir():
        raise ValueError(f"{arguments.directory}: no such folder; expected one with runs")
    rows = list_folder(arguments.directory)
    if arguments.filter is not None:
        rows = filter_rows(rows, arguments.filter)
    if arguments.sort is not None:
        rows = sort_rows(rows, arguments.sort)
    if arguments.json:
        print_json([dataclasses.asdict(row) for row in rows])
        return 0
    if not rows:
        console().print(f"{arguments.directory}: has no {'such ' if arguments.filter else ''}run", soft_wrap=True)
        return 0
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in COLUMNS:
        right = name in ("N", "T", "regret", "rounds", "exchanges")
        whole = name not in ("", "algorithm")
        table.add_column(name, justify="right" if right else "left", overflow="fold", no_wrap=whole)
    for row in rows:
        table.add_row(*row.cells())
    console().print(table)
    return 0


@settings
class ShowArguments:
    """Print the config, progress and results of runs and studies."""

    directory: Positional[Path]
    """Of a run, a sweep or a figure."""
    more: Positional[tuple[Path, ...]] = ()
    """Further ones."""
    json: bool = False
    """As JSON, for scripts."""


def show(argv: Sequence[str]) -> int:
    """Show the config, the status and the totals of a run or study."""
    from workflows.reporting.listing import description

    arguments = parse(ShowArguments, "fnbandit show", argv)
    directories = (arguments.directory, *arguments.more)
    several = [description(directory) for directory in directories]
    if arguments.json:
        print_json(several if arguments.more else several[0])
        return 0
    for directory, found in zip(directories, several, strict=True):
        _print_description(directory, found)
    return 0


def _print_description(directory: Path, found: dict[str, Any]) -> None:
    from workflows.reporting.listing import study_table

    is_study = "study" in found
    table = Table.grid(padding=(0, 2))
    for name, value in (_describe_study if is_study else _describe_run)(found).items():
        if value not in (None, ""):
            table.add_row(name, str(value))
    console().print(table, markup=False)
    if is_study and (results := study_table(directory)) is not None:
        grid = Table(box=None, padding=(0, 2, 0, 0), title="regret per agent (rounds)", title_justify="left")
        headings, lines = results
        if headings[0] == "run":
            grid.title = None
        for heading in headings:
            grid.add_column(heading, justify="left" if heading == headings[0] else "right")
        for line in lines:
            grid.add_row(*line)
        console().print()
        console().print(grid)


def _describe_study(found: dict[str, Any]) -> dict[str, Any]:
    """Return the lines of `show` about a study: its runs' values, and its folders where no table tells them apart."""
    from workflows.reporting.listing import describe_range

    symbols = {"agents": "N", "horizon": "T", "threshold": "D", "environment": "task"}
    words = {name: found[name] for name in ("study", "title", "folder", "status")}
    ranges = ("environment", "algorithm", "agents", "horizon", "threshold", "seed", "regret", "rounds", "exchanges")
    words |= {symbols.get(name, name): describe_range(name, found) for name in ranges}
    failed = "\n".join(f"{path} = {error}" for path, error in found["failed"].items())
    return words | {"runs": f"{len(found['runs'])} in {found['folder']}", "failed": failed, "when": found["when"]}


def _describe_run(found: dict[str, Any]) -> dict[str, Any]:
    """Return the lines of `show` about a run."""
    from fnbandit.numerics.memory import readable
    from workflows.terminal.progress import duration

    error = found["regret_standard_error"]
    idle = without_effect(found["config"])
    words = {name: found[name] for name in ("run", "status", "error")}
    words["iterations"] = f"{found['iterations']:,} of {found['horizon']:,}"
    if found["regret"] is not None:
        whose = " that do not lie" if count_liars(found["config"]) else ""
        words["regret"] = f"{found['regret']:.2f}" + (
            "" if error is None else f" ± {error:.2f}, over its agents{whose}"
        )
        words["rounds"] = None if found["rounds"] is None else f"{found['rounds']:,.0f}"
        words["exchanges"] = f"{found['exchanges']:,.0f}"
        words["messages"] = f"{found['messages_up']:,.0f} up, {found['messages_down']:,.0f} down"
        words["bytes"] = f"{readable(found['bytes_up'])} up, {readable(found['bytes_down'])} down"
        words["took"] = duration(found["seconds"])
        if found["simulated_seconds"] is not None:
            words["simulated time"] = duration(found["simulated_seconds"])
    words |= {name: found[name] for name in ("engine", "layout", "device", "commit")}
    config = {name: value for name, value in found["config"].items() if name not in idle}
    for name, values in (("versions", found["versions"] or {}), ("config", config)):
        words[name] = "\n".join(f"{key} = {text}" for key, text in values.items())
    return words | {"when": found["when"]}


@settings
class ReportArguments:
    """Figures and tables from records alone."""

    directories: Positional[tuple[Path, ...]] = ()
    """Runs, or folders of runs."""
    out: Path | None = None
    """Where the figures go; DIRECTORY/figures without it."""
    figures: bool = True
    """Draw figures and write report.html and table.csv."""
    json: bool = False
    """The table as JSON, for scripts, and the figures' paths."""


def report(argv: Sequence[str]) -> int:
    """Draw figures and print tables from records alone."""
    from fnbandit.storage.records import find_runs, read_run
    from workflows.reporting import tables
    from workflows.reporting.listing import find_status
    from workflows.reporting.study_report import write_study_report

    arguments = parse(ReportArguments, "fnbandit report", argv)
    if not arguments.directories:
        raise ValueError("report: expected the directory of a run, sweep or figure")
    runs: dict[Path, RunRecord] = {}
    damaged: list[ValueError] = []
    published: dict[str, float] = {}
    title = caption = None
    for directory in arguments.directories:
        found = find_runs(directory)
        if not found:
            raise ValueError(f"{directory}: has no run")
        # A run that two of the directories contain is one observation.
        for path in found:
            try:
                runs[path.resolve()] = read_run(path)
            except ValueError as error:
                damaged.append(error)
        if (directory / STUDY_FILE).exists():
            study = load_study(directory)
            title, caption = study.title, study.caption
            published |= study.published
    finished = [record for record in runs.values() if record.finished]
    first = arguments.directories[0]
    figures, name = arguments.out or first / FIGURES_FOLDER, first.absolute().name
    if damaged and not runs:
        raise damaged[0]
    for fault in damaged:
        errors().print(f"fnbandit: {fault}; it is left out")
    drawn = None
    if arguments.figures:
        drawn = write_study_report(finished, arguments.out or first, figures, title, caption, published, name)
    if arguments.json:
        totals = tables.totals(finished)
        files = {"figures": drawn.figures, "report": drawn.pages[-1:]} if drawn is not None else {}
        print_json({"title": title, "rows": totals, **files})
        return FAILED if damaged else 0
    for record in runs.values():
        if not record.finished:
            status = find_status(record.directory, record.summary["status"])
            rows = f"{status}, {len(record.trace)} rows so far"
            console().print(f"{record.directory}: {rows}", soft_wrap=True)
    tables.print_table(finished, console(), title)
    if drawn is not None:
        drawn.print_paths(console())
    return FAILED if damaged else 0


@settings
class TheoryArguments(ConfigArguments):
    """The theory's numbers for a simulation: a settings file, a preset, and every field of Config as a flag."""

    json: bool = False
    """As JSON, for scripts."""


def theory_numbers(argv: Sequence[str]) -> int:
    """Print effective dimensions, nu, D and the bounds for a config."""
    from fnbandit import theory
    from fnbandit.theory.assumptions import remarks

    request = parse_request("fnbandit theory", argv, lists=False, kind=TheoryArguments)
    config = request.points[0].config
    numbers = theory.describe_theory(config)
    lines = [*remarks(config, numbers.environment), *numbers.warn_of_growth()]
    if request.arguments.json:
        print_json({"rows": [row._asdict() for row in theory.theory_table(numbers)], "warnings": lines})
        return 0
    title = (
        f"{config.environment}, {config.algorithm}, network={config.network}, N = {config.agents}, m = {config.width}"
    )
    table = Table("", "value", "what it is", "in the paper", title=title)
    for row in theory.theory_table(numbers):
        table.add_row(row.symbol, f"{row.value:.6g}", row.meaning, row.source)
    console().print(table)
    for line in lines:
        console().print(f"warning: {line}", soft_wrap=True)
    return 0
