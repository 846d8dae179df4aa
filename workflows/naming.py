"""What runs are called, and the line that says what they have in common."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fnbandit.config import Config
from fnbandit.presets import PRESETS
from fnbandit.records import RunRecord
from fnbandit.registry import KINDS, is_table
from workflows.grouping import FIELD_NAMES, differing, effective, said, shared_settings
from workflows.study import Point

LEADING = ("agents", "threshold")
"""N and D come first in a run's name"""
SAID = ("environment", "algorithm", "agents", "horizon")
"""Fields that a context line says anyway"""
MACHINE = ("device", "statistics_dtype", "network_dtype", "label")
"""Fields that say nothing about what is studied"""


def run_names(points: Sequence[Point]) -> dict[str, str]:
    """A name for every run of a study by its path: what differs, the seed, then the rest: "N=10 D=2.5 s1 cosine"."""
    configs = [effective(dataclasses.asdict(point.config)) for point in points]
    differ = differing(configs)
    first = [*(name for name in LEADING if name in differ), *(name for name in differ if name not in LEADING)]
    rest = [name for name in (*LEADING, "environment", "algorithm") if name not in first]
    names = {}
    for point, config in zip(points, configs, strict=True):
        words = [point.label] if point.label else [_word(name, config[name]) for name in first if name in config]
        words.append(f"s{point.config.seed}")
        words += [] if point.label else [_word(name, config[name]) for name in rest if name in config]
        names[point.path] = " ".join(words)
    return names


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


def axes(points: Sequence[Point]) -> dict[str, list[Any]]:
    """The fields in which a study's runs differ, with their values in order; the seed is not among them."""
    configs = [effective(dataclasses.asdict(point.config)) for point in points]
    found = {}
    for name in differing(configs):
        values = {repr(config[name]): config[name] for config in configs if name in config}
        found[name] = sorted(values.values(), key=rank)
    return found


def rank(value: Any) -> tuple[bool, float, str]:
    """For sorting the values of a field: numbers by size, then words."""
    number = isinstance(value, int | float)
    return not number, float(value) if number else 0.0, str(value)


def context(runs: Sequence[RunRecord]) -> str:
    """What runs have in common: "cosine · FN-UCB (less comm.) · N = 10 · T = 2,000 · tuned preset · seeds 0 to 2"."""
    configs = [shared_settings(run) for run in runs]
    common = {name: value for name, value in configs[0].items() if all(c.get(name) == value for c in configs)}
    words = [said(name, common[name]) for name in ("environment", "algorithm") if name in common]
    words += [f"N = {common['agents']:,}"] if "agents" in common else []
    words += [f"T = {common['horizon']:,}"] if "horizon" in common else []
    named = {(run.summary.get("label") or "").partition(":")[0] for run in runs} & PRESETS.keys()
    words.append(_preset(configs, common) if len(named) < 2 else "")  # of several, every panel says its own
    return " · ".join(word for word in [*words, _seeds(runs)] if word)


def _preset(configs: Sequence[dict[str, Any]], common: dict[str, Any]) -> str:
    """The preset that is nearest, and the common fields in which the runs differ from it."""
    changes = []
    for name in PRESETS:
        found: dict[str, None] = {}
        for config in configs:
            asked = {key: config[key] for key in ("algorithm", "hidden_layers") if key in config}
            preset = dataclasses.asdict(Config.preset(name, config["environment"], **asked))
            ignored = (*SAID, *MACHINE)
            found |= {key: None for key, value in config.items() if key not in ignored and preset[key] != value}
        changes.append((name, list(found)))
    name, changed = min(changes, key=lambda one: len(one[1]))
    told = [word for key in changed if key in common and (word := said(key, common[key]))]
    more = [f"{len(told) - 3} more changes"] if len(told) > 4 else told[3:]
    return ", ".join([f"{name} preset", *told[:3], *more])


def _seeds(runs: Sequence[RunRecord]) -> str:
    seeds = sorted({run.summary["config"]["seed"] for run in runs})
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    if seeds == list(range(seeds[0], seeds[-1] + 1)):
        return f"seeds {seeds[0]} to {seeds[-1]}"
    return f"{len(seeds)} seeds"
