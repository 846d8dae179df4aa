"""Writes and reads the records of a run: two Arrow tables and a summary, readable at any time.

DIR/config.toml      the resolved config
DIR/trace.parquet    one row per iteration and honest agent (TRACE)
DIR/rounds.parquet   one row per communication round (ROUNDS)
DIR/summary.json     status and totals

During a run the tables are Arrow IPC streams, trace.arrows and rounds.arrows; after a crash every complete batch of
them is readable. A sweep is a folder of runs in folders named key=value, which pyarrow, polars and duckdb read as one
partitioned data set.

Checksums detect altered files: a batch of a stream contains a checksum of itself and of all batches before it, the
summary contains its own and those of the finished tables.
"""

from __future__ import annotations

import functools
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
import tomli_w

from fnbandit.config import Config
from fnbandit.core import Round, Segment, Status
from fnbandit.errors import SimulationError
from fnbandit.federation.quantities import QUANTITIES
from fnbandit.hooks import load_hook
from fnbandit.notebook import html_table
from fnbandit.simulation.results import COSTS, TIMES, Result
from fnbandit.storage.files import CONFIG_FILE, STREAM_FILES, SUMMARY_FILE, check_inside
from fnbandit.storage.locations import sort_key

log = logging.getLogger("fnbandit")
RECORD_VERSION = "2"
SUMMARY_VERSION = 2
SUMMARY = {"status": str, "config": dict, "iterations": int, "files": dict}
"""Fields of every summary; `files` holds the checksums of a finished run's tables"""
METADATA = {"fnbandit.schema": RECORD_VERSION}
TRACE_SCHEMA = pa.schema(
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
ROUND_SCHEMA = pa.schema(
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
        ("participants", pa.int32()),
        ("exchanges", pa.int32()),
        *((name, pa.float64()) for name in TIMES),
        ("dropped", pa.list_(pa.int32())),
    ],
    metadata=METADATA,
)
"""Per round: the trigger's measure and D (null: none), the cost of the messages, the duration of the epoch.

Where agents do not wait for each other a row is one agent's exchange with the server, with its `agent` and its
`staleness`. With a clock: the simulated seconds of the round (`time`), and their use since the round before."""

TraceDetail = Literal["agents", "mean", "none"]


def trace_batch(segment: Segment, detail: TraceDetail) -> pa.RecordBatch:
    """Return the rows of a segment for the trace table."""
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
            "weight": np.repeat(trace.alpha, agents),
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
            "weight": trace.alpha,
            "time": empty if trace.time is None else trace.time.mean(1),
        }
    return pa.record_batch([pa.array(columns[field.name], field.type) for field in TRACE_SCHEMA], schema=TRACE_SCHEMA)


def none_if_nan(value: float) -> float | None:
    """Return None, which is null in a table, for a NaN."""
    return None if math.isnan(value) else value


def round_batch(segment: Segment) -> pa.RecordBatch:
    """Return the rows of a segment for the table of rounds."""
    return pa.RecordBatch.from_pylist([round_row(record, segment) for record in segment.rounds], schema=ROUND_SCHEMA)


def round_row(record: Round, segment: Segment) -> dict[str, Any]:
    """Return a round as a row; fields that only a round at a barrier has are null for a single agent's exchange."""
    everyone = record.agent is None
    return {
        "iteration": record.iteration,
        "epoch_length": record.length,
        "triggered": list(record.triggered),
        "measure": none_if_nan(record.measure),
        "threshold": none_if_nan(record.level),
        **asdict(record.cost),
        "weight": float(segment.trace.alpha[-1]) if everyone else None,
        **{name: none_if_nan(value) for name, value in record.quantities.items()},
        "seconds": segment.seconds if everyone else None,
        "agent": record.agent,
        "staleness": record.staleness,
        "participants": record.participants,
        "exchanges": record.exchanges,
        **(dict.fromkeys(TIMES) if record.times is None else asdict(record.times)),
        "dropped": None if record.dropped is None else list(record.dropped),
    }


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write a JSON file."""
    with atomic_write(path) as part:
        part.write_text(json.dumps(value, indent=2) + "\n")


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to, and move it to `path` at the end: a reader never finds a partial file.

    An earlier file is replaced, not overwritten, because it may be a link to a file elsewhere.
    """
    check_inside(path)
    part = path.with_name(f"{path.name}.part")
    with name_path_in_errors(path):
        part.unlink(missing_ok=True)
        yield part
        os.replace(part, path)


