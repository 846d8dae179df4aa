"""Federated neural bandits: FN-UCB (Dai et al., ICLR 2023), its variants, baselines and environments.

Public names are imported at their first use, so that `import fnbandit.config` does not import torch. Only this module
of the package names layers above it, as strings that are imported at their first use.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
from typing import TYPE_CHECKING, Any

from fnbandit.hooks import HOOKS

if TYPE_CHECKING:
    from fnbandit.algorithms.base import Group, Scored
    from fnbandit.algorithms.federated import FederatedGroup
    from fnbandit.config import Config
    from fnbandit.environments.base import Block, Environment
    from fnbandit.numerics.randomness import BLOCK
    from fnbandit.policy import Policy
    from fnbandit.runs import simulate
    from fnbandit.simulation.results import Communication, Result
    from fnbandit.storage.records import find_runs, read_run
    from fnbandit.storage.studies import StudyRecord, load, read_sweep
    from workflows.execution.study import Study

    __version__: str

# Otherwise the last bits of MKL's products depend on the address of an operand, and so on the number
# of agents in a process. MKL reads the variable at its first call; it costs no measurable time.
os.environ.setdefault("MKL_CBWR", "AUTO")

HOOKS.update(
    run_on_ray="actors.run:RayRun",
    watch="workflows.terminal.progress:show_progress",
    save="fnbandit.storage.save:save",
    plot="workflows.reporting.plot:plot",
    plot_result="workflows.reporting.plot:plot_result",
    repeat_policy="fnbandit.runs:repeat_policy",
)
HOMES = {
    "BLOCK": "fnbandit.numerics.randomness",
    "Block": "fnbandit.environments.base",
    "Communication": "fnbandit.simulation.results",
    "Config": "fnbandit.config",
    "Environment": "fnbandit.environments.base",
    "FederatedGroup": "fnbandit.algorithms.federated",
    "Group": "fnbandit.algorithms.base",
    "Policy": "fnbandit.policy",
    "Result": "fnbandit.simulation.results",
    "Scored": "fnbandit.algorithms.base",
    "Study": "workflows.execution.study",
    "StudyRecord": "fnbandit.storage.studies",
    "find_runs": "fnbandit.storage.records",
    "load": "fnbandit.storage.studies",
    "read_run": "fnbandit.storage.records",
    "read_sweep": "fnbandit.storage.studies",
    "simulate": "fnbandit.runs",
}
__all__ = [
    "BLOCK",
    "Block",
    "Communication",
    "Config",
    "Environment",
    "FederatedGroup",
    "Group",
    "Policy",
    "Result",
    "Scored",
    "Study",
    "StudyRecord",
    "__version__",
    "find_runs",
    "load",
    "read_run",
    "read_sweep",
    "simulate",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.metadata.version("fnbandit")
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
