"""Networks of single agents with a linear model on their features: neural-linear UCB without any federation."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from fnbandit.algorithms.base import Group, Scored
from fnbandit.algorithms.federated_network import root_mean_square
from fnbandit.algorithms.traits import Traits
from fnbandit.config import Config
from fnbandit.covariance.ridges import RidgeEvaluation, Ridges, invert_all, sum_own
from fnbandit.environments import Environment
from fnbandit.federation.replica import Replica
from fnbandit.networks.features import LearnedFeatures
from fnbandit.networks.training import estimate_training_memory, steps_due, train
from fnbandit.numerics.device import put_values
from fnbandit.numerics.memory import Memory, precisions
from fnbandit.numerics.products import chunks, multiply
from fnbandit.numerics.state import State


class OwnEvaluation(NamedTuple):
    """Means and deviations [n, k] of contexts by the agents' own models, in the unit of rewards."""

    mean: Tensor
    deviation: Tensor
    found: RidgeEvaluation
    features: Tensor
    prediction: Tensor
    """f(x; theta_i) in the agent's unit, [n, k]"""


class OwnNetworks:
    """n agents' networks, each trained on its agent's history from its last parameters on, as Neural UCB's are.

    An agent's prediction is f(x; theta_i) + <x_i, delta_i> with features x_i of the last layer and of the context, in
    units of the root mean square of the agent's rewards; delta_i = (S_i + lambda I)^-1 c_i on the whole history.
    """

    def __init__(self, config: Config, features: LearnedFeatures, agents: int, like: Tensor) -> None:
        self._config, self._features = config, features
        self._network, p = features.network, features.parameter_count
        theta_0 = put_values(self._network.initial_parameters(config.seed), like.device, like.dtype)
        self._theta_0 = theta_0.to(getattr(torch, config.network_dtype))
        self.theta = self._theta_0.repeat(agents, 1)
        """theta_i [n, q]"""
        self.caution = self.theta.new_ones(agents)
        """Factor of the gradients: 1, halved after every divergence"""
        self.unit = like.new_ones(agents, 1)
        self.center = like.new_zeros(agents, p)
        """Parameters of the last layer, with which f(x; theta_i) = <x_i, center>; 0 before the first training"""
        self._regularization = config.number("regularization")
        self.ridges = Ridges(agents, [self._regularization], p, like)

    def evaluate(self, contexts: Tensor) -> OwnEvaluation:
        """Return means and deviations of contexts [n, k, dim]."""
        x = self._features.at(self.theta, self._network.inputs(contexts))
        prediction = multiply(self.center[:, None], x.mT)[:, 0]
        found = self.ridges.evaluate(x)
        mean, deviation = (prediction + found.mean[:, 0]) * self.unit, found.variance[:, 0].sqrt() * self.unit
        return OwnEvaluation(mean, deviation, found, x, prediction)

    def append(self, evaluation: OwnEvaluation, arms: Tensor, rewards: Tensor) -> None:
        """Add the pulled arms [n] with their rewards [n]."""
        targets = rewards / self.unit[:, 0] - evaluation.prediction.gather(1, arms[:, None])[:, 0]
        self.ridges.append(evaluation.features, arms, targets, evaluation.found)

    def start(self) -> None:
        """Begin an epoch."""
        self.ridges.start(torch.zeros_like(self.ridges.moments))

    def renew(self, inputs: Tensor, rewards: Tensor, times: tuple[int, int], weights: Tensor | None = None) -> None:
        """Train on the histories, inputs [n, d, t] and rewards [n, t], and sum these on the new features.

        `times` are the numbers of observations known at the last training, 0 where there was none, and now. The sums
        have weights [t]; training has none.
        """
        n, _, t = inputs.shape
        steps = steps_due(self._config, *times)
        if steps:
            unit = root_mean_square(rewards)
            start = self._network.rescale(self.theta, (self.unit / unit).to(self.theta)) if times[0] else self.theta
            y = (rewards / unit).to(self.theta)
            trained = train(self._config, self._network, start, self._theta_0, inputs, y, steps, self.caution)
            self.theta, self.unit = trained.theta, unit
            self.caution = self.caution * (1 - trained.diverged / 2)
            self.center = self._features.center_of(self.theta)
        eye = torch.eye(self.center.shape[1], dtype=rewards.dtype, device=rewards.device)
        for chunk in chunks(n, t * len(eye), rewards):
            x = self._features.at(self.theta[chunk], inputs[chunk, : self._network.inputs_dim].to(rewards))
            errors = rewards[chunk] / self.unit[chunk] - multiply(self.center[chunk, None], x.mT)[:, 0]
            if weights is not None:
                x, errors = x * weights.sqrt()[:, None], errors * weights.sqrt()
            covariance, moments = sum_own(x, errors)
            self.ridges.inverse[chunk, 0] = invert_all(covariance + self._regularization * eye)
            self.ridges.moments[chunk, 0] = moments

    def state(self) -> State:
        """Return all that `load` needs between two epochs to continue with the same bits."""
        own = {"theta": self.theta, "caution": self.caution, "unit": self.unit, "center": self.center}
        return own | {"inverse": self.ridges.inverse, "moments": self.ridges.moments}

    def load(self, state: State) -> None:
        """Continue from a `state`; `start` begins the epoch."""
        for values, name in (
            (self.theta, "theta"), (self.caution, "caution"), (self.unit, "unit"), (self.center, "center"),
            (self.ridges.inverse, "inverse"), (self.ridges.moments, "moments"),
        ):  # fmt: skip
            values.copy_(state[name])


