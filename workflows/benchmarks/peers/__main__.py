"""`make bench-peers`: times one training in fnbandit, plain torch, pfl-research and Flower; compares the results."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

CHECKOUT = Path(__file__).resolve().parents[3]
FOLDER = CHECKOUT / ".peers"
"""Folder of the environments, which git ignores"""
REQUIREMENTS = {
    "pfl": ["torch==2.13.0", "pfl==0.6.0"],
    "flower": ["torch==2.13.0", "flwr[simulation]==1.41.0"],
}
"""Packages of each environment besides this one"""
RUNNERS = {
    "fnbandit": ("run_fnbandit", None),
    "plain torch, client after client": ("torch_client", None),
    "pfl 0.6.0": ("run_pfl", "pfl"),
    "Flower 1.41.0, two Ray actors": ("run_flower", "flower"),
}
"""Simulator -> its module in this folder, and its environment (None: this one)"""
ROUNDS = {10: 7, 100: 5, 1000: 4}
"""Number of clients -> rounds, the first of which is not timed"""
TOLERANCE = 1e-4
"""Largest difference of the final losses"""
PUBLISHED = (
    "The published code of FN-UCB is not part of this comparison. Who has it: with OMP_NUM_THREADS=1, N=10 and cosine, "
    "call time.process_time() at the start of each pass of its loop over iterations, take the median difference of "
    "iterations 100 to 140, and divide it by the milliseconds that `python -m workflows.benchmarks published-cosine` "
    "prints."
)


def prepare(name: str) -> Path:
    """Return the interpreter of an environment; make the environment on first use."""
    folder = FOLDER / name
    interpreter, ready = folder / "bin" / "python", folder / ".ready"
    if not ready.exists():
        print(f"installing {', '.join(REQUIREMENTS[name])} into {folder.relative_to(CHECKOUT)}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        install = [str(interpreter), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, *REQUIREMENTS[name]], check=True)
        ready.touch()
    return interpreter


def measure(module: str, environment: str | None, clients: int, rounds: int) -> dict[str, float]:
    """Return the processor and wall seconds of a client-round, and the final loss, of one simulator."""
    interpreter = Path(sys.executable) if environment is None else prepare(environment)
    command = [str(interpreter), "-m", f"workflows.benchmarks.peers.{module}", str(clients), str(rounds)]
    with tempfile.TemporaryDirectory() as home:
        variables = os.environ | {"PYTHONPATH": str(CHECKOUT), "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
                                  "FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0",
                                  "FLWR_HOME": home}  # fmt: skip
        done = subprocess.run(command, cwd=home, env=variables, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"cpu"')]
    if done.returncode or not lines:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return json.loads(lines[-1])


def check_losses(found: dict[str, dict[str, float]]) -> None:
    """Exit where simulators of one training end at different losses."""
    losses = {name: one["loss"] for name, one in found.items()}
    if max(losses.values()) - min(losses.values()) > TOLERANCE:
        raise SystemExit(f"the simulators did not do the same training: losses {losses}")


def compare_simulators() -> None:
    """Run all simulators and print one table."""
    parser = argparse.ArgumentParser("benchmarks.peers", description=__doc__)
    parser.add_argument("clients", nargs="*", type=int, help=f"numbers of clients (default: {list(ROUNDS)})")
    clients_of_all = parser.parse_args().clients or list(ROUNDS)
    table = Table("clients", "simulator", "CPU ms", "wall ms", "CPU over fnbandit's", "wall over fnbandit's", "loss")
    for clients in clients_of_all:
        found = {}
        for name, (module, environment) in RUNNERS.items():
            found[name] = measure(module, environment, clients, ROUNDS.get(clients, 4))
            print(f"{name}, N={clients:,}: {found[name]['cpu'] * 1e3:.3g} ms of CPU per client-round", flush=True)
        check_losses(found)
        ours = found["fnbandit"]
        for name, one in found.items():
            ratios = (f"{one[key] / ours[key]:.3g}" for key in ("cpu", "wall"))
            times = (f"{one[key] * 1e3:.3g}" for key in ("cpu", "wall"))
            table.add_row(f"{clients:,}", name, *times, *ratios, f"{one['loss']:.6f}")
    Console(width=150).print(table)
    print(PUBLISHED)


if __name__ == "__main__":
    compare_simulators()
