import os
import secrets
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

LATE = ("test_checkpoints", "test_actors", "test_workflows")
"""Files that run after all others, in this order."""


def pytest_collection_modifyitems(items):
    """The science first, then checkpoints, actors and workflows."""

    def place(item):
        return next((i for i, name in enumerate(LATE, 1) if item.path.name.startswith(name)), 0)

    items.sort(key=place)


@pytest.fixture(autouse=True)
def one_torch_thread():
    """What is compared bit by bit runs as simulations run: on one thread."""
    from fnbandit.simulation import one_thread

    with one_thread():
        yield


@pytest.fixture(scope="session")
def ray_cluster():
    """The Ray that tests share, with a token of its own; at the end none of its processes is left."""
    # Without it Ray writes a token into the user's home.
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    # Reward functions of test modules are imported in workers, too.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
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