class NeuralLinear(Group):
    """n independent learners with neural-linear UCB (Riquelme et al. 2018): `OwnNetworks` alone."""

    traits = Traits(features="tangent")

    def __init__(self, config: Config, environment: Environment, agents: range, replica: Replica | None = None) -> None:
        super().__init__(config, environment, agents, replica)
        features = LearnedFeatures(config, environment.dim, self.like, is_whole=False, has_contexts=True)
        self.own = OwnNetworks(config, features, len(agents), self.like)
        self.network = features.network
        self._inputs = self.own.theta.new_zeros(len(agents), self.network.padded_dim, config.horizon)
        self._learned = self.like.new_zeros(len(agents), config.horizon)
        """Rewards in the order of learning"""
        self._last_trained = 0
        self._scale = config.number("exploration_global") * config.number("regularization") ** 0.5

    def list_state(self) -> dict[str, int | None]:
        return super().list_state() | {"own": None, "_inputs": 2, "_learned": 1, "_last_trained": None}

    def load(self, iteration: int, state: State) -> None:
        super().load(iteration, state)
        self.own.start()

    def scores(self, iteration: int, contexts: Tensor) -> Scored:
        found = self.own.evaluate(contexts)
        return Scored(found.mean + self._scale * found.deviation, found)

    def learn(self, iteration: int, contexts: Tensor, arms: Tensor, rewards: Tensor, evidence: Any) -> None:
        chosen = self.select_pulled(contexts, arms).to(self.network_dtype)[:, None]
        self._inputs[:, : self.network.inputs_dim, iteration - 1] = self.network.inputs(chosen)[:, :, 0]
        self._learned[:, iteration - 1] = rewards
        self.own.append(evidence, arms, rewards)
        stop = self.config.stop_training_after
        is_due = steps_due(self.config, self._last_trained, iteration) > 0
        if is_due and (stop is None or iteration <= stop):
            times = self._last_trained, iteration
            self.own.renew(self._inputs[:, :, :iteration], self._learned[:, :iteration], times)
            self._last_trained = iteration
        self.own.start()

    @classmethod
    def parameter_count(cls, config: Config, environment: Environment) -> int:
        return LearnedFeatures(config, environment.dim, torch.empty(0), False, True).parameter_count

    @classmethod
    def memory(cls, config: Config, environment: Environment) -> Memory:
        numbers = 2 * cls.parameter_count(config, environment) ** 2
        own = Memory(numbers * precisions(config)[0] + config.horizon * precisions(config)[0])
        return super().memory(config, environment) + estimate_training_memory(config, environment) + own
