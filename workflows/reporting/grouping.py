"""Groups runs, labels the groups, and reads the curves of runs.

Runs that differ only in seed form one group.
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fnbandit.config import FIELDS, Config
from fnbandit.config.presets import THEORY_FIELDS
from fnbandit.config.registry import KINDS, describe_part, is_table, without_effect
from fnbandit.storage.records import RunRecord

FIELD_NAMES = {
    "agents": "N", "threshold": "D", "horizon": "T", "arms": "K", "dim": "d", "width": "m", "regularization": "λ",
    "exploration_global": "global ν", "exploration_local": "local ν", "weight_value": "α",
    "async_gain": "γ", "personal_share": "ρ",
}  # fmt: skip
PHRASES = {"period": "every {} iterations"}
SWITCHES = {
    "diagonal": ("full", "diagonal"), "use_global": ("without UCB^a", ""), "use_local": ("without UCB^b", ""),
    "aggregate": ("without aggregation", ""), "first_iteration_only": ("", "α in first iterations only"),
}  # fmt: skip
"""Words in a label for a switch that is off, and on"""
COMPANIONS = ("training_subsample",)
"""Fields read by some triggers only; labels omit them where the triggers differ"""
ORDER = ("environment", "algorithm", "use_local", "use_global", "aggregate", "diagonal", "width", "agents", "threshold")
"""First fields by which curves are sorted; the others follow"""


def effective(config: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a config that affect its run, except the seed."""
    idle = without_effect(config)
    return {name: value for name, value in config.items() if name != "seed" and name not in idle}


def effective_settings(run: RunRecord) -> dict[str, Any]:
    """Return the fields of a run's config that affect it, except the seed."""
    return effective(run.summary["config"])


def list_shared_settings(run: RunRecord) -> dict[str, Any]:
    """Return the settings with "theory" in place of computed numbers, which differ from seed to seed.

    A theory field counts as computed where it has more than six significant digits.
    """
    config = effective_settings(run)
    computed = [f for f in THEORY_FIELDS if isinstance(v := config.get(f), float) and float(f"{v:.6g}") != v]
    return {**config, **dict.fromkeys(computed, "theory")}


def find_differing(configs: Sequence[dict[str, Any]], leave_out: str = "") -> list[str]:
    """Return the fields that distinguish configs, important ones first: all that differ, if at most three do."""
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
    """Return True where a field differs between configs, or is present in some of them only."""
    present = [config for config in configs if name in config] if name in COMPANIONS else configs
    return len({repr(config.get(name)) for config in present}) > 1


def _kinds(configs: Sequence[dict[str, Any]], names: list[str]) -> int:
    return len({repr([config.get(name) for name in names]) for config in configs})


def describe_setting(config: dict[str, Any], fields: Iterable[str]) -> str:
    """Build a label from some of a config's fields; the algorithm's title where that is empty."""
    parts = [describe_value(name, config[name]) for name in fields if config.get(name) is not None]
    return ", ".join(part for part in parts if part) or describe_value("algorithm", config.get("algorithm", ""))


def describe_value(name: str, value: Any) -> str:
    """Return the words of a label for a field and its value; "" for a switch in its usual position."""
    if value is None:
        return f"no {name.replace('_', ' ')}"
    if name == "environment" and is_table(value):
        return Path(value).stem
    if name in KINDS:
        return describe_part(name, value).title
    if name in PHRASES:
        return PHRASES[name].format(value)
    if name in SWITCHES:
        return SWITCHES[name][value]
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return f"{FIELD_NAMES.get(name, name.replace('_', ' '))} = {text}"


def _place(config: dict[str, Any]) -> list[tuple[int, float, str]]:
    """Return the sort key of a config: parts in the registry's order, a switch's default first, numbers by size."""
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
    """Return label -> runs of all seeds, sorted by algorithm, then by N and D."""
    parts = []
    for part in _split(runs, list_shared_settings):
        seeds = {run.summary["config"].get("seed") for run in part}
        parts += [part] if len(seeds) == len(part) else _split(part, effective_settings)
    parts.sort(key=lambda part: _place(effective_settings(part[0])))
    configs = [list_shared_settings(part[0]) for part in parts]
    if _kinds(configs, list(FIELDS)) < len(parts):
        configs = [effective_settings(part[0]) for part in parts]
    labels = [part[0].summary.get("label") for part in parts]
    result: dict[str, list[RunRecord]] = {}
    for part, config, label in zip(parts, configs, labels, strict=True):
        namesakes = [other for other, name in zip(configs, labels, strict=True) if name == label]
        text = label or describe_setting(config, find_differing(configs))
        if label and len(namesakes) > 1:
            text = f"{label}, {describe_setting(config, find_differing(namesakes))}"
        # Copies of a run in several folders count as one observation.
        by_seed = {run.summary["config"].get("seed", 0): run for run in part}
        result[find_unused(text, result)] = [by_seed[seed] for seed in sorted(by_seed)]
    return result


def find_unused(label: str, taken: Container[str]) -> str:
    """Return the label, with a number if it is taken."""
    numbered = (f"{label} ({number})" for number in itertools.count(2))
    return label if label not in taken else next(name for name in numbered if name not in taken)


def means(run: RunRecord, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return iterations, and the mean of a column over agents in each."""
    iterations = run.trace.column("iteration").to_numpy()
    counts = np.bincount(iterations)
    there = np.flatnonzero(counts)
    return there, np.bincount(iterations, run.trace.column(name).to_numpy())[there] / counts[there]


def curve(run: RunRecord) -> tuple[np.ndarray, np.ndarray]:
    """Return iterations, and the cumulative regret up to each, averaged over agents; empty without a trace."""
    iterations, regret = means(run, "regret")
    return iterations, regret.cumsum()


def agent_curves(run: RunRecord) -> np.ndarray:
    """Return the cumulative regret [agents, iterations]; no rows where the trace has only means over agents."""
    if run.trace.num_rows == 0 or run.trace.column("agent").null_count:
        return np.zeros((0, 0))
    iterations, agents, regret = (run.trace.column(name).to_numpy() for name in ("iteration", "agent", "regret"))
    table = np.zeros((agents.max() + 1, iterations.max() - iterations.min() + 1))
    table[agents, iterations - iterations.min()] = regret
    return table.cumsum(axis=1)


def round_counts(run: RunRecord) -> tuple[np.ndarray, np.ndarray]:
    """Return iterations, and the number of rounds up to each; of single agents' exchanges, where none waits."""
    last = int(run.summary["iterations"])
    rounds = np.bincount(run.rounds.column("iteration").to_numpy(), minlength=last + 1)[: last + 1]
    return np.arange(1, last + 1), rounds[1:].cumsum()


def exchanges_alone(run: RunRecord) -> bool:
    """Return True where agents exchange alone: the run has no rounds."""
    return bool(run.rounds.num_rows) and not run.rounds.column("agent").null_count


def read_total(summary: dict[str, Any], name: str) -> float:
    """Return a total of a run; summaries before there were several exchanges in a round count rounds only."""
    return float(summary.get(name, summary.get("rounds", 0) if name == "exchanges" else 0))
