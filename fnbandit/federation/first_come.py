"""Replica and server of agents that do not wait for each other: the server answers one upload after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fnbandit.config import Config
from fnbandit.config.registry import build
from fnbandit.core import Cost, Download, Round, StatisticsVersion, Upload
from fnbandit.covariance import Lift
from fnbandit.covariance.full import CHUNK, compute_downdate
from fnbandit.covariance.versions import Versions
from fnbandit.federation.alpha import make_alpha
from fnbandit.federation.messages import Contents, exchange_cost
from fnbandit.federation.parts import CommunicationParts
from fnbandit.federation.quantities import average_quantities
from fnbandit.federation.triggers import RoundCounters
from fnbandit.numerics.device import put_values, read_scalars
from fnbandit.numerics.products import multiply
from fnbandit.numerics.state import State, add_prefix, remove_prefix


class VersionedReplica(CommunicationParts):
    """V^-1 and the sum of downdates of local inverses, at every version that an agent holds.

    There is one per process, which its agents share. The server appends the versions to its own, which is the same in a
    simulation in one process.
    """

    is_versioned = True

    def __init__(
        self,
        config: Config,
        lift: Lift,
        parameters: int,
        like: Tensor,
        contents: tuple[Contents, Contents],
        theta: Tensor | None = None,
    ) -> None:
        super().__init__(config, lift, parameters, *contents)
        self.like = like
        self._sent: tuple[int, int] | None = None
        """Versions that other replicas hold"""
        self.covariance = Versions(parameters, like, 1 / config.number("regularization"), -1.0)
        """V^-1 with V = lambda I + W"""
        self.inverses = None if theta is None else Versions(parameters, like, 0.0, 1.0)
        """Sum of I / lambda - V_local^-1 over agents; None without networks"""
        self.theta_0 = theta
        """[p], in the network's precision; None without networks"""

    def cost(self, rows: int, new: int) -> Cost:
        """Return the cost of a round in which an agent sends `rows` rows and receives `new` rows."""
        up, down = self.chain.size_upload(self.up, rows), self.chain.size_download(self.down, rows, new)
        return exchange_cost([(1, up)], (1, down))

    @property
    def latest(self) -> tuple[int, int]:
        """Latest versions of V and of the inverses."""
        return self.covariance.latest, self.inverses.latest if self.inverses else 0

    def apply(self, downloads: Sequence[Download], own: range) -> None:
        """Do nothing: the server has already appended the versions of its downloads."""

    def retain(self, batches: Sequence[Any]) -> None:
        """Drop versions that no agent of the batches holds."""
        groups = [batch.group for batch in batches]
        self.keep(
            np.concatenate([group.versions for group in groups]),
            np.concatenate([group.inverse_versions for group in groups]),
        )

    def encode(self, downloads: Sequence[Download]) -> dict[str, Any]:
        """Return a message for other replicas: rows that they do not hold yet, and downloads."""
        latest = self.latest
        sent, self._sent = self._sent or latest, latest
        message = {
            "rows": self.covariance.between(sent[0], latest[0]),
            "inverses": self.inverses.between(sent[1], latest[1]) if self.inverses else None,
            "downloads": list(downloads),
        }
        # The server reads the latest version only.
        self.keep(np.array([latest[0]]), np.array([latest[1]]))
        return message

    def decode(self, message: dict[str, Any], own: range) -> list[Download]:
        """Append the rows of another replica's message; return its downloads."""
        self.covariance.append(message["rows"].to(self.like))
        if self.inverses is not None:
            self.inverses.append(message["inverses"].to(self.like))
        return message["downloads"]

    def keep(self, versions: np.ndarray, inverses: np.ndarray) -> None:
        """Drop the versions that no agent holds."""
        self.covariance.keep(versions)
        if self.inverses is not None:
            self.inverses.keep(inverses)

    def state(self) -> State:
        """Return all that `load` needs to continue with the same bits."""
        state = add_prefix("covariance", self.covariance.state())
        return state if self.inverses is None else state | add_prefix("inverses", self.inverses.state())

    def load(self, state: State) -> None:
        """Continue from another replica's `state`."""
        self.covariance.load(remove_prefix("covariance", state))
        if self.inverses is not None:
            self.inverses.load(remove_prefix("inverses", state))


