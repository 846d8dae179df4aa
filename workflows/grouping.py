"""Which runs belong together, what to call them, and the curves that they are.

Runs that differ only in seed are one group.
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fnbandit.config import FIELDS, Config
from fnbandit.presets import THEORY_FIELDS
from fnbandit.records import RunRecord
from fnbandit.registry import KINDS, is_table, part_of, without_effect

FIELD_NAMES = {
    "agents": "N", "threshold": "D", "horizon": "T", "arms": "K", "dim": "d", "width": "m", "regularization": "λ",
    "exploration_global": "global ν", "exploration_local": "local ν", "weight_value": "α",
}  # fmt: skip
PHRASES = {"period": "every {} iterations"}
SWITCHES = {
    "diagonal": ("full", "diagonal"), "use_global": ("without UCB^a", ""), "use_local": ("without UCB^b", ""),
    "aggregate": ("without aggregation", ""), "first_iteration_only": ("", "α in first iterations only"),
}  # fmt: skip
"""What a label says of a switch that is off, and on"""
COMPANIONS = ("training_subsample",)
"""Fields that matter with some triggers only, and go without saying where those differ"""
ORDER = ("environment", "algorithm", "use_local", "use_global", "aggregate", "diagonal", "width", "agents", "threshold")
"""Fields by which curves are sorted first; the others follow"""


def effective(config: dict[str, Any]) -> dict[str, Any]:
    """The fields of a config that matter to its run, except the seed."""
    idle = without_effect(config)
    return {name: value for name, value in config.items() if name != "seed" and name not in idle}


def settings(run: RunRecord) -> dict[str, Any]:
    """The fields of a run's config that matter to it, except the seed."""
    return effective(run.summary["config"])


def shared_settings(run: RunRecord) -> dict[str, Any]:
    """Settings without the theory's numbers, which differ from seed to seed: those that nobody would type."""
    config = settings(run)
    computed = [f for f in THEORY_FIELDS if isinstance(v := config.get(f), float) and float(f"{v:.6g}") != v]
    return {**config, **dict.fromkeys(computed, "theory")}


def differing(configs: Sequence[dict[str, Any]], leave_out: str = "") -> list[str]:
    """The fields that tell configs apart, the important ones first: all that differ if they are few."""
    names = [name for name in dict.fromkeys((*ORDER, *FIELDS)) if name != leave_out]
    names = [name for name in names if _differs(name, configs)]
    if len(names) <= 3:
        return names
    chosen: list[str] = []
    for name in names:
        if _kinds(configs, [*chosen, name]) > _kinds(configs, chosen):
            chosen.append(name)
    return chosen


def _differs(name: str, configs: Sequence[dict[str, Any]]) -> bool:
    """Whether a field tells configs apart, that it matters to some only included."""
    present = [config for config in configs if name in config] if name in COMPANIONS else configs
    return len({repr(config.get(name)) for config in present}) > 1


def _kinds(configs: Sequence[dict[str, Any]], names: list[str]) -> int:
    return len({repr([config.get(name) for name in names]) for config in configs})


def described(config: dict[str, Any], fields: Iterable[str]) -> str:
    """A label from some of a config's fields; the algorithm's name where they say nothing."""
    parts = [said(name, config[name]) for name in fields if config.get(name) is not None]
    return ", ".join(part for part in parts if part) or said("algorithm", config.get("algorithm", ""))


def said(name: str, value: Any) -> str:
    """What a label says of a field with a value; nothing of a switch that is as usual."""
    if value is None:
        return f"no {name.replace('_', ' ')}"
    if name == "environment" and is_table(value):
        return Path(value).stem
    if name in KINDS:
        return part_of(name, value).title
    if name in PHRASES:
        return PHRASES[name].format(value)
    if name in SWITCHES:
        return SWITCHES[name][value]
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return f"{FIELD_NAMES.get(name, name.replace('_', ' '))} = {text}"


