"""The server (Alg. 2)."""

from __future__ import annotations

from collections.abc import Iterable

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
        self._aggregation = make_aggregation(config)
        self._weight = make_weight(config)

    def aggregate(self, iteration: int, uploads: list[Upload]) -> Broadcast:
        """One broadcast from the uploads of all groups, in agent order; it may write to what they hold."""
        shared = self.shared
        news = together(upload.news for upload in uploads)
        moments = together(upload.moments for upload in uploads)
        thetas = together(upload.theta for upload in uploads)
        weights = together(upload.weight for upload in uploads)
        changes = together(upload.change for upload in uploads)
        theta = inverses = None
        if thetas is not None and shared.theta is not None:
            theta = self._aggregation(thetas, shared.theta)
        if changes is not None and shared.inverses is not None:
            inverses = shared.inverses.combine(changes)
        return Broadcast(
            iteration=iteration,
            news=None if news is None else shared.estimate.combine(news),
            sum_of_moments=None if moments is None else shared.estimate.sum_of_moments + moments.sum(0),
            theta=theta,
            weight=0.0 if weights is None else self._weight.combine(weights),
            inverses=inverses,
            trained=uploads[0].trained,
        )

    def state(self) -> State:
        """Everything that `load` needs to go on with the same bits: what is shared, and what only the server keeps."""
        return self.shared.state() | prefixed("aggregation", self._aggregation.state())

    def load(self, state: State) -> None:
        """Take over another copy's `state`."""
        self.shared.load(state)
        self._aggregation.load(unprefixed("aggregation", state))


def together(parts: Iterable[Tensor | None]) -> Tensor | None:
    """What all groups sent of one kind, joined in agent order; None where nobody sent it."""
    tensors = [part for part in parts if part is not None]
    if len(tensors) > 1:
        return torch.cat(tensors)
    return tensors[0] if tensors else None
