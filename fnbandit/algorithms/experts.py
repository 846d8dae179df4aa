"""Personal predictions: estimates of an agent's rewards that share more or less, mixed by their past errors.

Agents share the features of one network (see `learned_features`). Beside them stands the context itself, so that a
linear model of an agent's own can express what the features of the others do not show, such as a constant for every arm
of a table with coding=one-hot. The estimates, called experts:

    global   the model of all agents, as without personalization
    head     w_i = (S_i + tau I)^-1 (c_i + tau w_sync), for several tau: the agent's own rows pull w_i away from w_sync
    cluster  the model of the agents in the agent's cluster (`federation.clusters`)
    alone    a network of the agent's own, trained on its own history alone, with a linear model on its features

S_i and c_i are the agent's own sums of x x^T and y x. Every expert has a mean and a deviation for each context; the
score is the sum of their upper confidence bounds, weighted by the errors of the agent's past predictions: an expert
with the mean squared error s over n recent rewards has a weight proportional to s^(-c n).
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from fnbandit.algorithms.own_networks import OwnEvaluation, OwnNetworks
from fnbandit.config import Config
from fnbandit.covariance.estimate import FullEstimate
from fnbandit.covariance.ridges import RidgeEvaluation, Ridges, invert_all, sum_own
from fnbandit.federation.clusters import pack_sums, unpack_sums
from fnbandit.federation.replica import Replica
from fnbandit.networks.features import LearnedFeatures
from fnbandit.numerics.device import put_values
from fnbandit.numerics.memory import Memory, precisions
from fnbandit.numerics.products import chunks, multiply
from fnbandit.numerics.state import State, add_prefix, remove_prefix

FEW_REWARDS = 10
"""Smallest number of recent rewards that weigh experts"""
MEMORY_SHARE = 0.25
"""Share of an agent's rewards that are recent"""
SHARPNESS = 1.5
"""c in the weights s^(-c n) of experts; 1/2, the likelihood of normal errors, leaves a wrong expert too slowly"""
LEAST_SQUARES = 1e-30
"""Smallest sum of squared errors: one without errors has a finite logarithm"""


class ExpertEvaluation(NamedTuple):
    """Means and deviations [n, e, k] of contexts by all experts, in the unit of rewards, and what made them."""

    means: Tensor
    deviations: Tensor
    shared: RidgeEvaluation | None
    own: OwnEvaluation | None
    features: Tensor
    prediction: Tensor
    """f(x; theta) in its unit, [n, k]"""


class Shared:
    """No experts: all agents have the same estimates."""

    is_personal = False
    """True where agents have experts"""
    taus: tuple[float, ...] = ()
    """tau of every head"""
    has_global = False
    has_cluster = False
    """True where an expert of an agent is the model of its cluster, for which agents send S_i and c_i"""
    has_own = False
    """True where agents train networks of their own"""


