"""A matrix that grows by rows, in all versions that agents still use.

Agents that do not wait for each other download the server's matrix at different times. It is c I + s Z^T Z, and rows
are only appended to Z, so a version of it is a number of rows of Z, and no agent needs a copy. Every `chunk` rows are
added into a matrix, a base: a version is a base plus the first rows of the chunk that follows it. Agents with the same
base share one matrix product. Bases that no agent uses any more are deleted.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from fnbandit.numerics.device import put_values
from fnbandit.numerics.products import LEAST_ROWS, TILE, add_gram, multiply_rows, multiply_tiles
from fnbandit.numerics.state import State


def chunk_rows(parameters: int) -> int:
    """Return the rows of a chunk: about p / 2, in whole tiles.

    Longer chunks make every product larger; shorter ones spread agents over more bases, each with its own products.
    """
    return max(TILE, parameters // 2 // TILE * TILE)


class Versions:
    """M = c I + s Z^T Z, [p, p], for several lengths of Z."""

    def __init__(self, parameters: int, like: Tensor, constant: float, sign: float) -> None:
        self._constant, self._sign = constant, sign
        self._chunk = chunk_rows(parameters)
        self._like = like.new_empty(0, parameters)
        self.latest = 0
        """The latest version: number of rows of Z"""
        self._bases: dict[int, Tensor | None] = {0: None}
        """Matrices by the number of chunks that they contain; None is c I"""
        self._logs: dict[int, Tensor] = {0: self._empty()}
        """The chunk after every base, [chunk, p]; rows not yet appended are 0"""

    def _empty(self) -> Tensor:
        return self._like.new_zeros(self._chunk, self._like.shape[1])

    def append(self, rows: Tensor) -> None:
        """Append rows [k, p] to Z."""
        while len(rows):
            base, place = divmod(self.latest, self._chunk)
            part = rows[: self._chunk - place]
            self._logs[base][place : place + len(part)] = part
            self.latest += len(part)
            rows = rows[len(part) :]
            if place + len(part) == self._chunk:
                self._bases[base + 1] = self._add_log(base)
                self._logs[base + 1] = self._empty()

    def between(self, start: int, end: int) -> Tensor:
        """Return rows start + 1 to end of Z, whose chunks must still be kept."""
        parts = [self._like]
        while start < end:
            base, place = divmod(start, self._chunk)
            parts.append(self._logs[base][place : place + end - start])
            start += len(parts[-1])
        return torch.cat(parts)

    def _add_log(self, base: int) -> Tensor:
        """Return the base after a full chunk."""
        matrix, log = self._bases[base], self._logs[base]
        if matrix is None:
            p = log.shape[1]
            matrix = torch.eye(p, dtype=log.dtype, device=log.device) * self._constant
        return add_gram(matrix.clone(), log, self._sign)

    def keep(self, versions: np.ndarray) -> None:
        """Delete all bases but the latest and those of some versions."""
        wanted = {*(versions // self._chunk).tolist(), self.latest // self._chunk}
        for base in [base for base in self._bases if base not in wanted]:
            del self._bases[base], self._logs[base]

    def split_product(self, versions: np.ndarray, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the base times x, [n, k, p], and u = Z x of the rows after it, for x of agents with versions [n].

        u is [n, k, chunk], and 0 for rows that are not part of an agent's version.
        """
        within = put_values(versions % self._chunk, x.device)
        known = torch.arange(self._chunk, device=x.device) < within[:, None, None]
        product, u = torch.empty_like(x), x.new_empty(*x.shape[:2], self._chunk)
        for base, members in self._groups(versions):
            part, matrix = x[members], self._bases[base]
            if matrix is None:
                product[members] = part * self._constant
            else:
                # The matrix is symmetric.
                _multiply(part, matrix.mT, product, members)
            _multiply(part, self._logs[base].mT, u, members)
        return product, u.mul_(known)

    def _groups(self, versions: np.ndarray) -> list[tuple[int, slice | Tensor]]:
        """Return every base with the indices of its agents: a slice, which moves no rows, where bases are in order."""
        bases = versions // self._chunk
        if (np.diff(bases) >= 0).all():
            ends = np.append(np.flatnonzero(np.diff(bases)) + 1, len(bases)).tolist()
            return [(int(bases[start]), slice(start, end)) for start, end in pairwise([0, *ends])]
        device = self._like.device
        return [(int(base), put_values(np.flatnonzero(bases == base), device)) for base in np.unique(bases)]

    def to_fill(self, versions: np.ndarray, counts: np.ndarray, rows: int) -> np.ndarray:
        """Return the additions to `counts` [n], [n], with which the rows of every base fill whole tiles.

        Agents are in the order of their bases, with counts * rows rows each.
        """
        more, step = np.zeros_like(counts), TILE // math.gcd(TILE, rows)
        for _, members in self._groups(versions):
            assert isinstance(members, slice)
            more[members.stop - 1] = -counts[members].sum() % step
        return more

    def solve_latest(self, x: Tensor) -> Tensor:
        """Return M x for rows x [k, p], with the latest version of M."""
        base, place = divmod(self.latest, self._chunk)
        matrix, log = self._bases[base], self._logs[base][:place]
        product = x * self._constant if matrix is None else multiply_rows(x[None], matrix.mT)[0]
        if not place:
            return product
        return torch.add(product, multiply_rows(multiply_rows(x[None], log.mT), log)[0], alpha=self._sign)

    def quadratic(self, versions: np.ndarray, x: Tensor) -> Tensor:
        """Return x^T M x for x [n, k, p] -> [n, k]."""
        product, u = self.split_product(versions, x)
        return product.mul_(x).sum(-1).add_(u.square_().sum(-1), alpha=self._sign)

    def join_product(self, versions: np.ndarray, base_product: Tensor, u: Tensor) -> Tensor:
        """Return M x [n, k, p] from the results of `split_product`, or from some of their rows."""
        product = torch.empty_like(base_product)
        for base, members in self._groups(versions):
            _multiply(u[members], self._logs[base], product, members)
        return torch.add(base_product, product, alpha=self._sign)

    def state(self) -> State:
        """Return all that `load` needs to continue with the same bits."""
        state: State = {"latest": torch.tensor(self.latest)}
        for base, matrix in self._bases.items():
            state[f"{base}.log"] = self._logs[base]
            if matrix is not None:
                state[f"{base}.matrix"] = matrix
        return state

    def load(self, state: State) -> None:
        """Continue from a `state`."""
        self.latest = int(state["latest"])
        bases = sorted(int(name.removesuffix(".log")) for name in state if name.endswith(".log"))
        self._logs = {base: state[f"{base}.log"].to(self._like, copy=True) for base in bases}
        self._bases = dict.fromkeys(bases)
        for base in bases:
            if f"{base}.matrix" in state:
                self._bases[base] = state[f"{base}.matrix"].to(self._like, copy=True)


def _multiply(x: Tensor, matrix: Tensor, to: Tensor, members: slice | Tensor) -> None:
    """Write x [n', k, ..] times a matrix to some agents' part of `to` [n, k, q]."""
    count = x.shape[0] * x.shape[1]
    if isinstance(members, slice) and count % TILE == 0 and count >= LEAST_ROWS:
        multiply_tiles(x.flatten(0, 1), matrix, out=to[members].flatten(0, 1))
    else:
        to[members] = multiply_rows(x, matrix)
