"""A result in memory as the records that a run leaves on disk, and figures of either."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import tomli_w

from fnbandit.records import (
    ROUNDS,
    TRACE,
    RecordWriter,
    RunRecord,
    read_run,
    round_batch,
    trace_batch,
    write_summary,
)
from fnbandit.registry import unknown
from fnbandit.results import Result
from workflows.tally import Tally

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def summary_of(result: Result) -> dict[str, Any]:
    """What summary.json says of a finished run."""
    tally = Tally(result.config)
    for segment in result.segments:
        tally.add(segment)
    totals = tally.summary() | {"seconds": result.seconds}
    config = dataclasses.asdict(result.config)
    return {"status": "finished", **totals, "seed": result.config.seed, "config": config, "label": None, "files": {}}


def record_of(result: Result) -> RunRecord:
    """A result as the record of a run that was never on disk."""
    trace = [trace_batch(segment, "agents") for segment in result.segments]
    rounds = [round_batch(segment) for segment in result.segments if segment.rounds]
    tables = (pa.Table.from_batches(trace, TRACE), pa.Table.from_batches(rounds, ROUNDS))
    return RunRecord(Path(), summary_of(result), *tables)


def save(result: Result, folder: str | Path) -> Path:
    """Write what `fnbandit run` would: config.toml, the two tables, summary.json. A folder with a run is refused."""
    directory = Path(folder)
    if (directory / "summary.json").exists():
        raise ValueError(f"{directory}: holds a run already; choose another folder")
    writer = RecordWriter(directory)
    for segment in result.segments:
        writer.write(segment)
    files = writer.finish(result.config.horizon, result.config.agents)
    resolved = {name: value for name, value in dataclasses.asdict(result.config).items() if value is not None}
    (directory / "config.toml").write_text(tomli_w.dumps(resolved))
    write_summary(directory, summary_of(result) | {"files": files})
    read_run(directory)
    return directory


def plot(runs: Sequence[RunRecord], name: str) -> Figure:
    """One of the figures of some runs by its name, in any order: "bytes against regret" is "regret-against-bytes"."""
    from workflows.figures import figures

    drawn = figures(runs)
    found = {_words(key): figure for key, figure in drawn.items()}
    if _words(name) not in found:
        raise ValueError(unknown("figure", name, [key.replace("-", " ") for key in drawn]))
    return found[_words(name)]


def plot_result(result: Result, name: str) -> Figure:
    return plot([record_of(result)], name)


def _words(name: str) -> frozenset[str]:
    symbols = {"n": "agents", "d": "threshold"}
    return frozenset(symbols.get(word, word) for word in re.findall(r"[a-z]+", name.lower()))
