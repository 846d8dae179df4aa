"""Finds out where a result comes from: versions and commit."""

from __future__ import annotations

import functools
import importlib.metadata
import platform
import subprocess
from pathlib import Path

RECORDED_PACKAGES = ("fnbandit", "torch", "numpy", "pyarrow", "ray", "mlflow")


@functools.cache
def find_versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that results depend on."""
    found = {"python": platform.python_version()}
    for package in RECORDED_PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "none"
    return found


@functools.cache
def find_commit() -> str:
    """Return the commit of the checkout that this package runs from; "unknown" outside of one."""
    here = Path(__file__).resolve().parents[2]
    try:
        done = subprocess.run(["git", "-C", str(here), "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return done.stdout.strip() if done.returncode == 0 else "unknown"
