"""The replica of the global statistics that the agents of a process share, for rounds at a barrier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fnbandit.config import Config
from fnbandit.core import Cost, Download, StatisticsUpdate, Upload
from fnbandit.covariance import Estimate, Lift, LocalInverses, matrices
from fnbandit.federation.aggregation import make_aggregation
from fnbandit.federation.messages import Contents, exchange_cost
from fnbandit.federation.participation import make_participation
from fnbandit.federation.parts import CommunicationParts
from fnbandit.federation.triggers import RoundCounters
from fnbandit.numerics.state import State, add_prefix, remove_prefix
from fnbandit.numerics.tree import TreeSum, gather, sum_vectors

THETA_ALONE = Contents(networks=1)
"""A message of an exchange after the first of its round, which only averages networks"""


@dataclass(frozen=True)
class Networks:
    """The initial network and the local inverses of all agents, which UCB^b adds to the replica."""

    theta: Tensor
    """theta_0 [p], in the network's precision"""
    inverses: LocalInverses


class Replica(CommunicationParts):
    """W_sync, B_sync, theta_sync,NN, alpha and the local inverses.

    There is one per process, which its agents share; a simulation in one process shares it with the server. `apply` is
    a deterministic function of the downloads, so that all replicas hold the same bits.
    """

    is_versioned = False

    def __init__(
        self,
        config: Config,
        lift: Lift,
        parameters: int,
        like: Tensor,
        up: Contents,
        down: Contents,
        networks: Networks | None = None,
    ) -> None:
        super().__init__(config, lift, parameters, up, down)
        self._agents = config.agents
        self._averages_theta = make_aggregation(config).linear
        regularization = config.number("regularization")
        self.estimate: Estimate = matrices(config).estimate(
            parameters, regularization, like, lift, self.trigger.needs_diagonal
        )
        """V_last and B_sync"""
        self.theta = None if networks is None else networks.theta
        """theta_sync,NN [p], in the network's precision"""
        self.inverses = None if networks is None else networks.inverses
        """The local inverses that define the norm of UCB^b"""
        self.alpha: Tensor | float = 0.0
        """alpha of the last round"""
        self.last_round = 0
        """t_last"""
        self.rounds = 0
        """Number of rounds so far"""
        self.last_trained = 0
        """Iteration of the last round for which agents trained"""
        self.participation = make_participation(config)
        self.since = np.zeros(config.agents, dtype=np.int64)
        """Iteration of every agent's last upload, [N]"""

    def counters(self, iteration: int) -> RoundCounters:
        """Return the position of an iteration among the rounds."""
        return RoundCounters(iteration, self.last_round, self.rounds)

    def participants(self, iteration: int) -> np.ndarray:
        """Return the participants of the round of an iteration: [N], True for each of them."""
        return self.participation.draw(self.rounds, iteration)

    def count_rows(self, iteration: int) -> int:
        """Return the rows of an upload in an iteration's round: those of the agent whose last upload is the oldest."""
        return iteration - int(self.since.min())

    def cost(self, iteration: int, signals: int | None) -> Cost:
        """Return the cost of the first exchange of an iteration's round."""
        rows, counts = np.unique(iteration - self.since[self.participants(iteration)], return_counts=True)
        ups = [(int(n), self.chain.size_upload(self.up, int(k))) for k, n in zip(rows, counts, strict=True)]
        total = int((rows * counts).sum())
        down = self.chain.size_download(self.down, iteration - self.last_round, total)
        return exchange_cost(ups, (self._agents, down), signals)

    def later_cost(self, iteration: int) -> Cost:
        """Return the cost of each exchange after the first, which only averages networks."""
        up, down = self.chain.size_upload(THETA_ALONE, 0), self.chain.size_download(THETA_ALONE, 0)
        return exchange_cost([(int(self.participants(iteration).sum()), up)], (self._agents, down))

    def reductions(self, iteration: int) -> dict[str, TreeSum]:
        """Return the sums by which the server reduces each field of all agents' uploads in an iteration's round."""
        length = self.count_rows(iteration)
        sums = {"covariance": self.estimate.sum(self._agents, length), "moments": sum_vectors(self._agents)}
        if self.inverses is not None:
            sums["theta"] = (sum_vectors if self._averages_theta else gather)(self._agents)
            sums["inverse"] = self.inverses.sum(length)
        return sums

    def reduce(self, upload: Upload) -> Upload:
        """Return the upload of a batch with partial sums in place of each agent's values."""
        parts: dict[str, Any] = {}
        for name, reduction in self.reductions(upload.iteration).items():
            values = getattr(upload, name)
            if values is not None:
                parts[name] = reduction.parts(upload.agents, values)
        return replace(upload, **parts)

    def apply(self, downloads: Sequence[Download], own: range) -> None:
        """Apply downloads (Alg. 1, lines 17-18). Agents in `own` have updated their own local inverses already."""
        for download in downloads:
            if isinstance(download.statistics, StatisticsUpdate):
                self.estimate.apply(download.statistics.covariance, download.statistics.sum_of_moments)
            if self.inverses is not None and download.inverses is not None:
                self.inverses.apply(download.inverses, own)
            self.theta = download.theta
            if not download.is_last:
                continue
            self.alpha = download.alpha
            self.since[self.participants(download.iteration)] = download.iteration
            self.last_round = download.iteration
            self.rounds += 1
            if download.trained:
                self.last_trained = download.iteration

    def state(self) -> State:
        """Return all that `load` needs to continue with the same bits."""
        tensors = {
            "alpha": torch.as_tensor(self.alpha, dtype=torch.float64),
            "last_round": torch.tensor(self.last_round),
            "rounds": torch.tensor(self.rounds),
            "last_trained": torch.tensor(self.last_trained),
            "since": torch.from_numpy(self.since.copy()),
            **add_prefix("estimate", self.estimate.state()),
        }
        if self.theta is not None and self.inverses is not None:
            tensors |= {"theta": self.theta, **add_prefix("inverses", self.inverses.state())}
        return tensors

    def load(self, state: State) -> None:
        """Continue from another replica's `state`."""
        self.alpha = state["alpha"].to(self.estimate.sum_of_moments)
        self.last_round, self.rounds = int(state["last_round"]), int(state["rounds"])
        self.last_trained = int(state["last_trained"])
        self.since = state["since"].numpy().copy()
        self.estimate.load(remove_prefix("estimate", state))
        if self.theta is not None and self.inverses is not None:
            self.theta = state["theta"].to(self.theta)
            self.inverses.load(remove_prefix("inverses", state))

    def retain(self, batches: Sequence[Any]) -> None:
        """Do nothing: a replica of rounds at a barrier has only one version."""

    def encode(self, downloads: Sequence[Download]) -> dict[str, Any]:
        """Return a message for other replicas: downloads that this one has applied, or its state if that is smaller.

        The state replaces the statistics, theta and alpha of the downloads.
        """
        if downloads:
            state = self.state()
            if count_numbers(downloads) > sum(tensor.numel() for tensor in state.values()):
                bare = [replace(one, statistics=None, theta=None, alpha=0.0, inverses=None) for one in downloads]
                return {"downloads": bare, "state": state}
        return {"downloads": list(downloads), "state": None}

    def decode(self, message: dict[str, Any], own: range) -> list[Download]:
        """Apply another replica's message; return its downloads."""
        if message["state"] is None:
            self.apply(message["downloads"], own)
        else:
            self.load(message["state"])
        return message["downloads"]


def count_numbers(value: Any) -> int:
    """Return the number of numbers in the tensors of a message."""
    if isinstance(value, Tensor):
        return value.numel()
    if isinstance(value, list | tuple):
        return sum(map(count_numbers, value))
    return sum(map(count_numbers, vars(value).values())) if hasattr(value, "__dataclass_fields__") else 0
