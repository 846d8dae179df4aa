"""The command `fnbandit`."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from pydantic import Field
from rich.console import Console
from rich.table import Table

from fnbandit.errors import SimulationError
from fnbandit.registry import ALGORITHMS, ENVIRONMENTS, KINDS, OWN_TABLE, Part, unknown
from fnbandit.validation import Count, settings
from workflows.arguments import ConfigArguments, requested
from workflows.experiment_files import experiment, experiment_names
from workflows.flags import parse
from workflows.settings import Settings
from workflows.study import Study, load_study

if TYPE_CHECKING:
    from fnbandit.records import RunRecord

# What needs torch, Ray or matplotlib is imported by the commands that use it: help should not wait for them.

DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130


def run(argv: Sequence[str]) -> int:
    """one experiment, with one or several seeds"""
    return _study("run", argv, lists=False)


def sweep(argv: Sequence[str]) -> int:
    """the product of lists: --agents 1,2,5,10 --trigger logdet --threshold 2.5,4,5"""
    return _study("sweep", argv, lists=True)


def _study(command: str, argv: Sequence[str], lists: bool) -> int:
    request = requested(f"fnbandit {command}", argv, lists)
    config = request.points[0].config
    name = f"{Path(config.environment).stem}-{config.algorithm}-{time.strftime('%Y%m%d-%H%M%S')}"
    directory = request.settings.out or Path("runs") / name
    return _execute([Study(directory.name, directory, request.points, request.settings)], request.dry_run)


def _execute(studies: list[Study], dry_run: bool) -> int:
    """Carry out studies one after the other, or show what they would do."""
    from workflows import runner
    from workflows.dry_run import describe

    for study in studies:
        if dry_run:
            describe(study, console())
        elif (code := runner.execute(study, console())) != DONE:
            return code
    return DONE


@settings
class ReproduceArguments:
    """The paper's figures from the experiment files shipped with the package."""

    figures: tyro.conf.Positional[tuple[str, ...]] = ()
    """fig1a, fig1b, ... or all; without any: a list of them."""
    quick: bool = False
    """A small version of about a minute."""
    seeds: Count | None = None
    """Runs with this many seeds; without it as many as the figure's file says."""
    dry_run: bool = False
    """List the runs with the memory they take, and stop."""
    settings: Annotated[Settings, tyro.conf.arg(name="")] = field(default_factory=Settings)


def reproduce(argv: Sequence[str]) -> int:
    """the paper's figures: fig1a ... or all"""
    arguments = parse(ReproduceArguments, "fnbandit reproduce", argv)
    if not arguments.figures:
        console().print("figures: " + ", ".join([*experiment_names(), "all"]), soft_wrap=True)
        return DONE
    names = experiment_names() if "all" in arguments.figures else arguments.figures
    if arguments.settings.out is not None and len(names) > 1:
        raise ValueError(f"out={str(arguments.settings.out)!r}: takes one figure; without it each goes to runs/FIGURE")
    studies = [experiment(name, arguments.quick, arguments.seeds, arguments.settings) for name in names]
    return _execute(studies, arguments.dry_run)


@settings
class ResumeArguments:
    """Goes on with an interrupted run, sweep or figure."""

    directory: tyro.conf.Positional[Path]
    """Where its records are."""


def resume(argv: Sequence[str]) -> int:
    """goes on with an interrupted run, sweep or figure"""
    return _execute([load_study(parse(ResumeArguments, "fnbandit resume", argv).directory)], dry_run=False)


