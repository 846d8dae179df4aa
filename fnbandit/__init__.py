"""Federated neural bandits: FN-UCB (Dai et al., ICLR 2023), its variants, baselines and environments."""

import os

# Without this, the last bits of MKL's products depend on where in memory an operand starts, and so
# on how many agents share a process. MKL reads it at its first call; it costs no measurable time.
os.environ.setdefault("MKL_CBWR", "AUTO")

from fnbandit.config import ALGORITHMS, ENVIRONMENTS, Config
from fnbandit.records import find_runs, read_run, read_sweep
from fnbandit.simulation import Communication, Result, simulate

__all__ = [
    "ALGORITHMS",
    "ENVIRONMENTS",
    "Communication",
    "Config",
    "Result",
    "find_runs",
    "read_run",
    "read_sweep",
    "simulate",
]
