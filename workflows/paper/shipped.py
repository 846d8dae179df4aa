"""The results shipped with the experiments: the config, totals and thinned curve of every run.

experiments/results/NAME.parquet has a row per run (SCHEMA). `read_kept` returns them as records for figures and
tables, with a thinned trace and without rounds.
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
from fnbandit.storage.files import SUMMARY_FILE
from fnbandit.storage.records import ROUND_SCHEMA, TRACE_SCHEMA, RunRecord, atomic_write, read_run, read_summary
from workflows.reporting.curves import Total
from workflows.reporting.grouping import curve, effective, group, read_total
from workflows.reporting.routing_figure import measure_second_half
from workflows.studies.experiments import EXPERIMENT_FOLDER
from workflows.studies.study import RunSpec, StudyPlan

RESULTS: Traversable = EXPERIMENT_FOLDER / "results"
SHIPPED_POINTS = 150
"""Maximum number of points of a curve"""
SHIPPED_TOTALS = ("regret", "regret_standard_error", "rounds", "exchanges", "messages_up", "messages_down", "bytes_up",
          "bytes_down", "iterations", "seconds")  # fmt: skip
FACTS = ("commit", "machine", "layout")
SCHEMA = pa.schema(
    [
        ("label", pa.string()),
        ("published", pa.float64()),
        ("config", pa.string()),
        *((name, pa.float64() if name in ("regret", "regret_standard_error", "seconds") else pa.int64())
          for name in SHIPPED_TOTALS),
        *((name, pa.string()) for name in FACTS),
        ("versions", pa.string()),
        ("curve_iterations", pa.list_(pa.int32())),
        ("curve", pa.list_(pa.float32())),
        ("late_reward", pa.float64()),
        ("late_pulls", pa.list_(pa.int32())),
    ],
    metadata={"fnbandit.simulation.results": "1"},
)  # fmt: skip
"""config and versions are JSON; curve is the cumulative regret per agent after each of curve_iterations; late_ is
`measure_second_half`, null in older rows"""


def keep(study: StudyPlan) -> tuple[Path, int]:
    """Write the curves of a study whose runs are all finished or shipped; return the path and the number of others.

    A finished run of the study replaces the shipped one.
    """
    shipped, rows, waiting = read_shipped_rows(), dict[str | None, list[dict[str, Any]]](), Counter[str | None]()
    for point in study.points:
        folder = study.directory / point.path
        if (folder / SUMMARY_FILE).exists() and read_summary(folder)["status"] == "finished":
            row = summarize_run(read_run(folder), point)
        elif (known := shipped.get(_key(point.config))) is not None:
            row = known | {"label": point.label, "published": point.published}
        else:
            waiting[point.label] += 1
            continue
        rows.setdefault(point.label, []).append(row)
    whole = [row for label, members in rows.items() if label not in waiting for row in members]
    if not whole:
        raise ValueError(
            f"{study.directory}: {waiting.total()} of {len(study.points)} runs are not finished; nothing is written"
        )
    path = Path(str(RESULTS / f"{study.name}.parquet"))
    path.parent.mkdir(exist_ok=True)
    table = pa.Table.from_pylist(whole, SCHEMA)
    words = [field.name for field in SCHEMA if field.type == pa.string()]
    with atomic_write(path) as part:
        pa.parquet.write_table(table, part, compression="zstd", compression_level=19, use_dictionary=words,
                               use_byte_stream_split=["curve.list.element"], write_statistics=False)  # fmt: skip
    return path, len(waiting)


def sum_shipped(name: str) -> float | None:
    """Return the seconds of all shipped runs of an experiment; None where none are shipped."""
    path = Path(str(RESULTS / f"{name}.parquet"))
    return (
        float(sum(pa.parquet.read_table(path, columns=["seconds"])["seconds"].to_pylist())) if path.exists() else None
    )


def without_shipped(study: StudyPlan) -> StudyPlan:
    """Return the study without the runs that have shipped results, of this or of another experiment."""
    shipped = read_shipped_rows()
    return dataclasses.replace(study, points=[p for p in study.points if _key(p.config) not in shipped])


def read_shipped_rows() -> dict[str, dict[str, Any]]:
    """Return all shipped runs, as rows of SCHEMA, by the key of their config."""
    return {_canonicalize(json.loads(row["config"])): row for name in list_shipped() for row in _rows(name)[1]}


def _key(config: Config) -> str:
    return _canonicalize(dataclasses.asdict(theory.resolve(config, make_environment(config))))


def _canonicalize(config: dict[str, Any]) -> str:
    """Return a key of the run that a stored config describes: its seed, and the fields that affect it.

    A default that changes, or a field that is added, leaves the keys of the runs that it does not affect.
    """
    whole = dataclasses.asdict(Config.from_record(config))
    return json.dumps(effective(whole) | {"seed": whole["seed"]}, sort_keys=True)


def summarize_run(run: RunRecord, point: RunSpec) -> dict[str, Any]:
    """Convert a finished run to a row of SCHEMA."""
    iterations, regret = curve(run)
    chosen = np.unique(np.linspace(0, len(regret) - 1, min(len(regret), SHIPPED_POINTS)).round().astype(int))
    summary = run.summary
    return {
        "label": point.label,
        "published": point.published,
        "config": json.dumps(summary["config"]),
        "versions": json.dumps(summary["versions"]),
        **{name: summary[name] for name in SHIPPED_TOTALS if name != "exchanges"},
        "exchanges": int(read_total(summary, "exchanges")),
        **{name: summary.get(name, "unknown") for name in FACTS},
        "curve_iterations": iterations[chosen],
        "curve": regret[chosen],
        **measure_second_half(run),
    }


def list_shipped() -> list[str]:
    """Return the names of the experiments with shipped results."""
    if not RESULTS.is_dir():
        return []
    return sorted(item.name.removesuffix(".parquet") for item in RESULTS.iterdir() if item.name.endswith(".parquet"))


def read_kept(name: str) -> list[RunRecord]:
    """Return the shipped runs of an experiment; empty where it has no results."""
    if name not in list_shipped():
        return []
    path, rows = _rows(name)
    return [restore_record(path, row) for row in rows]


def _rows(name: str) -> tuple[Path, list[dict[str, Any]]]:
    path = Path(str(RESULTS / f"{name}.parquet"))
    try:
        return path, pa.parquet.read_table(path, schema=SCHEMA, partitioning=None).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path}: is damaged ({error})") from None


def restore_record(path: Path, row: dict[str, Any]) -> RunRecord:
    """Convert a row to the record of a finished run, with `published` in its summary."""
    config = json.loads(row["config"])
    summary = {name: row[name] for name in ("label", "published", *SHIPPED_TOTALS, *FACTS, "late_reward", "late_pulls")}
    if summary["exchanges"] is None:  # shipped without; older runs have one in a round
        summary["exchanges"] = math.nan if "federation" in config else summary["rounds"]
    summary |= {"status": "finished", "config": config, "seed": config["seed"], "versions": json.loads(row["versions"])}
    steps = np.diff(row["curve"], prepend=0.0)
    columns = {"iteration": row["curve_iterations"], "regret": steps}
    empty = pa.nulls(len(steps))
    trace = pa.table({name: columns.get(name, empty) for name in TRACE_SCHEMA.names}).cast(TRACE_SCHEMA)
    return RunRecord(path, summary, trace, ROUND_SCHEMA.empty_table())


def read_published_values(runs: list[RunRecord]) -> dict[str, float]:
    """Return the published final regrets by label, where there are any."""
    return {run.summary["label"]: value for run in runs if (value := run.summary["published"]) is not None}


@dataclass(frozen=True)
class Difference:
    """A curve's fresh runs against the shipped ones of the same seeds."""

    label: str
    shipped: Total
    fresh: Total
    same: bool
    """True where regret and rounds of every seed have the same bits"""

    @property
    def errors(self) -> float:
        """Difference of the means, in its standard errors."""
        error = math.hypot(self.shipped.error, self.fresh.error)
        gap = abs(self.fresh.mean - self.shipped.mean)
        return gap / error if error else 0.0 if gap == 0 else math.inf

    def describe(self) -> str:
        """Describe the difference in words."""
        if self.same:
            return "same bits"
        gap = f"{self.fresh.mean - self.shipped.mean:+.2f}, {self.errors:.1f} standard errors"
        return f"{'within the error' if self.errors <= 2 else 'outside'}: {gap}"


