"""FN-UCB (Alg. 1) and FN-UCB (Less Comm.): UCB^a and UCB^b, n agents at once."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fnbandit.algorithms.base import Scored
from fnbandit.algorithms.bounds import combine_bounds, global_bound, local_bound
from fnbandit.algorithms.federated import ContextEvaluation, FederatedGroup
from fnbandit.algorithms.traits import Traits
from fnbandit.config import Config
from fnbandit.core import Download, Upload
from fnbandit.covariance import Evaluation, matrices
from fnbandit.environments import Environment
from fnbandit.federation.alpha import make_alpha
from fnbandit.federation.messages import Contents
from fnbandit.federation.replica import Networks, Replica
from fnbandit.networks.network import Network, TangentFeatures
from fnbandit.networks.training import MATURE, estimate_training_memory, steps_due, train, train_debiased
from fnbandit.numerics.memory import Memory, precisions


class FNUCB(FederatedGroup):
    """n agents of FN-UCB: every agent receives the local inverses of all agents."""

    traits = Traits(schedule="barrier", features="tangent", uses_alpha=True)

    def __init__(self, config: Config, environment: Environment, agents: range, replica: Replica | None = None) -> None:
        super().__init__(config, environment, agents, replica)
        self._unit: Tensor | float = 1.0
        """Unit of the bonuses, [n, 1]"""
        self._rule = make_alpha(config)
        self._last_global = math.inf if config.first_iteration_only else self._rule.last_global
        if self.replica.estimate.always_needed or self.replica.trigger.measures:
            self._last_global = math.inf
        if config.use_local:
            self._start_networks(environment)

    def _start_networks(self, environment: Environment) -> None:
        assert isinstance(self.replica.lift, TangentFeatures) and self.replica.inverses is not None
        n = len(self.agents)
        self._network = self.replica.lift.network
        self._theta_0 = self.replica.lift.theta_0.to(self.network_dtype)
        self.theta = self._theta_0.repeat(n, 1)
        """theta_i [n, p]"""
        self._inputs = self.theta.new_zeros(n, self._network.padded_dim, self.config.horizon)
        self._local_scale = self.config.number("exploration_local") * self.config.number("regularization") ** 0.5
        self.local = self.replica.inverses.local(self.agents)
        """V_local,i"""
        self._rule.start(environment, self.replica.lift, self.local, n, self.like)
        self._caution = self.theta.new_ones(n)
        """Factor of the gradients: 1, halved after every divergence"""
        self._has_trained = False
        """True where the participants of the group have trained for the present round"""

    @classmethod
    def contents(cls, config: Config) -> tuple[Contents, Contents]:
        """Return the contents of an upload and of a download (Alg. 1, lines 16-17); only W and B without UCB^b."""
        up = Contents(covariances=1, vectors=1)
        if not config.use_local:
            return up, up
        up = dataclasses.replace(up, inverses=1, networks=1, scalars=make_alpha(config).numbers)
        return up, dataclasses.replace(up, inverses=1 if cls.traits.averages_inverses else config.agents, scalars=1)

    @classmethod
    def make_replica(cls, config: Config, environment: Environment, like: Tensor) -> Replica:
        lift = TangentFeatures(config, environment.dim, like)
        p, networks = lift.network.parameter_count, None
        if config.use_local:
            kind = matrices(config)
            make = kind.mean_inverse if cls.traits.averages_inverses else kind.all_inverses
            inverses = make(config.agents, p, config.number("regularization"), like, lift)
            networks = Networks(lift.theta_0.to(getattr(torch, config.network_dtype)), inverses)
        return Replica(config, lift, p, like, *cls.contents(config), networks)

    def list_state(self) -> dict[str, int | None]:
        names = super().list_state()
        if self.config.use_local:
            names |= {"theta": None, "_inputs": 2, "local": None, "_rule": None, "_caution": None}
        return names

    def needs_global(self, iteration: int) -> bool:
        return iteration <= self._last_global

    # Alg. 1, lines 4-7

    def scores(self, iteration: int, contexts: Tensor) -> Scored:
        """Return (1 - alpha) UCB^a + alpha UCB^b of every context, [n, arms]."""
        alpha = self.alpha(iteration)
        self.alpha_history[iteration - 1] = alpha
        evaluation = self.look(iteration, contexts)
        a = b = prediction = None
        # An alpha that is a tensor stays on its device: reading it would wait for the device.
        if isinstance(alpha, Tensor) or alpha < 1:
            assert evaluation.found is not None
            a = self.global_bound(evaluation.found)
        if isinstance(alpha, Tensor) or alpha > 0 or self._rule.needs_prediction_errors:
            prediction = self.predict(contexts)
        if prediction is not None and (isinstance(alpha, Tensor) or alpha > 0):
            b = self.local_bound(prediction, evaluation.features)
        return Scored(combine_bounds(a, b, alpha), evaluation._replace(prediction=prediction))

    def alpha(self, iteration: int) -> Tensor | float:
        """Return the weight of UCB^b in an iteration (Sec. 3.3)."""
        last_round = self.replica.last_round
        if self.config.first_iteration_only and iteration != last_round + 1 and self.config.use_global:
            return 0.0
        return self._rule.at(iteration, last_round, self.replica.alpha)

    def predict(self, contexts: Tensor) -> Tensor:
        """Return f(x; theta_sync,NN) of contexts [n, arms, dim] -> [n, arms]; of theta_i without `aggregate`."""
        theta = self.replica.theta if self.config.aggregate else self.theta
        assert theta is not None
        inputs = self._network.inputs(contexts.to(self.network_dtype))
        return self._network.predict(theta, inputs).to(self.dtype)

    def local_bound(self, prediction: Tensor, x: Tensor) -> Tensor:
        """Return UCB^b [n, arms] (line 6) from the network's prediction for contexts with features x."""
        assert self.replica.inverses is not None
        return local_bound(prediction, self.replica.inverses.deviation(x), self._local_scale * self._unit)

    def global_bound(self, found: Evaluation) -> Tensor:
        """Return UCB^a [n, arms] (line 5), with its bonus and a rescaled mean in the agent's unit."""
        scale, inflated = self._global_scale, self.replica.estimate.inflated
        return global_bound(found.mean, found.variance, scale, inflated, self._unit)

    def start_epoch(self) -> None:
        super().start_epoch()
        if self.config.reward_unit == "rms":
            self._unit = root_mean_square(self.rewards[:, : self.iteration])

    # Alg. 1, lines 8-10

    def learn(
        self, iteration: int, contexts: Tensor, arms: Tensor, rewards: Tensor, evidence: ContextEvaluation
    ) -> None:
        super().learn(iteration, contexts, arms, rewards, evidence)
        found, prediction = evidence.found, evidence.prediction
        # The predictions of an untrained network are no evidence.
        if self.replica.last_trained and found is not None and prediction is not None:
            self._rule.observe(self.select_pulled(found.mean, arms), self.select_pulled(prediction, arms), rewards)
        if self.config.use_local:
            self._rule.receive(iteration, contexts)
            context = self.select_pulled(contexts, arms).to(self.network_dtype)
            inputs = self._network.inputs(context[:, None])[:, :, 0]
            self._inputs[:, : inputs.shape[1], iteration - 1] = inputs

    def rewind(self, iteration: int) -> None:
        super().rewind(iteration)
        self._rule.rewind(iteration - self.replica.last_round)

    # Alg. 1, lines 14-16

    def train(self) -> None:
        """Train theta_i [n, p] (line 14), where training is due."""
        super().train()
        self._has_trained = False
        stop, t = self.config.stop_training_after, self.iteration
        if not self.config.use_local or (stop is not None and t > stop):
            return
        self._steps = steps_due(self.config, self.replica.last_trained, t)
        if not self._steps:
            return
        self._train_networks(self.config.training_start, self.replica.last_trained > 0)

    def _train_networks(self, start_from: str, was_trained: bool) -> None:
        """Train theta_i from "initial", "own" or "aggregate" parameters; `was_trained` is True after a training."""
        t = self.iteration
        assert self.replica.theta is not None
        starts = {"initial": self._theta_0, "own": self.theta, "aggregate": self.replica.theta}
        present = self.present
        who: Any = slice(None)
        self._has_trained = True
        if present is not None:
            chosen = np.flatnonzero(self.replica.participants(t)[self.agents.start : self.agents.stop])
            who = torch.from_numpy(chosen).to(self.device)
            if not len(chosen):
                self._loss = self._diverged = self.theta.new_zeros(len(present))
                return
        start = starts[start_from].expand_as(self.theta)[who]
        x, y = self._inputs[who, :, :t], self.rewards[who, :t].to(self.network_dtype)
        unit = self.theta.new_ones(())
        if self.config.reward_unit == "rms":
            unit = root_mean_square(y)
            # theta_0 predicts rewards / unit; trained parameters predict the rewards themselves.
            if was_trained and start_from != "initial":
                start = self._network.rescale(start, 1 / unit)
            y = y / unit
        young = t > self.replica.last_round + 1 and self.replica.rounds < MATURE
        work = train_debiased if young else train
        caution = self._caution[who]
        trained = work(self.config, self._network, start, self._theta_0, x, y, self._steps, caution)
        loss, diverged = trained.loss * unit.flatten().square(), trained.diverged
        theta = trained.theta if unit.ndim == 0 else self._network.rescale(trained.theta, unit)
        caution = caution * (1 - diverged / 2)
        if present is None:
            self.theta, self._caution, self._loss, self._diverged = theta, caution, loss, diverged
            return
        self.theta, self._caution = self.theta.clone(), self._caution.clone()
        self.theta[who], self._caution[who] = theta, caution
        self._loss, self._diverged = loss.new_zeros(len(present)), diverged.new_zeros(len(present))
        self._loss[who], self._diverged[who] = loss, diverged

    def complete(self, upload: Upload) -> Upload:
        """Return the upload with theta_i, alpha_i and V_local^-1 (lines 10, 15)."""
        if not self.config.use_local:
            return upload
        assert isinstance(upload.covariance, Tensor)
        downdate = self.local.absorb(upload.covariance)
        self._rule.update_uncertainties(self.local, downdate)
        alpha = self._rule.upload()
        return dataclasses.replace(
            upload,
            theta=self.theta,
            alpha=alpha,
            inverse=downdate,
            trained=self._has_trained,
            report=self._report(alpha),
        )

    def exchange(self, download: Download) -> Upload:
        """Train again from the average of the exchange before, and send theta_i alone (`averagings`)."""
        self._train_networks("aggregate", was_trained=True)
        t, last = self.iteration, self.replica.last_round
        upload = Upload(self.agents, t, last, torch.full_like(self.rewards[:, 0], torch.nan), theta=self.theta,
                        trained=True, report=self._report(None), exchange=download.exchange + 1)  # fmt: skip
        return self.send(upload)

    def _report(self, alpha: Tensor | None) -> dict[str, Tensor]:
        report = {"alpha": alpha} if alpha is not None and self._rule.numbers == 1 else {}
        if not self._has_trained:
            return report
        steps = torch.full_like(self._loss, self._steps)
        return report | {"loss": self._loss, "steps": steps, "diverged": self._diverged}

    @classmethod
    def parameter_count(cls, config: Config, environment: Environment) -> int:
        return Network(config, environment.dim).parameter_count

    @classmethod
    def memory(cls, config: Config, environment: Environment) -> Memory:
        memory = super().memory(config, environment) + estimate_training_memory(config, environment)
        if not config.use_local:
            return memory
        memory += make_alpha(config).memory(environment)
        kind, p, real = matrices(config), cls.parameter_count(config, environment), precisions(config)[0]
        if cls.traits.averages_inverses:
            return memory + Memory(kind.kept(p, config.horizon) * real)
        return memory + Memory(0, config.agents * kind.numbers(p) * real)


class FNUCBLessComm(FNUCB):
    """n agents of FN-UCB (Less Comm., Sec. 3.4): the server averages the local inverses and broadcasts one."""

    traits = dataclasses.replace(FNUCB.traits, averages_inverses=True)


def root_mean_square(rewards: Tensor) -> Tensor:
    """Return the root mean square of every agent's rewards [n, t] -> [n, 1]; 1 where all of them are 0."""
    mean = rewards.square().mean(1, keepdim=True)
    return mean.where(mean > 0, 1).sqrt()
