"""The training that all simulators do: data, initial network, numbers. Needs numpy alone, in any environment.

N clients have 100 rows of 10 inputs each. In a round every client trains a network with 20 hidden ReLU units from the
common parameters, by 30 steps of Adam on all of its rows, with moments that start from zero; the server averages.
"""

from __future__ import annotations

import functools
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

CLIENT_ROWS, NETWORK_INPUTS, HIDDEN_UNITS = 100, 10, 20
ADAM_STEPS, ADAM_RATE = 30, 0.01


@functools.cache
def draw_clients(clients: int) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs [clients, rows, inputs], uniform on the unit sphere, and targets [clients, rows], cos(3 <a, x>)."""
    random = np.random.default_rng(0)
    a = random.standard_normal(NETWORK_INPUTS)
    x = random.standard_normal((clients, CLIENT_ROWS, NETWORK_INPUTS))
    x /= np.linalg.norm(x, axis=2, keepdims=True)
    y = np.cos(3 * (x @ (a / np.linalg.norm(a)))) + 0.01 * random.standard_normal((clients, CLIENT_ROWS))
    return x.astype(np.float32), y.astype(np.float32)


def draw_network() -> list[np.ndarray]:
    """Return the initial weights and biases: [HIDDEN_UNITS, NETWORK_INPUTS], [HIDDEN_UNITS], [1, HIDDEN_UNITS], [1]."""
    random = np.random.default_rng(1)
    shapes = [(HIDDEN_UNITS, NETWORK_INPUTS), (HIDDEN_UNITS,), (1, HIDDEN_UNITS), (1,)]
    return [(random.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32) for shape in shapes]


def compute_loss(network: list[np.ndarray], clients: int) -> float:
    """Return the mean squared error of a network on all rows of all clients."""
    (x, y), (w1, b1, w2, b2) = draw_clients(clients), (layer.astype(np.float64) for layer in network)
    hidden = np.maximum(np.einsum("nri,hi->nrh", x, w1) + b1, 0)
    return float(np.square(np.einsum("nrh,h->nr", hidden, w2[0]) + b2[0] - y).mean())


def count_processor_seconds() -> float:
    """Return the processor time of this process and of all that it has started and that still run. Linux only."""
    parents: dict[int, int] = {}
    seconds: dict[int, float] = {}
    tick = os.sysconf("SC_CLK_TCK")
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has just ended
            parents[int(entry.name)] = int(fields[1])
            seconds[int(entry.name)] = sum(map(int, fields[11:15])) / tick
    family = {os.getpid()}
    while True:
        more = {process for process, parent in parents.items() if parent in family} - family
        if not more:
            return sum(seconds.get(process, 0.0) for process in family)
        family |= more


class RoundTimes:
    """Processor and wall time between calls of `stamp`, one before the first round and one after each."""

    def __init__(self, clients: int, processor_seconds: Callable[[], float] = time.process_time) -> None:
        self._clients, self._processor_seconds = clients, processor_seconds
        self._stamps: list[tuple[float, float]] = []

    def stamp(self) -> None:
        self._stamps.append((self._processor_seconds(), time.perf_counter()))

    def report(self, network: list[np.ndarray]) -> None:
        """Print, as one line of JSON, the medians per client-round, without the first round, and the final loss."""
        spent = np.diff(np.array(self._stamps), axis=0)[1:] / self._clients
        cpu, wall = np.median(spent, axis=0)
        print(json.dumps({"cpu": cpu, "wall": wall, "loss": compute_loss(network, self._clients)}), flush=True)
