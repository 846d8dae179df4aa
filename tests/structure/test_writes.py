"""Every function that writes or deletes a file checks that no link leads out of the study's folder."""

from __future__ import annotations

import ast

import pytest
from sources import modules

WRITERS = {"write_text", "write_bytes", "savefig", "write_table", "OSFile", "FileHandler", "unlink", "rmtree", "touch",
           "copyfile", "rmdir", "open_output_stream"}  # fmt: skip
CHECKS = {"check_inside", "atomic_write", "CheckpointStore"}
ELSEWHERE = {
    "actors.cluster.start_local": "Ray's own files",
    "workflows.execution.self_check": "a temporary folder",
    "workflows.tracking.mlflow_store.make_store": "a store that the user names",
    "workflows.studies.composition.claimed_folder": "a new empty folder",
    "workflows.studies.mirror": "reads the folder, and writes to a URI",
    "workflows.benchmarks": "no study",
    "workflows.examples": "the user's",
    "workflows.reporting.canvas.SheetFigure._repr_png_": "a buffer in memory",
    "workflows.command_line.housekeeping._prune": "deletes empty folders, not links",
    "fnbandit.storage.checkpoints.CheckpointStore": "checks in __init__ and _write",
    "fnbandit.storage.records.RecordWriter.end": "checks when a stream is made",
    "workflows.terminal.output.Output": "/dev/null",
    "workflows.tracking.jsonl_tracker.JsonlRun._write": "checks in __init__",
    "workflows.studies.locks": "checks in locked, opens with O_NOFOLLOW",
}
"""Places that write without a check of their own, and why"""


def find_writes(name, tree):
    """Yield functions of a module that write, and whether they check."""

    def visit(node, path):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                yield from visit(child, f"{path}.{child.name}")
            elif isinstance(child, ast.FunctionDef):
                calls = [n.func for n in ast.walk(child) if isinstance(n, ast.Call)]
                names = {n.attr if isinstance(n, ast.Attribute) else getattr(n, "id", "") for n in calls}
                modes = [str(getattr(a, "value", "")) for n in ast.walk(child) if isinstance(n, ast.Call)
                         if getattr(n.func, "attr", getattr(n.func, "id", "")) == "open"
                         for a in [*n.args, *(k.value for k in n.keywords)]]  # fmt: skip
                if names & WRITERS or {"w", "wb", "a", "ab"} & set(modes):
                    yield f"{path}.{child.name}", bool(names & CHECKS)

    yield from visit(tree, name)


def test_whatever_writes_checks_where():
    unchecked = [
        function
        for name, tree in modules().items()
        for function, checks in find_writes(name, tree)
        if not checks and not any(function.startswith(place) for place in ELSEWHERE)
    ]
    assert unchecked == []


@pytest.mark.parametrize("call", ["path.write_text('')", "open(path, 'w')", "path.open(mode='a')", "path.unlink()"])
def test_such_calls_are_seen(call):
    assert list(find_writes("m", ast.parse(f"def f(path):\n    {call}\n"))) == [("m.f", False)]
    assert list(find_writes("m", ast.parse(f"def f(path):\n    check_inside(path)\n    {call}\n"))) == [("m.f", True)]
