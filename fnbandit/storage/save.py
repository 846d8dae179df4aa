"""Writes a result in memory to disk, as the records of a run."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pyarrow as pa

from fnbandit.simulation.results import Result
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