class Experts(Shared):
    """The experts of the n agents of a group."""

    is_personal = True

    def __init__(self, config: Config, replica: Replica, agents: int, like: Tensor) -> None:
        assert replica.features is not None
        self._replica = replica
        self._features: LearnedFeatures = replica.features
        self._regularization = config.number("regularization")
        self._scale = config.number("exploration_global") * self._regularization**0.5
        self._taus = [*self.taus, *([0.0] * self.has_cluster)]
        """tau of every estimate on shared features; 0 for the cluster's"""
        p = self._features.parameter_count
        self.shared = Ridges(agents, [tau or self._regularization for tau in self._taus], p, like)
        self.own = OwnNetworks(config, self._features, agents, like) if self.has_own else None
        heads = len(self.taus)
        families = [1] * self.has_global + [heads] * heads + [1] * self.has_cluster + [1] * self.has_own
        self._prior = put_values(-np.log(families), like.device, like.dtype)
        """Logarithms of the weights before the first reward: all heads together weigh as much as another expert"""
        self.squares = like.new_zeros(agents, len(families))
        """Sum of squared errors of every expert over recent rewards, [n, e]"""
        self.recent = like.new_zeros(agents, 1)
        """Number of recent rewards: older ones count less"""
        self.renewed_at = 0
        """Iteration of the last round after which features changed"""
        self._sums: tuple[Tensor, Tensor] | None = None
        """S_i [n, p, p] and c_i [n, p] on the features of the present round"""
        self._begin()

    @classmethod
    def memory(cls, config: Config, parameters: int) -> Memory:
        """Return the bytes of an agent's experts: V_e^-1 now and at the beginning of the epoch, S_i, and clusters."""
        estimates = len(cls.taus) + cls.has_cluster + cls.has_own
        numbers = (2 * estimates + 1 + 2 * cls.has_cluster) * parameters**2
        return Memory(numbers * precisions(config)[0])

    def _begin(self) -> None:
        self._errors: list[Tensor] = []
        self._first = self.squares.clone(), self.recent.clone()

    # An iteration

    def evaluate(self, contexts: Tensor, x: Tensor, found: Any, prediction: Tensor) -> ExpertEvaluation:
        """Return means and deviations of contexts with features x; `found` is their evaluation by all agents' model."""
        parts, shared, own = [], None, None
        if self.has_global:
            parts.append((found.mean[:, None], found.variance[:, None]))
        if self._taus:
            shared = self.shared.evaluate(x)
            parts.append((shared.mean, shared.variance))
        means, variances = (torch.cat(values, dim=1) for values in zip(*parts, strict=True))
        unit = self._replica.unit
        means, deviations = (means + prediction[:, None]) * unit, variances.sqrt() * unit
        if self.own is not None:
            own = self.own.evaluate(contexts)
            means = torch.cat([means, own.mean[:, None]], dim=1)
            deviations = torch.cat([deviations, own.deviation[:, None]], dim=1)
        return ExpertEvaluation(means, deviations, shared, own, x, prediction)

    def score(self, found: ExpertEvaluation) -> Tensor:
        """Return the weighted sum of the experts' upper confidence bounds, [n, arms]."""
        return (self.weights[:, :, None] * (found.means + self._scale * found.deviations)).sum(1)

    @property
    def weights(self) -> Tensor:
        """Weights of all experts, [n, e]; their sum is 1."""
        merit = -SHARPNESS * self.recent * self.squares.clamp(min=LEAST_SQUARES).log()
        return (merit + self._prior).softmax(dim=1)

    def append(self, found: ExpertEvaluation, arms: Tensor, rewards: Tensor) -> None:
        """Learn the rewards [n] of the pulled arms [n]."""
        index = torch.arange(len(arms), device=arms.device)
        self._weigh((rewards[:, None] - found.means[index, :, arms]).square())
        if found.shared is not None:
            targets = rewards / self._replica.unit - found.prediction[index, arms]
            self.shared.append(found.features, arms, targets, found.shared)
        if self.own is not None and found.own is not None:
            self.own.append(found.own, arms, rewards)

    def _weigh(self, errors: Tensor) -> None:
        self._errors.append(errors)
        count = self._replica.last_round + len(self._errors)
        keep = 1 - 1 / max(FEW_REWARDS, MEMORY_SHARE * count)
        self.squares = self.squares * keep + errors
        self.recent = self.recent * keep + 1

    def truncate(self, length: int) -> None:
        """Go back to the first `length` iterations of the epoch."""
        if length >= len(self._errors):
            return
        errors = self._errors[:length]
        self.squares, self.recent = (values.clone() for values in self._first)
        self._errors = []
        for one in errors:
            self._weigh(one)
        self.shared.truncate(length)
        if self.own is not None:
            self.own.ridges.truncate(length)

    # A round

    def collect(self, theta: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        """Sum every agent's history on the features of theta; return S_i, c_i, count and squares as `pack_sums` does.

        inputs [n, d, t] and targets [n, t], rewards in the unit of the round, are those that are not forgotten.
        """
        n, _, t = inputs.shape
        weights = self._replica.forgetting.weights(t, targets)
        center, found = self._features.center_of(theta), []
        inputs_dim = self._features.network.inputs_dim
        for chunk in chunks(n, t * len(center), targets):
            rows = self._features.at(theta, inputs[chunk, :inputs_dim].to(targets))
            errors = targets[chunk] - multiply(center.expand(len(rows), 1, -1), rows.mT)[:, 0]
            if weights is not None:
                rows, errors = rows * weights.sqrt()[:, None], errors * weights.sqrt()
            found.append((*sum_own(rows, errors), errors.square().sum(1)))
        covariance, moments, squares = (torch.cat(values) for values in zip(*found, strict=True))
        self._sums = covariance, moments
        return pack_sums(covariance, moments, t * self._replica.forgetting.mean_weight(t), squares)

    def start(self, agents: range, inputs: Tensor, rewards: Tensor) -> None:
        """Start an epoch of some agents with the replica's statistics.

        inputs [n, d, k] and rewards [n, k] are the observations so far that are not forgotten.
        """
        replica = self._replica
        if self._sums is not None and replica.last_trained != self.renewed_at:
            self._renew(agents, *self._sums)
            if self.own is not None:
                times = replica.forgetting.time_since(self.renewed_at, replica.last_trained)
                self.own.renew(inputs, rewards, times, replica.forgetting.weights(rewards.shape[1], rewards))
            self.renewed_at = replica.last_trained
        self._sums = None
        solution = cast(FullEstimate, replica.estimate).solution
        prior = torch.stack([tau * solution for tau in self._taus])
        self.shared.start(prior.expand_as(self.shared.moments))
        if self.own is not None:
            self.own.start()
        self._begin()

    def _renew(self, agents: range, covariance: Tensor, moments: Tensor) -> None:
        """Compute all estimates on shared features anew, after these have changed."""
        eye = torch.eye(covariance.shape[1], dtype=covariance.dtype, device=covariance.device)
        self.shared.moments = moments[:, None].repeat(1, len(self._taus), 1)
        for place, tau in enumerate(self.taus):
            self.shared.inverse[:, place] = invert_all(covariance + tau * eye)
        clusters = self._replica.clusters
        if self.has_cluster and clusters is not None:
            member = clusters.member[agents.start : agents.stop]
            common, common_moments = unpack_sums(clusters.sums, covariance.shape[1])
            self.shared.inverse[:, -1] = invert_all(common + self._regularization * eye)[member]
            self.shared.moments[:, -1] = common_moments[member]

    def state(self) -> State:
        """Return all that `load` needs between two epochs to continue with the same bits."""
        own = {} if self.own is None else add_prefix("own", self.own.state())
        shared = {"inverse": self.shared.inverse, "moments": self.shared.moments}
        weighed = {"squares": self.squares, "recent": self.recent}
        renewed_at = torch.full((len(self.squares),), self.renewed_at)
        return weighed | add_prefix("shared", shared) | own | {"renewed_at": renewed_at}

    def load(self, state: State) -> None:
        """Continue from a `state`; `start` begins the epoch."""
        self.squares, self.recent = state["squares"].to(self.squares), state["recent"].to(self.squares)
        self.renewed_at = int(state["renewed_at"][0])
        shared = remove_prefix("shared", state)
        self.shared.inverse.copy_(shared["inverse"])
        self.shared.moments.copy_(shared["moments"])
        if self.own is not None:
            self.own.load(remove_prefix("own", state))


class Heads(Experts):
    """A head of the agent's own, for each of several tau; tau = infinity is the model of all agents."""

    taus = (100.0, 10.0, 1.0, 0.1)
    has_global = True


class ClusterModel(Experts):
    """The model of the agent's cluster alone."""

    has_cluster = True


class EveryExpert(Heads):
    """The models of all agents, of the cluster, heads, and a network of the agent's own."""

    has_cluster = True
    has_own = True
