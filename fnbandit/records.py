"""What a run leaves behind: two Arrow tables and a summary, readable at every moment.

DIR/config.toml      the resolved config
DIR/trace.parquet    one row per iteration and agent (TRACE)
DIR/rounds.parquet   one row per communication round (ROUNDS)
DIR/summary.json     status and totals

While a run lasts the tables are Arrow IPC streams, trace.arrows and rounds.arrows; after a
crash every whole batch of them is readable. A sweep is a folder of runs in folders named
key=value, which pyarrow, polars and duckdb read as one partitioned data set.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from fnbandit.results import COSTS, QUANTITIES, Segment

if TYPE_CHECKING:
    import pyarrow.dataset

VERSION = "1"
METADATA = {"fnbandit.schema": VERSION}
TRACE = pa.schema(
    [
        ("iteration", pa.int32()),
        ("agent", pa.int32()),
        ("arm", pa.int16()),
        ("reward", pa.float64()),
        ("regret", pa.float64()),
        ("weight", pa.float64()),
    ],
    metadata=METADATA,
)
"""Per iteration and agent; `agent` and `arm` are null where only the mean over agents is kept."""
ROUNDS = pa.schema(
    [
        ("iteration", pa.int32()),
        ("epoch_length", pa.int32()),
        ("triggered", pa.list_(pa.int32())),
        ("measure", pa.float64()),
        ("threshold", pa.float64()),
        *((name, pa.int64()) for name in COSTS),
        ("weight", pa.float64()),
        *((quantity.name, pa.float64()) for quantity in QUANTITIES),
        ("seconds", pa.float64()),
    ],
    metadata=METADATA,
)
"""Per round: what the trigger measured against D (null: nothing), what was sent, how long the epoch took."""

TraceDetail = Literal["agents", "mean", "none"]


def trace_batch(segment: Segment, detail: TraceDetail) -> pa.RecordBatch:
    """A segment's rows of the trace."""
    trace = segment.trace
    iterations, agents = trace.arms.shape
    numbers = np.arange(segment.start + 1, segment.end + 1, dtype=np.int32)
    if detail == "agents":
        columns = {
            "iteration": np.repeat(numbers, agents),
            "agent": np.tile(np.arange(agents, dtype=np.int32), iterations),
            "arm": trace.arms.astype(np.int16).ravel(),
            "reward": trace.rewards.astype(np.float64).ravel(),
            "regret": trace.regret.astype(np.float64).ravel(),
            "weight": np.repeat(trace.weight, agents),
        }
    else:
        empty = [None] * iterations
        columns = {
            "iteration": numbers,
            "agent": empty,
            "arm": empty,
            "reward": trace.rewards.mean(1, dtype=np.float64),
            "regret": trace.regret.mean(1, dtype=np.float64),
            "weight": trace.weight,
        }
    return pa.record_batch([pa.array(columns[field.name], field.type) for field in TRACE], schema=TRACE)


def known(value: float) -> float | None:
    """Null in a table for what nobody knows."""
    return None if math.isnan(value) else value


def round_batch(segment: Segment) -> pa.RecordBatch:
    """A segment's row of the rounds."""
    record = segment.round
    assert record is not None
    row = {
        "iteration": record.iteration,
        "epoch_length": record.length,
        "triggered": list(record.triggered),
        "measure": record.measure,
        "threshold": known(record.level),
        **asdict(record.cost),
        "weight": float(segment.trace.weight[-1]),
        **{name: known(value) for name, value in record.quantities.items()},
        "seconds": segment.seconds,
    }
    return pa.RecordBatch.from_pylist([row], schema=ROUNDS)


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write aside and move, so that a reader never sees half a file."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(value, indent=2) + "\n")
    os.replace(part, path)


class RecordWriter:
    """Appends segments to a run's two streams, and turns them into Parquet at the end."""

    def __init__(self, directory: Path, detail: TraceDetail = "agents") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory, self._detail = directory, detail
        self._trace = pa.ipc.new_stream(pa.OSFile(str(directory / "trace.arrows"), "wb"), TRACE)
        self._rounds = pa.ipc.new_stream(pa.OSFile(str(directory / "rounds.arrows"), "wb"), ROUNDS)

    def write(self, segment: Segment) -> None:
        if self._detail != "none":
            self._trace.write_batch(trace_batch(segment, self._detail))
        if segment.round is not None:
            self._rounds.write_batch(round_batch(segment))

    def close(self, finished: bool) -> None:
        """End the streams; a finished run's become Parquet files."""
        self._trace.close()
        self._rounds.close()
        if finished:
            for name in ("trace", "rounds"):
                part = self._directory / f"{name}.part"
                pa.parquet.write_table(read_stream(self._directory / f"{name}.arrows"), part, compression="zstd")
                os.replace(part, self._directory / f"{name}.parquet")
                (self._directory / f"{name}.arrows").unlink()


def read_stream(path: Path) -> pa.Table:
    """All whole batches of a stream that may have been cut off anywhere."""
    schema = TRACE if path.name.startswith("trace") else ROUNDS
    batches = []
    try:
        with pa.ipc.open_stream(pa.OSFile(str(path), "rb")) as reader:
            while True:
                batches.append(reader.read_next_batch())
    except (StopIteration, pa.ArrowInvalid, OSError):
        pass
    return pa.Table.from_batches(batches, schema)


@dataclass(frozen=True)
class RunRecord:
    """A run as it stands on disk."""

    directory: Path
    summary: dict[str, Any]
    trace: pa.Table
    rounds: pa.Table

    @property
    def finished(self) -> bool:
        return self.summary["status"] == "finished"


def read_run(directory: str | Path) -> RunRecord:
    """The tables and the summary of one run, finished or not."""
    directory = Path(directory)
    try:
        summary = json.loads((directory / "summary.json").read_text())
    except FileNotFoundError:
        raise ValueError(f"{directory}: is no run, it has no summary.json") from None
    except ValueError as error:
        raise ValueError(f"{directory}/summary.json: is damaged ({error})") from None
    return RunRecord(directory, summary, _table(directory, "trace"), _table(directory, "rounds"))


def _table(directory: Path, name: str) -> pa.Table:
    finished = directory / f"{name}.parquet"
    if not finished.exists():
        return read_stream(directory / f"{name}.arrows")
    try:
        return pa.parquet.read_table(finished, partitioning=None)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{finished}: is damaged ({error})") from None


def find_runs(directory: str | Path) -> list[Path]:
    """The folders of all runs in a folder, sorted; the folder itself if it is a run."""
    return sorted(path.parent for path in Path(directory).rglob("summary.json"))


def read_sweep(directory: str | Path, table: Literal["trace", "rounds"] = "trace") -> pyarrow.dataset.Dataset:
    """All finished runs of a folder as one data set, with the folders' key=value as columns."""
    import pyarrow.dataset  # Here, because it brings pandas, and every actor would wait for it.

    directory = Path(directory)
    files = sorted(str(path) for path in directory.rglob(f"{table}.parquet"))
    if not files:
        raise ValueError(f"{directory}: has no finished run")
    partitioning = pyarrow.dataset.HivePartitioning.discover(infer_dictionary=False)
    return pyarrow.dataset.dataset(
        files, format="parquet", partitioning=partitioning, partition_base_dir=str(directory)
    )
