"""The server (Alg. 2), and the global statistics that it and every process of agents hold."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fnbandit.config import Config
from fnbandit.covariance import Diagonal, Full, few_at_once, shrink
from fnbandit.messages import Broadcast, Upload
from fnbandit.network import Features

SLICE = 4096
"""Rows of the local inverses that are averaged at once."""


class GlobalStatistics:
    """What a broadcast has told: W_sync, B_sync, theta_sync,NN, alpha and the local inverses.

    One per process: the agents of a process share it, and in one process the server too.
    `apply` is a deterministic function of the broadcasts, so that all copies hold the same bits.
    """

    def __init__(self, config: Config, dim: int, like: Tensor) -> None:
        self.features = Features(config, dim, like)
        parameters = self.features.parameters
        kind = Diagonal if config.diagonal else Full
        shared = {} if config.diagonal else {"shared": True}
        regularization = config.number("regularization")
        self._config = config
        self.covariance: Full | Diagonal = kind(1, parameters, regularization, like, **shared)
        """V_last = lambda I + W_sync"""
        self.diagonal = like.new_full((1, parameters), regularization)
        """The diagonal of V_last (for the diagonal trigger)"""
        self.moments = like.new_zeros(parameters)
        """B_sync"""
        self.estimate = like.new_zeros(parameters)
        """V_last^-1 B_sync"""
        self.parameters = None
        """theta_sync,NN [p], in the network's precision"""
        if self.features.network is not None:
            self.parameters = self.features.initial.to(getattr(torch, config.network_dtype))
        self.weight: Tensor | float = 0.0
        """alpha"""
        self.last_round = 0
        """t_last"""
        self.average: Full | Tensor | None = None
        """V_sync,NN^-1, or its diagonal [p] (Less Comm.)"""
        self.peers: Tensor | None = None
        """V_local^-1 of all N agents, [N, p, p], or the diagonals [N, p] (FN-UCB)"""
        if config.networked:
            if config.algorithm == "fn-ucb":
                self.peers = kind(config.agents, parameters, regularization, like).inverse
            else:
                average = kind(1, parameters, regularization, like, **shared)
                self.average = average if isinstance(average, Full) else average.inverse[0]

    def state(self) -> dict[str, Tensor]:
        """Everything that `load` needs to go on with the same bits."""
        tensors = {
            "diagonal": self.diagonal,
            "moments": self.moments,
            "estimate": self.estimate,
            "weight": torch.as_tensor(self.weight, dtype=torch.float64),
            "last_round": torch.tensor(self.last_round),
            "parameters": self.parameters,
            "peers": self.peers,
        }
        for name, holder in (("covariance", self.covariance), ("average", self.average)):
            if isinstance(holder, Full):
                tensors |= {f"{name}.{part}": tensor for part, tensor in holder.state().items()}
            else:
                tensors[name] = holder.diagonal if isinstance(holder, Diagonal) else holder
        return {name: tensor for name, tensor in tensors.items() if tensor is not None}

    def load(self, state: dict[str, Tensor]) -> None:
        """Take over another copy's `state`."""
        like = self.moments
        if isinstance(self.covariance, Full):
            self.covariance.load(parts(state, "covariance"))
        else:
            self.covariance.diagonal.copy_(state["covariance"])
        self.diagonal = state["diagonal"].to(like)
        self.moments = state["moments"].to(like)
        self.estimate = state["estimate"].to(like)
        self.weight = state["weight"].to(like)
        self.last_round = int(state["last_round"])
        if self.parameters is not None:
            self.parameters = state["parameters"].to(self.parameters)
        if isinstance(self.average, Full):
            self.average.load(parts(state, "average"))
        elif self.average is not None:
            self.average = state["average"].to(like)
        if self.peers is not None:
            # In place: agents' own inverses are views of it.
            self.peers.copy_(state["peers"])

    def apply(self, broadcast: Broadcast, own: range) -> None:
        """Take in a round (Alg. 1, lines 17-18); the inverses of the agents in `own` are there."""
        if broadcast.covariance is not None and broadcast.moments is not None:
            self._apply_global(broadcast.covariance, broadcast.moments)
        self.parameters = broadcast.parameters
        self.weight = broadcast.weight
        self.last_round = broadcast.iteration
        if broadcast.local is not None:
            self._apply_local(broadcast.local, own)

    def _apply_global(self, covariance: Tensor, moments: Tensor) -> None:
        self.moments = moments
        if isinstance(self.covariance, Diagonal):
            self.covariance.absorb(covariance.sum(0))
            self.diagonal = self.covariance.diagonal
        else:
            contexts = covariance.flatten(0, 1)[None]
            self.estimate = self.covariance.absorb_and_solve(contexts, self.features, moments[None, None])[0, 0]
            if self._config.trigger == "diagonal":
                self.diagonal = self.diagonal + self.features(contexts).square().sum(1)

    def _apply_local(self, local: Tensor, own: range) -> None:
        if isinstance(self.average, Full):
            # The mean of V_local^-1 - Z^T Z over agents.
            for rows in local.flatten(0, 1).split(SLICE):
                self.average.shrink(rows[None] / self._config.agents**0.5)
        elif self.average is not None:
            self.average = local.mean(0)
        elif self.peers is not None and self.peers.ndim == 3:
            for others in (slice(0, own.start), slice(own.stop, self._config.agents)):
                shrink(self.peers[others], local[others])
        else:
            self.peers = local

    def deviation(self, x: Tensor) -> Tensor:
        """The norm in UCB^b for features x [n, k, p] -> [n, k] (Alg. 1, line 6; Sec. 3.4).

        The mean over agents of ||x||_{V_local^-1} (FN-UCB), or ||x||_{V_sync,NN^-1} (Less Comm.).
        """
        if isinstance(self.average, Full):
            return self.average.quadratic(x).clamp_(min=0).sqrt_()
        if self.average is not None:
            parts = few_at_once(len(x), x[0].numel(), x)
            return torch.cat([(x[few] * self.average).mul_(x[few]).sum(-1) for few in parts]).sqrt_()
        assert self.peers is not None
        if self.peers.ndim == 2:
            squares = torch.bmm(x * x, self.peers.mT.expand(len(x), -1, -1))
            return squares.sqrt_().mean(-1)
        norms = [(torch.bmm(x, peer.expand(len(x), -1, -1)) * x).sum(-1) for peer in self.peers]
        return torch.stack(norms, dim=-1).clamp_(min=0).sqrt_().mean(-1)


