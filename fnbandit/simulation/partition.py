"""Splits agents into batches."""

from __future__ import annotations

import itertools

from fnbandit.numerics.tree import LEAF, sum_vectors


def split_evenly(agents: int, batches: int, unit: int = 1) -> list[range]:
    """Split `agents` agents in order into at most `batches` batches that begin at multiples of a unit."""
    units = -(-agents // unit)
    batches = min(batches, units)
    bounds = [min(agents, unit * (units * i // batches)) for i in range(batches + 1)]
    return [range(a, b) for a, b in itertools.pairwise(bounds)]


def split_at_subtrees(agents: int, batches: int) -> list[range]:
    """Split agents into batches that end where subtrees of `TreeSum` end; the largest may grow by an eighth for that.

    Every round waits for the largest batch and for the server. In units of one agent's time in a round, a leaf that two
    batches share costs the server about 2, and each further subtree that it receives 0.1.
    """
    most = max(map(len, split_evenly(agents, batches))) * 9 / 8
    units = [1, *(LEAF << level for level in range(agents.bit_length()) if LEAF << level <= most)]
    splits = [split_evenly(agents, batches, unit) for unit in units]

    def weigh_waiting(parts: list[range]) -> float:
        shared = sum(part.stop % LEAF > 0 for part in parts[:-1])
        return max(map(len, parts)) + 2 * shared + 0.1 * sum(len(sum_vectors(agents).pieces(part)) for part in parts)

    return min((parts for parts in splits if max(map(len, parts)) <= most), key=weigh_waiting)
