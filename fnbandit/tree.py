"""Sums over agents in one order, wherever the agents live.

Floating-point sums depend on their order. Here it is a binary tree over leaves of consecutive agents, whose shape
depends on N alone: a process sends the sum of every whole subtree that it holds, and single agents' values where it
holds a part of a leaf only. Whoever completes the tree gets the same bits for any distribution of the agents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from torch import Tensor, cat

LEAF = 16
"""Agents of a leaf, if its sum is no larger than an agent's value."""


@dataclass(frozen=True)
class Sum:
    """How one quantity of all N agents is summed: `of` the agents of a leaf, then leaf to leaf, pair by pair.

    With N = 100 and leaves of 16, the tree is (((0 1) (2 3)) ((4 5) 6)), the last leaf having four agents.
    """

    agents: int
    """N"""
    leaf: int
    """Agents of a leaf; with N of them nothing is summed before all values are in one place"""
    of: Callable[[Tensor], Tensor]
    """Values [n, ..] of a leaf's agents to their sum"""

    def pieces(self, agents: range) -> list[range]:
        """Some agents as the largest subtrees among them, and parts of leaves that are not whole."""
        found = []
        start = agents.start
        while start < agents.stop:
            stop = min(start - start % self.leaf + self.leaf, agents.stop)
            if self.summed(range(start, stop)):
                size = self.leaf
                while stop < self.agents and start % (2 * size) == 0:
                    size *= 2
                    if min(start + size, self.agents) > agents.stop:
                        break
                    stop = min(start + size, self.agents)
            found.append(range(start, stop))
            start = stop
        return found

    def summed(self, piece: range) -> bool:
        """Whether one of the `pieces` is a subtree, and not a part of a leaf."""
        return piece.start % self.leaf == 0 and (len(piece) >= self.leaf or piece.stop == self.agents)

    def parts(self, agents: range, values: Tensor) -> list[Tensor]:
        """What a process sends for some agents' values [n, ..]: one tensor for each of their `pieces`."""

        def of_agents(part: range) -> Tensor:
            return values[part.start - agents.start : part.stop - agents.start]

        return [
            self._sum(piece, lambda _: None, of_agents) if self.summed(piece) else of_agents(piece)
            for piece in self.pieces(agents)
        ]

    def total(self, sent: Iterable[tuple[range, list[Tensor]]]) -> Tensor:
        """The sum over all agents, from what all processes have sent for theirs, in agent order; written over it."""
        known: dict[int, tuple[int, Tensor]] = {}
        for agents, parts in sent:
            for piece, part in zip(self.pieces(agents), parts, strict=True):
                known[piece.start] = piece.stop, part

        def part_of(node: range) -> Tensor | None:
            stop, part = known.get(node.start, (None, None))
            return part if stop == node.stop else None

        def of_agents(leaf: range) -> Tensor:
            values, start = [], leaf.start
            while start < leaf.stop:
                start, value = known[start]
                values.append(value)
            return cat(values)

        return self._sum(range(self.agents), part_of, of_agents)

    def _sum(
        self, node: range, part_of: Callable[[range], Tensor | None], of_agents: Callable[[range], Tensor]
    ) -> Tensor:
        """The sum of a subtree, whose own subtrees' sums may be known, and whose leaves' agents otherwise are.

        One branch after the other, so that few sums are held at a time.
        """
        known = part_of(node)
        if known is not None:
            return known
        size = self.leaf
        if len(node) <= size:
            return self.of(of_agents(node).contiguous())
        while 2 * size < len(node):
            size *= 2
        middle = node.start + size
        left = self._sum(range(node.start, middle), part_of, of_agents)
        return left.add_(self._sum(range(middle, node.stop), part_of, of_agents))


def vectors(agents: int) -> Sum:
    """Of vectors [n, p]."""
    return Sum(agents, LEAF, lambda values: values.sum(0))


def everyone(agents: int) -> Sum:
    """No sum: all agents' values, [N, ..], for what is more than a sum of them."""
    return Sum(agents, agents, lambda values: values)
