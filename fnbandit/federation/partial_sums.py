"""The server's totals of an exchange, where sums over agents are all that it needs: actors send partial sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fnbandit.config import Config
from fnbandit.core import StatisticsUpdate, Upload
from fnbandit.federation.network_training import TrainedNetwork
from fnbandit.federation.replica import Replica
from fnbandit.numerics.device import put_values
from fnbandit.numerics.state import State

Uploads = Sequence[Upload]
"""Uploads of all batches in one exchange, in agent order"""


class PartialSums:
    """Completes the partial sums of all batches, and adds statistics to those of earlier rounds."""

    dropped: tuple[int, ...] | None = None
    """Agents whose uploads the present round leaves out; None where nobody checks them"""
    ignored: Tensor | None = None
    """True for agents whose triggers the server ignores from now on, [N]; None where that does not change"""

    def __init__(self, config: Config, replica: Replica) -> None:
        self._replica = replica
        self._account = replica.account()
        self._participants = np.ones(config.agents, dtype=bool)

    def total(self, uploads: Uploads) -> dict[str, Any]:
        """Complete the partial sums of all batches, by field of `Upload`; of theta, return the networks or their mean.

        May overwrite the uploads' tensors.
        """
        if uploads[0].content is None:
            self._participants = self._replica.participants(uploads[0].iteration)
        totals = {
            name: reduction.total((upload.agents, getattr(upload, name)) for upload in uploads)
            for name, reduction in self._replica.reductions(uploads[0].iteration, uploads[0].content).items()
            if getattr(uploads[0], name) is not None
        }
        if "theta" in totals:
            totals["theta"] = self._participants_networks(totals["theta"])
        return self._replica.chain.receive(totals, uploads[0])

    def select_alphas(self, uploads: Uploads) -> Tensor | None:
        """Return the uploads from which the server computes alpha, [n, ..]; None where agents send none."""
        alphas = [upload.alpha for upload in uploads if upload.alpha is not None]
        return self.select(torch.cat(alphas)) if alphas else None

    def add_statistics(self, totals: dict[str, Any]) -> StatisticsUpdate | None:
        """Add W_new and B_new to the global statistics; None where the round has none."""
        if totals.get("covariance") is None or totals.get("moments") is None:
            return None
        combined = self._account.combine(totals["covariance"])
        return StatisticsUpdate(combined, self._replica.estimate.sum_of_moments + totals["moments"])

    def combine_inverses(self, totals: dict[str, Any]) -> Any:
        """Return the change of the local inverses, in the form that `LocalInverses.apply` takes; None without any."""
        inverses = self._replica.inverses
        return None if totals.get("inverse") is None or inverses is None else inverses.combine(totals["inverse"])

    def retain(self, place: int) -> None:
        """Keep only the values of a training's exchange `place`, from which it goes on, if values are kept at all."""

    def reuse_statistics(self, trained: TrainedNetwork, factor: float) -> StatisticsUpdate:
        """Replace W and B by `factor` times the sums that the training ended with."""
        assert trained.moments is not None
        return self._replace(trained.curvature, trained.moments, factor)

    def renew_statistics(self, totals: dict[str, Any], factor: float) -> StatisticsUpdate:
        """Replace W and B by `factor` times the sums of an exchange of statistics."""
        return self._replace(totals["covariance"], totals["moments"], factor)

    def _replace(self, covariance: Any, moments: Tensor, factor: float) -> StatisticsUpdate:
        update = self._account.renew(covariance, factor)
        moments = moments.to(self._replica.estimate.sum_of_moments) * factor
        return StatisticsUpdate(update, moments, is_new=True)

    def _participants_networks(self, thetas: Tensor) -> Tensor:
        """Return the networks of the participants, of all agents' theta_i [N, p]; or their mean [1, p], of the sum."""
        assert self._replica.federation is not None
        if self._replica.federation.is_linear:
            return (thetas / int(self._participants.sum()))[None]
        return self.select(thetas)

    def select(self, values: Tensor) -> Tensor:
        """Return the participants' values among those of all agents, [N, ..]."""
        if not self._replica.participation.is_partial:
            return values
        return values[put_values(np.flatnonzero(self._participants), values.device)]

    def state(self) -> State:
        """Return all that `load` needs to continue with the same bits."""
        return self._account.state()

    def load(self, state: State) -> None:
        """Continue from a `state`."""
        self._account.load(state)
