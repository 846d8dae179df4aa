"""The plan of a study: its runs, their config, layout, memory and time, without starting anything."""

from __future__ import annotations

import dataclasses
import os
import sys
from typing import Any

from rich.console import Console
from rich.table import Table

from actors.layout import ACTOR_SECONDS, Layout, Node, fastest, layout_seconds, plan
from fnbandit.config import Config
from fnbandit.config.words import count_things
from fnbandit.environments import Environment, make_environment
from fnbandit.numerics.memory import readable
from fnbandit.planning.arithmetic import Rates
from fnbandit.planning.capacity import PROCESS_BYTES, memory
from fnbandit.planning.duration import measure_rates, run_seconds, without_theory_values
from fnbandit.planning.messages import ExpectedMessages, expect_messages
from fnbandit.privacy.promise import make_promise
from workflows.studies.study import RunSpec, StudyPlan
from workflows.terminal.progress import duration

START_SECONDS = 2.2
"""Seconds from the command to the first run: Python, torch, checks"""
RAY_SECONDS = 4.5
"""Seconds to start Ray with its first actor, and to stop it"""
TRACKING_SECONDS = 2.0
"""Seconds to import MLflow, to open its store, and to end"""
RUN_TRACKING_SECONDS = 0.2
"""Seconds of each run's entry in MLflow"""
RUN_FIGURES_SECONDS = 1.0
STUDY_FIGURES_SECONDS = 5.0
"""Seconds to draw the figures of a run, and the figures and report of a study"""
SLOW = 2.0
"""A layout that takes this many times as long as the fastest one is said to"""


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
        for name in ("agents", "rounds", "exchanges", "bytes up", "bytes down", "memory", "time on a core"):
            table.add_column(name, justify="right")
        for point in study.points:
            sent = _messages(point)
            rounds, exchanges = (f"{count:,.0f}" if count else "" for count in (sent.rounds, sent.exchanges))
            sizes = [readable(size) if sent.exchanges else "" for size in (sent.bytes_up, sent.bytes_down)]
            took = duration(run_seconds(point.config, rates))
            cells = (str(point.config.agents), rounds, exchanges, *sizes, readable(_memory(point)), took)
            table.add_row(point.path, *cells)
    console.print(table)
    for line in [*_describe_messages(study), *plan_lines(study)]:
        console.print(line, soft_wrap=True)
    cores = os.cpu_count() or 1
    where = "on one core of this machine" if study.settings.engine == "local" else f"on this machine's {cores} cores"
    expected = duration(estimate_seconds(study, rates, cores))
    console.print(f"time     about {expected} {where} if it is quiet, from the command to the figures", soft_wrap=True)


def list_run_plan(study: StudyPlan) -> dict[str, Any]:
    """Return what a dry run shows, for scripts: a row per run, bytes of the largest run, seconds of the study."""
    rates, cores = measure_rates(), os.cpu_count() or 1
    rows = [
        {"path": point.path, "memory": _memory(point), "seconds_on_a_core": run_seconds(point.config, rates),
         **dataclasses.asdict(_messages(point)), "config": point.config.effective}
        for point in study.points
    ]  # fmt: skip
    seconds = estimate_seconds(study, rates, cores)
    return {"folder": str(study.directory), "runs": rows, "seconds": seconds, "lines": plan_lines(study)}


def estimate_seconds(study: StudyPlan, rates: Rates, cores: int) -> float:
    """Return the expected seconds of a study from the command to the end: start, runs, tracking, figures.

    On Ray runs take place side by side as far as there are cores; in this process they run in turn.
    """
    several = len(study.points) > 1
    seconds = START_SECONDS
    if study.settings.figures:
        seconds += STUDY_FIGURES_SECONDS if several else RUN_FIGURES_SECONDS
    if study.settings.uses_mlflow:
        seconds += TRACKING_SECONDS + RUN_TRACKING_SECONDS * len(study.points)
    if study.settings.engine == "local":
        return seconds + sum(run_seconds(point.config, rates) for point in study.points)
    layouts = [_layout(point.config, study, cores) for point in study.points]
    environments = [make_environment(point.config) for point in study.points]
    found = list(zip((point.config for point in study.points), environments, layouts, strict=True))
    alone = [layout_seconds(*run[:2], len(run[2].parts), rates, cores) for run in found]
    # Actors are started once for the runs that use them one after another.
    processes = max(layout.processes for layout in layouts) if layouts else 1
    seconds += RAY_SECONDS + ACTOR_SECONDS * max(0, min(processes * len(found), max(cores, processes)) - 1) / cores
    used = [min(cores, layout.processes) for layout in layouts]
    shared = sum(time * count for time, count in zip(alone, used, strict=True)) / cores
    return seconds + max(shared, *alone)


