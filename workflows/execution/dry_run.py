"""The plan of a study: its runs, their config, layout, memory and time, without starting anything."""

from __future__ import annotations

import os
import sys

from rich.console import Console
from rich.table import Table

from actors.layout import Node, plan
from fnbandit.config.words import count_things
from fnbandit.environments import make_environment
from fnbandit.numerics.memory import readable
from fnbandit.planning.capacity import memory
from fnbandit.planning.duration import measure_rates, run_seconds, traits_of, without_theory_values
from fnbandit.planning.work import Rates
from workflows.studies.study import RunSpec, StudyPlan
from workflows.terminal.progress import duration


def describe_run_plan(study: StudyPlan, console: Console) -> None:
    """List the runs of a study; of a single run, show everything."""
    rates = measure_rates()
    if len(study.points) == 1:
        table = Table("field", "value", title="config, fields with an effect", title_justify="left")
        for name, value in study.points[0].config.effective.items():
            table.add_row(name, "theory (`fnbandit theory` computes it)" if value == "theory" else str(value))
    else:
        console.print(f"{study.directory}: {len(study.points)} runs", soft_wrap=True)
        table = Table("run")
        for name in ("agents", "memory", "time on a core"):
            table.add_column(name, justify="right")
        for point in study.points:
            seconds = run_seconds(point.config, rates)
            table.add_row(point.path, str(point.config.agents), readable(_memory(point)), duration(seconds))
    console.print(table)
    for line in plan_lines(study):
        console.print(line, soft_wrap=True)
    cores = os.cpu_count() or 1
    where = "on one core of this machine" if study.settings.engine == "local" else f"on this machine's {cores} cores"
    expected = duration(estimate_seconds(study, rates, cores))
    source = "fnbandit/planning/duration.py, at this machine's rates"
    console.print(f"time     about {expected} {where}, within a factor of about 2 ({source})", soft_wrap=True)


def estimate_seconds(study: StudyPlan, rates: Rates, cores: int) -> float:
    """Return the expected seconds of a study: on Ray its runs share the cores, in this process they run in turn.

    A run whose agents do not wait for each other gains little from a second core.
    """
    times = [run_seconds(point.config, rates) for point in study.points]
    if study.settings.engine == "local":
        return sum(times)
    pairs = zip(study.points, times, strict=True)
    alone = [seconds for point, seconds in pairs if traits_of(point.config).is_asynchronous]
    return max(sum(times) / cores, *alone, 0.0)


def plan_lines(study: StudyPlan) -> list[str]:
    """Describe the memory of the largest run, and the layout of its agents."""
    point = max(study.points, key=_memory)
    environment = make_environment(point.config)
    needs = memory(point.config, environment)
    of = "" if len(study.points) == 1 else f" for the largest run, {point.path}"
    each = f"{readable(needs.per_agent)} per agent, {readable(needs.shared)} shared in a process"
    lines = [f"memory   {readable(_memory(point))}{of}: {each}"]
    if study.settings.engine == "local":
        several = "" if len(study.points) == 1 else ", one run after another"
        return [*lines, f"layout   {count_things(point.config.agents, 'agent')} in this process{several}"]
    if study.settings.address or os.environ.get("RAY_ADDRESS") or is_in_foreign_cluster():
        return [*lines, "layout   decided when the cluster is joined"]
    here = Node(os.cpu_count() or 1, 0, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    layout = plan(without_theory_values(point.config), environment, study.settings.options(), [here], len(study.points))
    return [*lines, f"layout   {layout}"]


def is_in_foreign_cluster() -> bool:
    """Return True if this process is part of a cluster that it has not started itself."""
    ray, ours = sys.modules.get("ray"), sys.modules.get("actors.cluster")
    return ray is not None and ray.is_initialized() and not (ours is not None and ours.STARTED_HERE.is_set())


def _memory(point: RunSpec) -> int:
    return memory(point.config, make_environment(point.config)).of(point.config.agents)
