import os
import secrets
import signal
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
FOLDERS = [
    # The root goes first: tests/workflows would hide the package workflows in a process started elsewhere.
    str(TESTS.parent),
    str(TESTS),
    *(str(path) for path in sorted(TESTS.rglob("*")) if path.is_dir() and path.name != "__pycache__"),
]
"""Folders whose modules tests and Ray workers import by their bare names"""
sys.path[:0] = FOLDERS

# A shell starts background jobs with SIGINT ignored, nohup with SIGHUP; processes inherit that, and tests would hang.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

LATE = ("storage", "actors", "workflows")
"""Folders that run after all others, in this order."""


def pytest_collection_modifyitems(items):
    """Run the science first, then storage, actors and workflows."""

    def place(item):
        folder = item.path.relative_to(TESTS).parts[0]
        return LATE.index(folder) + 1 if folder in LATE else 0

    items.sort(key=place)


@pytest.fixture(autouse=True)
def one_torch_thread():
    """What is compared bit by bit runs as simulations run: on one thread."""
    from fnbandit.numerics.device import one_thread

    with one_thread():
        yield


@pytest.fixture(scope="session")
def ray_cluster():
    """The Ray that tests share, with a token of its own; at the end none of its processes is left."""
    # Without it Ray writes a token into the user's home.
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    # Reward functions of test modules are imported in workers, too.
    os.environ["PYTHONPATH"] = os.pathsep.join([*FOLDERS, os.environ.get("PYTHONPATH", "")])
    import ray

    from actors.cluster import bare

    with bare():
        ray.init(
            address="local", num_cpus=8, include_dashboard=False, object_store_memory=300_000_000, log_to_driver=False
        )
    yield ray.get_runtime_context().gcs_address
    import psutil

    started = psutil.Process().children(recursive=True)
    names = {process.name() for process in started}
    assert {"raylet", "gcs_server"} <= names, names
    ray.shutdown()
    _, alive = psutil.wait_procs(started, timeout=30)
    assert not alive, alive
