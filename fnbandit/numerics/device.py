"""The device and the threads that a process computes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


def resolve_device(name: str) -> torch.device:
    """Return the torch device that `config.device` names."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"device={name!r}: expected auto, cpu, cuda or cuda:INDEX") from None
    if device.type not in ("cpu", "cuda") or (device.type == "cpu" and device.index):
        raise ValueError(f"device={name!r}: expected auto, cpu, cuda or cuda:INDEX")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"device={name!r}: {torch.cuda.device_count()} CUDA devices available; accepted: auto, cpu")
    return device


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch on one thread: the last bits of a matrix product depend on the number of threads that compute it.

    Parallelism comes from batches of agents in several processes, not from threads inside a product.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