@settings
class ReportArguments:
    """Figures and tables from records alone."""

    directories: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Runs, or folders of runs."""
    out: Path | None = None
    """Where the figures go; DIRECTORY/figures without it."""


def report(argv: Sequence[str]) -> int:
    """figures and tables from records alone"""
    from fnbandit.records import find_runs, read_run
    from workflows import runner
    from workflows.figures import draw

    arguments = parse(ReportArguments, "fnbandit report", argv)
    if not arguments.directories:
        raise ValueError("report: expected the directory of a run, sweep or figure")
    runs: dict[Path, RunRecord] = {}
    published: dict[str, float] = {}
    title = None
    for directory in arguments.directories:
        found = find_runs(directory)
        if not found:
            raise ValueError(f"{directory}: has no run")
        # A run that stands in two of the directories is one observation.
        runs |= {path.resolve(): read_run(path) for path in found}
        if (directory / "study.json").exists():
            study = load_study(directory)
            title = study.title
            published |= {p.label: p.published for p in study.points if p.label and p.published is not None}
    for record in runs.values():
        if not record.finished:
            rows = f"{record.summary['status']}, {len(record.trace)} rows so far"
            console().print(f"{record.directory}: {rows}", soft_wrap=True)
    finished = [record for record in runs.values() if record.finished]
    runner.show(finished, console(), title)
    for path in draw(finished, arguments.out or arguments.directories[0] / "figures", title, published):
        console().print(f"figure   {path}", soft_wrap=True)
    return DONE


def theory_numbers(argv: Sequence[str]) -> int:
    """effective dimensions, nu, D and the bounds for a config"""
    from fnbandit import theory
    from fnbandit.assumptions import remarks

    config = requested("fnbandit theory", argv, lists=False, kind=ConfigArguments).points[0].config
    numbers = theory.describe(config)
    title = (
        f"{config.environment}, {config.algorithm}, network={config.network}, N = {config.agents}, m = {config.width}"
    )
    table = Table("", "value", "what it is", "in the paper", title=title)
    for row in theory.table(numbers):
        table.add_row(row.symbol, f"{row.value:.6g}", row.meaning, row.source)
    console().print(table)
    for line in remarks(config, numbers.environment):
        console().print(f"warning: {line}", soft_wrap=True)
    return DONE


@settings
class ListArguments:
    """Lists what there is to choose from."""


def environments(argv: Sequence[str]) -> int:
    """what can be learned on"""
    parse(ListArguments, "fnbandit environments", argv)
    own = Part("", "", "an own environment: a function h(x) for rows x on the unit sphere, or a class")
    _list(ENVIRONMENTS | {"path/to/table.parquet": OWN_TABLE, "package.module:Name": own})
    return DONE


def algorithms(argv: Sequence[str]) -> int:
    """what agents can run"""
    parse(ListArguments, "fnbandit algorithms", argv)
    _list(ALGORITHMS | {"package.module:Class": Part("", "", "an own algorithm")})
    return DONE


def parts(argv: Sequence[str]) -> int:
    """all that a simulation is composed of, with the fields that belong to each choice"""
    parse(ListArguments, "fnbandit parts", argv)
    for kind, choices in KINDS.items():
        console().print(kind)
        _list(choices, fields=True)
    console().print("Each of them can be an own one: package.module:Name.")
    return DONE


def _list(choices: Mapping[str, Part], fields: bool = False) -> None:
    table = Table.grid(padding=(0, 2))
    for name, part in choices.items():
        table.add_row(f"  {name}" if fields else name, part.summary)
        if fields and part.fields:
            table.add_row("", f"fields: {', '.join(part.fields)}")
    console().print(table)


@settings
class UiArguments:
    """Opens the MLflow page of this directory's store on loopback."""

    port: Annotated[int, Field(ge=1, le=65535)] = 5000
    """Port of the page."""


def ui(argv: Sequence[str]) -> int:
    """opens the MLflow page of this directory's store on loopback"""
    from workflows.tracking import default_uri

    arguments = parse(UiArguments, "fnbandit ui", argv)
    uri = default_uri()
    if uri.startswith("sqlite:///") and not Path(uri.removeprefix("sqlite:///")).exists():
        raise ValueError(f"{uri}: no store yet; `fnbandit run` makes one")
    console().print(f"http://127.0.0.1:{arguments.port} (Ctrl-C ends it)")
    command = ["server", "--backend-store-uri", uri, "--host", "127.0.0.1", "--port", str(arguments.port)]
    return subprocess.call([sys.executable, "-m", "mlflow", *command])


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "run": run,
    "sweep": sweep,
    "reproduce": reproduce,
    "resume": resume,
    "report": report,
    "theory": theory_numbers,
    "environments": environments,
    "algorithms": algorithms,
    "parts": parts,
    "ui": ui,
}


def console() -> Console:
    """Where a person reads; wide enough for tables where there is no terminal."""
    return Console(width=None if sys.stdout.isatty() else 120, highlight=False)


def usage() -> None:
    """The commands, a line each."""
    table = Table.grid(padding=(0, 2))
    for name, command in COMMANDS.items():
        table.add_row(f"  fnbandit {name}", command.__doc__)
    console().print("A simulator for federated neural bandits. Commands (each has --help):")
    console().print(table)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; whatever is wrong with what it was given is one line and exit code 2."""
    argv = sys.argv[1:] if argv is None else argv
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    if not argv or argv[0] in ("-h", "--help"):
        usage()
        return DONE
    errors = Console(stderr=True, highlight=False, soft_wrap=True)
    try:
        if argv[0] not in COMMANDS:
            raise ValueError(unknown("command", argv[0], COMMANDS))
        return COMMANDS[argv[0]](argv[1:])
    except ValueError as error:
        errors.print(f"fnbandit: {error}", markup=False)
        return BAD_INPUT
    except SimulationError as error:
        errors.print(f"fnbandit: {error}", markup=False)
        return FAILED
    except KeyboardInterrupt:
        errors.print("fnbandit: interrupted; `fnbandit resume DIR` goes on", markup=False)
        return INTERRUPTED
    except OSError as error:
        errors.print(f"fnbandit: {error}", markup=False)
        return FAILED


def entry() -> None:
    """The console script."""
    sys.exit(main())
