"""A matrix that grows by rows, at every length that somebody still works with.

Agents that do not wait for each other hold what the server told them at different times. The server's matrix is
c I + s Z^T Z with rows Z that only ever grow in number, so what it was at an earlier time is a number of those rows: a
version. Nothing is copied for an agent. Whenever `chunk` rows have come together they are settled into a matrix, a
base; a version is a base and the first so many rows of the chunk that follows it. Agents with the same base share one
matrix product. Bases that nobody works with any more are forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from fnbandit.slices import TILE, whole_tiles
from fnbandit.state import State


def chunk_rows(parameters: int) -> int:
    """Rows of a chunk: about p, in whole tiles. Fewer would put agents on more bases, each with products of its own."""
    return max(TILE, parameters // TILE * TILE)


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
        parts = [(self._met(base, x[few]), few) for base, few in self._groups(versions)]
        if len(parts) == 1:
            met, u = parts[0][0]
        else:
            met, u = torch.empty_like(x), x.new_empty(*x.shape[:2], self._chunk)
            for (one, other), few in parts:
                met[few], u[few] = one, other
        return met, u.mul_(known)

    def _met(self, base: int, x: Tensor) -> tuple[Tensor, Tensor]:
        tiles, matrix = whole_tiles(x), self._bases[base]
        met = x * self._constant if matrix is None else _rows(torch.mm(tiles, matrix), x)
        return met, _rows(torch.mm(tiles, self._logs[base].mT), x)

    def _groups(self, versions: np.ndarray) -> Iterator[tuple[int, slice | Tensor]]:
        """Bases, and which agents have them."""
        bases = versions // self._chunk
        found = np.unique(bases)
        if len(found) == 1:
            yield int(found[0]), slice(None)
        else:
            for base in found:
                yield int(base), torch.from_numpy(np.flatnonzero(bases == base)).to(self._like.device)

    def quadratic(self, versions: np.ndarray, x: Tensor) -> Tensor:
        """x^T M x for x [n, k, p] -> [n, k]."""
        met, u = self.meet(versions, x)
        return (met * x).sum(-1) + self._sign * u.square_().sum(-1)

    def product(self, versions: np.ndarray, met: Tensor, u: Tensor) -> Tensor:
        """M x [n, k, p] from what `meet` has returned, or from some of its rows."""
        result = torch.empty_like(met)
        for base, few in self._groups(versions):
            some = u[few]
            result[few] = met[few] + self._sign * _rows(torch.mm(whole_tiles(some), self._logs[base]), some)
        return result

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


def _rows(product: Tensor, x: Tensor) -> Tensor:
    """The rows of a product with x in whole tiles that belong to x [n, k, ..], as [n, k, q]."""
    return product[: x.shape[0] * x.shape[1]].unflatten(0, x.shape[:2])


class OwnRows:
    """Rows that n agents have added since their last download, each its own number of them.

    On top of M = V^-1: with u = Z x, x^T (V + G^T G)^-1 x = x^T V^-1 x - ||u||^2, and a coefficient per row gives the
    mean (see `FullEpoch`). Agents with about as many rows share a product.
    """

    def __init__(self, agents: int, parameters: int, like: Tensor) -> None:
        self._z = like.new_zeros(agents, 0, parameters)
        """[n, capacity, p]; 0 where an agent has no row"""
        self._coefficients = like.new_zeros(agents, 0)
        self.lengths = np.zeros(agents, dtype=np.int64)

    def reset(self, agent: int) -> None:
        """Begin anew."""
        self._z[agent, : self.lengths[agent]] = 0
        self._coefficients[agent, : self.lengths[agent]] = 0
        self.lengths[agent] = 0

    def evaluate(self, active: np.ndarray, x: Tensor) -> tuple[Tensor, Tensor, list[tuple[np.ndarray, Tensor]]]:
        """What own rows add to means and take from variances of x [n', k, p], each [n', k]; and Z x, in parts."""
        mean, variance = x.new_zeros(x.shape[:2]), x.new_zeros(x.shape[:2])
        parts = []
        rooms = room(self.lengths[active])
        for size in np.unique(rooms[rooms > 0]):
            some = np.flatnonzero(rooms == size)
            few, agents = torch.from_numpy(some).to(x.device), torch.from_numpy(active[some]).to(x.device)
            u = torch.bmm(x[few], self._z[agents, :size].mT)
            mean[few] = torch.bmm(self._coefficients[agents, None, :size], u.mT).squeeze(1)
            variance[few] = u.square().sum(-1)
            parts.append((some, u))
        return mean, variance, parts

    def lowered(
        self, active: np.ndarray, solved: Tensor, arms: Tensor, parts: list[tuple[np.ndarray, Tensor]]
    ) -> Tensor:
        """V-bar^-1 x [n', p] of the arms pulled [n'], from V^-1 x [n', p] and what `evaluate` has found."""
        for some, u in parts:
            few, agents = torch.from_numpy(some).to(arms.device), torch.from_numpy(active[some]).to(arms.device)
            chosen = u[torch.arange(len(some), device=arms.device), arms[few]]
            solved[few] = solved[few] - torch.bmm(chosen[:, None], self._z[agents, : u.shape[2]]).squeeze(1)
        return solved

    def append(self, active: np.ndarray, rows: Tensor, coefficients: Tensor) -> None:
        """One row of Z [n', p] and its coefficient [n'] for every active agent."""
        places = self.lengths[active]
        most = int(room(places + 1).max())
        if most > self._z.shape[1]:
            more = most - self._z.shape[1]
            self._z = torch.nn.functional.pad(self._z, (0, 0, 0, more))
            self._coefficients = torch.nn.functional.pad(self._coefficients, (0, more))
        agents, at = (torch.from_numpy(values).to(rows.device) for values in (active, places))
        self._z[agents, at] = rows
        self._coefficients[agents, at] = coefficients
        self.lengths[active] += 1

    def state_of(self, agent: int) -> State:
        """One agent's rows."""
        length = self.lengths[agent]
        return {"z": self._z[agent, :length], "coefficients": self._coefficients[agent, :length]}

    def load_of(self, agent: int, state: State) -> None:
        """Take over one agent's rows."""
        self.reset(agent)
        for row, coefficient in zip(state["z"], state["coefficients"], strict=True):
            self.append(np.array([agent]), row[None].to(self._z), coefficient[None].to(self._z))


def room(lengths: np.ndarray) -> np.ndarray:
    """Rows that are worked on for agents with so many: 0, 8, 32, 128, ...; a function of the agent's own alone."""
    result = np.where(lengths > 0, 8, 0)
    while (result < lengths).any():
        result = np.where(result < lengths, 4 * result, result)
    return result
