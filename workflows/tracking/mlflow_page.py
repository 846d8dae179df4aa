"""Serves the MLflow page of a store on loopback, until the command ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from rich.console import Console

from fnbandit.errors import SimulationError
from workflows.studies.tracking_uri import sqlite_path
from workflows.terminal.secrets import mask_secrets
from workflows.terminal.stopping import Stop
from workflows.tracking.mlflow_store import EXPERIMENT_TAGS, page

HOST = "127.0.0.1"
START_PATIENCE = 120.0
"""Seconds for the server to start"""


def open_page(uri: str, experiment: str | None, port: int, console: Console) -> None:
    """Print the address of a store's page; for a store that is no server, serve it until Ctrl-C, SIGTERM or SIGHUP."""
    path = sqlite_path(uri)
    if path is not None and not path.exists():
        raise ValueError(f"{mask_secrets(uri)}: no store yet; `fnbandit run` makes one")
    if uri.startswith("http"):
        console.print(page(uri, experiment_id(uri, experiment)), soft_wrap=True)
        return
    _check_free(port)
    console.print(
        f"store  {mask_secrets(uri)}\nstarting MLflow's server, which may take half a minute ...", soft_wrap=True
    )
    with Stop(), suppress(KeyboardInterrupt), _server(uri, port) as server:
        address = page(f"http://{HOST}:{port}", experiment_id(uri, experiment))
        console.print(f"page   {address}  (Ctrl-C ends it)", soft_wrap=True)
        server.wait()
        raise SimulationError(f"{mask_secrets(uri)}: MLflow's server has exited")


def experiment_id(uri: str, name: str | None) -> str:
    """Return the id of an experiment; without a name, of the last changed one of ours."""
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    try:
        client = MlflowClient(uri)
        if name is not None:
            found = client.get_experiment_by_name(name)
        else:
            ours = (
                e
                for e in client.search_experiments(order_by=["last_update_time DESC"])
                if EXPERIMENT_TAGS.keys() <= e.tags.keys()
            )
            found = next(ours, None)
    except (MlflowException, ImportError, OSError) as error:  # a database may need a driver that is not here
        first = (str(error).splitlines() or [""])[0][:200]
        raise ValueError(f"{mask_secrets(uri)}: cannot be opened ({mask_secrets(first)})") from None
    if found is None:
        raise ValueError(
            f"{mask_secrets(uri)}: has no experiment{f' {name!r}' if name else ''} yet; `fnbandit run` makes one"
        )
    return found.experiment_id


def _check_free(port: int) -> None:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except OSError as error:
            raise ValueError(f"port={port}: cannot be used ({error.strerror}); choose another with --port") from None


@contextmanager
def _server(uri: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Start MLflow's server, wait until it answers, and end all its processes afterwards."""
    command = [sys.executable, "-m", "mlflow", "server", "--host", HOST, "--port", str(port), "--workers", "1"]
    # Not as an argument: all users of the machine can read those, and a URI may have a password.
    environment = os.environ | {"MLFLOW_BACKEND_STORE_URI": uri, "MLFLOW_DISABLE_TELEMETRY": "true"}
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            end = time.monotonic() + START_PATIENCE
            while not _answers(port):
                if process.poll() is not None or time.monotonic() > end:
                    output.seek(0)
                    last = (output.read().decode(errors="replace").strip().splitlines() or ["no output"])[-1]
                    raise SimulationError(f"{mask_secrets(uri)}: MLflow's server does not start ({mask_secrets(last)})")
                time.sleep(0.2)
            yield process
        finally:
            _end(process)


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://{HOST}:{port}/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the server and the processes that it has started, which are one session."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(5)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
