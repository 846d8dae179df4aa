"""Names of runs, and the context line with their common settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fnbandit.config import Config
from fnbandit.config.presets import PRESETS
from fnbandit.config.registry import KINDS, is_table
from fnbandit.storage.records import RunRecord
from workflows.reporting.grouping import FIELD_NAMES, describe_value, effective, find_differing, list_shared_settings
from workflows.studies.study import RunSpec

LEADING = ("agents", "threshold")
"""N and D come first in a run's name"""
SAID = ("environment", "algorithm", "agents", "horizon")
"""Fields that every context line contains"""
MACHINE = ("device", "statistics_dtype", "network_dtype", "label")
"""Fields that do not describe the subject of a study"""


def run_names(points: Sequence[RunSpec]) -> dict[str, str]:
    """Name every run of a study, by path: N, D, other differing fields, the seed, the task: "N=10 D=2.5 s1 cosine"."""
    configs = [effective(dataclasses.asdict(point.config)) for point in points]
    differ = find_differing(configs)
    first = [*LEADING, *(name for name in differ if name not in LEADING)]
    rest = [name for name in ("environment", "algorithm") if name not in first]
    names = {}
    for point, config in zip(points, configs, strict=True):
        words = [point.label] if point.label else [_word(name, config[name]) for name in first if name in config]
        words.append(f"s{point.config.seed}")
        words += [] if point.label else [_word(name, config[name]) for name in rest if name in config]
        names[point.path] = " ".join(words)
    return names


def short_name(point: RunSpec) -> str:
    """Name a run for a progress line: N, D and the seed, then the other fields that its study varies."""
    config, parts = point.config, [part for part in point.path.split("/") if "=" in part]
    words = [point.label] if point.label else [f"N={config.agents}"]
    if not point.label and "threshold" in effective(dataclasses.asdict(config)):
        words.append(f"D={config.threshold}")
    words.append(f"s{config.seed}")
    return " ".join(
        [*words, *(part for part in parts if not part.startswith(("agents=", "threshold=", "seed=", "curve=")))]
    )


def _word(name: str, value: Any) -> str:
    if name == "environment" and is_table(value):
        return Path(value).stem
    if name in KINDS:
        return str(value)
    return (
        f"{FIELD_NAMES.get(name, name)}={value:g}"
        if isinstance(value, float)
        else f"{FIELD_NAMES.get(name, name)}={value}"
    )


def axes(points: Sequence[RunSpec]) -> dict[str, list[Any]]:
    """Return the fields in which a study's runs differ, without the seed, with their values in order."""
    configs = [effective(dataclasses.asdict(point.config)) for point in points]
    found = {}
    for name in find_differing(configs):
        values = {repr(config[name]): config[name] for config in configs if name in config}
        found[name] = sorted(values.values(), key=rank)
    return found


def rank(value: Any) -> tuple[bool, float, str]:
    """Return the sort key of a field's value: numbers by size, then words."""
    number = isinstance(value, int | float)
    return not number, float(value) if number else 0.0, str(value)


def context(runs: Sequence[RunRecord]) -> str:
    """Join common settings: "cosine · FN-UCB (less comm.) · N = 10 · T = 2,000 · tuned preset · seeds 0 to 2"."""
    configs = [list_shared_settings(run) for run in runs]
    common = {name: value for name, value in configs[0].items() if all(c.get(name) == value for c in configs)}
    words = [describe_value(name, common[name]) for name in ("environment", "algorithm") if name in common]
    words += [f"N = {common['agents']:,}"] if "agents" in common else []
    words += [f"T = {common['horizon']:,}"] if "horizon" in common else []
    named = {(run.summary.get("label") or "").partition(":")[0] for run in runs} & PRESETS.keys()
    words.append(_preset(configs, common) if len(named) < 2 else "")  # with several presets, every panel names its own
    return " · ".join(word for word in [*words, _seeds(runs)] if word)


def _preset(configs: Sequence[dict[str, Any]], common: dict[str, Any]) -> str:
    """Name the nearest preset, and the common fields in which the runs differ from it."""
    changes = []
    for name in PRESETS:
        found: dict[str, None] = {}
        for config in configs:
            asked: dict[str, Any] = {key: config[key] for key in ("algorithm", "hidden_layers") if key in config}
            preset = dataclasses.asdict(Config.build(name, config["environment"], asked))
            ignored = (*SAID, *MACHINE)
            found |= {key: None for key, value in config.items() if key not in ignored and preset[key] != value}
        changes.append((name, list(found)))
    name, changed = min(changes, key=lambda change: len(change[1]))
    words = [word for key in changed if key in common and (word := describe_value(key, common[key]))]
    more = [f"{len(words) - 3} more changes"] if len(words) > 4 else words[3:]
    return ", ".join([f"{name} preset", *words[:3], *more])


def _seeds(runs: Sequence[RunRecord]) -> str:
    seeds = sorted({run.summary["config"]["seed"] for run in runs})
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    if seeds == list(range(seeds[0], seeds[-1] + 1)):
        return f"seeds {seeds[0]} to {seeds[-1]}"
    return f"{len(seeds)} seeds"
