"""The server (Alg. 2)."""

from __future__ import annotations

import torch
from torch import Tensor

from fnbandit.config import Config
from fnbandit.rounds.aggregation import make_aggregation
from fnbandit.rounds.messages import Broadcast, Upload
from fnbandit.rounds.shared import Shared
from fnbandit.rounds.weights import make_weight
from fnbandit.state import State, prefixed, unprefixed


class Server:
    """Sums, averages, takes the least alpha, and broadcasts (Alg. 2, lines 3-6)."""

    def __init__(self, config: Config, shared: Shared) -> None:
        self.shared = shared
        self._agents = config.agents
        self._account = shared.estimate.account(config.agents)
        self._aggregation = make_aggregation(config)
        self._weight = make_weight(config)

    def aggregate(self, iteration: int, uploads: list[Upload]) -> Broadcast:
        """One broadcast from the uploads of all groups, in agent order; it may write to what they hold."""
        shared = self.shared
        totals = self._totals(iteration, uploads)
        news, moments, changes = (totals.get(name) for name in ("news", "moments", "change"))
        inverses = None
        if changes is not None and shared.inverses is not None:
            inverses = shared.inverses.combine(changes)
        weights = [upload.weight for upload in uploads if upload.weight is not None]
        return Broadcast(
            iteration=iteration,
            news=None if news is None else self._account.combine(news),
            sum_of_moments=None if moments is None else shared.estimate.sum_of_moments + moments,
            theta=self._aggregated(totals.get("theta")),
            weight=self._weight.combine(torch.cat(weights), shared.moment(iteration)) if weights else 0.0,
            inverses=inverses,
            trained=uploads[0].trained,
        )

    def _totals(self, iteration: int, uploads: list[Upload]) -> dict[str, Tensor]:
        """What all groups sent, summed over agents or of all of them, by field of `Upload`."""
        start, sent = 0, []
        for upload in uploads:
            agents = range(start, start + len(upload.measure))
            sent.append((agents, self.shared.summed(iteration, agents, upload)))
            start = agents.stop
        return {
            name: way.total((agents, getattr(upload, name)) for agents, upload in sent)
            for name, way in self.shared.sums(iteration).items()
            if getattr(uploads[0], name) is not None
        }

    def _aggregated(self, thetas: Tensor | None) -> Tensor | None:
        """theta_sync,NN [p] of all agents' theta_i [N, p], or of their sum [p]."""
        if thetas is None or self.shared.theta is None:
            return None
        values = (thetas / self._agents)[None] if self._aggregation.linear else thetas
        return self._aggregation(values, self.shared.theta)

    def state(self) -> State:
        """Everything that `load` needs to go on with the same bits: what is shared, and what only the server keeps."""
        own = prefixed("aggregation", self._aggregation.state()) | prefixed("account", self._account.state())
        return self.shared.state() | own

    def load(self, state: State) -> None:
        """Take over another copy's `state`."""
        self.shared.load(state)
        self._aggregation.load(unprefixed("aggregation", state))
        self._account.load(unprefixed("account", state))
