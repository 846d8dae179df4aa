"""The commands that compare folders of runs, and remove them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from fnbandit.config.fields import settings
from fnbandit.config.words import count_things
from fnbandit.storage.files import CLEARED_FILES, STUDY_FILE, SUMMARY_FILE, check_inside
from workflows.command_line.flags import Positional, parse
from workflows.command_line.inspection import print_json
from workflows.execution.failures import DONE
from workflows.terminal.output import console

if TYPE_CHECKING:
    from fnbandit.storage.records import RunRecord

COMPARED_TOTALS = ("regret", "rounds", "messages_up", "messages_down", "bytes_up", "bytes_down", "seconds")


@settings
class CompareArguments:
    """Compares two runs, or two studies run by run: the fields in which they differ, and what came of them."""

    one: Positional[Path]
    """A run or a study."""
    other: Positional[Path]
    """Another one; of studies, the runs with the same folder below both are compared."""
    json: bool = False
    """As JSON, for scripts."""


def compare_folders(argv: Sequence[str]) -> int:
    """Compare two runs or studies."""
    from fnbandit.storage.records import find_runs, read_run

    arguments = parse(CompareArguments, "fnbandit compare", argv)
    sides: list[dict[str, RunRecord]] = []
    for folder in (arguments.one, arguments.other):
        runs = {path.relative_to(folder).as_posix(): read_run(path) for path in find_runs(folder)}
        if not runs:
            raise ValueError(f"{folder}: has no run")
        sides.append(runs)
    common = [path for path in sides[0] if path in sides[1]]
    if not common:
        raise ValueError(f"{arguments.one}, {arguments.other}: no run is in both, by its folder below them")
    pairs = {path: _compare_runs(sides[0][path], sides[1][path]) for path in common}
    alone = [sorted(sides[place].keys() - sides[1 - place].keys()) for place in (0, 1)]
    names = (str(arguments.one), str(arguments.other))
    if arguments.json:
        print_json({"runs": pairs, "alone": dict(zip(names, alone, strict=True))})
        return DONE
    for path, pair in pairs.items():
        table = Table("", *names, title=None if path == "." else path, title_justify="left")
        for name, (one, other) in pair.items():
            table.add_row(name, _text(one), _text(other))
        console().print(table)
    for name, paths in zip(names, alone, strict=True):
        if paths:
            console().print(f"only in {name}: {', '.join(paths)}", soft_wrap=True)
    return DONE


def _compare_runs(one: RunRecord, other: RunRecord) -> dict[str, list[Any]]:
    """Return the fields and facts that differ, and all totals, each with both values."""
    configs, found = (one.summary["config"], other.summary["config"]), {}
    for name in dict.fromkeys([*configs[0], *configs[1]]):
        values = [config.get(name) for config in configs]
        if values[0] != values[1]:
            found[name] = values
    for name in ("status", "engine", "layout", "device", "commit"):
        values = [record.summary.get(name) for record in (one, other)]
        if values[0] != values[1]:
            found[name] = values
    found["same choices"] = [one.trace.equals(other.trace)] * 2
    return found | {name: [record.summary.get(name) for record in (one, other)] for name in COMPARED_TOTALS}


def _text(value: Any) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if type(value) is int else str(value)


@settings
class RmArguments:
    """Removes runs and studies: the files that fnbandit wrote, and folders that are empty then."""

    directories: Positional[tuple[Path, ...]] = ()
    """Folders of a run or a study."""


def rm(argv: Sequence[str]) -> int:
    """Remove runs and studies; files of others stay."""
    from workflows.studies.locks import locked

    folders = parse(RmArguments, "fnbandit rm", argv).directories
    if not folders:
        raise ValueError("rm: expected the folder of a run or a study")
    for folder in folders:
        if not (folder / STUDY_FILE).exists() and not (folder / SUMMARY_FILE).exists():
            raise ValueError(f"{folder}: not a run or a study; `fnbandit ls {folder}` lists its content")
    for folder in folders:
        with locked(folder):
            _remove(folder)
        left = _prune(folder)
        rest = f": {count_things(left, 'other file')} stay{'s' if left == 1 else ''}" if left else ""
        console().print(f"removed  {folder}{rest}", soft_wrap=True)
    return DONE


def _remove(folder: Path) -> None:
    from workflows.studies.extension import clear, is_drawn
    from workflows.studies.settings import Settings
    from workflows.studies.study import load_study

    if (folder / STUDY_FILE).exists():
        clear(load_study(folder), Settings())  # of checkpoints, only those beside the records
        return
    drawn = [path for path in folder.glob("figures/*.p[nd][gf]") if is_drawn(path)]
    for path in [*drawn, *(folder / name for name in CLEARED_FILES)]:
        check_inside(path)
        path.unlink(missing_ok=True)


def _prune(folder: Path) -> int:
    """Remove empty folders from the leaves up; return the number of files that are left."""
    below = [path for path in folder.rglob("*") if path.is_dir() and not path.is_symlink()]
    for path in [*sorted(below, reverse=True), folder]:
        with suppress(OSError):
            path.rmdir()
    return sum(path.is_file() for path in folder.rglob("*")) if folder.exists() else 0
