"""The shipped results as the sections of the page of results read them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from workflows.paper.shipped import read_kept
from workflows.reporting.curves import Total
from workflows.reporting.grouping import group
from workflows.reporting.markdown import format_measured, number
from workflows.studies.experiments import experiment
from workflows.studies.settings import Settings
from workflows.studies.study import StudyPlan

PRESET_WORDS = {"paper": "published settings", "tuned": "tuned", "exact": "exact"}
"""Columns of the page that compare settings"""
FAR = 2.0
"""A curve whose largest seed exceeds this factor times the median has its median beside the mean"""


class PageData:
    """Plans, runs and curves of experiments by name."""

    def __init__(self, names: Iterable[str]) -> None:
        self.studies: dict[str, StudyPlan] = {name: experiment(name, False, None, Settings()) for name in names}
        self.runs = {name: read_kept(name) for name in self.studies}
        self.groups = {name: group(runs) if runs else {} for name, runs in self.runs.items()}

    def list_missing(self, name: str) -> list[str]:
        """Return the labels of an experiment's curves without results."""
        labels = dict.fromkeys(point.label for point in self.studies[name].points)
        return [label for label in labels if label and label not in self.groups[name]]

    def not_run(self, name: str) -> list[str]:
        """Return a line that lists an experiment's curves without results."""
        missing, whole = self.list_missing(name), len({point.label for point in self.studies[name].points})
        if not missing:
            return []
        few = f"{len(missing)} of {whole} curves" if 6 < len(missing) < whole else "; ".join(missing)
        return [f"Not run of `{name}`: {'all curves' if len(missing) == whole else few}.", ""]

    def find_mean(self, name: str, label: str, total: str = "regret") -> float | None:
        """Return the mean of a curve's total over seeds; None where it was not run."""
        runs = self.groups[name].get(label)
        return Total.of(runs, [total]).mean if runs else None


def format_finals(runs: list, total: str = "regret") -> str:
    """Format mean and standard error of final values, with the median where one seed is far off."""
    values = np.array([run.summary[total] for run in runs])
    median = float(np.median(values))
    beside = f" (median {number(median)})" if values.max() > FAR * median else ""
    return format_measured(Total.of(runs, [total])) + beside
