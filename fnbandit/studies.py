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
from fnbandit.records import ROUNDS, TRACE, RunRecord, find_runs, read_run, read_summary
from fnbandit.registry import service

if TYPE_CHECKING:
    import pyarrow.dataset

TOTALS = ("regret", "regret_standard_error", "rounds", "messages_up", "messages_down", "bytes_up", "bytes_down",
          "iterations", "seconds")  # fmt: skip


@dataclass(frozen=True)
class StudyRecord:
    """The runs of a folder as they stand on disk; tables and figures are of those that are finished."""

    directory: Path

    @cached_property
    def runs(self) -> list[RunRecord]:
        """All runs, sorted by folder."""
        return [read_run(path) for path in find_runs(self.directory)]

    @property
    def finished(self) -> list[RunRecord]:
        return [run for run in self.runs if run.finished]

    def __repr__(self) -> str:
        varied = ", ".join(f"{name} = {_few(values)}" for name, values in self._varied().items())
        return f"{self.directory}: {len(self.finished)} of {len(self.runs)} runs finished{f'; {varied}' * bool(varied)}"

    def _varied(self) -> dict[str, list[Any]]:
        """The fields in which the finished runs differ with all runs' values, and their labels where they have any."""
        configs = [run.summary["config"] for run in self.finished]
        columns = {name: [config.get(name) for config in configs] for name in FIELDS}
        varied = {name: values for name, values in columns.items() if len(set(map(repr, values))) > 1}
        labels = [run.summary.get("label") for run in self.finished]
        return ({"label": labels} if any(labels) else {}) | varied | {"seed": columns["seed"]}

    def finals(self) -> pa.Table:
        """A row per run: every field that differs, the seed, and its totals; regret is the mean over agents."""
        totals = {name: [run.summary[name] for run in self.finished] for name in TOTALS}
        return pa.table({name: typed(values) for name, values in (self._varied() | totals).items()})

    def frame(self) -> pa.Table:
        """A row per run and iteration: every field that differs, the seed, the iteration, regret, cumulative_regret.

        Regret is the mean over agents. The table is Arrow's: `.to_pandas()`, `polars.from_arrow(...)`.
        """
        varied, tables = self._varied(), []
        columns = {name: typed(values) for name, values in varied.items()}
        for place, run in enumerate(self.finished):
            iterations = run.trace.column("iteration").to_numpy()
            counts = np.bincount(iterations)
            there = np.flatnonzero(counts)
            regret = np.bincount(iterations, run.trace.column("regret").to_numpy())[there] / counts[there]
            fields = {name: pa.repeat(column[place], len(there)) for name, column in columns.items()}
            measured = {
                "iteration": pa.array(there, pa.int32()),
                "regret": regret,
                "cumulative_regret": regret.cumsum(),
            }
            tables.append(pa.table(fields | measured))
        return pa.concat_tables(tables)

    def plot(self, name: str = "regret") -> Any:
        """One of the study's figures, a matplotlib Figure: "regret", "regret against N", "bytes against regret"."""
        return service("plot")(self.finished, name)


def load(directory: str | Path) -> StudyRecord:
    """The runs of a folder: of a run, a sweep, a figure, or several of them."""
    study = StudyRecord(Path(directory))
    if not find_runs(directory):
        raise ValueError(f"{directory}: has no run")
    return study


def read_sweep(directory: str | Path, table: Literal["trace", "rounds"] = "trace") -> pyarrow.dataset.Dataset:
    """All finished runs of a folder as one data set, with the folders' key=value as columns."""
    from pyarrow import dataset  # Here, because it brings pandas.

    directory = Path(directory)
    files = sorted(directory.rglob(f"{table}.parquet"))
    if not files:
        raise ValueError(f"{directory}: has no finished run")
    parts = [_partition(path.parent, directory) for path in files]
    schema = {"trace": TRACE, "rounds": ROUNDS}[table]
    names = [name for name in dict.fromkeys(name for part in parts for name in part) if name not in schema.names]
    columns = {name: typed([part.get(name) for part in parts]) for name in names}
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
    """A run's key=value folders, with values as its config has them: of their types, 'theory' as its number."""
    config = read_summary(run)["config"]
    pairs = [part.partition("=") for part in run.relative_to(base).parts]
    return {name: config.get(name, unquote(text)) for name, equals, text in pairs if equals}


def typed(values: Sequence[Any]) -> pa.Array:
    """A column of a config field's values: as they are, or as texts where numbers and words meet."""
    words = any(isinstance(value, str) for value in values)
    return pa.array([str(value) if words and value is not None else value for value in values])


def _few(values: Sequence[Any]) -> str:
    found = list(dict.fromkeys(values))
    return ", ".join(map(str, found)) if len(found) < 6 else f"{found[0]} ... {found[-1]} ({len(found)} values)"
