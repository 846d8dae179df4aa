"""The server's totals of an exchange, where every agent's own values matter: agents lie, or a rule checks them.

Actors send every agent's rows instead of sums; the ledger counts messages as before, because agents send the same. The
server keeps W_i and B_i of every agent since the features are as they are, so that an agent that it finds out leaves
the statistics with all that it ever sent, and one that was dropped by mistake returns. It derives V_local^-1 from W_i
and accepts none, and it knows the number of an agent's rows: the iterations since its last upload.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fnbandit.config import Config
from fnbandit.core import StatisticsUpdate, Upload
from fnbandit.covariance import matrices
from fnbandit.federation.aggregation import median_of
from fnbandit.federation.alpha import make_alpha
from fnbandit.federation.claims import Claims, Scene
from fnbandit.federation.network_training import TrainedNetwork
from fnbandit.federation.partial_sums import PartialSums, Uploads
from fnbandit.federation.replica import Replica
from fnbandit.numerics.randomness import Purpose, uniforms
from fnbandit.numerics.state import State

SLACK = 1e-6
"""Relative difference by which a recomputed measure of the trigger may lie below its level"""


@dataclass(frozen=True)
class ClaimedGain:
    """Gains that follow from the agents' claims, as triggers read them from an epoch."""

    exact: Tensor
    of_diagonals: Tensor

    def gain(self) -> Tensor:
        return self.exact

    def diagonal_gain(self) -> Tensor:
        return self.of_diagonals


