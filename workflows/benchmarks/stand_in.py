"""A stand-in for a GPU: tensors that claim to be on cuda and have no values, and a count of the work that they cause.

torch's FakeTensorMode computes shapes, precisions and devices alone. A tensor on the wrong device, a host array that
enters a device outside of `put_values`, and a value that is looked at outside of `read_values` raise an error, which
no CPU shows. Values that are read are made up: they are plausible, so that a whole run goes through.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from fnbandit import Config
from fnbandit.covariance.gram import triangle
from fnbandit.environments import make_environment
from fnbandit.simulation.clock import make_clock
from fnbandit.simulation.loop import make_local

DEVICE = "cuda"
NO_LAUNCH = ("empty", "new_empty", "detach", "alias", "lift", "_unsafe_view", "_reshape_alias", "set_")
"""Beginnings of the names of operations, beside views, that start no kernel"""

WITHOUT_DRIVER: dict[str, Any] = {
    "copy_": lambda self, *args, **kwargs: torch.ops.aten.copy_.default(self, *args, **kwargs),
    "contiguous": lambda self, **kwargs: torch.ops.aten.contiguous.default(self, **kwargs),
    "__invert__": lambda self: torch.ops.aten.bitwise_not.default(self),
}
"""Methods of tensors whose own binding asks for the driver of a GPU"""


@dataclass
class DeviceWork:
    """Work of a device, and traffic between it and the host."""

    copies: float = 0
    """Host arrays that entered the device"""
    kilobytes: float = 0
    """Size of these arrays"""
    reads: float = 0
    """Times that the host waited for values of the device"""
    launches: float = 0
    """Operations on tensors of the device; views do not count"""

    def __sub__(self, other: DeviceWork) -> DeviceWork:
        return DeviceWork(*(a - b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))

    def __truediv__(self, number: float) -> DeviceWork:
        return DeviceWork(*(value / number for value in vars(self).values()))


class WrongDeviceError(RuntimeError):
    """An operation on tensors of both the host and the device, or a copy to the device outside of `put_values`."""


class CountingMode(TorchDispatchMode):
    """Counts operations of the device, and refuses those that mix it with the host."""

    def __init__(self, work: DeviceWork) -> None:
        super().__init__()
        self._work = work

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func.namespace != "aten":
            return out
        used = {tensor.device.type for tensor in tree_iter((args, kwargs)) if isinstance(tensor, Tensor)}
        made = {tensor.device.type for tensor in tree_iter(out) if isinstance(tensor, Tensor)}
        if "cpu" in used and DEVICE in used | made:
            raise WrongDeviceError(f"{func} on tensors of {' and '.join(sorted(used))}, result on {made}")
        if DEVICE in used and "cpu" in made:
            self._work.reads += 1
        elif DEVICE in used | made and not func.is_view and not func.__name__.startswith(NO_LAUNCH):
            self._work.launches += 1
        return out


class TransferMode(TorchFunctionMode):
    """Counts and replaces the transfers of `put_values` and `read_values`, and indexing, which asks for a driver."""

    def __init__(self, work: DeviceWork) -> None:
        super().__init__()
        self._work = work
        self._read = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.as_tensor and isinstance(args[0], np.ndarray | Tensor):
            return self._put(*args, **kwargs)
        if func is Tensor.numpy:
            return self._invent(args[0])
        if func is Tensor.__getitem__:
            return select(*args)
        if func is Tensor.__setitem__:
            return assign(*args)
        return func(*args, **kwargs)

    def _put(self, values: Any, dtype: torch.dtype | None = None, device: Any = None) -> Tensor:
        like = torch.from_numpy(np.empty(0, values.dtype)) if isinstance(values, np.ndarray) else values
        where = torch.device("cpu" if device is None else device)
        if where.type == DEVICE:
            self._work.copies += 1
            self._work.kilobytes += int(np.prod(values.shape)) * (dtype or like.dtype).itemsize / 1000
        return _empty(tuple(values.shape), dtype or like.dtype, where)

    def _invent(self, tensor: Tensor) -> np.ndarray:
        """Return numbers that fall from read to read, now and then rise; flags [] that are False, others at times True.

        So triggers fire now and then, and losses converge.
        """
        self._read += 1
        shape, kind = tuple(tensor.shape), torch.empty(0, dtype=tensor.dtype)
        count = int(np.prod(shape))
        if tensor.dtype == torch.bool:
            values = (self._read + np.arange(count)) % 5 == 0 if shape else np.zeros(())
        elif tensor.dtype.is_floating_point:
            values = (3.0 if self._read % 4 == 3 else 1.0) / self._read + np.arange(count) / (1 + count)
        else:
            values = np.zeros(count)
        return np.asarray(values).reshape(shape).astype(str(kind.dtype).removeprefix("torch."))


def _empty(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return a tensor without counting a launch."""
    return torch.empty(shape, dtype=dtype, device=device)


