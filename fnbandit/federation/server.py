"""The server of rounds at a barrier (Alg. 2)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fnbandit.config import Config
from fnbandit.core import Download, Round, StatisticsUpdate, Upload
from fnbandit.federation.aggregation import make_aggregation
from fnbandit.federation.alpha import make_alpha
from fnbandit.federation.quantities import average_quantities
from fnbandit.federation.replica import Replica
from fnbandit.numerics.state import State, add_prefix, remove_prefix


class BarrierServer:
    """Sums statistics, averages networks, combines alphas, and answers all agents (Alg. 2, lines 3-6)."""

    def __init__(self, config: Config, replica: Replica) -> None:
        self.replica = replica
        self._agents, self._averagings = config.agents, config.averagings
        self._account = replica.estimate.account(config.agents)
        self._aggregation = make_aggregation(config)
        self._rule = make_alpha(config)
        self._alpha: Tensor | float = 0.0
        """alpha of the present round"""

    @property
    def rounds(self) -> int:
        """Number of rounds so far."""
        return self.replica.rounds

    @property
    def theta(self) -> Tensor | None:
        """theta_sync,NN [p]; None without networks."""
        return self.replica.theta

    def exchange(self, uploads: Sequence[Upload]) -> Download:
        """Answer the uploads of all batches, which are in agent order; may overwrite their tensors.

        The first exchange of a round is the paper's round. Every later one only averages networks again.
        """
        replica, first = self.replica, uploads[0]
        self._participants = replica.participants(first.iteration)
        totals = self._total(uploads)
        covariance, moments, inverse = (totals.get(name) for name in ("covariance", "moments", "inverse"))
        statistics = inverses = None
        if covariance is not None and moments is not None:
            combined = self._account.combine(covariance)
            statistics = StatisticsUpdate(combined, replica.estimate.sum_of_moments + moments)
        if inverse is not None and replica.inverses is not None:
            inverses = replica.inverses.combine(inverse)
        if not first.exchange:
            alphas = [upload.alpha for upload in uploads if upload.alpha is not None]
            counters = replica.counters(first.iteration)
            self._alpha = self._rule.combine(self._select(torch.cat(alphas)), counters) if alphas else 0.0
        return Download(
            agents=range(self._agents),
            iteration=first.iteration,
            statistics=statistics,
            theta=self._average(totals.get("theta")),
            alpha=self._alpha,
            inverses=inverses,
            trained=first.trained,
            is_last=not first.trained or first.exchange + 1 >= self._averagings,
            exchange=first.exchange,
        )

    def record(self, sent: Sequence[Sequence[Upload]], download: Download) -> Round:
        """Build the record of a round from the uploads of its exchanges; call it before `Replica.apply`."""
        replica, first, last = self.replica, sent[0], sent[-1]
        iteration, trigger = first[0].iteration, replica.trigger
        length = iteration - first[0].since
        measure = torch.cat([upload.measure for upload in first]).cpu().numpy()
        is_known = trigger.next_round(first[0].since) is not None
        triggered = range(self._agents) if is_known else np.flatnonzero(measure > trigger.level).tolist()
        quantities = average_quantities(first, download, self._select)
        later = None
        if len(sent) > 1:
            ends = average_quantities(last, download, self._select)
            quantities |= {"loss": ends["loss"], "steps": quantities["steps"] + (len(sent) - 1) * ends["steps"]}
            later = replica.later_cost(iteration)
        cost = replica.cost(iteration, None if is_known else len(triggered))
        return Round(
            iteration=iteration,
            length=length,
            triggered=tuple(triggered),
            measure=float(measure.max()),
            level=trigger.level,
            cost=sum((later,) * (len(sent) - 1), cost) if later else cost,
            quantities=quantities,
            participants=int(self._participants.sum()),
            exchanges=len(sent),
            later=later,
        )

    def _total(self, uploads: Sequence[Upload]) -> dict[str, Tensor]:
        """Complete the partial sums of all batches, by field of `Upload`."""
        return {
            name: reduction.total((upload.agents, getattr(upload, name)) for upload in uploads)
            for name, reduction in self.replica.reductions(uploads[0].iteration).items()
            if getattr(uploads[0], name) is not None
        }

    def _average(self, thetas: Tensor | None) -> Tensor | None:
        """Return theta_sync,NN [p] of all agents' theta_i [N, p], or of their sum [p]."""
        if thetas is None or self.replica.theta is None:
            return None
        count = int(self._participants.sum())
        values = (thetas / count)[None] if self._aggregation.linear else self._select(thetas)
        return self._aggregation(values, self.replica.theta)

    def _select(self, values: Tensor) -> Tensor:
        """Return the participants' values among those of all agents, [N, ..]."""
        if not self.replica.participation.is_partial:
            return values
        return values[torch.from_numpy(self._participants).to(values.device)]

    def state(self) -> State:
        """Return all that `load` needs to continue with the same bits: the replica's state and the server's own."""
        own = add_prefix("aggregation", self._aggregation.state()) | add_prefix("account", self._account.state())
        return self.replica.state() | own

    def load(self, state: State) -> None:
        """Continue from another server's `state`."""
        self.replica.load(state)
        self._aggregation.load(remove_prefix("aggregation", state))
        self._account.load(remove_prefix("account", state))
