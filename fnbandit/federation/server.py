"""The server of rounds at a barrier (Alg. 2)."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fnbandit.config import Config
from fnbandit.core import Clusters, Download, Round
from fnbandit.federation.alpha import make_alpha
from fnbandit.federation.checked_values import make_sums
from fnbandit.federation.network_training import TrainedNetwork, Training, TrainingTask
from fnbandit.federation.partial_sums import Uploads
from fnbandit.federation.quantities import average_quantities
from fnbandit.federation.replica import Replica
from fnbandit.federation.sampling import Sample
from fnbandit.numerics.device import put_values, read_scalars, read_values
from fnbandit.numerics.state import State, add_prefix, remove_prefix


class BarrierServer:
    """Sums statistics, trains the network, combines alphas, and answers all agents (Alg. 2, lines 3-6)."""

    def __init__(self, config: Config, replica: Replica) -> None:
        self.replica = replica
        self._agents = config.agents
        self._sums = make_sums(config, replica)
        self._rule = make_alpha(config)
        self._level = config.cluster_level
        self._round: Generator[Download, Uploads, None] | None = None
        """The present round: yields downloads, receives the uploads that answer them"""

    @property
    def rounds(self) -> int:
        """Number of rounds so far."""
        return self.replica.rounds

    @property
    def theta(self) -> Tensor | None:
        """theta_sync,NN [p]; None without networks."""
        return self.replica.theta

    def exchange(self, uploads: Uploads) -> Download:
        """Answer the uploads of all batches; may overwrite their tensors."""
        if uploads[0].exchange == 0:
            self._round = self._run_round(uploads)
            return next(self._round)
        assert self._round is not None
        return self._round.send(uploads)

    def _run_round(self, uploads: Uploads) -> Generator[Download, Uploads, None]:
        """Run a round: add statistics, combine alphas, and train the network in as many exchanges as that takes."""
        replica, iteration = self.replica, uploads[0].iteration
        self._participants = replica.participants(iteration)
        totals = self._sums.total(uploads)
        statistics, inverses = self._sums.add_statistics(totals), self._sums.combine_inverses(totals)
        alphas, counters = self._sums.select_alphas(uploads), replica.counters(iteration)
        alpha = 0.0 if alphas is None else self._rule.combine(alphas, counters)
        self._trained: TrainedNetwork | None = None
        """Result of a training by sums"""
        self._unit = 1.0
        has_trained = uploads[0].trained or replica.steps_by_sums(iteration) > 0
        download = Download(range(self._agents), iteration, statistics, replica.theta, alpha, inverses,
                            clusters=self._cluster(totals), trained=has_trained,
                            ignored=self._sums.ignored)  # fmt: skip
        if has_trained or "theta" in totals:
            download = yield from self._train(download, totals)
        yield download

    def _train(self, download: Download, totals: dict[str, Any]) -> Generator[Download, Uploads, Download]:
        """Yield the downloads of a training, but for the last one of the round; return that one.

        A network that sums train keeps its parameters until there is a reward other than 0: decay alone would lead to
        units that are inactive for ever.
        """
        replica, rule, sample = self.replica, self.replica.federation, self.replica.sample(download.iteration)
        assert replica.theta is not None and rule is not None
        has_signal = True
        if "squares" in totals:
            root = math.sqrt(read_scalars(totals["squares"])[0] / sample.observations)
            self._unit, has_signal = root or 1.0, root > 0
        # Agents that train their own networks convert units themselves. Reading a unit waits for the device.
        has_unit = replica.features is not None or not rule.trains_locally
        change = read_scalars(replica.unit)[0] / self._unit if has_unit else 1.0
        keeps_unit = rule.trains_locally or not replica.last_trained
        start = replica.theta if keeps_unit else self._rescale(replica.theta, change)
        download = replace(download, unit=torch.full_like(replica.unit, self._unit))
        task = TrainingTask(
            theta=start,
            initial=replica.initial,
            totals=totals,
            steps=replica.steps_by_sums(download.iteration),
            iteration=download.iteration,
            observations=round(sample.observations * replica.forgetting.mean_weight(download.iteration)),
            factor=sample.factor,
            has_trained=download.trained,
            has_full_matrices=not replica.estimate.inflated,
        )
        trained = TrainedNetwork(start)
        if has_signal or rule.trains_locally:
            download, trained = yield from self._run_training(rule.train(task), download)
        if replica.features is not None and download.trained:
            theta = self._rescale(trained.theta, change) if rule.trains_locally else trained.theta
            return (yield from self._renew_statistics(download, replace(trained, theta=theta), sample))
        if rule.trains_locally:
            return replace(download, theta=trained.theta, unit=None)
        self._trained = trained
        return replace(download, theta=self._rescale(trained.theta, self._unit), unit=None)

    def _run_training(
        self, training: Training, download: Download
    ) -> Generator[Download, Uploads, tuple[Download, TrainedNetwork]]:
        """Yield the downloads of a rule's exchanges; return the one that follows, and the rule's result."""
        try:
            ask = next(training)
            while True:
                uploads = yield replace(download, theta=ask.theta, asks=ask.content, is_last=False)
                download = replace(download, statistics=None, inverses=None, exchange=download.exchange + 1)
                ask = training.send(self._sums.total(uploads))
                self._sums.retain(ask.place)
        except StopIteration as end:
            return download, end.value

    def _renew_statistics(
        self, download: Download, trained: TrainedNetwork, sample: Sample
    ) -> Generator[Download, Uploads, Download]:
        """Replace W and B by those on the features of the new network; yield a download if agents must send them."""
        replica, self._trained = self.replica, trained
        assert replica.features is not None
        if trained.curvature is not None and replica.features.is_gradient:
            update = self._sums.reuse_statistics(trained, sample.factor)
        else:
            uploads = yield replace(download, theta=trained.theta, asks="statistics", is_last=False)
            download = replace(download, statistics=None, inverses=None, exchange=download.exchange + 1)
            totals = self._sums.total(uploads)
            if "squares" in totals:
                self._trained = replace(trained, squares=read_scalars(totals["squares"])[0])
            download = replace(download, clusters=self._cluster(totals))
            update = self._sums.renew_statistics(totals, sample.factor)
        return replace(download, statistics=update, theta=trained.theta)

    def _cluster(self, totals: dict[str, Any]) -> Clusters | None:
        """Return the clusters of agents that have sent sums of their own."""
        find, own = self.replica.find_clusters, totals.get("own")
        if find is None or own is None:
            return None
        # Step by step, and so on the host.
        member, sums = find(read_values(own), self.replica.parameters, self._level)
        return Clusters(put_values(member, own.device), put_values(sums, own.device, own.dtype))

    def _rescale(self, theta: Tensor, factor: float) -> Tensor:
        """Return parameters [p] whose predictions are `factor` times those of theta."""
        assert self.replica.network is not None
        return self.replica.network.rescale(theta[None], theta.new_full((1, 1), factor))[0]

    def record(self, sent: Sequence[Uploads], download: Download) -> Round:
        """Build the record of a round from the uploads of its exchanges; call it before `Replica.apply`."""
        replica, first, last = self.replica, sent[0], sent[-1]
        iteration, trigger = first[0].iteration, replica.trigger
        length = iteration - first[0].since
        measure = read_values(torch.cat([upload.measure for upload in first]))
        is_known = trigger.next_round(first[0].since) is not None
        triggered = range(self._agents) if is_known else np.flatnonzero(measure > trigger.level).tolist()
        quantities = average_quantities(first, download, self._sums.select)
        if self._trained is not None:
            size = replica.sample(iteration).size * replica.forgetting.mean_weight(iteration)
            loss = self._trained.squares / size * self._unit**2
            quantities |= {"loss": loss, "steps": float(self._trained.steps)}
        elif len(sent) > 1:
            ends = average_quantities(last, download, self._sums.select)
            quantities |= {"loss": ends["loss"], "steps": quantities["steps"] + (len(sent) - 1) * ends["steps"]}
        dropped = self._sums.dropped
        if dropped is not None:
            quantities["dropped_share"] = len(dropped) / self._agents
        contents = [uploads[0].content for uploads in sent]
        costs = replica.costs(iteration, contents, None if is_known else len(triggered))
        return Round(
            iteration=iteration,
            length=length,
            triggered=tuple(triggered),
            measure=float(measure.max()),
            level=trigger.level,
            cost=sum(costs[1:], costs[0]),
            quantities=quantities,
            participants=int(self._participants.sum()),
            exchanges=len(sent),
            costs=tuple((len(list(same)), cost) for cost, same in groupby(costs)) if len(costs) > 1 else (),
            dropped=dropped,
        )

    def state(self) -> State:
        """Return all that `load` needs to continue with the same bits: the replica's state and the server's own."""
        own = add_prefix("account", self._sums.state())
        if self.replica.federation is not None:
            own |= add_prefix("federation", self.replica.federation.state())
        return self.replica.state() | own

    def load(self, state: State) -> None:
        """Continue from another server's `state`."""
        self.replica.load(state)
        self._sums.load(remove_prefix("account", state))
        if self.replica.federation is not None:
            self.replica.federation.load(remove_prefix("federation", state))
