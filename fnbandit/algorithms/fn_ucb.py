"""FN-UCB (Alg. 1) and FN-UCB (Less Comm.): UCB^a and UCB^b, n agents at once."""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor

from fnbandit.algorithms.base import Scored
from fnbandit.algorithms.confidence import combined, global_bound, local_bound
from fnbandit.algorithms.federated import FederatedGroup, Seen
from fnbandit.config import Config
from fnbandit.covariance import Evaluation, matrices
from fnbandit.environments import Environment
from fnbandit.memory import Memory, precisions
from fnbandit.network import Network, TangentFeatures
from fnbandit.rounds.messages import Contents, Upload
from fnbandit.rounds.shared import Networks, Shared
from fnbandit.rounds.weights import make_weight
from fnbandit.training import MATURE, Trained, steps_due, train, train_debiased, training_memory


class FNUCB(FederatedGroup):
    """n agents of FN-UCB: every agent hears every agent's local inverse."""

    learns_on = "tangent features"
    averages_inverses = False

    def __init__(self, config: Config, environment: Environment, agents: range, shared: Shared | None = None) -> None:
        super().__init__(config, environment, agents, shared)
        self._unit: Tensor | float = 1.0
        """What bonuses are multiples of, [n, 1]"""
        self._weight = make_weight(config)
        self._last_global = math.inf if config.first_iteration_only else self._weight.last_global
        if self.shared.estimate.always_needed or self.shared.trigger.measures:
            self._last_global = math.inf
        if config.use_local:
            self._start_networks(environment)

    def _start_networks(self, environment: Environment) -> None:
        assert isinstance(self.shared.lift, TangentFeatures) and self.shared.inverses is not None
        n = len(self.agents)
        self._network = self.shared.lift.network
        self._theta_0 = self.shared.lift.theta_0.to(self.network_dtype)
        self.theta = self._theta_0.repeat(n, 1)
        """theta_i [n, p]"""
        self._inputs = self.theta.new_zeros(n, self._network.padded_dim, self.config.horizon)
        self._local_scale = self.config.number("exploration_local") * self.config.number("regularization") ** 0.5
        self.local = self.shared.inverses.local(self.agents)
        """V_local,i"""
        self._weight.start(environment, self.shared.lift, self.local, n, self.like)
        self._caution = self.theta.new_ones(n)
        """What gradients are multiplied by: 1, and half as much after every divergence"""
        self._trained: Trained | None = None
        """For the present round"""

    @classmethod
    def contents(cls, config: Config) -> tuple[Contents, Contents]:
        """What an agent sends, and what it hears (Alg. 1, lines 16-17); without UCB^b it is W and B only."""
        up = Contents(covariances=1, vectors=1)
        if not config.use_local:
            return up, up
        up = dataclasses.replace(up, inverses=1, networks=1, scalars=make_weight(config).numbers)
        return up, dataclasses.replace(up, inverses=1 if cls.averages_inverses else config.agents, scalars=1)

    @classmethod
    def make_shared(cls, config: Config, environment: Environment, like: Tensor) -> Shared:
        lift = TangentFeatures(config, environment.dim, like)
        p, networks = lift.network.parameter_count, None
        if config.use_local:
            kind = matrices(config)
            make = kind.mean_inverse if cls.averages_inverses else kind.all_inverses
            inverses = make(config.agents, p, config.number("regularization"), like, lift)
            networks = Networks(lift.theta_0.to(getattr(torch, config.network_dtype)), inverses)
        return Shared(config, lift, p, like, *cls.contents(config), networks)

    def saved(self) -> dict[str, int | None]:
        names = super().saved()
        if self.config.use_local:
            names |= {"theta": None, "_inputs": 2, "local": None, "_weight": None, "_caution": None}
        return names

    def needs_global(self, iteration: int) -> bool:
        return iteration <= self._last_global

    # Alg. 1, lines 4-7

    def scores(self, iteration: int, contexts: Tensor) -> Scored:
        """(1 - alpha) UCB^a + alpha UCB^b of every context, [n, arms]."""
        alpha = self.alpha(iteration)
        self.weights[iteration - 1] = alpha
        seen = self.look(iteration, contexts)
        a = b = prediction = None
        # A weight that is computed stays on its device: to look at it would mean to wait.
        if isinstance(alpha, Tensor) or alpha < 1:
            assert seen.found is not None
            a = self.global_bound(seen.found)
        if isinstance(alpha, Tensor) or alpha > 0 or self._weight.compares:
            prediction = self.predict(contexts)
        if prediction is not None and (isinstance(alpha, Tensor) or alpha > 0):
            b = self.local_bound(prediction, seen.features)
        return Scored(combined(a, b, alpha), seen._replace(prediction=prediction))

    def alpha(self, iteration: int) -> Tensor | float:
        """The weight of UCB^b in an iteration (Sec. 3.3)."""
        last_round = self.shared.last_round
        if self.config.first_iteration_only and iteration != last_round + 1 and self.config.use_global:
            return 0.0
        return self._weight.at(iteration, last_round, self.shared.weight)

    def predict(self, contexts: Tensor) -> Tensor:
        """f(x; theta_sync,NN) of contexts [n, arms, dim] -> [n, arms]."""
        theta = self.shared.theta if self.config.aggregate else self.theta
        assert theta is not None
        inputs = self._network.inputs(contexts.to(self.network_dtype))
        return self._network.predict(theta, inputs).to(self.dtype)

    def local_bound(self, prediction: Tensor, x: Tensor) -> Tensor:
        """UCB^b [n, arms] (line 6) from the network's prediction for contexts with features x."""
        assert self.shared.inverses is not None
        return local_bound(prediction, self.shared.inverses.deviation(x), self._local_scale * self._unit)

    def global_bound(self, found: Evaluation) -> Tensor:
        """UCB^a [n, arms] (line 5), its bonus, and a mean that has been rescaled, in the agent's unit."""
        scale, inflated = self._global_scale, self.shared.estimate.inflated
        return global_bound(found.mean, found.variance, scale, inflated, self._unit)

    def start_epoch(self) -> None:
        super().start_epoch()
        if self.config.reward_unit == "rms":
            self._unit = root_mean_square(self.rewards[:, : self.iteration])

    # Alg. 1, lines 8-10

    def learn(self, iteration: int, contexts: Tensor, arms: Tensor, rewards: Tensor, evidence: Seen) -> None:
        super().learn(iteration, contexts, arms, rewards, evidence)
        found, prediction = evidence.found, evidence.prediction
        # A network that has not been trained says nothing.
        if self.shared.last_trained and found is not None and prediction is not None:
            self._weight.observe(self.chosen(found.mean, arms), self.chosen(prediction, arms), rewards)
        if self.config.use_local:
            self._weight.receive(iteration, contexts)
            context = self.chosen(contexts, arms).to(self.network_dtype)
            inputs = self._network.inputs(context[:, None])[:, :, 0]
            self._inputs[:, : inputs.shape[1], iteration - 1] = inputs

    def rewind(self, iteration: int) -> None:
        super().rewind(iteration)
        self._weight.rewind(iteration - self.shared.last_round)

    # Alg. 1, lines 14-16

    def train(self) -> None:
        """theta_i [n, p] (line 14)."""
        super().train()
        self._trained = None
        stop, t = self.config.stop_training_after, self.iteration
        if not self.config.use_local or (stop is not None and t > stop):
            return
        self._steps = steps_due(self.config, self.shared.last_trained, t)
        if not self._steps:
            return
        assert self.shared.theta is not None
        starts = {"initial": self._theta_0, "own": self.theta, "aggregate": self.shared.theta}
        start = starts[self.config.training_start].expand_as(self.theta)
        x, y = self._inputs[:, :, :t], self.rewards[:, :t].to(self.network_dtype)
        unit = self.theta.new_ones(())
        if self.config.reward_unit == "rms":
            unit = root_mean_square(y)
            # theta_0 stands for a network in this unit, what has been trained for one in the rewards' own.
            if self.shared.last_trained and self.config.training_start != "initial":
                start = self._network.scaled(start, 1 / unit)
            y = y / unit
        young = t > self.shared.last_round + 1 and self.shared.rounds < MATURE
        work = train_debiased if young else train
        self._trained = work(self.config, self._network, start, self._theta_0, x, y, self._steps, self._caution)
        self._loss = self._trained.loss * unit.flatten().square()
        self.theta = self._trained.theta if unit.ndim == 0 else self._network.scaled(self._trained.theta, unit)
        self._caution = self._caution * (1 - self._trained.diverged / 2)

    def complete(self, upload: Upload, rows: Tensor) -> Upload:
        """Add theta_i, alpha_i and V_local^-1 (lines 10, 15)."""
        if not self.config.use_local:
            return upload
        assert self.shared.theta is not None
        change = self.local.absorb(rows)
        self._weight.absorbed(self.local, change)
        weight = self._weight.upload()
        return dataclasses.replace(
            upload,
            theta=self.shared.channel.theta(self.agents, self.iteration, self.theta, self.shared.theta),
            weight=weight,
            change=change,
            trained=self._trained is not None,
            report=self._report(weight),
        )

    def _report(self, weight: Tensor | None) -> dict[str, Tensor]:
        report = {"alpha": weight} if weight is not None and self._weight.numbers == 1 else {}
        if self._trained is None:
            return report
        loss, diverged = self._loss, self._trained.diverged
        return report | {"loss": loss, "steps": torch.full_like(loss, self._steps), "diverged": diverged}

    @classmethod
    def parameter_count(cls, config: Config, environment: Environment) -> int:
        return Network(config, environment.dim).parameter_count

    @classmethod
    def memory(cls, config: Config, environment: Environment) -> Memory:
        memory = super().memory(config, environment) + training_memory(config, environment)
        if not config.use_local:
            return memory
        memory += make_weight(config).memory(environment)
        kind, p, real = matrices(config), cls.parameter_count(config, environment), precisions(config)[0]
        if cls.averages_inverses:
            return memory + Memory(kind.kept(p, config.horizon) * real)
        return memory + Memory(0, config.agents * kind.numbers(p) * real)


class FNUCBLessComm(FNUCB):
    """n agents of FN-UCB (Less Comm., Sec. 3.4): the server averages the local inverses and broadcasts one."""

    averages_inverses = True


def root_mean_square(rewards: Tensor) -> Tensor:
    """Of every agent's rewards [n, t] -> [n, 1]; 1 where all of them are 0."""
    mean = rewards.square().mean(1, keepdim=True)
    return mean.where(mean > 0, 1).sqrt()
