"""A test battery for the products: every operation on a whole batch and on its parts, on this processor.

The package promises that results do not depend on how agents are divided among processes. This holds as long as no
operation of `fnbandit.numerics.products` gives an agent other bits in a part of a batch than in the whole batch. Only
a trial on the processor shows that: `find_breaks`.
"""

from __future__ import annotations

import functools
import platform
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fnbandit.numerics import products

WHOLE_BATCH = 16
"""Number of agents of a whole batch"""
PARTS = (1, 2, 3, 7)
"""Numbers of agents of its parts"""
LARGEST_NUMBERS = 30_000_000
"""Largest number of numbers of one input; where it would be more, the batch has 7 agents, or 3"""
DTYPES = (torch.float32, torch.float64)

Draw = Callable[..., Tensor]
"""Returns numbers in [-1, 1) of a given shape"""


class Inputs(NamedTuple):
    """Inputs of an operation."""

    own: tuple[Tensor, ...]
    """Inputs with one matrix for each agent"""
    shared: tuple[Tensor, ...] = ()
    """Inputs that all agents share"""


@dataclass(frozen=True)
class Operation:
    """An operation as the package uses it."""

    name: str
    draw: Callable[[Draw, int, int, int], Inputs]
    """Draws inputs for n agents, p parameters and k rows"""
    apply: Callable[..., Tensor]
    """Returns one result for each agent, [n, ..], from the own inputs and the shared ones"""


class Break(NamedTuple):
    """A combination in which a part of a batch has other bits than the whole."""

    operation: str
    precision: str
    p: int
    k: int
    batch: int
    """Agents of the part"""
    layout: str
    """Place of the part in memory"""
    processor: str

    def __str__(self) -> str:
        return (
            f"{self.operation}: {self.precision}, p = {self.p}, k = {self.k}, {self.batch} agents of a batch "
            f"{self.layout}, on {self.processor}"
        )


def _downdate(matrix: Tensor, rows: Tensor) -> Tensor:
    copy = matrix.clone()
    products.downdate(copy, rows)
    return copy


def _accumulate(weights: Tensor, above: Tensor, below: Tensor) -> Tensor:
    copy = weights.clone()
    return products.add_product(copy, above, below.mT, scale=-0.3, keep=0.99, out=copy)


def _positive(rows: Tensor) -> Tensor:
    """Return I + G G^T."""
    inner = products.multiply(rows, rows.mT)
    inner.diagonal(dim1=1, dim2=2).add_(1)
    return inner


OPERATIONS = (
    Operation(
        "multiply rows by an agent's transposed matrix",
        lambda draw, n, p, k: Inputs((draw(n, k, p), draw(n, p, p))),
        lambda x, matrix: products.multiply(x, matrix.mT),
    ),
    Operation(
        "multiply rows by an agent's matrix",
        lambda draw, n, p, k: Inputs((draw(n, k, p), draw(n, p, p))),
        products.multiply,
    ),
    Operation(
        "multiply contexts by an agent's rows",
        lambda draw, n, p, k: Inputs((draw(n, 4, p), draw(n, k, p))),
        lambda x, z: products.multiply(x, z.mT),
    ),
    Operation(
        "multiply coefficients by an agent's rows",
        lambda draw, n, p, k: Inputs((draw(n, 4, k), draw(n, k, p))),
        products.multiply,
    ),
    Operation(
        "multiply one row of coefficients by an agent's rows",
        lambda draw, n, p, k: Inputs((draw(n, 1, k), draw(n, k, p))),
        products.multiply,
    ),
    Operation(
        "multiply one row by an agent's transposed rows",
        lambda draw, n, p, k: Inputs((draw(n, 1, p), draw(n, k, p))),
        lambda row, x: products.multiply(row, x.mT),
    ),
    Operation(
        "multiply an agent's rows by one column",
        lambda draw, n, p, k: Inputs((draw(n, k, p), draw(n, p, 1))),
        products.multiply,
    ),
    Operation(
        "multiply a shared row by an agent's transposed rows",
        lambda draw, n, p, k: Inputs((draw(n, k, p),), (draw(p),)),
        lambda x, row: products.multiply(row.expand(len(x), 1, -1), x.mT),
    ),
    Operation(
        "multiply rows by a shared matrix, agent by agent",
        lambda draw, n, p, k: Inputs((draw(n, k, p),), (draw(p, p),)),
        lambda x, matrix: products.multiply(x, matrix.expand(len(x), -1, -1)),
    ),
    Operation(
        "multiply rows by a shared transposed matrix, in tiles",
        lambda draw, n, p, k: Inputs((draw(n, k, p),), (draw(p, p),)),
        lambda x, matrix: products.multiply_rows(x, matrix.mT),
    ),
    Operation(
        "multiply rows by a shared matrix, in tiles",
        lambda draw, n, p, k: Inputs((draw(n, k, p),), (draw(p, p),)),
        products.multiply_rows,
    ),
    Operation(
        "multiply contexts by shared transposed rows, in tiles",
        lambda draw, n, p, k: Inputs((draw(n, 4, p),), (draw(k, p),)),
        lambda x, z: products.multiply_rows(x, z.mT),
    ),
    Operation(
        "multiply coefficients by shared rows, in tiles",
        lambda draw, n, p, k: Inputs((draw(n, 1, k),), (draw(k, p),)),
        products.multiply_rows,
    ),
    Operation(
        "downdate", lambda draw, n, p, k: Inputs((draw(n, p, p), draw(n, k, p))), _downdate
    ),
    Operation(
        "add the product of a layer and contexts",
        lambda draw, n, p, k: Inputs((draw(n, p, 1), draw(n, p, 9), draw(n, 9, k))),
        products.add_product,
    ),
    Operation(
        "add the product of a residual and activations",
        lambda draw, n, p, k: Inputs((draw(n, 1, p), draw(n, 1, k), draw(n, p, k))),
        _accumulate,
    ),
    Operation(
        "add the product of a layer's slopes and activations",
        lambda draw, n, p, k: Inputs((draw(n, 20, p), draw(n, 20, k), draw(n, p, k))),
        _accumulate,
    ),
    Operation(
        "subtract a Gram matrix",
        lambda draw, n, p, k: Inputs((draw(n, k, k), draw(n, k, p))),
        lambda base, u: products.add_product(base, u, u.mT, scale=-1),
    ),
    Operation(
        "factorize",
        lambda draw, n, p, k: Inputs((draw(n, k, p),)),
        lambda rows: products.factorize(_positive(rows)),
    ),
    Operation(
        "solve with a lower factor",
        lambda draw, n, p, k: Inputs((_positive(draw(n, k, 5)).tril(), draw(n, k, p))),
        products.solve_lower,
    ),
    Operation(
        "sum squares over columns", lambda draw, n, p, k: Inputs((draw(n, k, p),)), lambda x: (x * x).sum(-1)
    ),
    Operation("sum squares over rows", lambda draw, n, p, k: Inputs((draw(n, k, p),)), lambda x: x.square().sum(1)),
)  # fmt: skip
"""All operations of `products` on agents' batches, and the sums that follow them"""

