"""The Ray cluster of a driver: an existing one, or a local one on this machine."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import ray
from ray._private import auto_init_hook, ray_constants
from ray._private import node as ray_node
from ray._private import utils as ray_utils
from ray._private import worker as ray_worker

from actors.options import Options
from actors.watchdog import background
from fnbandit.errors import SimulationError

SHUTDOWN_SECONDS = 6.0
"""Time limit for `ray.shutdown`, which blocks forever on a stopped raylet."""
QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
NICENESS = "RAY_worker_niceness"
"""Variable by which Ray sets the priority of its workers"""
STARTED_HERE = threading.Event()
"""Set while this process is on a cluster that it started"""


@contextmanager
def cluster(options: Options) -> Iterator[bool]:
    """Connect to an existing cluster, or start a local one and stop it afterwards; yield True where it is local."""
    if ray.is_initialized():
        yield STARTED_HERE.is_set()
        return
    # A background thread that outlives the shutdown must not start another Ray.
    auto_init_hook.enable_auto_connect = False
    address = options.address or os.environ.get("RAY_ADDRESS")
    with connect(address) if address else start_local():
        yield not address


@contextmanager
def connect(address: str) -> Iterator[None]:
    """Connect to a cluster that another process started."""
    knock(address)
    try:
        try:
            with own_signals():
                ray.init(address=address, **QUIET)
        except (OSError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
            # Ray's messages end with the reason, after a traceback.
            reason = str(error).strip().splitlines()[-1]
            if "RAY_AUTH_MODE" not in os.environ:
                reason += "; a cluster with a token needs RAY_AUTH_MODE=token"
            raise ValueError(f"address={address!r}: no Ray cluster answers there ({reason})") from None
        yield
    finally:
        shut_down([])


def knock(address: str) -> None:
    """Raise at once where nothing listens at HOST:PORT; Ray would retry for many minutes."""
    host, _, port = address.rpartition(":")
    if port.isdigit() and "://" not in address:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
        except OSError as error:
            raise ValueError(f"address={address!r}: no Ray cluster answers there ({error})") from None


@contextmanager
def start_local() -> Iterator[None]:
    """Start a private local cluster: its ports on loopback, its files in a folder that only the owner may enter."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    shared = shutil.disk_usage("/dev/shm").free if os.path.isdir("/dev/shm") else memory
    store = int(min(4e9, 0.2 * memory, 0.8 * shared))
    # A short path, because Ray's sockets are in it. Only its owner may enter; Ray opens its own subfolder to everyone.
    folder = tempfile.mkdtemp(prefix="ray-", dir=os.environ.get("RAY_TMPDIR") or "/tmp")
    processes: dict[str, int] = {}
    try:
        try:
            with own_signals(), loopback(), bare():
                # "local", because without an address Ray connects to any cluster on record here, even a dead one.
                ray.init(
                    address="local",
                    num_cpus=os.cpu_count(),
                    object_store_memory=max(store, 80_000_000),
                    include_dashboard=False,
                    _node_ip_address="127.0.0.1",
                    _temp_dir=f"{folder}/ray",
                    **QUIET,
                )
        except Exception as error:  # Ray raises built-in exceptions, too.
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise SimulationError(f"Ray does not start on this machine: {first}") from None
        node: Any = ray_worker._global_node
        processes = {kind: process.pid for kind, process in node.live_processes()}
        STARTED_HERE.set()
        yield
    finally:
        STARTED_HERE.clear()
        shut_down(list(processes.values()))
        shutil.rmtree(folder, ignore_errors=True)
        if "raylet" in processes:
            # Ray leaves the semaphores of channels whose actors were killed.
            for path in Path("/dev/shm").glob(f"sem.[ho]??{processes['raylet']}-*"):
                path.unlink(missing_ok=True)


def find_dead_process() -> str:
    """Describe a process of the cluster that this process started which has ended; "" where all of them live."""
    node: Any = ray_worker._global_node
    if not STARTED_HERE.is_set() or node is None:
        return ""
    dead = [kind for kind, _ in node.dead_processes() if kind in ("raylet", "gcs_server")]
    return f"its {dead[0]} has ended" if dead else ""


@contextmanager
def loopback() -> Iterator[None]:
    """Let Ray's servers bind to 127.0.0.1; without this switch Ray replaces it by a network address."""
    with replaced(ray_constants, "ENABLE_RAY_CLUSTER", False):
        yield


@contextmanager
def bare() -> Iterator[None]:
    """Let Ray start without dashboard, autoscaler and log collection, which are unused here: half the start time.

    Nor does it print the last lines of the log of a process that has ended. Workers keep the priority of this process:
    at Ray's niceness of 15 they do not even start in minutes where other processes use all cores.
    """

    def ignore_call(*_: Any, **__: Any) -> None:
        return None

    def make_missing() -> Exception:
        return ImportError("a local cluster has no dashboard")

    with ExitStack() as stack:
        for name in ("start_api_server", "start_monitor", "start_log_monitor"):
            stack.enter_context(replaced(ray_node.Node, name, ignore_call))
        stack.enter_context(replaced(ray_worker, "listen_error_messages", ignore_call))
        stack.enter_context(replaced(ray_utils, "get_dashboard_dependency_error", make_missing))
        if NICENESS not in os.environ:
            stack.callback(os.environ.pop, NICENESS, None)
            os.environ[NICENESS] = "0"
        yield


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Replace an attribute of Ray for a while; do nothing where this version of Ray lacks it."""
    if not hasattr(owner, name):
        yield
        return
    earlier = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, earlier)


@contextmanager
def own_signals() -> Iterator[Callable[[], None]]:
    """Restore this process's signal handlers at the end; yield the function that restores them earlier.

    Ray installs its own handlers when it starts, of which the one for SIGTERM crashes the process, and does not
    remove them when it ends.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    earlier = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}

    def ignore_call(*_: Any) -> None:
        return None

    def restore() -> None:
        for number, handler in earlier.items():
            signal.signal(number, handler)

    try:
        # Nor may its handler be there meanwhile: a signal in the first seconds would end the process without a word.
        with replaced(ray_utils, "set_sigterm_handler", ignore_call):
            yield restore
    finally:
        restore()


def shut_down(pids: list[int]) -> None:
    """Disconnect from the cluster; where Ray blocks, kill its processes (`pids`) when this process exits."""
    import psutil  # type: ignore[import-untyped]  # Ray brings it.

    deadline = time.monotonic() + SHUTDOWN_SECONDS
    with own_signals() as restore:
        thread = background(ray.shutdown)
        while thread.is_alive() and time.monotonic() < deadline:
            thread.join(0.05)
            restore()
    if not thread.is_alive():
        return
    code = 130 if isinstance(sys.exc_info()[1], KeyboardInterrupt) else 1

    def end() -> None:
        # Killing the raylet makes Ray exit this process at once, so flush before.
        sys.stdout.flush()
        sys.stderr.flush()
        for pid in pids:
            with suppress(psutil.Error):
                process = psutil.Process(pid)
                for each in [process, *process.children(recursive=True)]:
                    each.kill()
        os._exit(code)

    atexit.register(end)
