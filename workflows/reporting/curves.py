"""Data of figures and reports: curves against iteration, totals against a field, and the panels of groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fnbandit.simulation.results import standard_error
from fnbandit.storage.records import RunRecord
from workflows.reporting.grouping import (
    agent_curves,
    curve,
    describe_setting,
    effective_settings,
    exchanges_alone,
    find_differing,
    find_unused,
    list_shared_settings,
    means,
    read_total,
    round_counts,
)

Groups = Mapping[str, list[RunRecord]]
"""Label -> runs that differ only in seed"""
BYTES = ("bytes_up", "bytes_down")
MESSAGES = ("messages_up", "messages_down")
PANEL_SERIES = 8
"""Largest number of curves in a panel"""
PANEL_FIELDS = ("environment", "agents", "clock", "speed_spread", "slow_share")
"""Fields by which many curves, and those of studies with clocks, are divided into panels"""
PANEL_TITLES = {"paper": "published settings, separate networks", "tuned": "tuned"}
"""Titles of panels that show a preset, from left to right"""


@dataclass(frozen=True)
class Curve:
    """Mean and standard error against iteration."""

    iterations: np.ndarray
    mean: np.ndarray
    error: np.ndarray
    over: str
    """Sample of the error: seeds or agents"""

    @classmethod
    def of(cls, curves: Sequence[tuple[np.ndarray, np.ndarray]]) -> Curve:
        """Average the curves of runs, up to the end of the shortest."""
        length = min(len(iterations) for iterations, _ in curves)
        values = np.stack([value[:length] for _, value in curves])
        mean, error = values.mean(axis=0), standard_error(values)
        error[error < 1e-9 * np.abs(mean)] = 0  # rounding
        return cls(curves[0][0][:length], mean, error, f"{len(curves)} seeds")

    def thin(self, points: int) -> Curve:
        """Keep at most `points` points, including the first and the last."""
        count = len(self.mean)
        chosen = np.unique(np.linspace(0, count - 1, min(count, points)).round().astype(int))
        return replace(self, iterations=self.iterations[chosen], mean=self.mean[chosen], error=self.error[chosen])


def regret_curve(runs: Sequence[RunRecord]) -> Curve:
    """Return the cumulative regret of runs that differ in seed; a single run's error is over its agents."""
    result = Curve.of([curve(run) for run in runs])
    if len(runs) == 1 and len(agents := agent_curves(runs[0])) > 1:
        return replace(result, error=standard_error(agents), over="agents")
    return result


def regret_curves(groups: Groups) -> dict[str, Curve]:
    """Return the regret curves of all groups that have a trace."""
    curves = {label: regret_curve(runs) for label, runs in groups.items()}
    return {label: one for label, one in curves.items() if len(one.mean)}


def round_curves(groups: Groups) -> dict[str, Curve]:
    """Return the rounds up to every iteration, for groups that communicate, but not in every iteration."""
    waiting = {label: runs for label, runs in groups.items() if not exchanges_alone(runs[0])}
    curves = {label: Curve.of([round_counts(run) for run in runs]) for label, runs in waiting.items()}
    return {label: one for label, one in curves.items() if one.mean.any() and one.mean[-1] < len(one.mean)}


def exchange_curves(groups: Groups) -> dict[str, Curve]:
    """Return the exchanges of single agents up to every iteration of theirs, for groups without rounds."""
    alone = {label: runs for label, runs in groups.items() if exchanges_alone(runs[0])}
    return {label: Curve.of([round_counts(run) for run in runs]) for label, runs in alone.items()}


def weight_curves(groups: Groups) -> dict[str, Curve]:
    """Return the curves of alpha, where it is not always 0."""
    curves = {label: Curve.of([means(run, "weight") for run in runs]) for label, runs in groups.items()}
    return {label: one for label, one in curves.items() if one.mean.any()}


@dataclass(frozen=True)
class Place:
    """Panel and name of a group's curve; small multiples have a panel for every combination of all fields but one."""

    panel: str
    name: str


def by_panel(groups: Groups) -> dict[str, dict[str, list[RunRecord]]]:
    """Return the groups by the panel in their labels, "PANEL: NAME"; all in panel "" where some label has none."""
    labelled = all(runs[0].summary.get("label") and ": " in label for label, runs in groups.items())
    found: dict[str, dict[str, list[RunRecord]]] = {}
    for label, runs in groups.items():
        found.setdefault(label.partition(": ")[0] if labelled else "", {})[label] = runs
    return {panel: found[panel] for panel in sorted(found, key=[*PANEL_TITLES, *found].index)}


