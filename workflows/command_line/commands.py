"""The commands that run studies, list the parts to choose from, and open the results of runs."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field
from rich.table import Table

from fnbandit.config.fields import Count, settings
from fnbandit.config.registry import ALGORITHMS, AUTOMATIC, ENVIRONMENTS, KINDS, OWN_TABLE, Part
from fnbandit.config.words import unknown
from fnbandit.storage.locations import is_uri
from workflows.command_line.arguments import (
    Display,
    Request,
    StudyArguments,
    SweepArguments,
    format_config,
    parse_request,
)
from workflows.command_line.flags import Positional, parse
from workflows.command_line.inspection import print_json
from workflows.execution.failures import DONE
from workflows.execution.study import execute_study
from workflows.studies.composition import claimed_folder
from workflows.studies.early_checks import check_early
from workflows.studies.experiments import experiment, experiment_names
from workflows.studies.settings import Settings, idle_settings
from workflows.studies.study import StudyPlan, folder_for, load_study
from workflows.terminal.output import MESSAGE_HANDLER, console
from workflows.terminal.progress import duration

LEAK = "trigger-leak"
"""The one figure that is no study"""

# Modules that need torch, Ray or matplotlib are imported by the commands that use them: help does not wait for them.


def run(argv: Sequence[str]) -> int:
    """Run one experiment, with one or several seeds."""
    return _run_study(parse_request("fnbandit run", argv, False, StudyArguments))


def sweep(argv: Sequence[str]) -> int:
    """Run the product of lists."""
    request = parse_request("fnbandit sweep", argv, True, SweepArguments)
    if len(request.points) == 1:
        raise ValueError("sweep: expected a list of values, as --agents 1,2,5; `fnbandit run` takes single ones")
    return _run_study(request)


def _run_study(request: Request[Any]) -> int:
    arguments = request.arguments
    if arguments.json and not arguments.dry_run:
        raise ValueError("json=True: takes --dry-run; `fnbandit report FOLDER --json` has the results of runs")
    if arguments.print_config and arguments.dry_run:
        raise ValueError("print_config=True, dry_run=True: at most one of them")
    if arguments.print_config:
        print(format_config(request), end="")
        return DONE
    check_early(point.config for point in request.points)
    for line in request.notes:
        console(arguments.display.quiet or arguments.json).print(line, soft_wrap=True)
    with claimed_folder(arguments.settings.out, request.points[0].config, arguments.dry_run) as directory:
        plan = StudyPlan(directory.name, directory, request.points, arguments.settings)
        if arguments.json:
            from workflows.execution.dry_run import list_run_plan

            print_json(list_run_plan(plan))
            return DONE
        return _execute([plan], arguments.display, arguments.dry_run, arguments.overwrite)


def _execute(plans: list[StudyPlan], display: Display, dry_run: bool = False, overwrite: bool = False) -> int:
    """Run studies one after the other, or show their plans; return the largest exit code."""
    if display.verbose:
        MESSAGE_HANDLER.setLevel(logging.INFO)
    codes = [DONE]
    for place, plan in enumerate(plans):
        if dry_run:
            from workflows.execution.dry_run import describe_run_plan

            describe_run_plan(plan, console())
        else:
            codes.append(execute_study(plan, console(display.quiet), overwrite, plans[:place]))
    return max(codes)


@settings
class ReproduceArguments:
    """The paper's figures from the experiment files shipped with the package."""

    experiments: Positional[tuple[str, ...]] = ()
    """fig1a, fig1b, ... or all; without any: a list of them."""
    quick: bool = False
    """A small version of about a minute."""
    seeds: Count | None = None
    """Runs with this many seeds; without it as many as the figure's file says."""
    dry_run: bool = False
    """List the runs with the memory and the time they take, and stop."""
    overwrite: bool = False
    """Remove the study in the figure's folder, and begin anew."""
    missing: bool = False
    """Run only what has no results among those that are shipped."""
    keep: bool = False
    """Write the figure's results among those that are shipped: its curves that are finished."""
    page: bool = False
    """Write the page of results, RESULTS.md and its pictures, from those that are shipped."""
    settings: Settings = field(default_factory=Settings)
    display: Display = field(default_factory=Display)


