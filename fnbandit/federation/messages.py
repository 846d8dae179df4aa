"""Contents and sizes of messages, and the cost of an exchange as the paper counts it (Sec. 3.4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fnbandit.core import Content, Cost


@dataclass(frozen=True)
class Contents:
    """Number of quantities of each kind in one message, as Algs. 1 and 2 list them."""

    covariances: int = 0
    """W_new, or W_sync"""
    inverses: int = 0
    """V_local^-1's, or their mean"""
    vectors: int = 0
    """B_new, or B_sync"""
    networks: int = 0
    """theta_i, theta_sync,NN, or a sum of gradients"""
    scalars: int = 0
    """alpha_i, alpha, sums of squares, or a unit"""
    triangles: int = 0
    """W of a sample, or V, as the triangle of a symmetric matrix"""
    curvatures: int = 0
    """Sum over a sample of g g^T of all network parameters, as a triangle"""

    def __add__(self, other: Contents) -> Contents:
        return Contents(*(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))


UPLOADS: dict[Content, Contents] = {
    "network": Contents(networks=1),
    "gradient": Contents(networks=1, scalars=1),
    "curvature": Contents(networks=1, scalars=1, curvatures=1),
    "statistics": Contents(vectors=1, scalars=1, triangles=1),
}
"""Contents of an upload after the first of its round"""
OWN_SUMS = Contents(vectors=1, scalars=2, triangles=1)
"""Contents of an agent's own sums, from which the server finds clusters, and of those of its cluster"""
THETA_ALONE = Contents(networks=1)
"""Contents of a download that starts another exchange"""


@dataclass(frozen=True)
class Size:
    """Size of one message."""

    numbers: int
    bytes: int

    def __add__(self, other: Size) -> Size:
        return Size(self.numbers + other.numbers, self.bytes + other.bytes)


def exchange_cost(ups: Sequence[tuple[int, Size]], down: tuple[int, Size], signals: int | None = None) -> Cost:
    """Return the cost of an exchange, from (senders, size of each upload) pairs and (receivers, size of each download).

    A round that agents ask for starts with `signals` signals up and one to every agent, which carry no number
    (Alg. 1, lines 12-13); None where the iteration of the round was known beforehand.
    """
    receivers, size = down
    return Cost(
        messages_up=sum(senders for senders, _ in ups) + (signals or 0),
        messages_down=receivers * (1 if signals is None else 2),
        numbers_up=sum(senders * up.numbers for senders, up in ups),
        numbers_down=receivers * size.numbers,
        bytes_up=sum(senders * up.bytes for senders, up in ups),
        bytes_down=receivers * size.bytes,
    )
