"""A study in Python, and the steps that it shares with the command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from fnbandit.config import FIELDS, Config
from fnbandit.config.combinations import explain_idle
from fnbandit.errors import SimulationError
from fnbandit.notebook import html_table
from workflows.execution.preconnect import early_cluster
from workflows.studies.composition import claimed_folder, compose, resolve_checkpoint
from workflows.studies.jobs import check_places, place_lines
from workflows.studies.settings import Settings, idle_settings
from workflows.studies.study import StudyPlan
from workflows.terminal.stopping import raise_if_asked

if TYPE_CHECKING:
    from fnbandit.storage.studies import StudyRecord

# Modules that need torch or Ray are imported where they are used: a study is announced before.


class Study:
    """Runs that belong together: a sweep over fields of Config, with one or several seeds.

        study = Study(Config.preset("tuned"), sweep={"agents": [1, 2, 5]}, seeds=3)
        record = study.run("runs/x", engine="ray", progress=True)
        record.plot("regret against N")

    Args:
        base: the config from which all runs start, or the name of a preset, whose values depend on each run's
            environment, algorithm and number of hidden layers, as on the command line.
        sweep: values by field. A list is an axis, the study has a run for every element of the axes' product; a single
            value holds for all runs. A number may be an expression of N: {"threshold": "25/N"}.
        seeds: runs per element, with the seeds from the config's own on.
        zip: fields whose lists vary together, instead of as a product: zip=("agents", "threshold").

    A bad field or value, and a field that has no effect in any run, is a ValueError of one line.
    """

    def __init__(
        self,
        base: Config | str = "tuned",
        sweep: Mapping[str, Any] | None = None,
        seeds: int = 1,
        zip: Sequence[str] = (),
    ) -> None:
        if type(seeds) is not int or seeds < 1:
            raise ValueError(f"seeds={seeds!r}: expected a whole number, at least 1")
        fields = {name: _list_values(value) for name, value in (sweep or {}).items()}
        self._points, idle = compose(base, fields, seeds, zip)
        for name, reason in idle.items():
            raise ValueError(explain_idle(name, reason))

    @property
    def configs(self) -> dict[str, Config]:
        """The config of every run by its folder below the study's; "." for a study of one run."""
        return {point.path: point.config for point in self._points}

    def __repr__(self) -> str:
        return f"Study: {describe_runs([point.config for point in self._points])}"

    def _repr_html_(self) -> str:
        configs = [point.config for point in self._points]
        varied = [name for name in FIELDS if len({getattr(config, name) for config in configs}) > 1]
        rows = [[getattr(config, name) for name in varied] for config in configs]
        return html_table(rows if varied else [], varied, describe_runs(configs))

    def run(
        self, folder: str | Path | None = None, *, overwrite: bool = False, progress: bool = False, **settings: Any
    ) -> StudyRecord:
        """Run the runs that the folder does not contain yet; return all its runs, as `fnbandit.load` does.

        Args:
            folder: directory or URI of the records; runs/NAME without it. A folder that holds runs of this study is
                resumed or extended, one that holds another study is a ValueError.
            overwrite: remove the study that is in the folder first.
            progress: print on standard error what `fnbandit sweep` prints: progress, totals, files.
            settings: the flags of `fnbandit sweep` that say how runs are carried out and recorded, by name and with
                the same defaults: engine, agents_per_actor, tracking, trace, checkpoint ...
                (`workflows.studies.settings.Settings`).

        Raises a SimulationError if a run has failed; the others are finished and stay.
        """
        from fnbandit.storage.studies import load

        given = Settings(out=None if folder is None else str(folder), **resolve_checkpoint(settings))
        for name, reason in idle_settings(given).items():
            raise ValueError(f"{name}: has no effect with {reason}")
        console = Console(stderr=True, highlight=False, markup=False, emoji=False, quiet=not progress)
        with claimed_folder(given.out, self._points[0].config) as directory:
            plan = StudyPlan(directory.name, directory, self._points, given)
            code = execute_study(plan, console, overwrite)
        if code:
            raise SimulationError(f"{directory}: runs have failed, see their log.txt; run the study again to retry")
        return load(directory)


def execute_study(plan: StudyPlan, console: Console, overwrite: bool = False, others: Sequence[StudyPlan] = ()) -> int:
    """Announce a study, run its unfinished runs that none of the `others` has, and return the exit code."""
    check_places(plan)
    announce(plan, console)
    raise_if_asked()
    with early_cluster(plan):
        raise_if_asked()
        from workflows.execution import runner

        raise_if_asked()
        return runner.execute(plan, console, overwrite, others)


def announce(plan: StudyPlan, console: Console) -> None:
    """Print the runs and their folder, before torch and Ray are imported."""
    title = f"{plan.title}: " if plan.title else ""
    # A figure's curves differ in many fields at once, which their labels describe.
    text = describe_runs([point.config for point in plan.points], varied=not plan.points[0].label)
    for line in (title + text, *place_lines(plan)):
        console.print(line, soft_wrap=True, markup=False)


def describe_runs(configs: Sequence[Config], varied: bool = True) -> str:
    """Return one line on runs: how many, algorithm, task, N, T, with `varied` the fields that vary, and the seeds."""
    values = {name: list(dict.fromkeys(getattr(config, name) for config in configs)) for name in FIELDS}
    count = f"{len(configs)} run{'s' if len(configs) > 1 else ''}"
    parts = f"{', '.join(map(str, values.pop('algorithm')))} on {', '.join(values.pop('environment'))}"
    symbols = {"agents": "N", "horizon": "T", "threshold": "D"}
    first = [f"N = {_shorten(values.pop('agents'))}", f"T = {_shorten(values.pop('horizon'))}"]
    seeds = f"seed {_shorten(values.pop('seed'))}"
    rest = [f"{symbols.get(name, name)} = {_shorten(found)}" for name, found in values.items() if len(found) > 1]
    return f"{count} of {parts}, {', '.join([*first, *(rest if varied else []), seeds])}"


def _shorten(values: list[Any]) -> str:
    return ", ".join(map(str, values)) if len(values) < 8 else f"{values[0]} ... {values[-1]} ({len(values)} values)"


def _list_values(value: Any) -> list[Any]:
    return list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]