class CheckedValues(PartialSums):
    """Puts lies in place of the attackers' uploads, drops who fails the rule, and adds up the others."""

    def __init__(self, config: Config, replica: Replica) -> None:
        self._config, self._replica, self._honest = config, replica, config.honest_agents
        self._attack, self._rule = replica.attack, replica.statistics_rule
        self._matrices: Any = matrices(config).own
        self._alpha_rule = make_alpha(config)
        self._regularization = config.number("regularization")
        self._like = replica.estimate.sum_of_moments
        self._sums: Claims | None = None
        """Rows, W_i and B_i of all agents since the features are as they are; None before any"""
        self._in_statistics = self._matrices.empty(1, replica.parameters, self._like)[0]
        """Sum of the W_i that V_last contains, [p, p] or [p]"""
        self._participants = self._kept = np.ones(config.agents, dtype=bool)
        """Agents that upload in the present round, and those that are not dropped in it"""
        self._exchanges: dict[int, Claims] = {}
        """Claims of the present round's training that may still be needed, by the number of the exchange in it"""
        self._trainings = 0
        """Number of the exchanges of the present round's training so far"""
        self._alphas: Tensor | None = None
        self._usual = 0.0 if replica.features is None and not replica.trains_by_sums else 1.0
        """Usual square of a reward in the unit of the targets; 0 where targets are rewards, which show it"""

    # Exchanges

    def total(self, uploads: Uploads) -> dict[str, Any]:
        first = uploads[0]
        if first.content is None:
            self._participants = self._replica.participants(first.iteration)
            self._kept, self._exchanges = np.ones(self._config.agents, dtype=bool), {}
            self._trainings = 0
        claims = self._attack.lie(self._receive(uploads), self._make_scene(first))
        if first.content is None:
            return self._total_first(first, claims, torch.cat([upload.measure for upload in uploads]))
        if first.content == "network":
            return {"theta": self._select_networks(claims)}
        if claims.covariance is not None:
            self._drop(claims)
        if first.content == "statistics":
            self._exchanges = {0: claims}
            return {"squares": self._sum_squares(claims)}
        self._exchanges[self._trainings] = claims
        self._trainings += 1
        return self._total_training(claims)

    def _receive(self, uploads: Uploads) -> Claims:
        """Return every agent's values, [N, ..] each."""
        first, replica = uploads[0], self._replica
        found: dict[str, Any] = {}
        for name, reduction in replica.reductions(first.iteration, first.content).items():
            if getattr(first, name) is not None:
                found[name] = reduction.total((upload.agents, getattr(upload, name)) for upload in uploads)
        if first.content is None:
            rows = np.where(self._participants, first.iteration - replica.since, 0)
        else:
            rows = replica.sample(first.iteration).counts()
        if "covariance" in found:
            length = replica.parameters if replica.network is None else replica.network.parameter_count
            found["covariance"] = self._matrices.of_update(found["covariance"], replica.lift, length)
        if "squares" in found:
            found["squares"] = found["squares"][:, 0].double()
        if first.alpha is not None:
            found["alphas"] = torch.cat([upload.alpha for upload in uploads if upload.alpha is not None])
        return Claims(torch.from_numpy(rows).to(self._like.device, torch.float64), **found)

    def _make_scene(self, upload: Upload) -> Scene:
        numbers = torch.from_numpy(np.flatnonzero(self._participants)).to(self._like.device)
        return Scene(
            seed=self._config.seed,
            iteration=upload.iteration,
            exchange=upload.exchange,
            liars=numbers[numbers >= self._honest],
            honest=numbers[numbers < self._honest],
            theta=self._replica.theta,
            matrices=self._matrices,
            alpha_rule=self._alpha_rule,
        )

    def _total_first(self, upload: Upload, claims: Claims, measure: Tensor) -> dict[str, Any]:
        """Return the totals of a round's first exchange, but for W and B, which `add_statistics` returns."""
        totals: dict[str, Any] = {}
        if claims.covariance is not None and claims.moments is not None:
            self._check_triggers(upload, claims.covariance, measure)
            new = Claims(claims.rows, claims.covariance, claims.moments.double())
            self._sums = new if self._sums is None else self._sums.add(new)
            self._drop(self._sums)
            totals["covariance"] = self._sums
        if claims.squares is not None:
            rows = torch.from_numpy(np.where(self._participants, upload.iteration, 0)).to(claims.rows)
            whole = Claims(rows, squares=claims.squares)
            self._drop(whole)
            totals["squares"] = self._sum_squares(whole) * self._rescale_to_all(whole)
        if claims.theta is not None:
            totals["theta"] = self._select_networks(claims)
        self._alphas = None if claims.alphas is None else claims.alphas[self._index(self._kept & self._participants)]
        return totals

    def _total_training(self, claims: Claims) -> dict[str, Any]:
        """Return the sums of gradients, or of gradients and curvature, scaled to the observations of all agents.

        A training compares sums of several exchanges, of which later ones may have fewer agents.
        """
        scale, kept = self._rescale_to_all(claims), self._select_kept(claims)
        assert kept.moments is not None and kept.squares is not None
        squares = kept.squares.sum() * scale
        if kept.covariance is not None:
            total, moments = self._add_up(kept)
            return {"covariance": self._matrices.as_sum(total * scale), "moments": moments * scale, "squares": squares}
        assert self._replica.federation is not None
        rule = self._replica.federation.gradient_rule
        if rule is None or rule.linear:
            return {"moments": kept.moments.sum(0) * scale, "squares": squares}
        index = (kept.rows > 0).nonzero()[:, 0]
        means = kept.moments[index] / kept.rows[index, None].to(kept.moments)
        moments = rule(means, torch.zeros_like(means[0])) * float(claims.rows.sum())
        return {"moments": moments, "squares": squares}

    def retain(self, place: int) -> None:
        self._exchanges = {key: claims for key, claims in self._exchanges.items() if key == place}

    def _select_networks(self, claims: Claims) -> Tensor:
        assert claims.theta is not None
        return claims.theta[self._index(self._kept & self._participants)]

    def _select_kept(self, claims: Claims) -> Claims:
        return claims.select(self._index(self._kept))

    def _sum_squares(self, claims: Claims) -> Tensor:
        squares = self._select_kept(claims).squares
        assert squares is not None
        return squares.sum()

    def _index(self, mask: np.ndarray) -> Tensor:
        return torch.from_numpy(np.flatnonzero(mask)).to(self._like.device)

    def _rescale_to_all(self, claims: Claims) -> float:
        """Return the observations of all agents over those of the agents that are not dropped."""
        return float(claims.rows.sum()) / max(1.0, float(self._select_kept(claims).rows.sum()))

    def _add_up(self, kept: Claims) -> tuple[Tensor, Tensor]:
        """Return W, [p, p] or [p], and B [p] of agents that are kept."""
        assert kept.covariance is not None and kept.moments is not None
        combined = self._rule.combine(kept, self._draw_order(len(kept.rows)))
        return kept.covariance.sum(0), kept.moments.double().sum(0) if combined is None else combined

    def _draw_order(self, count: int) -> Tensor:
        """Draw a random order of agents, a function of (seed, round)."""
        draws = uniforms(self._config.seed, Purpose.ATTACK, range(count), self._replica.rounds, 1)[:, 0]
        return torch.from_numpy(np.argsort(draws, kind="stable")).to(self._like.device)

    # Agents that are dropped

    def _drop(self, claims: Claims) -> None:
        """Judge the claims of the agents that are left, and drop those that fail; never all."""
        judged = self._index(self._kept & (claims.rows.cpu().numpy() > 0))
        good = self._rule.judge(claims.select(judged), self._draw_order(len(judged)), self._usual)
        if good.any():
            self._kept[judged[~good].cpu().numpy()] = False

    def _check_triggers(self, upload: Upload, covariance: Tensor, measure: Tensor) -> None:
        """Drop agents that asked for a round although their rows do not justify it, and ignore their triggers.

        Rows that an agent has carried over are in its W_i, but not in its measure, which is then the smaller one.
        """
        replica, trigger = self._replica, self._replica.trigger
        asking = (measure > trigger.level).nonzero()[:, 0]
        if replica.ignored is None or trigger.next_round(upload.since) is not None or not len(asking):
            return
        total = self._matrices.regularize(self._in_statistics, self._regularization)
        gains = ClaimedGain(*self._matrices.gains(covariance[asking], total))
        found = trigger.measure(gains, replica.counters(upload.iteration))
        refuted = asking[found * (1 + SLACK) + SLACK < trigger.level].cpu()
        self.ignored = replica.ignored.index_fill(0, refuted, True)
        self._kept[refuted.numpy()] = False

    @property
    def dropped(self) -> tuple[int, ...] | None:  # type: ignore[override]
        return tuple(np.flatnonzero(~self._kept).tolist()) if self._rule.checks else None

    # The answer

    def select_alphas(self, uploads: Uploads) -> Tensor | None:
        """Return alpha_i of the agents that are kept, or the median of each of their numbers where a rule checks."""
        if self._alphas is None or not self._rule.checks:
            return self._alphas
        return median_of(self._alphas)[None]

    def add_statistics(self, totals: dict[str, Any]) -> StatisticsUpdate | None:
        return self._make_update() if "covariance" in totals else None

    def _make_update(self) -> StatisticsUpdate:
        """Return all statistics of the agents that are kept."""
        assert self._sums is not None
        self._in_statistics, moments = self._add_up(self._select_kept(self._sums))
        update = self._matrices.as_statistics(self._in_statistics, self._regularization)
        return StatisticsUpdate(update.to(self._like) if isinstance(update, Tensor) else update,
                                moments.to(self._like), is_new=True)  # fmt: skip

    def combine_inverses(self, totals: dict[str, Any]) -> Any:
        """Return the change to the mean of (W_i + lambda I)^-1 of the agents that are kept."""
        inverses = self._replica.inverses
        if inverses is None or "covariance" not in totals:
            return None
        mean = self._matrices.mean_inverse(self._select_kept(totals["covariance"]).covariance, self._regularization)
        return self._matrices.inverse_change(inverses.parts, mean)

    def reuse_statistics(self, trained: TrainedNetwork, factor: float) -> StatisticsUpdate:
        return self._restart(self._exchanges[trained.place], factor)

    def renew_statistics(self, totals: dict[str, Any], factor: float) -> StatisticsUpdate:
        return self._restart(self._exchanges[0], factor)

    def _restart(self, claims: Claims, factor: float) -> StatisticsUpdate:
        """Replace all agents' statistics by `factor` times the claims of an exchange."""
        assert claims.covariance is not None and claims.moments is not None
        self._sums = Claims(claims.rows * factor, claims.covariance * factor, claims.moments.double() * factor)
        self._exchanges = {}
        return self._make_update()

    def state(self) -> State:
        return {} if self._sums is None else {**self._sums.values, "in_statistics": self._in_statistics}

    def load(self, state: State) -> None:
        if "in_statistics" in state:
            own = {name: state[name].to(self._in_statistics) for name in ("rows", "covariance", "moments")}
            self._sums, self._in_statistics = Claims(**own), state["in_statistics"].to(self._in_statistics)


def make_sums(config: Config, replica: Replica) -> PartialSums:
    """Make the totals of a server: from partial sums, or from every agent's own values."""
    return (CheckedValues if replica.needs_own_values else PartialSums)(config, replica)
