"""The command `fnbandit`."""

from __future__ import annotations

import importlib.metadata
import itertools
import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from pydantic import Field
from rich.console import Console
from rich.table import Table

from fnbandit.config import FIELDS
from fnbandit.places import is_uri
from fnbandit.registry import ALGORITHMS, ENVIRONMENTS, KINDS, OWN_TABLE, Part, unknown
from fnbandit.validation import Count, settings
from workflows.arguments import Arguments, requested
from workflows.early import early_cluster
from workflows.experiment_files import experiment, experiment_names
from workflows.failures import DONE, FAILED, explained
from workflows.flags import parse, print_completion
from workflows.inspection import (
    LsArguments,
    ReportArguments,
    ShowArguments,
    TheoryArguments,
    ls,
    report,
    show,
    theory_numbers,
)
from workflows.jobs import check_places, place_lines
from workflows.output import Display, Messages, Output, console, errors
from workflows.settings import Settings
from workflows.study import Study, folder_for, load_study

# What needs torch, Ray or matplotlib is imported by the commands that use it: help should not wait for them.

MESSAGES = Messages()


def run(argv: Sequence[str]) -> int:
    """one experiment, with one or several seeds"""
    return _study("run", argv, lists=False)


def sweep(argv: Sequence[str]) -> int:
    """the product of lists: --agents 1,2,5,10 --trigger logdet --threshold 2.5,4,5"""
    return _study("sweep", argv, lists=True)


def _study(command: str, argv: Sequence[str], lists: bool) -> int:
    request = requested(f"fnbandit {command}", argv, lists, Arguments)
    asked, config = request.asked, request.points[0].config
    name = f"{Path(config.environment).stem}-{config.algorithm}-{time.strftime('%Y%m%d-%H%M%S')}"
    with claimed(asked.settings.out, Path("runs") / name, asked.dry_run) as directory:
        study = Study(directory.name, directory, request.points, asked.settings)
        return _execute([study], asked.display, asked.dry_run, asked.overwrite)


@contextmanager
def claimed(asked: str | None, otherwise: Path, dry_run: bool) -> Iterator[Path]:
    """The folder for a study: the one asked for, or one that nobody else has; it goes if nothing comes of it."""
    if asked is not None or dry_run:
        yield folder_for(asked, otherwise)
        return
    new = not otherwise.parent.exists()
    names = itertools.chain([otherwise.name], (f"{otherwise.name}-{number}" for number in itertools.count(2)))
    for folder in map(otherwise.with_name, names):
        with suppress(FileExistsError):
            folder.mkdir(parents=True)
            break
    try:
        yield folder
    finally:
        with suppress(OSError):  # it is not empty
            folder.rmdir()
            if new:
                folder.parent.rmdir()


def _execute(studies: list[Study], display: Display, dry_run: bool = False, overwrite: bool = False) -> int:
    """Carry out studies one after the other, or show what they would do."""
    if display.verbose:
        MESSAGES.setLevel(logging.INFO)
    codes = [DONE]
    for place, study in enumerate(studies):
        if dry_run:
            from workflows.dry_run import describe

            describe(study, console())
        else:
            check_places(study)
            announce(study, console(display))
            with early_cluster(study):
                from workflows import runner

                codes.append(runner.execute(study, console(display), overwrite, studies[:place]))
    return max(codes)


def announce(study: Study, console: Console) -> None:
    """What will run, and where: said at once, before torch and Ray are imported."""
    configs = [point.config for point in study.points]
    varied = {name: list(dict.fromkeys(getattr(c, name) for c in configs)) for name in FIELDS}
    words = [f"{study.title}:" if study.title else "", f"{len(configs)} run{'s' if len(configs) > 1 else ''} of"]
    words.append(f"{', '.join(map(str, varied.pop('algorithm')))} on {', '.join(varied.pop('environment'))},")
    symbols = {"agents": "N", "horizon": "T", "threshold": "D"}
    first = [f"N = {_some(varied.pop('agents'))}", f"T = {_some(varied.pop('horizon'))}"]
    seeds = f"seed {_some(varied.pop('seed'))}"
    rest = [f"{symbols.get(name, name)} = {_some(found)}" for name, found in varied.items() if len(found) > 1]
    # A figure's curves differ in many fields at once; which is said by their labels.
    rest = [] if study.points[0].label else rest
    console.print(f"{' '.join(filter(None, words))} {', '.join([*first, *rest, seeds])}", soft_wrap=True, markup=False)
    for line in place_lines(study):
        console.print(line, soft_wrap=True, markup=False)