class Server:
    """Sums, averages, takes the minimum, and broadcasts (Alg. 2, lines 3-6)."""

    def __init__(self, config: Config, statistics: GlobalStatistics) -> None:
        self._config = config
        self.statistics = statistics

    def aggregate(self, iteration: int, uploads: list[Upload]) -> Broadcast:
        """One broadcast from the uploads of all groups, in agent order."""
        covariance = moments = parameters = local = None
        weight: Tensor | float = 0.0
        if uploads[0].covariance is not None:
            covariance = _together([upload.covariance for upload in uploads])
            moments = self.statistics.moments + _together([upload.moments for upload in uploads]).sum(0)
        if self._config.networked:
            parameters = _together([upload.parameters for upload in uploads]).mean(0)
            local = _together([upload.local for upload in uploads])
            if self._config.weight == "theory":
                weight = _together([upload.weight for upload in uploads]).min()
        return Broadcast(
            iteration=iteration,
            covariance=covariance,
            moments=moments,
            parameters=parameters,
            weight=weight,
            local=local,
        )


def parts(state: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    """What belongs to a part of a state: "name.rows" as "rows"."""
    return {key.removeprefix(f"{name}."): tensor for key, tensor in state.items() if key.startswith(f"{name}.")}


def _together(parts: Sequence[Tensor | None]) -> Tensor:
    tensors = [part for part in parts if part is not None]
    return torch.cat(tensors) if len(tensors) > 1 else tensors[0]
