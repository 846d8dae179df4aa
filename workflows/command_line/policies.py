"""The commands that take a policy away from a run, and estimate its reward from logged choices."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from fnbandit.config import Config
from fnbandit.config.fields import Natural, settings
from fnbandit.config.registry import KINDS, is_table
from fnbandit.errors import SimulationError
from fnbandit.storage.files import SUMMARY_FILE
from workflows.command_line.flags import Positional, parse
from workflows.command_line.inspection import print_json
from workflows.execution.failures import DONE
from workflows.terminal.output import console


@settings
class ExportArguments:
    """Writes the policy of a run's agent to a file. The run is simulated again for it: records hold no agents."""

    directory: Positional[Path]
    """Of a finished run."""
    file: Positional[Path]
    """Where the policy goes: policy.safetensors."""
    agent: Natural = 0
    """Number of the agent, from 0 on."""
    trust: bool = False
    """Import the modules that the run's config names."""


def export(argv: Sequence[str]) -> int:
    """Write the policy of a run's agent to a file."""
    arguments = parse(ExportArguments, "fnbandit export", argv)
    from fnbandit.runs import LocalRun
    from fnbandit.storage.records import read_summary
    from fnbandit.storage.totals import RunTotals

    directory, summary = arguments.directory, read_summary(arguments.directory)
    if summary["status"] != "finished":
        raise ValueError(f"{directory}: the run is {summary['status']}; `fnbandit resume` goes on with it")
    config = Config.from_record(summary["config"])
    if arguments.agent >= config.agents:
        raise ValueError(f"agent={arguments.agent}: expected a number from 0 to {config.agents - 1}")
    if not arguments.file.absolute().parent.is_dir():
        raise ValueError(f"{arguments.file}: no such folder; expected a file in an existing one")
    own = [
        f"{kind}={name}"
        for kind in KINDS
        if (name := getattr(config, kind)) not in KINDS[kind] and ":" in name and not is_table(name)
    ]
    if own and not arguments.trust:
        raise ValueError(f"{directory / SUMMARY_FILE}: imports {', '.join(own)}; --trust allows it")
    run, totals = LocalRun(config), RunTotals()
    totals.begin(config)
    for segment in run.segments():
        totals.segment(segment)
    known, found = summary.get("regret"), totals.summary()["regret"]
    if known is None or abs(known - found) > 1e-6 * max(1.0, abs(known)):
        raise SimulationError(
            f"{directory}: the simulation gives a regret of {found}, the record has {known}; "
            "it was made by another version of the code, or on another kind of processor"
        )
    path = run.policy(arguments.agent).save(arguments.file)
    console().print(f"policy   {path}", soft_wrap=True)
    return DONE


@settings
class ReplayArguments:
    """Estimates a policy's mean reward from a log of another policy's choices (replay, Li et al. 2011)."""

    log: Positional[Path]
    """Parquet table with the columns context, arm, reward, probability."""
    policy: Path
    """File that `fnbandit export` wrote."""
    json: bool = False
    """As JSON, for scripts."""


def replay(argv: Sequence[str]) -> int:
    """Estimate a policy's mean reward from logged choices."""
    arguments = parse(ReplayArguments, "fnbandit replay", argv)
    from fnbandit.policy import Policy
    from fnbandit.storage.replay import read_log, replay_log

    policy = Policy.load(arguments.policy)
    found = replay_log(policy, read_log(arguments.log, policy))
    if arguments.json:
        print_json(dataclasses.asdict(found))
        return DONE
    console().print(repr(policy), soft_wrap=True, markup=False)
    console().print(f"reward   {found.mean:.4f} (standard error {found.standard_error:.4f})")
    weight = "" if round(found.effective) == found.matched else f", worth {found.effective:.0f} of equal weight"
    console().print(f"rows     {found.matched} of {found.rows} match{weight}")
    return DONE