def places(groups: Groups) -> dict[str, Place]:
    """Return the place of every group by label, with at most PANEL_SERIES groups in a panel.

    In a study of several fields, N, else D, else the last field varies inside a panel; every combination of the
    others has a panel. Groups with labels share one panel as long as they are few.
    """
    panels = by_panel(groups)
    if "" not in panels:
        return _divide({
            label: Place(PANEL_TITLES.get(panel, panel), label.partition(": ")[2])
            for panel, members in panels.items()
            for label in members
        })  # fmt: skip
    alone = {label: Place("", label) for label in groups}
    configs = {label: list_shared_settings(runs[0]) for label, runs in groups.items()}
    fields = find_differing(list(configs.values()))
    labelled = any(runs[0].summary.get("label") for runs in groups.values())
    if len(groups) < 4 or (labelled and len(groups) <= PANEL_SERIES):
        return alone
    if labelled:
        others = [name for name in PANEL_FIELDS if name in _all_differing(configs)]
        fields = [name for name in _all_differing(configs) if name not in others]
        if not others:
            return _divide(alone)
        found = {label: Place(describe_setting(c, others), describe_setting(c, fields)) for label, c in configs.items()}
        return _divide(found if len(set(found.values())) == len(found) else alone)
    if len(fields) < 2:
        return _divide(alone)
    inside = next((name for name in ("agents", "threshold") if name in fields), fields[-1])
    others = [name for name in fields if name != inside]
    found = {label: Place(describe_setting(c, others), describe_setting(c, [inside])) for label, c in configs.items()}
    names = [place.panel for place in found.values()]
    if len(set(found.values())) < len(found) or len(set(names)) == 1 or min(map(names.count, names)) < 2:
        return _divide(alone)
    return _divide(found)


def _all_differing(configs: Mapping[str, dict[str, Any]]) -> list[str]:
    """Return all fields that differ between configs, important ones first, but for those that follow from others."""
    every = list(configs.values())
    extra = [name for name in PANEL_FIELDS if len({repr(config.get(name)) for config in every}) > 1]
    return list(dict.fromkeys([*find_differing(every), *extra]))


def _divide(found: dict[str, Place]) -> dict[str, Place]:
    """Divide panels with more than PANEL_SERIES groups into numbered ones, of about the same size."""
    members: dict[str, list[str]] = {}
    for label, place in found.items():
        members.setdefault(place.panel, []).append(label)
    result = dict(found)
    for panel, labels in members.items():
        parts = -(-len(labels) // PANEL_SERIES)
        for number, label in enumerate(labels if parts > 1 else []):
            title = f"{panel} ({number * parts // len(labels) + 1} of {parts})".lstrip()
            result[label] = replace(found[label], panel=title)
    return result


@dataclass(frozen=True)
class Total:
    """The mean of a total over runs that differ in seed."""

    mean: float
    error: float
    over: str
    """Sample of the error: seeds or agents; empty where there is no error"""

    @classmethod
    def of(cls, runs: Sequence[RunRecord], names: Sequence[str]) -> Total:
        """Average a sum of totals over runs. The regret of a single seed has its error over agents."""
        values = np.array([sum(read_total(run.summary, name) for name in names) for run in runs])
        if len(runs) > 1:
            return cls(float(values.mean()), float(standard_error(values)), f"{len(runs)} seeds")
        error = runs[0].summary.get("regret_standard_error", 0.0) if tuple(names) == ("regret",) else 0.0
        return cls(float(values[0]), error, "agents" if error else "")


@dataclass(frozen=True)
class Series:
    """Finished runs that differ in one field and in seed, by the field's value."""

    runs: dict[float, list[RunRecord]]
    labels: dict[float, str]
    """Labels of the groups"""

    def totals(self, names: Sequence[str]) -> dict[float, Total]:
        """Return the totals by the field's value, in order."""
        return {x: Total.of(self.runs[x], names) for x in sorted(self.runs)}


def keep_finished(groups: Groups) -> dict[str, list[RunRecord]]:
    """Return the groups with their finished runs only."""
    return {label: done for label, runs in groups.items() if (done := [run for run in runs if run.finished])}


def numeric_fields(groups: Groups) -> list[str]:
    """Return the fields against which totals can be drawn: N, D, and other numbers that differ within a panel."""
    found: list[str] = []
    for members in by_panel(keep_finished(groups)).values():
        configs = [list_shared_settings(runs[0]) for runs in members.values()]
        for name in dict.fromkeys(("agents", "threshold", *find_differing(configs))):
            values = [config[name] for config in configs if config.get(name) is not None and name != "horizon"]
            if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
                found += [name] if len(set(values)) > 1 else []
    return list(dict.fromkeys(found))


def series(groups: Groups, field: str) -> dict[str, Series]:
    """Return runs against a field, one series per panel and combination of the other fields."""
    there = {
        label: runs
        for label, runs in keep_finished(groups).items()
        if effective_settings(runs[0]).get(field) is not None
    }
    result: dict[str, Series] = {}
    for panel, members in by_panel(there).items():
        configs = {label: list_shared_settings(runs[0]) for label, runs in members.items()}
        fields = find_differing(list(configs.values()), leave_out=field)
        names: dict[str, str] = {}
        for label, config in configs.items():
            key = repr([config.get(name) for name in fields])
            if key not in names:
                name = f"{panel}: {describe_setting(config, fields)}" if panel else describe_setting(config, fields)
                names[key] = find_unused(name if fields or not panel else PANEL_TITLES.get(panel, panel), result)
                result[names[key]] = Series({}, {})
            value = effective_settings(members[label][0])[field]
            result[names[key]].runs.setdefault(value, []).extend(members[label])
            result[names[key]].labels[value] = label
    return result


def style_numbers(groups: Groups) -> dict[str, int]:
    """Number the names of a study's curves and series, so that a name has the same style in every figure."""
    names = [place.name for place in places(groups).values()]
    names += [name for field in numeric_fields(groups) for name in series(groups, field)]
    return {name: number for number, name in enumerate(dict.fromkeys(names))}
