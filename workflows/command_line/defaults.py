"""Defaults that depend on the task, the algorithm or the depth: for `--help`, and for the first lines of a run."""

from __future__ import annotations

import functools
from collections.abc import Container, Iterable
from typing import Any

from fnbandit.config import FIELDS, Config
from fnbandit.config.presets import PRESET_FIELDS
from fnbandit.config.registry import ALGORITHMS, ENVIRONMENTS, without_effect
from workflows.studies.study import RunSpec

CHOICES = {"environment": (*ENVIRONMENTS, "table.csv"), "algorithm": tuple(ALGORITHMS)}
"""The choices on which defaults depend; table.csv stands for a user's table"""


@functools.cache
def _dependent_defaults() -> dict[str, dict[Any, list[str]]]:
    """Return by field the values that differ from Config's default, each with the choices that lead to it."""
    found: dict[str, dict[Any, list[str]]] = {}
    for kind, choices in CHOICES.items():
        for choice in choices:
            for name, value in _differences(Config(), Config.preset("tuned", **{kind: choice})).items():
                found.setdefault(name, {}).setdefault(value, []).append(choice)
    exact = Config.preset("tuned", algorithm="fn-exact")
    on_table = _differences(exact, Config.preset("tuned", algorithm="fn-exact", environment="table.csv"))
    for name, value in on_table.items():
        if value not in found.get(name, {}):
            found.setdefault(name, {}).setdefault(value, []).append("fn-exact with a table")
    deeper = _differences(Config(), Config(hidden_layers=2))
    for name, value in deeper.items():
        found.setdefault(name, {}).setdefault(value, []).append("two hidden layers")
    return found


def describe_default(name: str) -> str:
    """Return the default of a field of Config with those of other choices: "0.1; shuttle, magic: 1.0"."""
    others = [f"{', '.join(choices)}: {value}" for value, choices in _dependent_defaults().get(name, {}).items()]
    return "; ".join([str(getattr(Config, name)), *others])


def describe_defaults(preset: str, points: Iterable[RunSpec], given: Container[str]) -> list[str]:
    """Return a line for each set of values that runs have by their task, algorithm or depth, not by the request."""
    titles: dict[str, list[str]] = {}
    usual = Config.preset(preset)
    for config in dict.fromkeys(point.config.replace(seed=0) for point in points):
        own = Config.build(preset, config.environment, {name: getattr(config, name) for name in PRESET_FIELDS})
        idle = without_effect(vars(config))
        chosen = {
            name: value
            for name, value in _differences(usual, own).items()
            if name not in given and name not in idle and getattr(config, name) == value
        }
        if chosen:
            line = ", ".join(f"{name} = {value}" for name, value in chosen.items())
            varied = [str(getattr(config, name)) for name in CHOICES if getattr(config, name) != getattr(usual, name)]
            titles.setdefault(line, []).append(
                " with ".join(reversed(varied)) or f"{config.hidden_layers} hidden layers"
            )
    return [f"defaults for {', '.join(dict.fromkeys(names))}: {line}" for line, names in titles.items()]


def _differences(one: Config, other: Config) -> dict[str, Any]:
    """Return the values of another config's fields that differ from those of a first, but for the preset's fields."""
    names = [name for name in FIELDS if name not in PRESET_FIELDS]
    return {name: value for name in names if (value := getattr(other, name)) != getattr(one, name)}