def write_config(directory: Path, config: Config) -> None:
    """Write a run's config.toml, from which `fnbandit run` repeats it."""
    with atomic_write(directory / CONFIG_FILE) as part:
        part.write_text(tomli_w.dumps(config.effective))


def write_summary(directory: Path, summary: dict[str, Any]) -> None:
    """Write a run's summary.json, with its version and a checksum."""
    body = {"version": SUMMARY_VERSION} | summary
    write_json(directory / SUMMARY_FILE, body | {"sha256": _seal(body)})


def _seal(summary: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(summary, sort_keys=True).encode()).hexdigest()


class RecordWriter:
    """An observer that appends segments to the two streams of a run, and converts them to Parquet at its end."""

    def __init__(self, directory: Path, detail: TraceDetail = "agents") -> None:
        self._directory, self._detail = directory, detail
        self.files: dict[str, str] = {}
        """Checksums of the tables of a finished run"""

    def begin(self, config: Config) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        self._expected = {"agents": config.horizon * config.honest_agents, "mean": config.horizon, "none": 0}[
            self._detail
        ]
        trace, rounds = (self._directory / name for name in STREAM_FILES)
        self._trace, self._rounds = RecordStream(trace, TRACE_SCHEMA), RecordStream(rounds, ROUND_SCHEMA)

    def segment(self, segment: Segment) -> None:
        if self._detail != "none":
            self._trace.write(trace_batch(segment, self._detail))
        if segment.rounds:
            self._rounds.write(round_batch(segment))

    def end(self, status: Status) -> None:
        """Close the streams; where the run is finished, replace them by Parquet files.

        Raises SimulationError if a row of the run is not on disk.
        """
        self._trace.close()
        self._rounds.close()
        if status != "finished":
            return
        for stream, count in ((self._trace, self._expected), (self._rounds, self._rounds.rows)):
            table = read_stream(stream.path)
            if len(table) != count:
                raise SimulationError(
                    f"{stream.path}: has {len(table)} rows, expected {count}; the run is not finished"
                )
            path = stream.path.with_suffix(".parquet")
            with atomic_write(path) as part:
                pa.parquet.write_table(table, part, compression="zstd", write_page_checksum=True)
                self.files[path.name] = file_digest(part)
        for stream in (self._trace, self._rounds):
            stream.path.unlink()  # checked when it was made


class RecordStream:
    """An Arrow IPC stream on disk; the metadata of a batch contain a checksum of it and of all batches before it."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        check_inside(path)
        self.path, self.rows, self._checksum = path, 0, 0
        with name_path_in_errors(path):
            path.unlink(missing_ok=True)
            self._stream = pa.ipc.new_stream(pa.OSFile(str(path), "wb"), schema)

    def write(self, batch: pa.RecordBatch) -> None:
        self._checksum = zlib.crc32(batch.serialize(), self._checksum)
        self.rows += len(batch)
        with name_path_in_errors(self.path):
            self._stream.write_batch(batch, custom_metadata={"crc32": str(self._checksum)})

    def close(self) -> None:
        with name_path_in_errors(self.path):
            self._stream.close()


@contextmanager
def name_path_in_errors(path: Path) -> Iterator[None]:
    """Add the path to errors of the file system; pyarrow's errors lack it."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise OSError(f"{path}: {error}") from None
        raise OSError(error.errno, os.strerror(error.errno), str(path)) from None


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_stream(path: Path) -> pa.Table:
    """Read the complete batches of a stream up to the first position where it is truncated or altered."""
    schema = TRACE_SCHEMA if path.name.startswith("trace") else ROUND_SCHEMA
    batches: list[pa.RecordBatch] = []
    source = pa.BufferReader(path.read_bytes() if path.exists() else b"")
    checksum = 0
    try:
        with pa.ipc.open_stream(source) as reader:
            if not reader.schema.equals(schema, check_metadata=True):
                raise pa.ArrowInvalid("the schema does not match")
            while True:
                batch, metadata = reader.read_next_batch_with_custom_metadata()
                batch.validate(full=True)
                checksum = zlib.crc32(batch.serialize(), checksum)
                if (metadata or {}).get("crc32") != str(checksum).encode():
                    raise pa.ArrowInvalid("the checksum does not match")
                batches.append(batch)
    except StopIteration:
        whole = source.tell() == source.size()
    except (pa.ArrowException, OSError, ValueError):
        # The bytes are in memory, so any error is an error in them.
        whole = source.size() == 0
    if not whole:
        rows = sum(len(batch) for batch in batches)
        log.warning("fnbandit: %s: is truncated or damaged after %d complete rows; the rest is ignored", path, rows)
    return pa.Table.from_batches(batches, schema)


