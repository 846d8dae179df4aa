"""The Ray cluster that runs take place on: one that is there, or one of this machine's own."""

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
from ray._private import node as ray_node
from ray._private import ray_constants
from ray._private import utils as ray_utils
from ray._private import worker as ray_worker

from actors.listening import background
from actors.options import Options
from fnbandit.errors import SimulationError

SHUTDOWN_SECONDS = 6.0
"""How long Ray may take to shut down; it waits without end for a raylet that has stopped."""
QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
OWN = threading.Event()
"""Whether this process has started the cluster that it is on"""


@contextmanager
def cluster(options: Options) -> Iterator[bool]:
    """Join the cluster that is there, or start one of this machine's own and stop it afterwards: whether it is own."""
    if ray.is_initialized():
        yield OWN.is_set()
        return
    # A thread that is still asking for something after the end must not start another Ray.
    os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"
    address = options.address or os.environ.get("RAY_ADDRESS")
    with joined(address) if address else started():
        yield not address


@contextmanager
def joined(address: str) -> Iterator[None]:
    """Be a driver of a cluster that somebody else has started."""
    knock(address)
    try:
        try:
            with own_signals():
                ray.init(address=address, **QUIET)
        except (OSError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
            # Ray's texts end with the reason, after a traceback.
            reason = str(error).strip().splitlines()[-1]
            if "RAY_AUTH_MODE" not in os.environ:
                reason += "; one with a token asks for RAY_AUTH_MODE=token"
            raise ValueError(f"address={address!r}: no Ray cluster answers there ({reason})") from None
        yield
    finally:
        shut_down([])


def knock(address: str) -> None:
    """An error at once where nobody listens at HOST:PORT; Ray would try for many minutes."""
    host, _, port = address.rpartition(":")
    if port.isdigit() and "://" not in address:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
        except OSError as error:
            raise ValueError(f"address={address!r}: no Ray cluster answers there ({error})") from None


@contextmanager
def started() -> Iterator[None]:
    """A cluster of this machine's own that nobody else can reach: on loopback, files in a folder of the owner's."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    shared = shutil.disk_usage("/dev/shm").free if os.path.isdir("/dev/shm") else memory
    store = int(min(4e9, 0.2 * memory, 0.8 * shared))
    # A short path, because Ray's sockets lie in it. Only its owner may enter; Ray opens its own in there to everybody.
    folder = tempfile.mkdtemp(prefix="ray-", dir=os.environ.get("RAY_TMPDIR") or "/tmp")
    processes: dict[str, int] = {}
    try:
        try:
            with own_signals(), loopback(), bare():
                # "local", because without an address Ray joins any cluster that this machine remembers, dead ones too.
                ray.init(
                    address="local",
                    num_cpus=os.cpu_count(),
                    object_store_memory=max(store, 80_000_000),
                    include_dashboard=False,
                    _node_ip_address="127.0.0.1",
                    _temp_dir=f"{folder}/ray",
                    **QUIET,
                )
        except Exception as error:  # Ray raises plain ones, too.
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise SimulationError(f"Ray does not start on this machine: {first}") from None
        node: Any = ray_worker._global_node
        processes = {kind: process.pid for kind, process in node.live_processes()}
        OWN.set()
        yield
    finally:
        OWN.clear()
        shut_down(list(processes.values()))
        shutil.rmtree(folder, ignore_errors=True)
        if "raylet" in processes:
            # Ray forgets those of channels whose actors have been killed.
            for path in Path("/dev/shm").glob(f"sem.[ho]??{processes['raylet']}-*"):
                path.unlink(missing_ok=True)


@contextmanager
def loopback() -> Iterator[None]:
    """Let Ray's servers bind to 127.0.0.1; without this switch Ray takes an address of the network in its place."""
    with replaced(ray_constants, "ENABLE_RAY_CLUSTER", False):
        yield


@contextmanager
def bare() -> Iterator[None]:
    """Let Ray start without what nobody looks at here, in half the time: dashboard, autoscaler, collected logs."""

    def nothing(*_: Any, **__: Any) -> None:
        return None

    def missing() -> Exception:
        return ImportError("a cluster of a driver's own has no dashboard")

    with ExitStack() as stack:
        for name in ("start_api_server", "start_monitor", "start_log_monitor"):
            stack.enter_context(replaced(ray_node.Node, name, nothing))
        stack.enter_context(replaced(ray_utils, "get_dashboard_dependency_error", missing))
        yield


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Something of Ray's own with another value; what another version does not have stays away."""
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
    """Keep this process's handling of signals; yields what restores it, which is called at the end, too.

    Ray sets handlers of its own (its answer to SIGTERM is a crash) when it starts, and none when it ends.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    earlier = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}

    def restore() -> None:
        for number, handler in earlier.items():
            signal.signal(number, handler)

    try:
        yield restore
    finally:
        restore()


def shut_down(pids: list[int]) -> None:
    """Leave the cluster; where Ray cannot, end its processes (`pids`) when this one ends."""
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
        # Ray would end this process at once, too, when its raylet does.
        sys.stdout.flush()
        sys.stderr.flush()
        for pid in pids:
            with suppress(psutil.Error):
                process = psutil.Process(pid)
                for each in [process, *process.children(recursive=True)]:
                    each.kill()
        os._exit(code)

    atexit.register(end)
