"""Lists and describes the runs in a folder, from their summaries alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from fnbandit.config.registry import is_table
from fnbandit.storage.files import LOG_FILE, STUDY_FILE, SUMMARY_FILE
from fnbandit.storage.locations import sort_key
from fnbandit.storage.records import ROUND_SCHEMA, TRACE_SCHEMA, RunRecord, read_summary
from workflows.reporting.grouping import effective, read_total
from workflows.reporting.naming import rank
from workflows.reporting.tables import HEADINGS, TABLE_TOTALS, columns_of, pivot, rows, totals
from workflows.studies.locks import is_locked
from workflows.studies.study import load_study

NO_TABLES = (TRACE_SCHEMA.empty_table(), ROUND_SCHEMA.empty_table())
"""In place of the tables of a run whose summary suffices"""


COLUMNS = ("", "status", "task", "algorithm", "N", "T", "D", "seed", "regret", "rounds", "exchanges", "when")
"""Headings of `ListingRow.cells`"""


@dataclass(frozen=True)
class ListingRow:
    """A run, or a study of several runs, with the values of all its runs; lists are as long as there are values."""

    path: str
    status: str
    runs: int
    environment: list[str]
    algorithm: list[str]
    agents: list[int]
    horizon: list[int]
    threshold: list[float]
    """Empty where no trigger reads it"""
    seed: list[int]
    regret: list[float]
    """Of the finished runs, or of those that have records if none is finished; empty before the first record"""
    rounds: list[int]
    exchanges: list[int]
    when: str

    def cells(self) -> list[str]:
        """Return the cells of a table row."""
        tasks = [Path(name).stem if is_table(name) else name for name in self.environment]
        # Agents that do not wait for others have exchanges only.
        rounds = [count for count, alone in zip(self.rounds, self.exchanges, strict=True) if count or not alone]
        numbers = [_range(values) for values in (self.agents, self.horizon, self.threshold, self.seed)]
        cells = [self.path, self.status, _range(tasks), _range(self.algorithm), *numbers]
        return [*cells, _range(self.regret, ".2f"), _range(rounds), _range(self.exchanges), self.when]


def _range(values: list[Any], form: str = "") -> str:
    """Format fewer than four values as a list, more as the first and the last; of words, the number of the others."""
    form = form or (".4g" if any(isinstance(value, float) for value in values) else "")
    few = len(set(values)) < 4 and form != ".2f"
    found = [format(value, form) for value in sorted(set(values), key=rank)]
    if not few and isinstance(values[0], str):
        return f"{found[0]} and {len(found) - 1} more"
    return ",".join(found) if few else " to ".join(dict.fromkeys([*found[:1], *found[-1:]]))


def summaries(directory: Path) -> dict[Path, dict[str, Any]]:
    """Return the summary of every run in a folder; {"status": "damaged"} for an unreadable one."""
    found = {}
    for path in sorted(directory.rglob(SUMMARY_FILE), key=sort_key):
        try:
            summary = read_summary(path.parent)
        except ValueError:
            summary = {"status": "damaged"}
        found[path.parent] = summary | {"status": find_status(path.parent, summary["status"])}
    return found


def find_status(directory: Path, status: str) -> str:
    """Return the status of a run's summary, but "stopped" where its process ended without updating the summary."""
    is_held = status == "running" and any(is_locked(folder) for folder in (directory, *directory.parents))
    return "stopped" if status == "running" and not is_held else status


def list_folder(directory: Path) -> list[ListingRow]:
    """Return a row per study in a folder, the latest last; in a study's folder, a row per run."""
    runs = summaries(directory)
    if (directory / STUDY_FILE).exists():
        return [_row(str(path.relative_to(directory)), {path: summary}, 1) for path, summary in runs.items()]
    rows: list[tuple[float, ListingRow]] = []
    studies = sorted(path.parent for path in directory.rglob(STUDY_FILE))
    for study in studies:
        members = {path: summary for path, summary in runs.items() if path.is_relative_to(study)}
        try:
            count = len(load_study(study).points)
        except ValueError:
            count = max(1, len(members))
        rows.append((_time(members or [study]), _row(str(study.relative_to(directory)), members, count)))
    for path, summary in runs.items():
        if not any(path.is_relative_to(study) for study in studies):
            rows.append((_time([path]), _row(str(path.relative_to(directory)), {path: summary}, 1)))
    return [row for _, row in sorted(rows, key=lambda pair: pair[0])]


def _time(folders: Iterable[Path]) -> float:
    files = [file for folder in folders for file in (folder / SUMMARY_FILE, folder / STUDY_FILE) if file.exists()]
    return max((file.stat().st_mtime for file in files), default=0.0)