def _place(config: dict[str, Any]) -> list[tuple[int, float, str]]:
    """For sorting: parts in the registry's order, a switch's default first, numbers by size."""
    result = []
    for name in dict.fromkeys((*ORDER, *FIELDS)):
        value = config.get(name)
        if name in KINDS and value in KINDS[name]:
            result.append((1, float(list(KINDS[name]).index(value)), ""))
        elif isinstance(value, bool):
            result.append((1, float(value != getattr(Config, name)), ""))
        elif isinstance(value, int | float):
            result.append((1, float(value), ""))
        else:
            result.append((2 if value else 0, 0.0, str(value)))
    return result


def _split(runs: Iterable[RunRecord], key: Any) -> list[list[RunRecord]]:
    parts: dict[str, list[RunRecord]] = {}
    for run in runs:
        parts.setdefault(repr((run.summary.get("label"), sorted(key(run).items()))), []).append(run)
    return list(parts.values())


def group(runs: Sequence[RunRecord]) -> dict[str, list[RunRecord]]:
    """Label -> the runs of all seeds, sorted by algorithm, then by the size of N and D."""
    parts = []
    for part in _split(runs, shared_settings):
        seeds = {run.summary["config"].get("seed") for run in part}
        parts += [part] if len(seeds) == len(part) else _split(part, settings)
    parts.sort(key=lambda part: _place(settings(part[0])))
    configs = [shared_settings(part[0]) for part in parts]
    if _kinds(configs, list(FIELDS)) < len(parts):
        configs = [settings(part[0]) for part in parts]
    labels = [part[0].summary.get("label") for part in parts]
    result: dict[str, list[RunRecord]] = {}
    for part, config, label in zip(parts, configs, labels, strict=True):
        namesakes = [other for other, name in zip(configs, labels, strict=True) if name == label]
        text = label or described(config, differing(configs))
        if label and len(namesakes) > 1:
            text = f"{label}, {described(config, differing(namesakes))}"
        # The same run, wherever it was carried out, is one observation.
        by_seed = {run.summary["config"].get("seed", 0): run for run in part}
        result[unused(text, result)] = [by_seed[seed] for seed in sorted(by_seed)]
    return result


def unused(label: str, taken: Container[str]) -> str:
    """The label, numbered if it is taken."""
    numbered = (f"{label} ({number})" for number in itertools.count(2))
    return label if label not in taken else next(name for name in numbered if name not in taken)


def means(run: RunRecord, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Iterations, and a column's mean over agents in each."""
    iterations = run.trace.column("iteration").to_numpy()
    counts = np.bincount(iterations)
    there = np.flatnonzero(counts)
    return there, np.bincount(iterations, run.trace.column(name).to_numpy())[there] / counts[there]


def curve(run: RunRecord) -> tuple[np.ndarray, np.ndarray]:
    """Iterations, and the cumulative regret up to each, averaged over agents; empty without a trace."""
    iterations, regret = means(run, "regret")
    return iterations, regret.cumsum()


def agent_curves(run: RunRecord) -> np.ndarray:
    """Cumulative regret [agents, iterations]; no rows where only the mean over agents was kept."""
    if run.trace.num_rows == 0 or run.trace.column("agent").null_count:
        return np.zeros((0, 0))
    iterations, agents, regret = (run.trace.column(name).to_numpy() for name in ("iteration", "agent", "regret"))
    table = np.zeros((agents.max() + 1, iterations.max() - iterations.min() + 1))
    table[agents, iterations - iterations.min()] = regret
    return table.cumsum(axis=1)


def round_counts(run: RunRecord) -> tuple[np.ndarray, np.ndarray]:
    """Iterations, and the rounds up to each."""
    last = int(run.summary["iterations"])
    rounds = np.bincount(run.rounds.column("iteration").to_numpy(), minlength=last + 1)[: last + 1]
    return np.arange(1, last + 1), rounds[1:].cumsum()