def reproduce(argv: Sequence[str]) -> int:
    """Run the paper's figures, compare them with the shipped results, and keep or publish them on request."""
    arguments = parse(ReproduceArguments, "fnbandit reproduce", argv)
    for name, reason in idle_settings(arguments.settings).items():
        raise ValueError(f"{name}: has no effect with {reason}")
    if arguments.keep and (arguments.quick or arguments.dry_run or not arguments.experiments):
        raise ValueError("keep=True: takes figures at full size, without --quick and --dry-run")
    if arguments.missing and (arguments.quick or not arguments.experiments):
        raise ValueError("missing=True: takes figures at full size, without --quick")
    names = experiment_names() if "all" in arguments.experiments else arguments.experiments
    if LEAK in names or "all" in arguments.experiments:
        _reproduce_leak(arguments)
        names = [name for name in names if name != LEAK]
        if not names and not arguments.page:
            return DONE
    if not names and not arguments.page:
        _list_figures()
    if arguments.settings.out is not None and len(names) > 1:
        raise ValueError(f"out={str(arguments.settings.out)!r}: takes one figure; without it each goes to runs/FIGURE")
    studies = [experiment(name, arguments.quick, arguments.seeds, arguments.settings) for name in names]
    todo = studies
    if arguments.missing:
        from workflows.paper.shipped import without_shipped

        todo = [left for study in studies if (left := without_shipped(study)).points]
        if not todo:
            console(arguments.display.quiet).print("nothing is missing")
    code = _execute(todo, arguments.display, arguments.dry_run, arguments.overwrite)
    for study in [] if arguments.quick or arguments.dry_run else studies:
        from workflows.paper.shipped import compare, keep

        compare(study, console(arguments.display.quiet))
        if arguments.keep:
            path, unfinished = keep(study)
            without = f", without {unfinished} curves that are not finished" if unfinished else ""
            console(arguments.display.quiet).print(f"kept     {path}{without}", soft_wrap=True)
    if arguments.page:
        from workflows.paper.page import write_page

        for path in write_page():
            console(arguments.display.quiet).print(f"page     {path}", soft_wrap=True)
    return code


def _reproduce_leak(arguments: ReproduceArguments) -> None:
    """Run the attack on triggers, which is no study: an attacker's view of thousands of one-agent runs."""
    from workflows.paper.shipped import RESULTS
    from workflows.paper.trigger_leak import FULL_SEEDS, QUICK_SEEDS, RESULT_FILE, TITLE, reproduce_leak

    seeds = arguments.seeds or (QUICK_SEEDS if arguments.quick else FULL_SEEDS)
    shown = console(arguments.display.quiet)
    if arguments.dry_run:
        shown.print(f"{LEAK}: {TITLE}: two histories, {seeds} seeds of each", soft_wrap=True)
    elif arguments.keep:
        reproduce_leak(Path(str(RESULTS)), seeds, shown)
    elif not (arguments.missing and Path(str(RESULTS / RESULT_FILE)).exists()):
        name = f"{LEAK}-quick" if arguments.quick else LEAK
        reproduce_leak(folder_for(arguments.settings.out, Path("runs") / name), seeds, shown)


def _list_figures() -> None:
    """Print a line per figure: title, runs, core seconds of the shipped results, and the runs that are here."""
    from workflows.paper.shipped import sum_shipped

    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("figure", "what it shows", "runs", "time on a core", "results", "here"):
        table.add_column(name, justify="right" if name in ("runs", "time on a core") else "left")
    for name in experiment_names():
        study = experiment(name, False, None, Settings())
        seconds = sum_shipped(name)
        there = "" if not study.directory.exists() else str(study.directory)
        took, shipped = ("", "") if seconds is None else (duration(seconds), "shipped")
        table.add_row(name, study.title or "", str(len(study.points)), took, shipped, there)
    table.add_row(LEAK, "What the times of rounds tell about one interaction", "", "", "", "")
    console().print(table)
    console().print("`fnbandit reproduce FIGURE` runs one, `all` runs all, --quick a version of about a minute.")


@settings
class ResumeArguments:
    """Goes on with an interrupted run, sweep or figure."""

    directory: Positional[str]
    """Where its records are: a folder, or a URI."""
    trust: bool = False
    """Import the modules and use the places outside of the folder that its study.json names."""
    checkpoint: str | None = None
    """Directory or URI of the checkpoints, in place of the study's."""
    tracking_uri: str | None = None
    """MLflow server or store, in place of the study's."""
    address: str | None = None
    """Ray cluster to join, in place of the study's."""
    display: Display = field(default_factory=Display)


def resume(argv: Sequence[str]) -> int:
    """Resume an interrupted run, sweep or figure."""
    from workflows.studies.locks import locked
    from workflows.studies.mirror import Mirror
    from workflows.studies.trust import PLACES, confirm, with_places

    arguments = parse(ResumeArguments, "fnbandit resume", argv)
    places = {name: value for name in PLACES if (value := getattr(arguments, name, None)) is not None}
    directory = folder_for(arguments.directory, Path())
    if is_uri(arguments.directory):
        places["out"] = arguments.directory
        with locked(directory):
            Mirror(arguments.directory, directory).fetch()
    study = with_places(load_study(directory), places)
    confirm(study, places, arguments.trust)
    return _execute([study], arguments.display)


@settings
class ListArguments:
    """Lists what there is to choose from."""

    names: Positional[tuple[str, ...]] = ()
    """Show only these, with the fields that belong to them."""
    json: bool = False
    """As JSON, for scripts."""