def _layout(config: Config, study: StudyPlan, cores: int) -> Layout:
    """Return the layout of a run on this machine."""
    environment = make_environment(config)
    here = Node(cores, 0, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return plan(without_theory_values(config), environment, study.settings.options(), [here], len(study.points))


def plan_lines(study: StudyPlan) -> list[str]:
    """Describe the promises of privacy, the memory of the largest run, and the layout of its agents."""
    return promise_lines(study) + _layout_lines(study)


def promise_lines(study: StudyPlan) -> list[str]:
    """Describe the promise of the run with the least signal to noise among those with privacy."""
    found = []
    for point in study.points:
        promise = make_promise(without_theory_values(point.config), make_environment(point.config))
        if promise is not None:
            found.append((promise.ratio, point.path, promise.lines(point.config.privacy_allow_noise)))
    if not found:
        return []
    _, path, lines = min(found)
    of = [] if len(study.points) == 1 else [f"privacy  {len(found)} runs; the one with the most noise is {path}:"]
    return of + lines


def _layout_lines(study: StudyPlan) -> list[str]:
    point = max(study.points, key=_memory)
    environment = make_environment(point.config)
    needs = memory(point.config, environment)
    agents = count_things(point.config.agents, "agent")
    of = "" if len(study.points) == 1 else f" for the largest run, {point.path}"
    each = f"{readable(needs.shared)} shared + {agents} x {readable(needs.per_agent)}"
    if study.settings.engine == "local":
        several = "" if len(study.points) == 1 else ", one run after another"
        total = readable(PROCESS_BYTES + needs.of(point.config.agents))
        return [
            f"memory   about {total}{of}: this process {readable(PROCESS_BYTES)} + {each}",
            f"layout   {agents} in this process{several}",
        ]
    if study.settings.address or os.environ.get("RAY_ADDRESS") or is_in_foreign_cluster():
        line = f"memory   {readable(PROCESS_BYTES)} + {readable(needs.shared)} shared in each actor"
        return [f"{line}, {readable(needs.per_agent)} per agent{of}", "layout   decided when the cluster is joined"]
    layout = _layout(point.config, study, os.cpu_count() or 1)
    count = layout.processes
    whole = count * (PROCESS_BYTES + needs.shared) + point.config.agents * needs.per_agent
    actors = "1 actor" if count == 1 else f"{count} processes"
    each = f"{readable(PROCESS_BYTES)} + {readable(needs.shared)} shared"
    lines = [
        f"memory   about {readable(whole)}{of}: {actors} x ({each}) + {agents} x {readable(needs.per_agent)}",
        f"layout   {layout}",
    ]
    if len(study.points) == 1 and len(layout.parts) == 1 and run_seconds(point.config) < RAY_SECONDS:
        start = duration(RAY_SECONDS)
        return [*lines, f"layout   Ray takes about {start} to start: --engine local takes less, with the same bits"]
    return [*lines, *_price(point.config, environment, layout)]


def _describe_messages(study: StudyPlan) -> list[str]:
    """Describe the expected communication of a single run whose agents communicate."""
    sent = _messages(study.points[0])
    if len(study.points) > 1 or not sent.exchanges:
        return []
    alone = f"{sent.exchanges:,.0f} exchanges of single agents"
    several = f" with {sent.exchanges:,.0f} exchanges in all" if sent.exchanges > 1.01 * sent.rounds else ""
    together = f"{sent.rounds:,.0f} rounds{several}"
    sizes = f"{readable(sent.bytes_up)} up, {readable(sent.bytes_down)} down"
    return [f"messages about {together if sent.rounds else alone}, {sizes}"]


def _price(config: Config, environment: Environment, layout: Layout) -> list[str]:
    """Return a line where a run takes much longer in the layout that was asked for than in the fastest."""
    cores = os.cpu_count() or 1
    actors = len(layout.parts)
    best = fastest(config, environment, cores)
    here, least = (
        layout_seconds(config, environment, number, cores=cores) + ACTOR_SECONDS * (number - 1) / cores
        for number in (actors, best)
    )
    if actors <= best or here < SLOW * (least + RAY_SECONDS):
        return []
    return [
        f"layout   {actors} actors take about {duration(here)} and {actors + 1} processes, agents_per_actor=auto about "
        f"{duration(least)}, with the same bits"
    ]


def is_in_foreign_cluster() -> bool:
    """Return True if this process is part of a cluster that it has not started itself."""
    ray, ours = sys.modules.get("ray"), sys.modules.get("actors.cluster")
    return ray is not None and ray.is_initialized() and not (ours is not None and ours.STARTED_HERE.is_set())


def _messages(point: RunSpec) -> ExpectedMessages:
    return expect_messages(point.config, make_environment(point.config))


def _memory(point: RunSpec) -> int:
    return memory(point.config, make_environment(point.config)).of(point.config.agents)
