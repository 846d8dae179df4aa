"""A matrix that grows by rows, at every length that somebody still works with.

Agents that do not wait for each other hold what the server told them at different times. The server's matrix is
c I + s Z^T Z with rows Z that only ever grow in number, so what it was at an earlier time is a number of those rows: a
version. Nothing is copied for an agent. Whenever `chunk` rows have come together they are settled into a matrix, a
base; a version is a base and the first so many rows of the chunk that follows it. Agents with the same base share one
matrix product. Bases that nobody works with any more are forgotten.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from fnbandit.slices import TILE, whole_tiles
from fnbandit.state import State


def chunk_rows(parameters: int) -> int:
    """Rows of a chunk: about p / 2, in whole tiles.

    More would add to every product; fewer would put agents on more bases, each with products of its own.
    """
    return max(TILE, parameters // 2 // TILE * TILE)


class Versions:
    """M = c I + s Z^T Z, [p, p], for all lengths of Z that are asked for."""

    def __init__(self, parameters: int, like: Tensor, constant: float, sign: float) -> None:
        self._constant, self._sign = constant, sign
        self._chunk = chunk_rows(parameters)
        self._like = like.new_empty(0, parameters)
        self.latest = 0
        """Rows of Z so far: the latest version"""
        self._bases: dict[int, Tensor | None] = {0: None}
        """Matrices by the number of chunks settled in them; None is c I"""
        self._logs: dict[int, Tensor] = {0: self._empty()}
        """The chunk after every base, [chunk, p]; rows that have not come yet are 0"""

    def _empty(self) -> Tensor:
        return self._like.new_zeros(self._chunk, self._like.shape[1])

    def append(self, rows: Tensor) -> None:
        """Let Z grow by rows [k, p]."""
        while len(rows):
            base, place = divmod(self.latest, self._chunk)
            part = rows[: self._chunk - place]
            self._logs[base][place : place + len(part)] = part
            self.latest += len(part)
            rows = rows[len(part) :]
            if place + len(part) == self._chunk:
                self._bases[base + 1] = self._settled(base)
                self._logs[base + 1] = self._empty()

    def between(self, start: int, end: int) -> Tensor:
        """Rows start + 1 to end of Z, of chunks that have not been forgotten."""
        parts = [self._like]
        while start < end:
            base, place = divmod(start, self._chunk)
            parts.append(self._logs[base][place : place + end - start])
            start += len(parts[-1])
        return torch.cat(parts)

    def _settled(self, base: int) -> Tensor:
        matrix, log = self._bases[base], self._logs[base]
        if matrix is None:
            p = log.shape[1]
            matrix = torch.eye(p, dtype=log.dtype, device=log.device) * self._constant
        return torch.addmm(matrix, log.mT, log, alpha=self._sign)

    def keep(self, versions: np.ndarray) -> None:
        """Forget all bases but the latest and those of some versions."""
        wanted = {*(versions // self._chunk).tolist(), self.latest // self._chunk}
        for base in [base for base in self._bases if base not in wanted]:
            del self._bases[base], self._logs[base]

    def meet(self, versions: np.ndarray, x: Tensor) -> tuple[Tensor, Tensor]:
        """For x [n, k, p] of agents with versions [n]: the base times x, [n, k, p], and u = Z x of the rows after it.

        u is [n, k, chunk], and 0 for rows that an agent's version does not have.
        """
        within = torch.from_numpy(versions % self._chunk).to(x.device)
        known = torch.arange(self._chunk, device=x.device) < within[:, None, None]
        met, u = torch.empty_like(x), x.new_empty(*x.shape[:2], self._chunk)
        for base, few in self._groups(versions):
            some, matrix = x[few], self._bases[base]
            if matrix is None:
                met[few] = some * self._constant
            else:
                _multiply(some, matrix, met, few)
            _multiply(some, self._logs[base].mT, u, few)
        return met, u.mul_(known)

    def _groups(self, versions: np.ndarray) -> list[tuple[int, slice | Tensor]]:
        """Every base, and who works with it; as slices where agents stand in order, so that no rows need be moved."""
        bases = versions // self._chunk
        if (np.diff(bases) >= 0).all():
            ends = np.append(np.flatnonzero(np.diff(bases)) + 1, len(bases)).tolist()
            return [(int(bases[start]), slice(start, end)) for start, end in pairwise([0, *ends])]
        device = self._like.device
        return [(int(base), torch.from_numpy(np.flatnonzero(bases == base)).to(device)) for base in np.unique(bases)]

    def to_fill(self, versions: np.ndarray, counts: np.ndarray, rows: int) -> np.ndarray:
        """Agents stand in order, with so many times `rows` rows each: how many more of each make whole tiles, [n]."""
        more, step = np.zeros_like(counts), TILE // math.gcd(TILE, rows)
        for _, few in self._groups(versions):
            assert isinstance(few, slice)
            more[few.stop - 1] = -counts[few].sum() % step
        return more

    def solve_latest(self, x: Tensor) -> Tensor:
        """M x for rows x [k, p] with the latest version."""
        base, place = divmod(self.latest, self._chunk)
        matrix, log = self._bases[base], self._logs[base][:place]
        met = x * self._constant if matrix is None else torch.mm(x, matrix)
        return torch.addmm(met, torch.mm(x, log.mT), log, alpha=self._sign) if place else met

    def quadratic(self, versions: np.ndarray, x: Tensor) -> Tensor:
        """x^T M x for x [n, k, p] -> [n, k]."""
        met, u = self.meet(versions, x)
        return met.mul_(x).sum(-1).add_(u.square_().sum(-1), alpha=self._sign)

    def product(self, versions: np.ndarray, met: Tensor, u: Tensor) -> Tensor:
        """M x [n, k, p] from what `meet` has returned, or from some of its rows."""

        product = torch.empty_like(met)
        for base, few in self._groups(versions):
            _multiply(u[few], self._logs[base], product, few)
        return torch.add(met, product, alpha=self._sign)

    def state(self) -> State:
        """What `load` needs to go on with the same bits."""
        state: State = {"latest": torch.tensor(self.latest)}
        for base, matrix in self._bases.items():
            state[f"{base}.log"] = self._logs[base]
            if matrix is not None:
                state[f"{base}.matrix"] = matrix
        return state

    def load(self, state: State) -> None:
        """Take over another copy's `state`."""
        self.latest = int(state["latest"])
        bases = sorted(int(name.removesuffix(".log")) for name in state if name.endswith(".log"))
        self._logs = {base: state[f"{base}.log"].to(self._like, copy=True) for base in bases}
        self._bases = dict.fromkeys(bases)
        for base in bases:
            if f"{base}.matrix" in state:
                self._bases[base] = state[f"{base}.matrix"].to(self._like, copy=True)


def _multiply(x: Tensor, matrix: Tensor, to: Tensor, few: slice | Tensor) -> None:
    """Write x [n', k, ..] times a matrix to some agents' part of `to` [n, k, q]."""
    count = x.shape[0] * x.shape[1]
    if isinstance(few, slice) and count % TILE == 0:
        torch.mm(x.flatten(0, 1), matrix, out=to[few].flatten(0, 1))
    else:
        to[few] = torch.mm(whole_tiles(x), matrix)[:count].unflatten(0, x.shape[:2])