class MissingTable(ValueError):  # noqa: N818
    """Raised where a table of a finished run is missing."""


@dataclass(frozen=True, eq=False, repr=False)
class RunRecord:
    """A run as read from disk; `result` is what `simulate` returned."""

    directory: Path
    summary: dict[str, Any]
    trace: pa.Table
    """Columns of TRACE_SCHEMA"""
    rounds: pa.Table
    """Columns of ROUND_SCHEMA"""

    @property
    def finished(self) -> bool:
        return self.summary["status"] == "finished"

    @functools.cached_property
    def result(self) -> Result:
        """The run as a Result. ValueError where only means over the agents were recorded (`--trace mean`)."""
        from fnbandit.storage.save import result_of

        return result_of(self)

    def plot(self, name: str = "regret") -> Any:
        """Draw a matplotlib figure of the run by name."""
        return load_hook("plot")([self], name)

    def __repr__(self) -> str:
        return "\n  ".join([f"{self.directory}: {self._title}", *(f"{k:<18} {v}" for k, v in self._totals().items())])

    def _repr_html_(self) -> str:
        return html_table(self._totals().items(), title=f"{self.directory}: {self._title}")

    @property
    def _title(self) -> str:
        config = self.summary["config"]
        return f"{config['algorithm']} on {config['environment']}, N = {config['agents']}, {self.summary['status']}"

    def _totals(self) -> dict[str, Any]:
        names = ("regret", "rounds", "bytes_up", "bytes_down", "iterations", "seconds")
        return {name: self.summary.get(name) for name in names}


def read_run(directory: str | Path) -> RunRecord:
    """Read the tables and the summary of one run, finished or not; raise a one-line ValueError if damaged."""
    directory = Path(directory)
    summary = read_summary(directory)
    return RunRecord(directory, summary, _table(directory, "trace", summary), _table(directory, "rounds", summary))


def read_summary(directory: Path) -> dict[str, Any]:
    """Read and check a run's summary.json."""
    path = directory / SUMMARY_FILE
    try:
        summary = json.loads(path.read_text())
        if not isinstance(summary, dict):
            raise ValueError("expected an object")
        if summary.get("version") != SUMMARY_VERSION:
            raise ValueError(f"version {summary.get('version')!r}, this program reads {SUMMARY_VERSION}")
        checksum = summary.pop("sha256", None)
        if checksum != _seal(summary):
            raise ValueError("its checksum does not match")
        for name, kind in SUMMARY.items():
            if not isinstance(summary.get(name), kind):
                raise ValueError(f"{name}={summary.get(name)!r}")
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(f"{directory}: not a run: {SUMMARY_FILE} is missing") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: is damaged ({error})") from None
    return summary


def _table(directory: Path, name: str, summary: dict[str, Any]) -> pa.Table:
    path = directory / f"{name}.parquet"
    if summary["status"] != "finished":
        # A run that stopped during its last step may already have one of the Parquet files.
        return _parquet(path) if path.exists() else read_stream(path.with_suffix(".arrows"))
    if not path.exists():
        raise MissingTable(f"{path}: is missing, although the run is finished; `resume` of its study runs it again")
    if file_digest(path) != summary["files"][path.name]:
        raise ValueError(f"{path}: is damaged (its checksum does not match)")
    return _parquet(path)


def _parquet(path: Path) -> pa.Table:
    try:
        return pa.parquet.read_table(path, partitioning=None, page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path}: is damaged ({error})") from None


def find_runs(directory: str | Path) -> list[Path]:
    """Find the folders of all runs in a folder, numbers by size; the folder itself if it is a run."""
    return sorted((path.parent for path in Path(directory).rglob(SUMMARY_FILE)), key=sort_key)
