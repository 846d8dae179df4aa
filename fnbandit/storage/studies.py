"""A folder of runs as tables: `fnbandit.load("runs/my-sweep")`."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
from pyarrow import fs

from fnbandit.config import FIELDS
from fnbandit.hooks import load_hook
from fnbandit.notebook import html_table
from fnbandit.storage.records import ROUND_SCHEMA, TRACE_SCHEMA, RunRecord, find_runs, read_run, read_summary

if TYPE_CHECKING:
    import pyarrow.dataset

RUN_TOTALS = ("regret", "regret_standard_error", "rounds", "exchanges", "messages_up", "messages_down", "bytes_up",
              "bytes_down", "iterations", "simulated_seconds", "seconds")  # fmt: skip


@dataclass(frozen=True)
class StudyRecord:
    """Runs of a folder, read from disk; tables and figures contain the finished ones."""

    directory: Path

    @cached_property
    def runs(self) -> list[RunRecord]:
        """All runs, sorted by folder."""
        return [read_run(path) for path in find_runs(self.directory)]

    @property
    def finished(self) -> list[RunRecord]:
        return [run for run in self.runs if run.finished]

    def __repr__(self) -> str:
        varied = ", ".join(f"{name} = {_abbreviate(values)}" for name, values in self._find_varied().items())
        return f"{self.directory}: {len(self.finished)} of {len(self.runs)} runs finished{f'; {varied}' * bool(varied)}"

    def _repr_html_(self) -> str:
        finals = self.finals() if self.finished else pa.table({})
        columns = [name for name in finals.column_names if name not in ("iterations", "seconds")]
        rows = zip(*(finals.column(name).to_pylist() for name in columns), strict=True)
        return html_table(rows, columns, f"{self.directory}: {len(self.finished)} of {len(self.runs)} runs finished")

    def _find_varied(self) -> dict[str, list[Any]]:
        """Return the finished runs' labels (if any), values of the fields in which they differ, and seeds, by name."""
        configs = [run.summary["config"] for run in self.finished]
        columns = {name: [config.get(name) for config in configs] for name in FIELDS}
        varied = {name: values for name, values in columns.items() if len(set(map(repr, values))) > 1}
        labels = [run.summary.get("label") for run in self.finished]
        return ({"label": labels} if any(labels) else {}) | varied | {"seed": columns["seed"]}

    def finals(self) -> pa.Table:
        """Return a row per run: every field that differs, the seed, and the totals; regret is the mean over agents.

        A run of one agent has no standard error; simulated seconds are there where runs have a clock.
        """
        totals = {name: [_total(run.summary, name) for run in self.finished] for name in RUN_TOTALS}
        if not any(seconds is not None for seconds in totals["simulated_seconds"]):
            del totals["simulated_seconds"]
        return pa.table({name: to_typed(values) for name, values in (self._find_varied() | totals).items()})

    def frame(self) -> pa.Table:
        """Return a row per run and iteration: fields that differ, seed, iteration, regret, cumulative_regret.

        Regret is the mean over agents. Convert the Arrow table by `.to_pandas()` or `polars.from_arrow(...)`.
        """
        varied, tables = self._find_varied(), []
        columns = {name: to_typed(values) for name, values in varied.items()}
        for index, run in enumerate(self.finished):
            iterations = run.trace.column("iteration").to_numpy()
            counts = np.bincount(iterations)
            present = np.flatnonzero(counts)
            regret = np.bincount(iterations, run.trace.column("regret").to_numpy())[present] / counts[present]
            fields = {name: pa.repeat(column[index], len(present)) for name, column in columns.items()}
            measured = {
                "iteration": pa.array(present, pa.int32()),
                "regret": regret,
                "cumulative_regret": regret.cumsum(),
            }
            tables.append(pa.table(fields | measured))
        return pa.concat_tables(tables)

    def plot(self, name: str = "regret") -> Any:
        """Draw a matplotlib Figure of the study: "regret", "regret against N", "bytes against regret"."""
        return load_hook("plot")(self.finished, name)


def _total(summary: dict[str, Any], name: str) -> Any:
    """Return a total of a run; None where it has none."""
    if name == "regret_standard_error" and summary["config"]["agents"] == 1:
        return None
    # Older summaries lack the exchanges, whose number was that of the rounds.
    return summary.get(name, summary["rounds"] if name == "exchanges" else None)


def load(directory: str | Path) -> StudyRecord:
    """Load the runs of a folder: of a run, a sweep, a figure, or several of them."""
    study = StudyRecord(Path(directory))
    if not find_runs(directory):
        raise ValueError(f"{directory}: has no run")
    return study


def read_sweep(directory: str | Path, table: Literal["trace", "rounds"] = "trace") -> pyarrow.dataset.Dataset:
    """Return all finished runs of a folder as one data set, with the key=value of folder names as columns."""
    from pyarrow import dataset  # here, because it imports pandas

    directory = Path(directory)
    files = sorted(directory.rglob(f"{table}.parquet"))
    if not files:
        raise ValueError(f"{directory}: has no finished run")
    parts = [_partition(path.parent, directory) for path in files]
    schema = {"trace": TRACE_SCHEMA, "rounds": ROUND_SCHEMA}[table]
    names = [name for name in dict.fromkeys(name for part in parts for name in part) if name not in schema.names]
    columns = {name: to_typed([part.get(name) for part in parts]) for name in names}
    expressions = []
    for place in range(len(files)):
        known = [dataset.field(name) == column[place] for name, column in columns.items()]
        known = [one for one, name in zip(known, columns, strict=True) if columns[name][place].is_valid]
        expressions.append(functools.reduce(operator.and_, known, dataset.scalar(True)))
    whole = pa.schema([*schema, *(pa.field(name, column.type) for name, column in columns.items())])
    return dataset.FileSystemDataset.from_paths(
        [str(path.resolve()) for path in files],
        schema=whole,
        format=dataset.ParquetFileFormat(),
        filesystem=fs.LocalFileSystem(),
        partitions=expressions,
    )


def _partition(run: Path, base: Path) -> dict[str, Any]:
    """Return the key=value pairs of a run's folders, with the typed values of its config ('theory' as its number)."""
    config = read_summary(run)["config"]
    pairs = [part.partition("=") for part in run.relative_to(base).parts]
    return {name: config.get(name, unquote(text)) for name, equals, text in pairs if equals}


def to_typed(values: Sequence[Any]) -> pa.Array:
    """Return a column of a config field's values; all become strings where some are."""
    words = any(isinstance(value, str) for value in values)
    return pa.array([str(value) if words and value is not None else value for value in values])


def _abbreviate(values: Sequence[Any]) -> str:
    found = list(dict.fromkeys(values))
    return ", ".join(map(str, found)) if len(found) < 6 else f"{found[0]} ... {found[-1]} ({len(found)} values)"
