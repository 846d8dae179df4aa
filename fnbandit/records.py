"""What a run leaves behind: two Arrow tables and a summary, readable at every moment.

DIR/config.toml      the resolved config
DIR/trace.parquet    one row per iteration and agent (TRACE)
DIR/rounds.parquet   one row per communication round (ROUNDS)
DIR/summary.json     status and totals

While a run lasts the tables are Arrow IPC streams, trace.arrows and rounds.arrows; after a
crash every whole batch of them is readable. A sweep is a folder of runs in folders named
key=value, which pyarrow, polars and duckdb read as one partitioned data set.

What has been altered is not read as other values: a batch of a stream carries a checksum of itself and all
before it, and the summary carries its own and those of the finished tables.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from fnbandit.errors import SimulationError
from fnbandit.results import COSTS, QUANTITIES, TIMES, Round, Segment

log = logging.getLogger("fnbandit")
VERSION = "2"
SUMMARY_VERSION = 2
SUMMARY = {"status": str, "config": dict, "iterations": int, "files": dict}
"""What every summary has; `files` are the checksums of a finished run's tables"""
METADATA = {"fnbandit.schema": VERSION}
TRACE = pa.schema(
    [
        ("iteration", pa.int32()),
        ("agent", pa.int32()),
        ("arm", pa.int32()),
        ("reward", pa.float64()),
        ("regret", pa.float64()),
        ("weight", pa.float64()),
        ("time", pa.float64()),
    ],
    metadata=METADATA,
)
"""Per iteration and agent; `agent` and `arm` are null where only the mean over agents is kept.

`time` is the simulated seconds at the iteration's end, null without a clock."""
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
        ("agent", pa.int32()),
        ("staleness", pa.int64()),
        *((name, pa.float64()) for name in TIMES),
    ],
    metadata=METADATA,
)
"""Per round: what the trigger measured against D (null: nothing), what was sent, how long the epoch took.

Where agents do not wait for each other a row is one agent's exchange with the server, with its `agent` and its
`staleness`. With a clock: when it was in simulated seconds (`time`), and where they went since the one before."""

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
            "arm": trace.arms.astype(np.int32).ravel(),
            "reward": trace.rewards.astype(np.float64).ravel(),
            "regret": trace.regret.astype(np.float64).ravel(),
            "weight": np.repeat(trace.weight, agents),
            "time": [None] * trace.arms.size if trace.time is None else trace.time.ravel(),
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
            "time": empty if trace.time is None else trace.time.mean(1),
        }
    return pa.record_batch([pa.array(columns[field.name], field.type) for field in TRACE], schema=TRACE)


def known(value: float) -> float | None:
    """Null in a table for what nobody knows."""
    return None if math.isnan(value) else value


def round_batch(segment: Segment) -> pa.RecordBatch:
    """A segment's rows of the rounds."""
    return pa.RecordBatch.from_pylist([round_row(record, segment) for record in segment.rounds], schema=ROUNDS)


def round_row(record: Round, segment: Segment) -> dict[str, Any]:
    """A round; what only a round of all agents has is null for a single agent's exchange."""
    everyone = segment.round is not None
    return {
        "iteration": record.iteration,
        "epoch_length": record.length,
        "triggered": list(record.triggered),
        "measure": known(record.measure),
        "threshold": known(record.level),
        **asdict(record.cost),
        "weight": float(segment.trace.weight[-1]) if everyone else None,
        **{name: known(value) for name, value in record.quantities.items()},
        "seconds": segment.seconds if everyone else None,
        "agent": record.agent,
        "staleness": record.staleness,
        **(dict.fromkeys(TIMES) if record.times is None else asdict(record.times)),
    }


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write a JSON file."""
    with aside(path) as part:
        part.write_text(json.dumps(value, indent=2) + "\n")


@contextmanager
def aside(path: Path) -> Iterator[Path]:
    """Write to the path given instead; moved at the end, so that a reader never sees half a file.

    What has been there is replaced, never written through: it may be a link to somewhere else.
    """
    part = path.with_name(f"{path.name}.part")
    with naming(path):
        part.unlink(missing_ok=True)
        yield part
        os.replace(part, path)


def write_summary(directory: Path, summary: dict[str, Any]) -> None:
    """Write a run's summary.json, with its version and a checksum."""
    body = {"version": SUMMARY_VERSION} | summary
    write_json(directory / "summary.json", body | {"sha256": _seal(body)})


def _seal(summary: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(summary, sort_keys=True).encode()).hexdigest()


