"""Checks of this machine against the promises of the package: the same bits in any layout, Ray, GPU, MLflow, room."""

from __future__ import annotations

import functools
import logging
import os
import shutil
import sqlite3
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from ray.exceptions import RayError

from actors.options import Options
from actors.run import RayRun
from fnbandit.config import Config
from fnbandit.errors import SimulationError
from fnbandit.numerics.battery import QUICK, find_breaks, processor
from fnbandit.numerics.device import one_thread
from fnbandit.numerics.memory import available, readable
from fnbandit.runs import simulate
from fnbandit.simulation.results import Result
from workflows.studies.tracking_uri import sqlite_path, store_uri
from workflows.terminal.secrets import mask_secrets

LEAST_DISK = 1_000_000_000
"""Bytes of room for records and checkpoints, at least"""
LEAST_MEMORY = 1_000_000_000
"""Bytes of unused memory, at least"""
SERVER_SECONDS = 5
"""Seconds that an MLflow server may take for its answer"""
CURE = (
    "compare only runs with the same --agents-per-actor on the same kind of processor, and report the output of "
    "`fnbandit check --json`"
)
"""Advice where bits depend on the layout"""
SHAPES = [(p, k) for p, k in QUICK if k in (1, 2, 8, 9)]
"""Shapes of the battery that are tried"""
LAYOUT_CONFIG = Config(
    algorithm="fn-ucb", agents=3, horizon=24, width=8, training_steps=10, trigger="always", weight="theory",
    domain_sample=16, received_sample=16,
)  # fmt: skip
"""One row is absorbed in every round, p is above 25: the shapes that have lost their bits on some processor"""


class Finding(NamedTuple):
    """The result of a check."""

    is_passed: bool
    text: str
    """The finding and, where the check has failed, advice"""
    details: tuple[str, ...] = ()


class Check(NamedTuple):
    """A check, its finding, and the seconds that it took."""

    name: str
    finding: Finding
    seconds: float


def run_checks() -> Iterator[Check]:
    """Run all checks one after the other."""
    checks: dict[str, Callable[[], Finding]] = {
        "processor": describe_machine,
        "products": check_products,
        "groups": check_groups,
        "ray": check_ray,
        "gpu": check_gpu,
        "mlflow": check_store,
        "disk": check_disk,
        "memory": check_memory,
    }
    for name, check in checks.items():
        start = time.monotonic()
        with without_warnings():
            finding = check()
        yield Check(name, finding, round(time.monotonic() - start, 2))


@contextmanager
def without_warnings() -> Iterator[None]:
    """Keep the warnings of the small run, which are not about this machine, from the user."""
    log = logging.getLogger("fnbandit")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


def describe_machine() -> Finding:
    """Name the processor and the libraries, on which the last bits of results depend; it cannot fail."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return Finding(True, f"{processor()}, torch {torch.__version__}, {cores} cores, {torch.get_num_threads()} threads")


def check_products() -> Finding:
    """Try all products on whole batches and on parts of them."""
    with one_thread():
        breaks = tuple(str(found) for found in find_breaks(shapes=SHAPES))
    if not breaks:
        return Finding(True, "an agent's products have the same bits in any batch")
    return Finding(False, f"{len(breaks)} products depend on the batch, first: {breaks[0]}; {CURE}", breaks)


def check_groups() -> Finding:
    """Compare a small run in one group with the same run in two and in three."""
    for groups in (2, 3):
        differing = compare_results(run_alone(), simulate(LAYOUT_CONFIG, groups=groups))
        if differing:
            return Finding(False, f"{', '.join(differing)} of a run differ between 1 and {groups} groups; {CURE}")
    return Finding(True, "a small run has the same bits in 1, 2 and 3 groups")


def check_ray() -> Finding:
    """Compare the small run in this process with the same run on Ray, in an actor of two agents and one of one."""
    try:
        found = RayRun(LAYOUT_CONFIG, Options(agents_per_actor=2, actor_timeout=60)).result()
    except (RayError, SimulationError, OSError, RuntimeError, TimeoutError, ValueError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        cure = "unset RAY_ADDRESS or start the cluster that it names, or use --engine local"
        return Finding(False, mask_secrets(f"Ray runs no actors ({reason}); {cure}"))
    differing = compare_results(run_alone(), found)
    if differing:
        where = "between this process and two actors"
        return Finding(False, f"{', '.join(differing)} of a run differ {where}; {CURE}")
    return Finding(True, "starts, and a small run has the same bits in two actors")


@functools.cache
def run_alone() -> Result:
    """Return the small run in this process, in one group."""
    return simulate(LAYOUT_CONFIG)


def compare_results(one: Result, other: Result) -> list[str]:
    """Name the quantities whose bits differ."""
    names = ("arms", "rewards", "alpha", "theta", "rounds")
    return [name for name in names if get_bytes(getattr(one, name)) != get_bytes(getattr(other, name))]


def get_bytes(values: Any) -> bytes:
    """Return an array's or a list's bytes; none for None."""
    return b"" if values is None else np.ascontiguousarray(values).tobytes()


def check_gpu() -> Finding:
    """Ask torch for GPUs; a driver whose GPUs torch does not see is a failure."""
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        return Finding(True, f"{', '.join(names)}: --device auto uses it")
    if Path("/proc/driver/nvidia/version").exists():
        cure = "install a torch built for CUDA, or look at CUDA_VISIBLE_DEVICES; --device cpu works"
        return Finding(False, f"torch {torch.__version__} sees no GPU, but there is an NVIDIA driver; {cure}")
    return Finding(True, "none: --device auto uses the CPU")


def check_store() -> Finding:
    """Write to the MLflow store that a run would use, and take it back; ask a server whether it answers."""
    uri = store_uri()
    path = sqlite_path(uri)
    cure = "set MLFLOW_TRACKING_URI to another store, or use --tracking none"
    if path is None and not uri.startswith(("http://", "https://")):
        return Finding(True, mask_secrets(f"{uri}: neither a file nor a server, not tried"))
    try:
        if path is None:
            with urllib.request.urlopen(f"{uri.rstrip('/')}/health", timeout=SERVER_SECONDS):
                return Finding(True, mask_secrets(f"{uri} answers"))
        if not path.exists():
            with tempfile.TemporaryFile(dir=path.parent):
                return Finding(True, f"{path} can be made")
        with closing(sqlite3.connect(path, timeout=SERVER_SECONDS)) as store:
            store.execute("begin immediate")
            store.rollback()
        return Finding(True, f"{path} can be written to")
    except (OSError, sqlite3.Error) as error:
        return Finding(False, mask_secrets(f"{uri}: {error}; {cure}"))


def check_disk() -> Finding:
    """Look for room where runs are written."""
    free = shutil.disk_usage(Path.cwd()).free
    if free < LEAST_DISK:
        return Finding(False, f"{readable(free)} free in {Path.cwd()}: make room, or use --out on another disk")
    return Finding(True, f"{readable(free)} free in {Path.cwd()}")


def check_memory() -> Finding:
    """Look for unused memory."""
    if available() < LEAST_MEMORY:
        return Finding(False, f"{readable(available())} unused: end other programs, or run fewer agents")
    return Finding(True, f"{readable(available())} unused")