def compare_shipped(name: str, runs: Sequence[RunRecord]) -> list[Difference]:
    """Compare all curves of an experiment that have shipped and fresh results."""
    found = []
    shipped = group(read_kept(name))
    for label, fresh in group([run for run in runs if run.finished]).items():
        keys = {_canonicalize(run.summary["config"]): run for run in shipped.get(label, [])}
        pairs = [(keys[key], run) for run in fresh if (key := _canonicalize(run.summary["config"])) in keys]
        if pairs:
            same = all(a.summary[total] == b.summary[total] for a, b in pairs for total in ("regret", "rounds"))
            before, now = (Total.of([pair[side] for pair in pairs], ["regret"]) for side in (0, 1))
            found.append(Difference(label, before, now, same))
    return found


def compare(study: StudyPlan, console: Console) -> None:
    """Print a table of an experiment's results beside the shipped ones, if there are any."""
    folders = [study.directory / point.path for point in study.points]
    found = compare_shipped(study.name, [read_run(path) for path in folders if (path / SUMMARY_FILE).exists()])
    if not found:
        return
    table = Table(title="Beside the shipped results", title_justify="left")
    for heading in ("curve", "shipped", "here", "same seeds"):
        table.add_column(heading, justify="left" if heading == "curve" else "right")
    for one in found:
        cells = [f"{total.mean:.2f} ± {total.error:.2f}" for total in (one.shipped, one.fresh)]
        table.add_row(one.label, *cells, one.describe())
    console.print(table)
