"""The results that are shipped with the experiments: every run's config and totals, and its curve in few points.

experiments/results/NAME.parquet has a row per run (SCHEMA). `read_kept` gives them as the records that figures and
tables are made from, with a thinned trace and without rounds.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from rich.console import Console
from rich.table import Table

from fnbandit import theory
from fnbandit.config import Config
from fnbandit.environments import make_environment
from fnbandit.records import ROUNDS, TRACE, RunRecord, aside, read_run, read_summary
from workflows.curves import Total
from workflows.experiment_files import FOLDER
from workflows.grouping import curve, group
from workflows.study import Point, Study

RESULTS: Traversable = FOLDER / "results"
POINTS = 150
"""Points of a curve at most"""
TOTALS = ("regret", "regret_standard_error", "rounds", "messages_up", "messages_down", "bytes_up", "bytes_down",
          "iterations", "seconds")  # fmt: skip
FACTS = ("commit", "machine", "layout")
SCHEMA = pa.schema(
    [
        ("label", pa.string()),
        ("published", pa.float64()),
        ("config", pa.string()),
        *((name, pa.float64() if name in ("regret", "regret_standard_error", "seconds") else pa.int64())
          for name in TOTALS),
        *((name, pa.string()) for name in FACTS),
        ("versions", pa.string()),
        ("curve_iterations", pa.list_(pa.int32())),
        ("curve", pa.list_(pa.float32())),
    ],
    metadata={"fnbandit.results": "1"},
)  # fmt: skip
"""config and versions are JSON; the curve is the cumulative regret per agent after some iterations"""


def keep(study: Study) -> tuple[Path, int]:
    """Write the results of a study: curves all of whose runs are finished or shipped; how many are not, beside.

    A run of the study's own goes before one that is shipped.
    """
    shipped, rows, waiting = shipped_rows(), dict[str | None, list[dict[str, Any]]](), Counter[str | None]()
    for point in study.points:
        folder = study.directory / point.path
        if (folder / "summary.json").exists() and read_summary(folder)["status"] == "finished":
            row = kept_row(read_run(folder), point)
        elif (known := shipped.get(_key(point.config))) is not None:
            row = known | {"label": point.label, "published": point.published}
        else:
            waiting[point.label] += 1
            continue
        rows.setdefault(point.label, []).append(row)
    whole = [row for label, members in rows.items() if label not in waiting for row in members]
    if not whole:
        raise ValueError(
            f"{study.directory}: {waiting.total()} of {len(study.points)} runs are not finished; nothing is kept"
        )
    path = Path(str(RESULTS / f"{study.name}.parquet"))
    path.parent.mkdir(exist_ok=True)
    table = pa.Table.from_pylist(whole, SCHEMA)
    words = [field.name for field in SCHEMA if field.type == pa.string()]
    with aside(path) as part:
        pa.parquet.write_table(table, part, compression="zstd", compression_level=19, use_dictionary=words,
                               use_byte_stream_split=["curve.list.element"], write_statistics=False)  # fmt: skip
    return path, len(waiting)


def without_shipped(study: Study) -> Study:
    """What of a study has no results yet, with its own figure or with another one."""
    shipped = shipped_rows()
    return dataclasses.replace(study, points=[p for p in study.points if _key(p.config) not in shipped])


def shipped_rows() -> dict[str, dict[str, Any]]:
    """All runs that are shipped, as rows of SCHEMA, by their config."""
    return {_written(json.loads(row["config"])): row for name in kept_names() for row in _rows(name)[1]}


def _key(config: Config) -> str:
    return _written(dataclasses.asdict(theory.resolve(config, make_environment(config))))


def _written(config: dict[str, Any]) -> str:
    return json.dumps(config, sort_keys=True)


def kept_row(run: RunRecord, point: Point) -> dict[str, Any]:
    """A finished run as a row of SCHEMA."""
    iterations, regret = curve(run)
    chosen = np.unique(np.linspace(0, len(regret) - 1, min(len(regret), POINTS)).round().astype(int))
    summary = run.summary
    return {
        "label": point.label,
        "published": point.published,
        "config": json.dumps(summary["config"]),
        "versions": json.dumps(summary["versions"]),
        **{name: summary[name] for name in TOTALS},
        **{name: summary.get(name, "unknown") for name in FACTS},
        "curve_iterations": iterations[chosen],
        "curve": regret[chosen],
    }


def kept_names() -> list[str]:
    """The experiments with results."""
    if not RESULTS.is_dir():
        return []
    return sorted(item.name.removesuffix(".parquet") for item in RESULTS.iterdir() if item.name.endswith(".parquet"))


def read_kept(name: str) -> list[RunRecord]:
    """The runs of an experiment as they are shipped; none where it has no results."""
    if name not in kept_names():
        return []
    path, rows = _rows(name)
    return [kept_record(path, row) for row in rows]


def _rows(name: str) -> tuple[Path, list[dict[str, Any]]]:
    path = Path(str(RESULTS / f"{name}.parquet"))
    try:
        return path, pa.parquet.read_table(path, schema=SCHEMA, partitioning=None).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path}: is damaged ({error})") from None


def kept_record(path: Path, row: dict[str, Any]) -> RunRecord:
    """A row as the record of a finished run; `published` stands in its summary."""
    config = json.loads(row["config"])
    summary = {name: row[name] for name in ("label", "published", *TOTALS, *FACTS)}
    summary |= {"status": "finished", "config": config, "seed": config["seed"], "versions": json.loads(row["versions"])}
    steps = np.diff(row["curve"], prepend=0.0)
    columns = {"iteration": row["curve_iterations"], "regret": steps}
    empty = pa.nulls(len(steps))
    trace = pa.table({name: columns.get(name, empty) for name in TRACE.names}).cast(TRACE)
    return RunRecord(path, summary, trace, ROUNDS.empty_table())


def published_values(runs: list[RunRecord]) -> dict[str, float]:
    """The published final regret by label, where there is one."""
    return {run.summary["label"]: value for run in runs if (value := run.summary["published"]) is not None}


@dataclass(frozen=True)
class Difference:
    """A curve's fresh runs against those that are shipped, of the same seeds."""

    label: str
    shipped: Total
    fresh: Total
    same: bool
    """The same bits: every seed's regret and rounds"""

    @property
    def errors(self) -> float:
        """The difference of the means in standard errors of it."""
        error = math.hypot(self.shipped.error, self.fresh.error)
        gap = abs(self.fresh.mean - self.shipped.mean)
        return gap / error if error else 0.0 if gap == 0 else math.inf

    def said(self) -> str:
        """In words."""
        if self.same:
            return "same bits"
        gap = f"{self.fresh.mean - self.shipped.mean:+.2f}, {self.errors:.1f} standard errors"
        return f"{'within the error' if self.errors <= 2 else 'outside'}: {gap}"