def environments(argv: Sequence[str]) -> int:
    """List the environments."""
    arguments = parse(ListArguments, "fnbandit environments", argv)
    own = Part("", "", "an own environment: a function h(x) for rows x on the unit sphere, or a class")
    others = {"path/to/table.parquet": OWN_TABLE, "package.module:Name": own}
    return _show_parts("environment", ENVIRONMENTS, others, arguments)


def algorithms(argv: Sequence[str]) -> int:
    """List the algorithms."""
    arguments = parse(ListArguments, "fnbandit algorithms", argv)
    own = Part("", "", "an own algorithm: a class that extends fnbandit.Group or fnbandit.FederatedGroup")
    return _show_parts("algorithm", ALGORITHMS, {"package.module:Class": own}, arguments)


def _show_parts(kind: str, parts: Mapping[str, Part], own: Mapping[str, Part], arguments: ListArguments) -> int:
    """Print the parts of a kind and the forms of a user's `own` ones, or those that the arguments name."""
    names, choices = arguments.names, {**parts, **own}
    for name in names:
        if name not in choices:
            raise ValueError(unknown(kind, name, choices))
    if arguments.json:
        return _print_parts_json({kind: {name: choices[name] for name in names} if names else parts})
    _print_parts({name: choices[name] for name in names} if names else choices, fields=bool(names))
    return DONE


def parts(argv: Sequence[str]) -> int:
    """List all parts of a simulation, with the fields that belong to each choice."""
    arguments = parse(ListArguments, "fnbandit parts", argv)
    names = arguments.names
    for kind in names:
        if kind not in KINDS:
            raise ValueError(unknown("kind", kind, KINDS))
    if arguments.json:
        return _print_parts_json({kind: choices for kind, choices in KINDS.items() if not names or kind in names})
    for kind, choices in KINDS.items():
        if not names or kind in names:
            console().print(kind)
            _print_parts(choices, fields=True)
    if not names:
        console().print(f"training_steps=auto\n  fields: {', '.join(AUTOMATIC)}")
        console().print("Each of them can be an own one: package.module:Name.")
    return DONE


def _print_parts_json(kinds: Mapping[str, Mapping[str, Part]]) -> int:
    """Print a row per choice: its kind, its name, its description, and the fields that belong to it."""
    rows = [
        {"kind": kind, "name": name, "summary": part.summary, "fields": part.fields}
        for kind, choices in kinds.items()
        for name, part in choices.items()
    ]
    print_json(rows)
    return DONE


def _print_parts(choices: Mapping[str, Part], fields: bool = False) -> None:
    """Print a line per choice, and with `fields` another one with its fields."""
    table = Table.grid(padding=(0, 2))
    for name, part in choices.items():
        table.add_row(f"  {name}" if fields else name, part.summary)
        if fields and part.fields:
            table.add_row("", f"fields: {', '.join(part.fields)}")
    console().print(table)


@settings
class UiArguments:
    """Opens the MLflow page of a study's store, or of this directory's, on loopback."""

    directory: Positional[Path | None] = None
    """A run, sweep or figure: the page of the store that it was tracked in."""
    tracking_uri: str | None = None
    """MLflow server or store; without it MLFLOW_TRACKING_URI, or sqlite in the working directory."""
    port: Annotated[int, Field(ge=1, le=65535)] = 5000
    """Port of the page."""


def ui(argv: Sequence[str]) -> int:
    """Serve the MLflow page of a study's store, or of this directory's, on loopback."""
    from workflows.studies.tracking_uri import store_uri
    from workflows.tracking.mlflow_page import open_page

    arguments = parse(UiArguments, "fnbandit ui", argv)
    uri, experiment = arguments.tracking_uri, None
    if arguments.directory is not None:
        if uri is not None:
            raise ValueError(f"{arguments.directory}: a study knows its store; --tracking-uri is for no study")
        settings = load_study(arguments.directory).settings
        if not settings.uses_mlflow:
            raise ValueError(f"{arguments.directory}: was run with --tracking {settings.tracking}")
        uri, experiment = settings.tracking_uri, settings.experiment
    open_page(store_uri(uri), experiment, arguments.port, console())
    return DONE


@settings
class CompletionArguments:
    """Prints a script that completes commands and flags in a shell."""

    shell: Positional[Literal["bash", "zsh", "fish"]]
    """Which shell."""


def completion(argv: Sequence[str]) -> int:
    """Print a script that completes commands and flags."""
    from workflows.command_line import COMMANDS
    from workflows.command_line.completion import completion_script

    shell = parse(CompletionArguments, "fnbandit completion", argv).shell
    print(completion_script(shell, {name: command.load_arguments() for name, command in COMMANDS.items()}), end="")
    return DONE