def locate(tensor: Tensor, key: Any) -> tuple[Tensor, list[Tensor | None]]:
    """Return a view by the numbers, slices and None of a key, and the key's index tensors, by dimension."""
    parts: Sequence[Any] = key if isinstance(key, tuple) else (key,)
    given = sum(part is not None and part is not Ellipsis for part in parts)
    dim, index = 0, dict[int, Tensor]()
    for part in parts:
        if isinstance(part, np.ndarray | list):
            raise WrongDeviceError("a host array as an index")
        if part is Ellipsis:
            dim += tensor.ndim - (given - dim)
        elif part is None:
            tensor, dim = tensor.unsqueeze(dim), dim + 1
        elif isinstance(part, slice):
            if part != slice(None):
                tensor = torch.ops.aten.slice.Tensor(tensor, dim, part.start, part.stop, part.step or 1)
            dim += 1
        elif isinstance(part, Tensor):
            index[dim], dim = part, dim + 1
        else:
            tensor = tensor.select(dim, int(part))
    return tensor, [index.get(d) for d in range(max(index, default=-1) + 1)]


def select(tensor: Tensor, key: Any) -> Tensor:
    """Return tensor[key]."""
    view, index = locate(tensor, key)
    return torch.ops.aten.index.Tensor(view, index) if index else view


def assign(tensor: Tensor, key: Any, value: Any) -> None:
    """Do tensor[key] = value."""
    view, index = locate(tensor, key)
    if not isinstance(value, Tensor):
        value = view.new_full((), value)
    elif value.device != tensor.device:
        raise WrongDeviceError(f"values of {value.device} into a tensor of {tensor.device}")
    if index:
        torch.ops.aten.index_put_(view, index, value.to(view.dtype))
    else:
        while value.ndim > view.ndim:
            value = value.squeeze(0)
        torch.ops.aten.copy_.default(view, value)


@contextmanager
def device_stand_in() -> Iterator[DeviceWork]:
    """Make tensors of cuda available without a GPU; yield the count of their work."""
    work = DeviceWork()
    triangle.cache_clear()
    try:
        with (
            patch("torch.cuda.device_count", return_value=1),
            patch.multiple(Tensor, **WITHOUT_DRIVER),
            FakeTensorMode(),
            CountingMode(work),
            TransferMode(work),
        ):
            yield work
    finally:
        triangle.cache_clear()


def count_device_work(config: Config, batches: int = 1) -> tuple[DeviceWork, DeviceWork, int]:
    """Return the work of a whole run on a stand-in: before its first iteration, and after; and its rounds."""
    config = config.replace(device=DEVICE)
    environment, clock = make_environment(config), make_clock(config)
    with device_stand_in() as work:
        _, simulation = make_local(config, environment, clock, batches)
        before = replace(work)
        rounds = sum(len(segment.rounds) for segment in simulation.segments())
    return before, work - before, rounds