class RecordWriter:
    """Appends segments to a run's two streams, and turns them into Parquet at the end."""

    def __init__(self, directory: Path, detail: TraceDetail = "agents") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory, self._detail = directory, detail
        self._trace = Stream(directory / "trace.arrows", TRACE)
        self._rounds = Stream(directory / "rounds.arrows", ROUNDS)

    def write(self, segment: Segment) -> None:
        if self._detail != "none":
            self._trace.write(trace_batch(segment, self._detail))
        if segment.rounds:
            self._rounds.write(round_batch(segment))

    def finish(self, iterations: int, agents: int) -> dict[str, str]:
        """Turn the streams of a run that is at its end into Parquet files; their checksums.

        What has come back from the disk must have every row that the run has, or it is a SimulationError.
        """
        self.close()
        rows = {"agents": iterations * agents, "mean": iterations, "none": 0}[self._detail]
        digests = {}
        for stream, count in ((self._trace, rows), (self._rounds, self._rounds.rows)):
            table = read_stream(stream.path)
            if len(table) != count:
                raise SimulationError(
                    f"{stream.path}: has {len(table)} rows, expected {count}; the run is not finished"
                )
            path = stream.path.with_suffix(".parquet")
            with aside(path) as part:
                pa.parquet.write_table(table, part, compression="zstd", write_page_checksum=True)
                digests[path.name] = file_digest(part)
        for stream in (self._trace, self._rounds):
            stream.path.unlink()
        return digests

    def close(self) -> None:
        """End the streams."""
        self._trace.close()
        self._rounds.close()


class Stream:
    """An Arrow IPC stream on disk; every batch has, as metadata, a checksum of itself and those before it."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path, self.rows, self._checksum = path, 0, 0
        with naming(path):
            path.unlink(missing_ok=True)
            self._stream = pa.ipc.new_stream(pa.OSFile(str(path), "wb"), schema)

    def write(self, batch: pa.RecordBatch) -> None:
        self._checksum = zlib.crc32(batch.serialize(), self._checksum)
        self.rows += len(batch)
        with naming(self.path):
            self._stream.write_batch(batch, custom_metadata={"crc32": str(self._checksum)})

    def close(self) -> None:
        with naming(self.path):
            self._stream.close()


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let an error of the file system name the file, which pyarrow's errors do not."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise OSError(f"{path}: {error}") from None
        raise OSError(error.errno, os.strerror(error.errno), str(path)) from None


def file_digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_stream(path: Path) -> pa.Table:
    """All whole batches of a stream that may have been cut off or altered anywhere; nothing after such a place."""
    schema = TRACE if path.name.startswith("trace") else ROUNDS
    batches: list[pa.RecordBatch] = []
    source = pa.BufferReader(path.read_bytes() if path.exists() else b"")
    checksum = 0
    try:
        with pa.ipc.open_stream(source) as reader:
            if not reader.schema.equals(schema, check_metadata=True):
                raise pa.ArrowInvalid("another schema")
            while True:
                batch, metadata = reader.read_next_batch_with_custom_metadata()
                batch.validate(full=True)
                checksum = zlib.crc32(batch.serialize(), checksum)
                if (metadata or {}).get("crc32") != str(checksum).encode():
                    raise pa.ArrowInvalid("another checksum")
                batches.append(batch)
    except StopIteration:
        whole = source.tell() == source.size()
    except (pa.ArrowException, OSError, ValueError):
        # The bytes are in memory: whatever is wrong is wrong with them.
        whole = source.size() == 0
    if not whole:
        rows = sum(len(batch) for batch in batches)
        log.warning("fnbandit: %s: is cut off or damaged after %d whole rows; the rest is not read", path, rows)
    return pa.Table.from_batches(batches, schema)


class MissingTable(ValueError):  # noqa: N818
    """A finished run has lost a table."""


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
    """The tables and the summary of one run, finished or not; a ValueError of one line where they are damaged."""
    directory = Path(directory)
    summary = read_summary(directory)
    return RunRecord(directory, summary, _table(directory, "trace", summary), _table(directory, "rounds", summary))


def read_summary(directory: Path) -> dict[str, Any]:
    """What summary.json says of a run."""
    path = directory / "summary.json"
    try:
        summary = json.loads(path.read_text())
        if not isinstance(summary, dict):
            raise ValueError("expected an object")
        if summary.get("version") != SUMMARY_VERSION:
            raise ValueError(f"version {summary.get('version')!r}, this program reads {SUMMARY_VERSION}")
        checksum = summary.pop("sha256", None)
        if checksum != _seal(summary):
            raise ValueError("its checksum is another")
        for name, kind in SUMMARY.items():
            if not isinstance(summary.get(name), kind):
                raise ValueError(f"{name}={summary.get(name)!r}")
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(f"{directory}: is no run, it has no summary.json") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: is damaged ({error})") from None
    return summary


def _table(directory: Path, name: str, summary: dict[str, Any]) -> pa.Table:
    path = directory / f"{name}.parquet"
    if summary["status"] != "finished":
        # A run that was stopped at its very end may have one already.
        return _parquet(path) if path.exists() else read_stream(path.with_suffix(".arrows"))
    if not path.exists():
        raise MissingTable(f"{path}: is missing, although the run is finished; `resume` of its study runs it again")
    if file_digest(path) != summary["files"][path.name]:
        raise ValueError(f"{path}: is damaged (its checksum is another)")
    return _parquet(path)


def _parquet(path: Path) -> pa.Table:
    try:
        return pa.parquet.read_table(path, partitioning=None, page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path}: is damaged ({error})") from None


def find_runs(directory: str | Path) -> list[Path]:
    """The folders of all runs in a folder, sorted; the folder itself if it is a run."""
    return sorted(path.parent for path in Path(directory).rglob("summary.json"))