def differences(name: str, runs: Sequence[RunRecord]) -> list[Difference]:
    """Of all curves of an experiment that have results, shipped and fresh."""
    found = []
    shipped = group(read_kept(name))
    for label, fresh in group([run for run in runs if run.finished]).items():
        pairs = [(a, b) for a in shipped.get(label, []) for b in fresh if a.summary["config"] == b.summary["config"]]
        if pairs:
            same = all(a.summary[total] == b.summary[total] for a, b in pairs for total in ("regret", "rounds"))
            before, now = (Total.of([pair[side] for pair in pairs], ["regret"]) for side in (0, 1))
            found.append(Difference(label, before, now, same))
    return found


def compare(study: Study, console: Console) -> None:
    """Say how the results of an experiment compare with those that are shipped, if there are any."""
    folders = [study.directory / point.path for point in study.points]
    found = differences(study.name, [read_run(path) for path in folders if (path / "summary.json").exists()])
    if not found:
        return
    table = Table(title="Beside the results that are shipped", title_justify="left")
    for heading in ("curve", "shipped", "here", "the same seeds"):
        table.add_column(heading, justify="left" if heading == "curve" else "right")
    for one in found:
        cells = [f"{total.mean:.2f} ± {total.error:.2f}" for total in (one.shipped, one.fresh)]
        table.add_row(one.label, *cells, one.said())
    console.print(table)