class FirstComeServer:
    """Answers one agent's upload after another, each with the statistics of that time.

    It adds W_new and B_new. In its averages, over the agents that have uploaded so far, it replaces the agent's
    network, weighted by its share w(staleness), and downdates the average of local inverses by the agent's downdate
    rows, weighted by w(staleness). It combines the alphas that it holds as the server of a barrier does.
    """

    def __init__(self, config: Config, replica: VersionedReplica) -> None:
        self.replica = replica
        self._share = build("staleness", config.staleness, config)
        self._rule = make_alpha(config)
        n, like = config.agents, replica.like
        self.rounds = 0
        """Number of rounds of all agents so far"""
        self._last = np.zeros(n, dtype=np.int64)
        """Number of rounds of all agents up to every agent's last one"""
        self._counts = np.zeros(n, dtype=np.int64)
        """Number of rounds of every agent"""
        self.sum_of_moments = like.new_zeros(replica.parameters)
        """B [p]"""
        self._versions = np.zeros(n, dtype=np.int64)
        """Version of V in every agent's last download"""
        self._shares = like.new_zeros(n, dtype=torch.float64)
        """Share of every agent's network in the average; 0 before its first upload"""
        self._trained = False
        self.theta = replica.theta_0
        """The averaged network [p]"""
        if self.theta is not None:
            self._thetas = self.theta.new_zeros(n, len(self.theta))
            numbers = self._rule.numbers
            self._alphas = like.new_zeros(n) if numbers == 1 else like.new_zeros(n, numbers)

    def staleness(self, agent: int) -> int:
        """Return the number of other agents' rounds since the agent's last one."""
        return int(self.rounds - self._last[agent])

    def exchange(self, uploads: Sequence[Upload]) -> Download:
        """Answer the upload of one agent."""
        (upload,) = uploads
        agent = upload.agents.start
        counters = RoundCounters(upload.iteration, upload.since, int(self._counts[agent]))
        self._counts[agent] += 1
        self._stale = self.staleness(agent)
        share = self._share(self._stale)
        self.rounds += 1
        self._last[agent] = self.rounds
        solution = self._absorb(_tensor(upload.covariance), _tensor(upload.moments)[0])
        inverses = self.replica.inverses
        version = StatisticsVersion(self.replica.covariance.latest, solution)
        download = Download(upload.agents, upload.iteration, version)
        if inverses is None or upload.theta is None or self.theta is None:
            return download
        inverses.append(_tensor(upload.inverse)[0] * share**0.5)
        self._shares[agent] = share
        self._thetas[agent] = _tensor(upload.theta)[0]
        self._trained |= upload.trained
        shares = self._shares.to(self._thetas)
        self.theta = torch.mv(self._thetas.mT, shares) / shares.sum()
        uploaders = np.flatnonzero(self._last)
        alpha: Tensor | float = 0.0
        if upload.alpha is not None:
            self._alphas[agent] = upload.alpha[0]
            alpha = self._rule.combine(self._alphas[put_values(uploaders, self._alphas.device)], counters)
        version = replace(version, inverses=inverses.latest, uploaders=len(uploaders))
        return replace(download, statistics=version, theta=self.theta, alpha=alpha, trained=self._trained)

    def record(self, sent: Sequence[Sequence[Upload]], download: Download) -> Round:
        """Build the record of the round that `exchange` answered last."""
        ((upload,),) = sent
        agent, version, length = upload.agents.start, download.statistics, upload.iteration - upload.since
        assert isinstance(version, StatisticsVersion)
        cost = self.replica.cost(length, version.covariance - int(self._versions[agent]))
        self._versions[agent] = version.covariance
        return Round(
            iteration=upload.iteration,
            length=length,
            triggered=(agent,),
            measure=read_scalars(upload.measure)[0],
            level=self.replica.trigger.level,
            cost=cost,
            quantities=average_quantities([upload], download),
            staleness=self._stale,
        )

    def _absorb(self, rows: Tensor, moments: Tensor) -> Tensor:
        """Set V <- V + G^T G for rows G [1, k, p] and B <- B + moments; return V^-1 B [p]."""
        self.sum_of_moments = self.sum_of_moments + moments
        covariance, right = self.replica.covariance, self.sum_of_moments[None, None]
        solution = None
        for part in rows.split(CHUNK, dim=1):
            both = part if solution is not None else torch.cat([part, right], dim=1)
            solved = covariance.solve_latest(both[0])[None]
            if solution is None:
                solved, solution = solved[:, :-1], solved[:, -1:]
            change = compute_downdate(part, solved)
            covariance.append(change[0])
            solution = solution - multiply(multiply(right, change.mT), change)
        assert solution is not None
        return solution[0, 0]

    def state(self) -> State:
        """Return all that `load` needs, beside the replica's state, to continue with the same bits."""
        state = {
            "rounds": torch.tensor(self.rounds),
            "last": torch.from_numpy(self._last),
            "counts": torch.from_numpy(self._counts),
            "sum_of_moments": self.sum_of_moments,
            "shares": self._shares,
            "versions": torch.from_numpy(self._versions),
            "trained": torch.tensor(self._trained),
        }
        if self.theta is not None:
            state |= {"theta": self.theta, "thetas": self._thetas, "alphas": self._alphas}
        return state

    def load(self, state: State) -> None:
        """Continue from a `state`; the replica loads its own, with the versions that agents hold."""
        self.rounds, self._trained = int(state["rounds"]), bool(state["trained"])
        self._last = state["last"].numpy().copy()
        self._counts = state["counts"].numpy().copy()
        self.sum_of_moments = state["sum_of_moments"].to(self.sum_of_moments)
        self._shares = state["shares"].to(self._shares, copy=True)
        self._versions = state["versions"].numpy().copy()
        if self.theta is not None:
            self.theta = state["theta"].to(self.theta)
            self._thetas = state["thetas"].to(self._thetas, copy=True)
            self._alphas = state["alphas"].to(self._alphas, copy=True)


def _tensor(values: Tensor | list[Tensor] | None) -> Tensor:
    assert isinstance(values, Tensor)
    return values
