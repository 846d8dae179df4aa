"""Sums over agents in one order, however agents are divided among processes.

Floating-point sums depend on their order. Here it is a binary tree over leaves of consecutive agents, whose shape
depends on N alone: a process sends the sum of every whole subtree that it holds, and single agents' values where it
holds only a part of a leaf. The completed tree has the same bits for any distribution of the agents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, cat

LEAF = 16
"""Default number of agents of a leaf; larger where a leaf's sum has more numbers than one agent's value"""


@dataclass(frozen=True)
class TreeSum:
    """The sum of one quantity over all N agents: `of` sums the agents of a leaf, then leaves are added in pairs.

    With N = 100 and leaves of 16, the tree is (((0 1) (2 3)) ((4 5) 6)), the last leaf having four agents.
    """

    agents: int
    """N"""
    leaf: int
    """Number of agents of a leaf; with N, nothing is summed before all values are in one process"""
    of: Callable[[Tensor], Tensor]
    """Returns the sum of the values [n, ..] of a leaf's agents"""
    form: Callable[[Tensor], Any] = lambda total: total
    """Wraps the total in a type, such as `Rows` or `Triangle`"""

    def pieces(self, agents: range) -> list[range]:
        """Return consecutive agents as the largest subtrees that they contain, and parts of incomplete leaves."""
        found = []
        start = agents.start
        while start < agents.stop:
            stop = min(start - start % self.leaf + self.leaf, agents.stop)
            if self.is_subtree(range(start, stop)):
                size = self.leaf
                while stop < self.agents and start % (2 * size) == 0:
                    size *= 2
                    if min(start + size, self.agents) > agents.stop:
                        break
                    stop = min(start + size, self.agents)
            found.append(range(start, stop))
            start = stop
        return found

    def is_subtree(self, piece: range) -> bool:
        """Return True where one of the `pieces` is a subtree, False where it is a part of a leaf."""
        return piece.start % self.leaf == 0 and (len(piece) >= self.leaf or piece.stop == self.agents)

    def parts(self, agents: range, values: Tensor) -> list[Tensor]:
        """Return the tensors that a process sends for some agents' values [n, ..]: one for each of their `pieces`."""

        def of_agents(part: range) -> Tensor:
            return values[part.start - agents.start : part.stop - agents.start]

        return [
            self._sum(piece, lambda _: None, of_agents) if self.is_subtree(piece) else of_agents(piece)
            for piece in self.pieces(agents)
        ]

    def total(self, sent: Iterable[tuple[range, list[Tensor]]]) -> Any:
        """Return the sum over all agents from the `parts` of all processes, in agent order; overwrite these parts."""
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

        return self.form(self._sum(range(self.agents), part_of, of_agents))

    def _sum(
        self, node: range, part_of: Callable[[range], Tensor | None], of_agents: Callable[[range], Tensor]
    ) -> Tensor:
        """Return the sum of a subtree: its `part_of`, where that is known, or the sum of its two branches.

        The sum of a leaf is that of its values, `of_agents`. Branches are summed one after the other, so that few sums
        are held at a time.
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


def sum_vectors(agents: int) -> TreeSum:
    """Return the sum of vectors [n, p]."""
    return TreeSum(agents, LEAF, lambda values: values.sum(0))


def gather(agents: int, form: Callable[[Tensor], Any] = lambda total: total) -> TreeSum:
    """Return a reduction that sums nothing: its total is all agents' values, [N, ..]."""
    return TreeSum(agents, agents, lambda values: values, form)
