"""What broadcasts have told the agents of a process, which they hold in common."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fnbandit.config import Config
from fnbandit.covariance import Estimate, Lift, LocalInverses, matrices
from fnbandit.rounds.aggregation import make_aggregation
from fnbandit.rounds.common import Common
from fnbandit.rounds.messages import Broadcast, Contents, Size, Upload
from fnbandit.rounds.triggers import Moment
from fnbandit.state import State, prefixed, unprefixed
from fnbandit.tree import Sum, everyone, vectors


@dataclass(frozen=True)
class Networks:
    """What UCB^b adds to what agents share: an initial theta and everybody's local inverses."""

    theta: Tensor
    """theta_0 [p], in the network's precision"""
    inverses: LocalInverses


class Shared(Common):
    """W_sync, B_sync, theta_sync,NN, alpha and the local inverses; and the parts that rounds are made of.

    One per process: its agents share it, and in one process the server too. `apply` is a deterministic
    function of the broadcasts, so that all copies hold the same bits.
    """

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
        """What UCB^b's norm is made of"""
        self.weight: Tensor | float = 0.0
        """alpha, as the last round broadcast it"""
        self.last_round = 0
        """t_last"""
        self.rounds = 0
        """Rounds so far"""
        self.last_trained = 0
        """The iteration of the last round for which agents have trained"""

    def moment(self, iteration: int) -> Moment:
        """Where an iteration stands among the rounds."""
        return Moment(iteration, self.last_round, self.rounds)

    def sizes(self, rows: int) -> tuple[Size, Size]:
        """Of one agent's upload, and of one broadcast, in a round that ends an epoch of so many iterations."""
        return self.channel.up(self._up, rows), self.channel.down(self._down, rows)

    def sums(self, iteration: int) -> dict[str, Sum]:
        """How the server gets what all agents upload in an iteration's round, by field of `Upload`."""
        length = iteration - self.last_round
        sums = {"news": self.estimate.sum(self._agents, length), "moments": vectors(self._agents)}
        if self.inverses is not None:
            sums["theta"] = (vectors if self._averages_theta else everyone)(self._agents)
            sums["change"] = self.inverses.sum(length)
        return sums

    def summed(self, iteration: int, agents: range, upload: Upload) -> Upload:
        """The upload of some agents with sums in place of what the server needs the sum of only."""
        parts: dict[str, Any] = {}
        for name, way in self.sums(iteration).items():
            values = getattr(upload, name)
            if isinstance(values, Tensor):
                parts[name] = way.parts(agents, values)
        return replace(upload, **parts)

    def apply(self, broadcast: Broadcast, own: range) -> None:
        """Take in a round (Alg. 1, lines 17-18); agents in `own` have brought their own local inverses up to date."""
        if broadcast.news is not None and broadcast.sum_of_moments is not None:
            self.estimate.apply(broadcast.news, broadcast.sum_of_moments)
        if self.inverses is not None and broadcast.inverses is not None:
            self.inverses.apply(broadcast.inverses, own)
        self.theta = broadcast.theta
        self.weight = broadcast.weight
        self.last_round = broadcast.iteration
        self.rounds += 1
        if broadcast.trained:
            self.last_trained = broadcast.iteration

    def state(self) -> State:
        """Everything that `load` needs to go on with the same bits."""
        tensors = {
            "weight": torch.as_tensor(self.weight, dtype=torch.float64),
            "last_round": torch.tensor(self.last_round),
            "rounds": torch.tensor(self.rounds),
            "last_trained": torch.tensor(self.last_trained),
            **prefixed("estimate", self.estimate.state()),
        }
        if self.theta is not None and self.inverses is not None:
            tensors |= {"theta": self.theta, **prefixed("inverses", self.inverses.state())}
        return tensors

    def load(self, state: State) -> None:
        """Take over another copy's `state`."""
        self.weight = state["weight"].to(self.estimate.sum_of_moments)
        self.last_round, self.rounds = int(state["last_round"]), int(state["rounds"])
        self.last_trained = int(state["last_trained"])
        self.estimate.load(unprefixed("estimate", state))
        if self.theta is not None and self.inverses is not None:
            self.theta = state["theta"].to(self.theta)
            self.inverses.load(unprefixed("inverses", state))
