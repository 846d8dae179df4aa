"""The command `fnbandit check`: whether this machine keeps the promises of the package."""

from __future__ import annotations

from collections.abc import Sequence

from fnbandit.config.fields import settings
from workflows.command_line.flags import parse
from workflows.command_line.inspection import print_json
from workflows.execution.failures import DONE, FAILED
from workflows.terminal.output import console


@settings
class CheckArguments:
    """Checks this machine: the same bits in any layout, Ray, GPU, MLflow store, disk and memory."""

    json: bool = False
    """As JSON, for scripts."""


def check(argv: Sequence[str]) -> int:
    """Check whether this machine gives the same bits in any layout, starts Ray, and has room."""
    arguments = parse(CheckArguments, "fnbandit check", argv)
    from workflows.execution.self_check import run_checks

    found = []
    for outcome in run_checks():
        found.append(outcome)
        if not arguments.json:
            mark = "ok    " if outcome.finding.is_passed else "FAILED"
            console().print(f"{mark} {outcome.name:<10} {outcome.finding.text}", soft_wrap=True)
    passed = all(outcome.finding.is_passed for outcome in found)
    if arguments.json:
        checks = [{"name": one.name, **one.finding._asdict(), "seconds": one.seconds} for one in found]
        print_json({"is_passed": passed, "checks": checks})
    return DONE if passed else FAILED
