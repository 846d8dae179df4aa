"""Describes runs and studies for trackers: names, params, tags, totals."""

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

import numpy as np

from fnbandit.config import Config
from fnbandit.config.registry import describe_part, is_table
from fnbandit.privacy.promise import Promise
from fnbandit.storage.records import RunRecord
from fnbandit.storage.totals import STEPS
from workflows.reporting.grouping import describe_setting, effective
from workflows.reporting.naming import axes, context, rank
from workflows.reporting.tables import markdown, rows
from workflows.studies.jobs import job_tags
from workflows.studies.study import RunSpec, StudyPlan
from workflows.terminal.secrets import mask_secrets
from workflows.tracking.base import RunArtifacts, RunMetadata

STUDY_METRICS = ("regret", "rounds", "bytes")


def describe_run(
    study: StudyPlan,
    point: RunSpec,
    name: str,
    config: Config,
    facts: Mapping[str, Any],
    promise: Promise | None = None,
) -> RunMetadata:
    """Describe one run: its whole config, where it runs, its task, and its promise of privacy."""
    tags = _tags(study.place(point.path), facts)
    tags |= {"engine": facts["engine"]}
    tags |= {f"version.{package}": version for package, version in facts["versions"].items()}
    part = describe_part("environment", config.environment)
    kind = "table" if part.path.startswith("fnbandit.environments.tables:") else "function"
    source = config.environment if is_table(config.environment) else part.path.partition(":")[0]
    dataset = (Path(config.environment).name, f"seed-{config.seed}", kind, source)
    # Fields without effect would say what is not: a threshold where rounds are always, speeds without a clock.
    promised = {} if promise is None else promise.params()
    return RunMetadata(name, effective(vars(config)) | {"seed": config.seed} | promised, tags, dataset)


def describe_study(study: StudyPlan, facts: Mapping[str, Any]) -> RunMetadata:
    """Describe a study: the fields that it varies are its params."""
    configs = [point.config for point in study.points]
    params = {name: ", ".join(map(str, values)) for name, values in axes(study.points).items()}
    seeds = sorted({config.seed for config in configs})
    for name in ("environment", "algorithm", "horizon"):
        params.setdefault(name, str(getattr(configs[0], name)))
    params |= {"seeds": ", ".join(map(str, seeds)), "runs": str(len(configs))}
    return RunMetadata(study.name, params, _tags(study.place(), facts))


def _tags(folder: str, facts: Mapping[str, Any]) -> dict[str, str]:
    """Describe who runs which command where."""
    # As typed, from the program's name on, without the interpreter's path.
    program = Path(sys.argv[0])
    words = ["python", "-m", f"workflows.{program.stem}"] if program.suffix == ".py" else [program.name]
    command = mask_secrets(shlex.join([*words, *sys.argv[1:]]))
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        user = str(os.getuid())
    # The command that made a study stays when it is resumed.
    verb = "resumed_by" if "resume" in (*sys.argv[1:2], program.stem) else "command"
    tags = {"folder": folder, verb: command, "host": platform.node(), "user": user}
    tags |= {"git_commit": facts["commit"], "mlflow.user": user, "mlflow.source.name": "fnbandit"}
    tags |= {"mlflow.source.type": "LOCAL", "mlflow.source.git.commit": facts["commit"]}
    return tags | job_tags()


def collect_artifacts(runs: Sequence[RunRecord], artifacts: Sequence[Path], caption: str | None) -> RunArtifacts:
    """Collect a study's results: its files, its table as a note, and its totals with N (or the first axis) as step."""
    if not runs:
        return RunArtifacts()
    table = rows(runs)
    best = min(table, key=lambda row: row.regret)
    words = f"The row's regret, rounds and MB (up and down) are those of the least regret: {best.label}."
    note = "\n\n".join(text for text in (caption, context(runs), words, markdown(runs)) if text)
    fields = list(table[0].settings)
    totals = {"regret": best.regret, "exchanges": best.exchanges, "bytes": best.bytes_up + best.bytes_down}
    if best.rounds is not None:
        totals["rounds"] = best.rounds
    axis = "agents" if "agents" in fields or not fields else fields[0]
    return RunArtifacts(artifacts, study_metrics(runs), note, axis, totals, {"best": best.label})


def replay_metrics(run: RunRecord) -> list[tuple[int, dict[str, float]]]:
    """Return the metrics of a finished run by iteration, as far as its records have them."""
    config, summary = run.summary["config"], run.summary
    last = {name: float(summary[name]) for name in ("regret", "rounds", "seconds")}
    last["bytes"] = float(summary["bytes_up"] + summary["bytes_down"])
    if not len(run.trace):
        return [(config["horizon"], last)]
    iterations, regret = (run.trace.column(name).to_numpy() for name in ("iteration", "regret"))
    mean = np.bincount(iterations, regret)[1:] / np.bincount(iterations)[1:]
    ends = run.rounds.column("iteration").to_numpy()
    sizes = run.rounds.column("bytes_up").to_numpy() + run.rounds.column("bytes_down").to_numpy()
    step = -(-config["horizon"] // STEPS)
    found = []
    for iteration in [*range(step, config["horizon"], step)]:
        here = ends <= iteration
        values = {"regret": float(mean[:iteration].sum()), "rounds": float(here.sum())}
        found.append((iteration, values | {"bytes": float(sizes[here].sum())}))
    return [*found, (config["horizon"], last)]


def study_metrics(runs: Sequence[RunRecord]) -> list[tuple[int, dict[str, float]]]:
    """Return mean regret, rounds and bytes by step, which is N, or the first field that differs.

    Steps are whole numbers: other values are numbered, and become a metric of their own beside the totals.
    With several fields a metric's name includes the others: "regret/D 2.5".
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
        others = describe_setting(row.settings, [name for name in fields if name != first]) if len(fields) > 1 else ""
        suffix = "/" + " ".join(re.sub(r"[^\w.\- ]", " ", others).split()) if others else ""
        totals = (row.regret, row.exchanges if row.rounds is None else row.rounds, row.bytes_up + row.bytes_down)
        at = steps.setdefault(step, {})
        at |= {f"{name}{suffix}": total for name, total in zip(STUDY_METRICS, totals, strict=True)}
        if not whole and isinstance(value, float):
            at[first] = value
    return sorted(steps.items())
