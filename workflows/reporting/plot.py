"""Draws figures of results and records by name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fnbandit.config.registry import unknown
from fnbandit.simulation.results import Result
from fnbandit.storage.records import RunRecord
from fnbandit.storage.save import record_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot(runs: Sequence[RunRecord], name: str) -> Figure:
    """Draw the named figure of runs; words may be in any order: "bytes against regret" is "regret-against-bytes"."""
    from workflows.reporting.figures import figures

    drawn = figures(runs)
    found = {_words(key): figure for key, figure in drawn.items()}
    if _words(name) not in found and _words(name) == {"rounds"} and runs and all(map(_has_every_round, runs)):
        raise ValueError("figure='rounds': there is a round in every iteration, so there is nothing to draw")
    if _words(name) not in found:
        raise ValueError(unknown("figure", name, [key.replace("-", " ") for key in drawn]))
    return found[_words(name)]


def plot_result(result: Result, name: str) -> Figure:
    return plot([record_of(result)], name)


def _has_every_round(run: RunRecord) -> bool:
    return len(run.rounds) == run.summary["iterations"]


def _words(name: str) -> frozenset[str]:
    symbols = {"n": "agents", "d": "threshold"}
    return frozenset(symbols.get(word, word) for word in re.findall(r"[a-z]+", name.lower()))