def _some(values: list[Any]) -> str:
    return ", ".join(map(str, values)) if len(values) < 8 else f"{values[0]} ... {values[-1]} ({len(values)} values)"


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
    """List the runs with the memory and the time they take, and stop."""
    overwrite: bool = False
    """Remove the study that stands in the figure's folder, and begin anew."""
    missing: bool = False
    """Run only what has no results among those that are shipped."""
    keep: bool = False
    """Write the figure's results among those that are shipped: its curves that are finished."""
    page: bool = False
    """Write the page of results, RESULTS.md and its pictures, from those that are shipped."""
    settings: Annotated[Settings, tyro.conf.arg(name="")] = field(default_factory=Settings)
    display: Annotated[Display, tyro.conf.arg(name="")] = field(default_factory=Display)


def reproduce(argv: Sequence[str]) -> int:
    """the paper's figures: fig1a ... or all"""
    arguments = parse(ReproduceArguments, "fnbandit reproduce", argv)
    if arguments.keep and (arguments.quick or arguments.dry_run or not arguments.figures):
        raise ValueError("keep=True: takes figures at full size, without --quick and --dry-run")
    if arguments.missing and (arguments.quick or not arguments.figures):
        raise ValueError("missing=True: takes figures at full size, without --quick")
    names = experiment_names() if "all" in arguments.figures else arguments.figures
    if not names and not arguments.page:
        console().print("figures: " + ", ".join([*experiment_names(), "all"]), soft_wrap=True)
    if arguments.settings.out is not None and len(names) > 1:
        raise ValueError(f"out={str(arguments.settings.out)!r}: takes one figure; without it each goes to runs/FIGURE")
    studies = [experiment(name, arguments.quick, arguments.seeds, arguments.settings) for name in names]
    todo = studies
    if arguments.missing:
        from workflows.kept_results import without_shipped

        todo = [left for study in studies if (left := without_shipped(study)).points]
        if not todo:
            console(arguments.display).print("nothing is missing")
    code = _execute(todo, arguments.display, arguments.dry_run, arguments.overwrite)
    for study in [] if arguments.quick or arguments.dry_run else studies:
        from workflows.kept_results import compare, keep

        compare(study, console(arguments.display))
        if arguments.keep:
            path, unfinished = keep(study)
            without = f", without {unfinished} curves that are not finished" if unfinished else ""
            console(arguments.display).print(f"kept     {path}{without}", soft_wrap=True)
    if arguments.page:
        from workflows.results_page import write_page

        for path in write_page():
            console(arguments.display).print(f"page     {path}", soft_wrap=True)
    return code


@settings
class ResumeArguments:
    """Goes on with an interrupted run, sweep or figure."""

    directory: tyro.conf.Positional[str]
    """Where its records are: a folder, or a URI."""
    trust: bool = False
    """Import the modules and use the places outside of the folder that its study.json names."""
    checkpoint: str | None = None
    """Directory or URI of the checkpoints, in place of the study's."""
    tracking_uri: str | None = None
    """MLflow server or store, in place of the study's."""
    address: str | None = None
    """Ray cluster to join, in place of the study's."""
    display: Annotated[Display, tyro.conf.arg(name="")] = field(default_factory=Display)


def resume(argv: Sequence[str]) -> int:
    """goes on with an interrupted run, sweep or figure"""
    from workflows.locks import locked
    from workflows.mirror import Mirror
    from workflows.trust import PLACES, confirm, with_places

    arguments = parse(ResumeArguments, "fnbandit resume", argv)
    given = {name: value for name in PLACES if (value := getattr(arguments, name, None)) is not None}
    directory = folder_for(arguments.directory, Path())
    if is_uri(arguments.directory):
        given["out"] = arguments.directory
        with locked(directory):
            Mirror(arguments.directory, directory).fetch()
    study = with_places(load_study(directory), given)
    confirm(study, given, arguments.trust)
    return _execute([study], arguments.display)


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
    """Opens the MLflow page of a study's store, or of this directory's, on loopback."""

    directory: tyro.conf.Positional[Path | None] = None
    """A run, sweep or figure: the page of the store that it was tracked in."""
    tracking_uri: str | None = None
    """MLflow server or store; without it MLFLOW_TRACKING_URI, or sqlite in the working directory."""
    port: Annotated[int, Field(ge=1, le=65535)] = 5000
    """Port of the page."""


