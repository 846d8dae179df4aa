"""The command `fnbandit`."""

from __future__ import annotations

import dataclasses
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table

from actors.checkpoints import CheckpointError
from actors.engine import SimulationError
from actors.layout import Node, plan
from fnbandit import theory
from fnbandit.capacity import memory, readable
from fnbandit.config import ALGORITHMS, ENVIRONMENTS, unknown
from fnbandit.environments import make_environment
from fnbandit.records import RunRecord, find_runs, read_run
from workflows import runner
from workflows.figures import draw
from workflows.study import (
    Arguments,
    Settings,
    Study,
    experiment,
    experiment_names,
    from_command_line,
    load_study,
    parse,
)
from workflows.tracking import default_uri

DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130


def run(argv: Sequence[str]) -> int:
    """one experiment, with one or several seeds"""
    return _study("run", argv, lists=False)


def sweep(argv: Sequence[str]) -> int:
    """the product of lists: --agents 1,2,5,10 --threshold 2.5,4,5"""
    return _study("sweep", argv, lists=True)


def _study(command: str, argv: Sequence[str], lists: bool) -> int:
    arguments, points = from_command_line(f"fnbandit {command}", argv, lists)
    if arguments.settings.dry_run:
        return _dry_run(arguments)
    config = arguments.config
    name = f"{Path(config.environment).stem}-{config.algorithm}-{time.strftime('%Y%m%d-%H%M%S')}"
    directory = arguments.settings.out or Path("runs") / name
    study = Study(directory.name, directory, points, arguments.settings)
    return runner.execute(study, console())


def _dry_run(arguments: Arguments) -> int:
    config, settings = arguments.config, arguments.settings
    environment = make_environment(config)
    resolved = theory.resolve(config, environment)
    show = Table("field", "value", title="config", title_justify="left")
    for name, value in dataclasses.asdict(resolved).items():
        show.add_row(name, str(value))
    console().print(show)
    needs = memory(resolved, environment)
    console().print(f"memory   {readable(needs.per_agent)} per agent, {readable(needs.shared)} shared in a process")
    if settings.engine == "local":
        console().print(f"layout   {config.agents} agents in this process, {readable(needs.of(config.agents))}")
    elif settings.address or os.environ.get("RAY_ADDRESS"):
        console().print("layout   decided when the cluster is joined")
    else:
        here = Node(os.cpu_count() or 1, 0, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        parts = plan(resolved, environment, settings.options(), [here])
        console().print(f"layout   {len(parts)} actors with {', '.join(str(len(part)) for part in parts)} agents")
    return DONE


@dataclass(frozen=True)
class ReproduceArguments:
    """The paper's figures from the experiment files shipped with the package."""

    figures: tyro.conf.Positional[tuple[str, ...]]
    """fig1a, fig1b, ... or all; without any: a list of them."""
    quick: bool = False
    """A small version of about a minute."""
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
    studies = [experiment(name, arguments.quick, arguments.settings) for name in names]
    for study in studies:
        code = runner.execute(study, console())
        if code != DONE:
            return code
    return DONE


@dataclass(frozen=True)
class ResumeArguments:
    """Goes on with an interrupted run, sweep or figure."""

    directory: tyro.conf.Positional[Path]
    """Where its records are."""


def resume(argv: Sequence[str]) -> int:
    """goes on with an interrupted run, sweep or figure"""
    return runner.execute(load_study(parse(ResumeArguments, "fnbandit resume", argv).directory), console())


@dataclass(frozen=True)
class ReportArguments:
    """Figures and tables from records alone."""

    directories: tyro.conf.Positional[tuple[Path, ...]]
    """Runs, or folders of runs."""
    out: Path | None = None
    """Where the figures go; DIRECTORY/figures without it."""


def report(argv: Sequence[str]) -> int:
    """figures and tables from records alone"""
    arguments = parse(ReportArguments, "fnbandit report", argv)
    if not arguments.directories:
        raise ValueError("report: expected the directory of a run, sweep or figure")
    runs: list[RunRecord] = []
    published: dict[str, float] = {}
    title = None
    for directory in arguments.directories:
        found = [read_run(path) for path in find_runs(directory)]
        if not found:
            raise ValueError(f"{directory}: has no run")
        runs += found
        if (directory / "study.json").exists():
            study = load_study(directory)
            title = study.title
            published |= {p.label: p.published for p in study.points if p.label and p.published is not None}
    unfinished = [record for record in runs if not record.finished]
    for record in unfinished:
        console().print(
            f"{record.directory}: {record.summary['status']}, {len(record.trace)} rows so far", soft_wrap=True
        )
    out = arguments.out or arguments.directories[0] / "figures"
    finished = [record for record in runs if record.finished]
    runner.show(finished, console(), title)
    for path in draw(finished, out, title, published):
        console().print(f"figure   {path}", soft_wrap=True)
    return DONE


def theory_numbers(argv: Sequence[str]) -> int:
    """effective dimensions, nu, D and the bounds for a config"""
    arguments, _ = from_command_line("fnbandit theory", argv, lists=False)
    numbers = theory.describe(arguments.config)
    names = {
        "regularization": "lambda",
        "effective_dimension": "d~",
        "largest_local_dimension": "d~_max",
        "exploration_global": "nu_TKN",
        "exploration_local": "nu_TK",
        "threshold": "D = T / (N d~)",
        "training_rate": "eta (App. C.1)",
        "training_steps": "J (App. C.1)",
        "regret_bound": "bound on the regret of all agents, constants 1",
        "rounds_bound": "bound on the rounds, constants 1",
    }
    table = Table("quantity", "value", title=f"{arguments.config.environment}, N = {arguments.config.agents}")
    for name, meaning in names.items():
        table.add_row(meaning, f"{getattr(numbers, name):.6g}")
    console().print(table)
    if not numbers.exact:
        console().print("d~ from a sample of the contexts (a power law), d~_max from some of the agents")
    return DONE


def environments(argv: Sequence[str]) -> int:
    """what can be learned on"""
    own = {
        "path/to/table.parquet": "an own classification table (.parquet or .csv), its label column named by --label",
        "package.module:function": "an own reward function h(x) for rows x on the unit sphere",
    }
    return _list(ENVIRONMENTS | own, argv)


def algorithms(argv: Sequence[str]) -> int:
    """what agents can run"""
    return _list(ALGORITHMS, argv)


def _list(items: dict[str, str], argv: Sequence[str]) -> int:
    if argv:
        raise ValueError(f"{argv[0]}: no argument is expected")
    table = Table.grid(padding=(0, 2))
    for name, meaning in items.items():
        table.add_row(name, meaning)
    console().print(table)
    return DONE


@dataclass(frozen=True)
class UiArguments:
    """Opens the MLflow page of this directory's store on loopback."""

    port: int = 5000
    """Port of the page."""


def ui(argv: Sequence[str]) -> int:
    """opens the MLflow page of this directory's store on loopback"""
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
    except (ValueError, CheckpointError) as error:
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
