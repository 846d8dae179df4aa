"""The device and the threads that a process computes on, and the two places where numbers pass to and from a device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor


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


def put_values(values: np.ndarray | Tensor, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """Return values of the host as a tensor on a device, converted to `dtype` where that is given.

    All numbers of a simulation enter its device here, so that copies can be counted. On the host the tensor may share
    the memory of `values`.
    """
    return torch.as_tensor(values, dtype=dtype, device=device)


def read_values(tensor: Tensor) -> np.ndarray:
    """Return the values of a tensor as an array of the host; wait for its device until they are computed.

    All values of a simulation that decide something, or leave its device, are read here. A flag [] that is read is True
    where something is wrong. On the host the array shares the memory of the tensor.
    """
    return tensor.detach().cpu().numpy()


def read_scalars(*tensors: Tensor) -> list[float]:
    """Return the numbers of tensors of one element each, which are read at once."""
    return read_values(torch.cat([tensor.double().reshape(1) for tensor in tensors])).tolist()