def ui(argv: Sequence[str]) -> int:
    """opens the MLflow page of a study's store, or of this directory's, on loopback"""
    from workflows.page import open_page
    from workflows.stores import store_uri

    arguments = parse(UiArguments, "fnbandit ui", argv)
    uri, experiment = arguments.tracking_uri, None
    if arguments.directory is not None:
        if uri is not None:
            raise ValueError(f"{arguments.directory}: a study knows its store; --tracking-uri is for no study")
        settings = load_study(arguments.directory).settings
        if not settings.tracking:
            raise ValueError(f"{arguments.directory}: was run with --no-tracking")
        uri, experiment = settings.tracking_uri, settings.experiment
    open_page(store_uri(uri), experiment, arguments.port, console())
    return DONE


@settings
class CompletionArguments:
    """Prints a script that completes commands and flags in a shell."""

    shell: tyro.conf.Positional[Literal["bash", "zsh", "fish"]]
    """Which shell."""


def completion(argv: Sequence[str]) -> int:
    """a script that completes commands and flags: eval "$(fnbandit completion bash)\""""
    shell = parse(CompletionArguments, "fnbandit completion", argv).shell
    print_completion(shell, ARGUMENTS)
    return DONE


ARGUMENTS: dict[str, type] = {
    "run": Arguments,
    "sweep": Arguments,
    "reproduce": ReproduceArguments,
    "resume": ResumeArguments,
    "report": ReportArguments,
    "ls": LsArguments,
    "show": ShowArguments,
    "theory": TheoryArguments,
    **dict.fromkeys(("environments", "algorithms", "parts"), ListArguments),
    "ui": UiArguments,
    "completion": CompletionArguments,
}
COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "run": run,
    "sweep": sweep,
    "reproduce": reproduce,
    "resume": resume,
    "report": report,
    "ls": ls,
    "show": show,
    "theory": theory_numbers,
    "environments": environments,
    "algorithms": algorithms,
    "parts": parts,
    "ui": ui,
    "completion": completion,
}


def usage() -> None:
    """The commands, a line each."""
    table = Table.grid(padding=(0, 2))
    for name, command in COMMANDS.items():
        table.add_row(f"  fnbandit {name}", command.__doc__)
    console().print("A simulator for federated neural bandits. Commands (each has --help):")
    console().print(table)
    console().print("fnbandit --version says which this is.")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; whatever is wrong with what it was given is one line and exit code 2."""
    argv = sys.argv[1:] if argv is None else argv
    log = logging.getLogger("fnbandit")
    log.setLevel(logging.INFO)
    log.addHandler(MESSAGES)  # which does nothing if it is there
    MESSAGES.setLevel(logging.WARNING)
    try:
        if not argv or argv[0] in ("-h", "--help"):
            usage()
            return DONE
        if argv[0] in ("-V", "--version"):
            print(f"fnbandit {importlib.metadata.version('fnbandit')}")
            return DONE
        if argv[0] not in COMMANDS:
            raise ValueError(unknown("command", argv[0], COMMANDS))
        return COMMANDS[argv[0]](argv[1:])
    except BaseException as error:
        told = explained(error)
        if told is None:
            raise
        code, text = told
        errors().print(f"fnbandit: {text}")
        return code


def entry(*command: str) -> None:
    """The console script, with the words that `python -m workflows.COMMAND` stands for."""
    out = sys.stdout = Output(sys.stdout)
    sys.stderr = Output(sys.stderr)
    try:
        code: Any = main([*command, *sys.argv[1:]])
    except SystemExit as end:
        code = end.code
    sys.stdout.flush()
    error = out.error
    if error is not None and not isinstance(error, BrokenPipeError):
        print(f"fnbandit: standard output: {error.strerror}", file=sys.stderr)
        code = code or FAILED
    sys.exit(code)