def _row(path: str, members: dict[Path, dict[str, Any]], count: int) -> ListingRow:
    good = [summary for summary in members.values() if "config" in summary]
    configs = [summary["config"] for summary in good]
    finished = [summary for summary in good if summary["status"] == "finished"]
    recorded = finished or [summary for summary in good if summary["iterations"]]
    with_threshold = [config for config in configs if "threshold" in effective(config)]
    when = _time(members)
    return ListingRow(
        path=path,
        status=status_of([summary["status"] for summary in members.values()], count),
        runs=count,
        environment=_values(configs, "environment"),
        algorithm=_values(configs, "algorithm"),
        agents=_values(configs, "agents"),
        horizon=_values(configs, "horizon"),
        threshold=_values(with_threshold, "threshold"),
        seed=_values(configs, "seed"),
        regret=[summary["regret"] for summary in recorded],
        rounds=[int(read_total(summary, "rounds")) for summary in recorded],
        exchanges=[int(read_total(summary, "exchanges")) for summary in recorded],
        when=datetime.fromtimestamp(when).isoformat(" ", "minutes") if when else "",
    )


def _values(configs: list[dict[str, Any]], name: str) -> list[Any]:
    return list(dict.fromkeys(config[name] for config in configs))


def status_of(statuses: list[str], count: int) -> str:
    """Return the status of one run; of several, the number of finished runs, and of each other status."""
    if count == 1:
        return statuses[0] if statuses else "not begun"
    finished = statuses.count("finished")
    if finished == count:
        return "finished"
    others = [f"{statuses.count(name)} {name}" for name in dict.fromkeys(statuses) if name != "finished"]
    return ", ".join([f"{finished} of {count} finished", *others])


def description(directory: Path) -> dict[str, Any]:
    """Return the content of `fnbandit show` for a run or a study."""
    found = summaries(directory)
    if directory in found and len(found) == 1:
        return _run(directory, found[directory])
    if not (directory / STUDY_FILE).exists():
        raise ValueError(f"{directory}: not a run or a study; `fnbandit ls {directory}` lists its content")
    study = load_study(directory)
    row = _row(str(directory), found, len(study.points))
    failed = {
        str(path.relative_to(directory)): _last_error(path) for path, s in found.items() if s["status"] == "failed"
    }
    finished = [RunRecord(path, s, *NO_TABLES) for path, s in found.items() if s["status"] == "finished"]
    return {
        "study": study.name,
        "title": study.title,
        "folder": str(directory),
        **{name: value for name, value in asdict(row).items() if name not in ("path", "runs")},
        "failed": failed,
        "rows": totals(finished),
        "runs": [point.path for point in study.points],
    }


def study_table(directory: Path) -> tuple[list[str], list[list[str]]] | None:
    """Return headings and lines of a study's results: N by D where both vary, otherwise a line for each row."""
    found = rows(
        [RunRecord(path, s, *NO_TABLES) for path, s in summaries(directory).items() if s["status"] == "finished"]
    )
    if len(found) < 2:
        return None
    columns = columns_of(found)
    return pivot(found) or ([HEADINGS[name] for name in columns], [row.cells(columns) for row in found])


def describe_range(name: str, found: dict[str, Any]) -> str:
    """Return the values of a study's field or total in words."""
    return _range(found[name], ".2f" if name == "regret" else "")


def _run(directory: Path, summary: dict[str, Any]) -> dict[str, Any]:
    if "config" not in summary:
        raise ValueError(f"{directory / SUMMARY_FILE}: is damaged")
    names = ("engine", "layout", "device", "commit", "versions")
    config = {name: value for name, value in summary["config"].items() if value is not None}
    (row,) = rows([RunRecord(directory, summary, *NO_TABLES)])
    # Before its first record a run has no totals.
    recorded = {name: getattr(row, name) if summary["iterations"] else None for name in ("regret", *TABLE_TOTALS)}
    return {
        "run": str(directory),
        "status": summary["status"],
        "error": _last_error(directory) if summary["status"] == "failed" else None,
        "iterations": summary["iterations"],
        "horizon": config["horizon"],
        **recorded,
        "regret_standard_error": row.error if summary["iterations"] else None,
        **{name: summary.get(name) for name in names},
        "when": datetime.fromtimestamp(_time([directory])).isoformat(" ", "minutes"),
        "config": config,
    }


def _last_error(directory: Path) -> str:
    """Return the last error line of a run's log."""
    try:
        lines = (directory / LOG_FILE).read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line for line in reversed(lines) if " ERROR " in line), "")
