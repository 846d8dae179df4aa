"""What a study would do: its runs, their config, layout and memory, without starting anything."""

from __future__ import annotations

import dataclasses
import os

from rich.console import Console
from rich.table import Table

from actors.layout import Node, plan
from fnbandit import theory
from fnbandit.capacity import memory
from fnbandit.config import Config
from fnbandit.environments import make_environment
from fnbandit.memory import readable
from workflows.settings import Settings
from workflows.study import Study


def describe(study: Study, console: Console) -> None:
    """List the runs of a study; of a single run, show everything."""
    if len(study.points) == 1:
        _describe_run(study.points[0].config, study.settings, console)
        return
    console.print(f"{study.directory}: {len(study.points)} runs", soft_wrap=True)
    table = Table("run", "agents", "memory")
    for point in study.points:
        needs = memory(point.config, make_environment(point.config))
        table.add_row(point.path, str(point.config.agents), readable(needs.of(point.config.agents)))
    console.print(table)


def _describe_run(config: Config, settings: Settings, console: Console) -> None:
    environment = make_environment(config)
    resolved = theory.resolve(config, environment)
    table = Table("field", "value", title="config", title_justify="left")
    for name, value in dataclasses.asdict(resolved).items():
        table.add_row(name, str(value))
    console.print(table)
    needs = memory(resolved, environment)
    console.print(f"memory   {readable(needs.per_agent)} per agent, {readable(needs.shared)} shared in a process")
    if settings.engine == "local":
        console.print(f"layout   {config.agents} agents in this process, {readable(needs.of(config.agents))}")
    elif settings.address or os.environ.get("RAY_ADDRESS"):
        console.print("layout   decided when the cluster is joined")
    else:
        here = Node(os.cpu_count() or 1, 0, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        console.print(f"layout   {plan(resolved, environment, settings.options(), [here])}")
