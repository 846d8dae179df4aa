"""Federated neural bandits: FN-UCB (Dai et al., ICLR 2023), its variants, baselines and environments.

What this package offers is imported when it is asked for, so that `import fnbandit.config` does not wait for torch.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fnbandit.algorithms.base import Group, Scored
    from fnbandit.config import Config
    from fnbandit.environments.base import Block, Environment
    from fnbandit.records import find_runs, read_run
    from fnbandit.results import Communication, Result
    from fnbandit.runs import simulate
    from fnbandit.studies import StudyRecord, load, read_sweep

    __version__: str

# Without this, the last bits of MKL's products depend on where in memory an operand starts, and so
# on how many agents share a process. MKL reads it at its first call; it costs no measurable time.
os.environ.setdefault("MKL_CBWR", "AUTO")

HOMES = {
    "Block": "fnbandit.environments.base",
    "Communication": "fnbandit.results",
    "Config": "fnbandit.config",
    "Environment": "fnbandit.environments.base",
    "Group": "fnbandit.algorithms.base",
    "Result": "fnbandit.results",
    "Scored": "fnbandit.algorithms.base",
    "StudyRecord": "fnbandit.studies",
    "find_runs": "fnbandit.records",
    "load": "fnbandit.studies",
    "read_run": "fnbandit.records",
    "read_sweep": "fnbandit.studies",
    "simulate": "fnbandit.runs",
}
__all__ = [
    "Block",
    "Communication",
    "Config",
    "Environment",
    "Group",
    "Result",
    "Scored",
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
