"""The command `fnbandit`: its commands by name, the entry point, and one line for bad input."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from workflows.terminal.output import MESSAGE_HANDLER, Output, errors
from workflows.terminal.stopping import defer_signals

# Nothing heavy is imported here: `fnbandit --help` waits for neither pydantic nor rich.


@dataclass(frozen=True)
class Command:
    """A command: a function of its words that returns the exit code, and the dataclass of its arguments."""

    module: str
    """In this folder"""
    function: str
    arguments: str
    summary: str
    """Its line in `fnbandit --help`"""

    def load(self) -> Callable[[Sequence[str]], int]:
        """Import the function."""
        return getattr(importlib.import_module(f"{__name__}.{self.module}"), self.function)

    def load_arguments(self) -> type:
        """Import the dataclass of the arguments, for completion."""
        return getattr(importlib.import_module(f"{__name__}.{self.module}"), self.arguments)


COMMANDS = {
    "run": Command("commands", "run", "StudyArguments", "one experiment, with one or several seeds"),
    "sweep": Command("commands", "sweep", "SweepArguments",
                     "the product of lists: --agents 1,2,5,10 --threshold 1,2,5"),
    "reproduce": Command("commands", "reproduce", "ReproduceArguments", "the paper's figures: fig1a ... or all"),
    "resume": Command("commands", "resume", "ResumeArguments", "goes on with an interrupted run, sweep or figure"),
    "report": Command("inspection", "report", "ReportArguments", "figures and tables from records alone"),
    "ls": Command("inspection", "ls", "LsArguments",
                  "runs and studies in a folder: status, N, D, seed, regret, rounds, when"),
    "show": Command("inspection", "show", "ShowArguments",
                    "what a run or study is, how far it is, and what came of it"),
    "compare": Command("housekeeping", "compare_folders", "CompareArguments",
                       "two runs or studies: the fields that differ, and what came of them"),
    "rm": Command("housekeeping", "rm", "RmArguments", "removes the files that runs and studies have written"),
    "theory": Command("inspection", "theory_numbers", "TheoryArguments",
                      "effective dimensions, nu, D and the bounds for a config"),
    "export": Command("policies", "export", "ExportArguments",
                      "writes the policy of a run's agent to a file, to use without torch and Ray"),
    "replay": Command("policies", "replay", "ReplayArguments",
                      "estimates a policy's reward from logged choices of another one"),
    "environments": Command("commands", "environments", "ListArguments", "what can be learned on"),
    "algorithms": Command("commands", "algorithms", "ListArguments", "what agents can run"),
    "parts": Command("commands", "parts", "ListArguments",
                     "all that a simulation is composed of, with the fields that belong to each choice"),
    "ui": Command("commands", "ui", "UiArguments",
                  "opens the MLflow page of a study's store, or of this directory's, on loopback"),
    "check": Command("check", "check", "CheckArguments",
                     "whether this machine gives the same bits in any layout, starts Ray, and has room"),
    "completion": Command("commands", "completion", "CompletionArguments",
                          'a script that completes commands and flags: eval "$(fnbandit completion bash)"'),
}  # fmt: skip


def print_usage() -> None:
    """Print the commands, a line each."""
    print("A simulator for federated neural bandits. Commands (each has --help):")
    width = max(map(len, COMMANDS))
    for name, command in COMMANDS.items():
        print(f"  fnbandit {name:{width}}  {command.summary}")
    print("fnbandit --version says which this is.")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; bad input is one line on standard error and code 2."""
    argv = sys.argv[1:] if argv is None else argv
    log = logging.getLogger("fnbandit")
    log.setLevel(logging.INFO)
    log.addHandler(MESSAGE_HANDLER)  # has no effect if it is there
    MESSAGE_HANDLER.setLevel(logging.WARNING)
    if not argv or argv[0] in ("-h", "--help"):
        print_usage()
        return 0
    if argv[0] in ("-V", "--version"):
        import importlib.metadata

        print(f"fnbandit {importlib.metadata.version('fnbandit')}")
        return 0
    if argv[0] == "help":
        argv = [*argv[1:2], "--help"] if argv[1:] else ["--help"]
        return main(argv)
    try:
        if argv[0] not in COMMANDS:
            from fnbandit.config.registry import unknown

            raise ValueError(unknown("command", argv[0], COMMANDS))
        return COMMANDS[argv[0]].load()(argv[1:])
    except BaseException as error:
        from workflows.execution.failures import explain_error

        found = explain_error(error)
        if found is None:
            raise
        code, text = found
        errors().print(f"fnbandit: {text}")
        return code


def entry(*command: str) -> None:
    """Run the console script; `command` is COMMAND of `python -m workflows.COMMAND`."""
    if [*command, *sys.argv[1:]][:1] in (["run"], ["sweep"], ["resume"], ["reproduce"]):
        defer_signals()
    out = sys.stdout = Output(sys.stdout)
    sys.stderr = Output(sys.stderr)
    try:
        code: Any = main([*command, *sys.argv[1:]])
    except SystemExit as end:
        code = end.code
    sys.stdout.flush()
    error = out.error
    if error is not None and not isinstance(error, BrokenPipeError):
        print(f"fnbandit: standard output: {error.strerror}", file=sys.stderr)
        code = code or 1
    sys.exit(code)
