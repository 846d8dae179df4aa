"""Turns a result in memory into the records of a run, and back."""

from __future__ import annotations

import dataclasses
import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from fnbandit.config import Config
from fnbandit.core import Cost, Round, Segment, Times, Trace
from fnbandit.federation.quantities import QUANTITIES
from fnbandit.simulation.results import COSTS, TIMES, Result, collect
from fnbandit.storage.files import SUMMARY_FILE
from fnbandit.storage.records import (
    ROUND_SCHEMA,
    TRACE_SCHEMA,
    RecordWriter,
    RunRecord,
    read_run,
    round_batch,
    trace_batch,
    write_config,
    write_summary,
)
from fnbandit.storage.totals import RunTotals


def summary_of(result: Result) -> dict[str, Any]:
    """Return the summary of a finished run."""
    totals = RunTotals()
    totals.begin(result.config)
    for segment in result.segments:
        totals.segment(segment)
    config = dataclasses.asdict(result.config)
    return {
        "status": "finished", **totals.summary(), "seconds": result.seconds, "seed": result.config.seed,
        "config": config, "label": None, "files": {},
    }  # fmt: skip


def record_of(result: Result) -> RunRecord:
    """Return a result as the record of a run, without writing it."""
    trace = [trace_batch(segment, "agents") for segment in result.segments]
    rounds = [round_batch(segment) for segment in result.segments if segment.rounds]
    tables = (pa.Table.from_batches(trace, TRACE_SCHEMA), pa.Table.from_batches(rounds, ROUND_SCHEMA))
    return RunRecord(Path(), summary_of(result), *tables)


def result_of(record: RunRecord) -> Result:
    """Return a run as `simulate` does, from its tables; theta is not recorded.

    Raises ValueError where trace.parquet does not have a row per agent.
    """
    config = Config.from_record(record.summary["config"])
    agents, table = config.honest_agents, record.trace
    if not len(table) or table.column("agent").null_count:
        raise ValueError(f"{record.directory}: has no row per agent and iteration (--trace agents keeps them)")

    def column(name: str) -> np.ndarray:
        return table.column(name).to_numpy().reshape(-1, agents)

    time = None if table.column("time").null_count else column("time")
    whole = Trace(column("arm"), column("reward"), column("regret"), column("weight")[:, 0], time)
    rows = record.rounds.to_pylist()
    # A round at a barrier ends a segment; agents that do not wait have rounds in the order of arrival.
    barriers = {row["iteration"] for row in rows if row["agent"] is None}
    segments = []
    for start, end in itertools.pairwise([0, *sorted(barriers | {len(whole.arms)})]):
        own = [row for row in rows if row["iteration"] == end] if barriers else rows
        seconds = sum(row["seconds"] or 0.0 for row in own)
        segments.append(Segment(start, end, whole.part(start, end), tuple(map(_round, own)), seconds))
    return dataclasses.replace(collect(config, segments), seconds=record.summary["seconds"])


def _round(row: dict[str, Any]) -> Round:
    """Return the Round of a row of rounds.parquet; inverse of `records.round_row`."""

    def number(name: str) -> float:
        return math.nan if row.get(name) is None else row[name]

    return Round(
        iteration=row["iteration"],
        length=row["epoch_length"],
        triggered=tuple(row["triggered"]),
        measure=number("measure"),
        level=number("threshold"),
        cost=Cost(*(row[name] for name in COSTS)),
        quantities={quantity.name: number(quantity.name) for quantity in QUANTITIES},
        participants=row["participants"],
        exchanges=row["exchanges"],
        times=None if row["time"] is None else Times(*(row[name] for name in TIMES)),
        staleness=row["staleness"],
        dropped=None if row.get("dropped") is None else tuple(row["dropped"]),
    )


def save(result: Result, folder: str | Path) -> Path:
    """Write the files of `fnbandit run`: config.toml, the two tables, summary.json.

    Raises ValueError if the folder already contains a run.
    """
    directory = Path(folder)
    if (directory / SUMMARY_FILE).exists():
        raise ValueError(f"{directory}: already contains a run; choose another folder")
    records = RecordWriter(directory)
    records.begin(result.config)
    for segment in result.segments:
        records.segment(segment)
    records.end("finished")
    write_config(directory, result.config)
    write_summary(directory, summary_of(result) | {"files": records.files})
    read_run(directory)
    return directory
