"""Clusters of agents whose observations one linear model explains, found from sums alone.

Blaser, Li and Wang (2024, "Federated linear contextual bandits with heterogeneous clients") compare two agents by the
sum of squared errors that one common model adds to that of two separate ones,

    s_ij = B_i^T W_i^+ B_i + B_j^T W_j^+ B_j - (B_i + B_j)^T (W_i + W_j)^+ (B_i + B_j),

which is sigma^2 times a chi-square variable with rank W_i + rank W_j - rank (W_i + W_j) degrees of freedom where both
have the same parameters. sigma^2 is estimated here, from the errors that all agents' own models leave.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.special import gammaincc
from torch import Tensor

from fnbandit.covariance.gram import pack_triangle, symmetric

RELATIVE_RANK = 1e-7
"""Directions in which all agents together have less than this share of the largest eigenvalue are left out"""
LEAST_EIGENVALUE = 1e-6
"""Smallest eigenvalue of an agent's W that counts, in units of the average over all agents"""
PAIRS_AT_ONCE = 256
"""Pairs of agents that are compared at once"""


def pack_sums(covariance: Tensor, moments: Tensor, count: float, squares: Tensor) -> Tensor:
    """Return W [n, p, p], B [n, p], the number of observations and sum y^2 [n] of agents as rows [n, q]."""
    triangles = torch.stack([pack_triangle(matrix) for matrix in covariance])
    return torch.cat([triangles, moments, squares.new_full((len(squares), 1), count), squares[:, None]], dim=1)


def unpack_sums(rows: Tensor, parameters: int) -> tuple[Tensor, Tensor]:
    """Return W [n, p, p] and B [n, p] of rows that `pack_sums` returned, or of sums of such rows."""
    end = parameters * (parameters + 1) // 2
    covariance = torch.stack([symmetric(row[:end], parameters) for row in rows])
    return covariance, rows[:, end : end + parameters]


class Models(NamedTuple):
    """W [n, r, r], B [n, r], B^T W^+ B [n] and the rank of W [n], of agents or of groups of them."""

    covariance: np.ndarray
    moments: np.ndarray
    explained: np.ndarray
    rank: np.ndarray

    def select(self, index: Any) -> Models:
        """Return some of the models."""
        return Models(*(values[index] for values in self))


class HomogeneityTest:
    """p-values of the hypothesis that two groups of agents have the same parameters.

    Works in the directions that all agents together have observed, scaled so that W of all agents is the identity.
    """

    def __init__(self, rows: np.ndarray, parameters: int) -> None:
        """`rows` [N, q] are the agents' packed sums."""
        upper = np.triu_indices(parameters)
        covariance = np.zeros((len(rows), parameters, parameters))
        covariance[:, upper[0], upper[1]] = covariance[:, upper[1], upper[0]] = rows[:, : len(upper[0])]
        moments, count, squares = rows[:, len(upper[0]) : -2], rows[:, -2], rows[:, -1]
        values, vectors = np.linalg.eigh(covariance.sum(0))
        keeps = values > RELATIVE_RANK * values.max()
        basis = vectors[:, keeps] / np.sqrt(values[keeps])
        self._least = LEAST_EIGENVALUE / len(rows)
        self.agents = self.fit(basis.T @ covariance @ basis, moments @ basis)
        freedom = (count - self.agents.rank).clip(min=0).sum()
        errors = (squares - self.agents.explained).clip(min=0).sum()
        self.variance = errors / freedom if freedom > 0 else 0.0
        """sigma^2; 0 where no agent has more observations than its W has ranks"""

    def fit(self, covariance: np.ndarray, moments: np.ndarray) -> Models:
        """Return models of W [n, r, r] and B [n, r]."""
        values, vectors = np.linalg.eigh(covariance)
        counts = values > self._least
        along = (moments[:, None] @ vectors)[:, 0]
        explained = np.where(counts, np.square(along) / np.where(counts, values, 1.0), 0.0).sum(1)
        return Models(covariance, moments, explained, counts.sum(1).astype(float))

    def join(self, one: Models, other: Models) -> Models:
        """Return the models of pairs of groups."""
        return self.fit(one.covariance + other.covariance, one.moments + other.moments)

    def compare(self, one: Models, other: Models) -> np.ndarray:
        """Return the p-values [n] of pairs of groups; 1 where nothing can differ."""
        together = self.join(one, other)
        excess = (one.explained + other.explained - together.explained).clip(min=0)
        freedom = one.rank + other.rank - together.rank
        if not self.variance:
            return np.ones_like(excess)
        values = gammaincc(freedom.clip(min=1) / 2, excess / (2 * self.variance))
        return np.where(freedom > 0, values, 1.0)


def find_clusters(rows: np.ndarray, parameters: int, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the cluster of each of N agents, [N], and the sums of every cluster, from packed sums [N, q].

    One agent after another joins the cluster with the largest p-value, or begins one where none reaches `level`: N
    tests for each cluster.
    """
    test = HomogeneityTest(rows, parameters)
    groups, member = test.agents.select([0]), [0]
    for agent in range(1, len(rows)):
        own, known = test.agents.select([agent]), len(groups.rank)
        p_values = test.compare(groups, own)
        best = int(p_values.argmax())
        if p_values[best] < level:
            groups, best = Models(*(np.concatenate(pair) for pair in zip(groups, own, strict=True))), known
        else:
            for values, new in zip(groups, test.join(groups.select([best]), own), strict=True):
                values[best] = new[0]
        member.append(best)
    numbers = np.array(member)
    return numbers, np.stack([rows[numbers == one].sum(0) for one in range(len(groups.rank))])


def find_cliques(rows: np.ndarray, parameters: int, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Return what `find_clusters` does for maximal cliques of the graph of agents.

    Pairs with p-values of at least `level` are neighbours. Cliques may overlap. An agent's is its largest; among
    equally large ones, that with the first agents.
    """
    test, agents = HomogeneityTest(rows, parameters), len(rows)
    table = np.eye(agents, dtype=bool)
    pairs = np.triu_indices(agents, 1)
    for start in range(0, len(pairs[0]), PAIRS_AT_ONCE):
        i, j = (numbers[start : start + PAIRS_AT_ONCE] for numbers in pairs)
        table[i, j] = table[j, i] = test.compare(test.agents.select(i), test.agents.select(j)) >= level
    neighbours = [set(np.flatnonzero(row).tolist()) - {agent} for agent, row in enumerate(table)]
    found = sorted((sorted(one) for one in list_cliques(neighbours)), key=lambda one: (-len(one), one))
    member = [next(number for number, one in enumerate(found) if agent in one) for agent in range(agents)]
    used = sorted(set(member))
    sums = np.stack([rows[found[number]].sum(0) for number in used])
    return np.array([used.index(number) for number in member]), sums


def list_cliques(neighbours: list[set[int]]) -> Iterator[set[int]]:
    """Yield all maximal cliques of a graph (Bron and Kerbosch 1973, with pivots)."""

    def grow(clique: set[int], candidates: set[int], done: set[int]) -> Iterator[set[int]]:
        if not candidates and not done:
            yield clique
            return
        pivot = max(candidates | done, key=lambda one: len(neighbours[one] & candidates))
        for agent in sorted(candidates - neighbours[pivot]):
            near = neighbours[agent]
            yield from grow(clique | {agent}, candidates & near, done & near)
            candidates, done = candidates - {agent}, done | {agent}

    return grow(set(), set(range(len(neighbours))), set())