QUICK = [(p, k) for p in (5, 17, 25, 41, 61, 241) for k in (1, 2, 3, 4, 8, 9, 33)]
"""Pairs of p and k that take seconds"""
EVERY = [
    *((p, k) for p in (5, 8, 17, 25, 26, 41, 61, 64, 241, 242) for k in (*range(1, 10), 12, 16, 33, 64, 100)),
    *((p, k) for p in (861, 862, 1301) for k in (1, 2, 3, 5, 8, 9, 33)),
]
"""Pairs of p and k that take minutes"""


def find_breaks(
    operations: Iterable[Operation] = OPERATIONS,
    shapes: Iterable[tuple[int, int]] = tuple(QUICK),
    dtypes: Iterable[torch.dtype] = DTYPES,
) -> Iterator[Break]:
    """Yield one break for each operation, precision, p and k in which a part of a batch has other bits."""
    shapes, dtypes = list(shapes), list(dtypes)
    for operation in operations:
        for dtype in dtypes:
            for p, k in shapes:
                found = _find_break(operation, dtype, p, k)
                if found is not None:
                    yield found


def _find_break(operation: Operation, dtype: torch.dtype, p: int, k: int) -> Break | None:
    random = np.random.default_rng([p, k])

    def draw(*shape: int) -> Tensor:
        return torch.from_numpy(random.random(shape) * 2 - 1).to(dtype)

    batch = next(n for n in (WHOLE_BATCH, 7, 3) if n * p * max(p, k) <= LARGEST_NUMBERS or n == 3)
    own, shared = operation.draw(draw, batch, p, k)
    whole = operation.apply(*own, *shared)
    for layout, part, tensors in _parts(own, batch):
        if not torch.equal(operation.apply(*tensors, *shared), whole[part]):
            size = part.stop - part.start
            return Break(operation.name, str(dtype).removeprefix("torch."), p, k, size, layout, processor())
    return None


def _parts(own: tuple[Tensor, ...], batch: int) -> Iterator[tuple[str, slice, list[Tensor]]]:
    """Yield parts of a batch from its beginning and its end, and all of it, in several memory layouts."""
    buffers = [_in_buffer(tensor) for tensor in own]
    for size in (*(size for size in PARTS if size < batch), batch):
        for start in {0, batch - size}:
            part = slice(start, start + size)
            yield "as copies", part, [tensor[part].clone(memory_format=torch.contiguous_format) for tensor in own]
            yield "as a slice of the batch", part, [tensor[part] for tensor in own]
            yield "as a slice of a buffer", part, [tensor[part] for tensor in buffers]
            yield "in a buffer", part, [_in_buffer(tensor[part]) for tensor in own]


def _in_buffer(tensor: Tensor) -> Tensor:
    """Return a copy that is a slice of a buffer with room for more rows."""
    buffer = tensor.new_zeros(tensor.shape[0], tensor.shape[1] + 3, *tensor.shape[2:])
    buffer[:, : tensor.shape[1]] = tensor
    return buffer[:, : tensor.shape[1]]


@functools.cache
def processor() -> str:
    """Return the kind of processor, on which the last bits of results depend: "x86_64, AMD EPYC, AVX512"."""
    found: list[str] = []
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        found = [line.partition(": ")[2] for line in lines if line.startswith("model name")][:1]
    return ", ".join([platform.machine(), *found, torch.backends.cpu.get_cpu_capability()])
