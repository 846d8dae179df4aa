"""What MLflow is told of a run and of a study, and what is left of a study besides its records."""

from __future__ import annotations

import getpass
import os
import platform
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fnbandit.config import Config
from fnbandit.records import RunRecord
from fnbandit.registry import is_table, part_of
from workflows.grouping import described
from workflows.jobs import job_tags
from workflows.naming import axes, context, rank
from workflows.secrets import masked
from workflows.study import Point, Study
from workflows.tables import markdown, rows
from workflows.tracking import Content, Outcome

STUDY_METRICS = ("regret", "rounds", "bytes")


def run_content(study: Study, point: Point, config: Config, facts: Mapping[str, Any]) -> Content:
    """One run: its whole config, where it runs and what it learns on."""
    tags = _tags(study.place(point.path), facts)
    tags |= {"device": facts["device"], "engine": facts["engine"]}
    tags |= {f"version.{package}": version for package, version in facts["versions"].items()}
    part = part_of("environment", config.environment)
    kind = "table" if part.path.startswith("fnbandit.environments.tables:") else "function"
    source = config.environment if is_table(config.environment) else part.path.partition(":")[0]
    dataset = (Path(config.environment).name, f"seed-{config.seed}", kind, source)
    return Content(study.names[point.path], vars(config), tags, dataset)


def study_content(study: Study, facts: Mapping[str, Any]) -> Content:
    """The parent of a study's runs: its axes as params."""
    configs = [point.config for point in study.points]
    params = {name: ", ".join(map(str, values)) for name, values in axes(study.points).items()}
    seeds = sorted({config.seed for config in configs})
    for name in ("environment", "algorithm", "horizon"):
        params.setdefault(name, str(getattr(configs[0], name)))
    params |= {"seeds": ", ".join(map(str, seeds)), "runs": str(len(configs))}
    return Content(study.name, params, _tags(study.place(), facts))


def _tags(folder: str, facts: Mapping[str, Any]) -> dict[str, str]:
    """Who runs what, where."""
    # As typed, from the program's name on: the path of an interpreter says nothing.
    command = masked(shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]))
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        user = str(os.getuid())
    tags = {"folder": folder, "command": command, "host": platform.node(), "user": user}
    tags |= {"git_commit": facts["commit"], "mlflow.user": user, "mlflow.source.name": "fnbandit"}
    tags |= {"mlflow.source.type": "LOCAL", "mlflow.source.git.commit": facts["commit"]}
    return tags | job_tags()


def study_outcome(runs: Sequence[RunRecord], artifacts: Sequence[Path], caption: str | None) -> Outcome:
    """What a study has come to: its files, its table as a note, and its totals with N (or the first axis) as step."""
    if not runs:
        return Outcome()
    note = "\n\n".join(text for text in (caption, context(runs), markdown(runs)) if text)
    return Outcome(artifacts, study_metrics(runs), note)


def study_metrics(runs: Sequence[RunRecord]) -> list[tuple[int, dict[str, float]]]:
    """Mean regret, rounds and bytes by step, which is N, or the field that comes first among those that differ.

    MLflow's steps are whole numbers: other values are numbered, and stand beside the totals as a metric of their own.
    With several fields a metric's name says the others: "regret/D 2.5".
    """
    table = rows(runs)
    fields = list(table[0].settings)
    if not fields:
        return []
    first = "agents" if "agents" in fields else fields[0]
    values = sorted({row.settings[first] for row in table if row.settings[first] is not None}, key=rank)
    whole = all(isinstance(value, int | float) and value == int(value) for value in values)
    steps: dict[int, dict[str, float]] = {}
    for row in table:
        value = row.settings[first]
        if value is None:
            continue
        step = int(value) if whole else values.index(value) + 1
        others = described(row.settings, [name for name in fields if name != first]) if len(fields) > 1 else ""
        suffix = "/" + " ".join(re.sub(r"[^\w.\- ]", " ", others).split()) if others else ""
        totals = (row.regret, row.rounds, row.bytes_up + row.bytes_down)
        at = steps.setdefault(step, {})
        at |= {f"{name}{suffix}": total for name, total in zip(STUDY_METRICS, totals, strict=True)}
        if not whole and isinstance(value, float):
            at[first] = value
    return sorted(steps.items())
