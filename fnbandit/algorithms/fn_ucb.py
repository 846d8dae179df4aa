"""FN-UCB (Alg. 1) and FN-UCB (Less Comm.): UCB^a and UCB^b, n agents at once."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch
from torch import Tensor

from fnbandit.algorithms.base import Scored
from fnbandit.algorithms.bounds import combine_bounds, global_bound, local_bound
from fnbandit.algorithms.federated import ContextEvaluation
from fnbandit.algorithms.federated_network import FederatedNetworkGroup, root_mean_square
from fnbandit.algorithms.traits import Traits
from fnbandit.config import Config
from fnbandit.config.registry import resolve_part
from fnbandit.core import Upload
from fnbandit.covariance import Evaluation, matrices
from fnbandit.environments import Environment
from fnbandit.federation.alpha import make_alpha
from fnbandit.federation.messages import Contents
from fnbandit.federation.network_training import count_networks
from fnbandit.federation.replica import Networks, Replica
from fnbandit.networks.features import TangentFeatures
from fnbandit.networks.network import Network
from fnbandit.networks.training import estimate_training_memory
from fnbandit.numerics.device import read_scalars
from fnbandit.numerics.memory import Memory, precisions

POLICY_ALPHAS = 1000
"""Iterations after a run for which a policy has alpha; it keeps the last one"""


class FNUCB(FederatedNetworkGroup):
    """n agents of FN-UCB: every agent receives the local inverses of all agents."""

    traits = Traits(schedule="barrier", features="tangent", uses_alpha=True, releases=("networks",))

    def __init__(self, config: Config, environment: Environment, agents: range, replica: Replica | None = None) -> None:
        super().__init__(config, environment, agents, replica)
        self._unit: Tensor | float = 1.0
        """Unit of the bonuses, [n, 1]"""
        self._rule = make_alpha(config)
        self._last_global = math.inf if config.first_iteration_only else self._rule.last_global
        parts = self.replica
        if parts.estimate.always_needed or parts.trigger.measures or parts.needs_own_values:
            self._last_global = math.inf
        if config.use_local:
            self._start_local_bound(environment)

    def _start_local_bound(self, environment: Environment) -> None:
        assert self.replica.inverses is not None
        self.start_networks()
        self._local_scale = self.config.number("exploration_local") * self.config.number("regularization") ** 0.5
        self.local = self.replica.inverses.local(self.agents)
        """V_local,i"""
        self._rule.start(environment, self.replica.lift, self.local, len(self.agents), self.like)

    @classmethod
    def contents(cls, config: Config) -> tuple[Contents, Contents]:
        """Return the contents of an upload and of a download (Alg. 1, lines 16-17); only W and B without UCB^b."""
        up = Contents(covariances=1, vectors=1)
        if not config.use_local:
            return up, up
        if resolve_part("privacy", config.privacy).is_private:
            return Contents(networks=count_networks(config)), Contents(networks=1)
        up = dataclasses.replace(up, inverses=1, networks=count_networks(config), scalars=make_alpha(config).numbers)
        return up, dataclasses.replace(up, inverses=1 if cls.traits.averages_inverses else config.agents, scalars=1)

    @classmethod
    def make_replica(cls, config: Config, environment: Environment, like: Tensor) -> Replica:
        lift = TangentFeatures(config, environment.dim, like)
        p, networks = lift.network.parameter_count, None
        if config.use_local:
            kind = matrices(config)
            is_private = resolve_part("privacy", config.privacy).is_private
            make = kind.mean_inverse if cls.traits.averages_inverses or is_private else kind.all_inverses
            inverses = make(config.agents, p, config.number("regularization"), like, lift)
            networks = Networks(lift.network, lift.theta_0.to(getattr(torch, config.network_dtype)), inverses)
        return Replica(config, lift, p, like, *cls.contents(config), networks)

    def list_state(self) -> dict[str, int | None]:
        return super().list_state() | ({"local": None, "_rule": None} if self.config.use_local else {})

    def needs_global(self, iteration: int) -> bool:
        return iteration <= self._last_global

    # Alg. 1, lines 4-7

    def scores(self, iteration: int, contexts: Tensor) -> Scored:
        """Return (1 - alpha) UCB^a + alpha UCB^b of every context, [n, arms]."""
        alpha = self.alpha(iteration)
        self.alpha_history[iteration - 1 + self.ahead] = alpha
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
        if self.chain.privacy.is_private:  # inverses stay with their agents
            deviation = self.local.quadratic(x).clamp_(min=0).sqrt_()
        else:
            deviation = self.replica.inverses.deviation(x)
        return local_bound(prediction, deviation, self._local_scale * self._unit)

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
            self.keep_inputs(iteration, contexts, arms)

    def rewind(self, iteration: int) -> None:
        super().rewind(iteration)
        self._rule.rewind(iteration - self.replica.last_round)

    # Alg. 1, lines 15 and 16

    def complete(self, upload: Upload) -> Upload:
        """Return the upload with theta_i, alpha_i and V_local^-1 (lines 10, 15)."""
        if not self.config.use_local:
            return upload
        assert isinstance(upload.covariance, Tensor)
        downdate = self.local.absorb(upload.covariance)
        self._rule.update_uncertainties(self.local, downdate)
        alpha = self._rule.upload()
        report = {"alpha": alpha} if alpha is not None and self._rule.numbers == 1 else {}
        upload = dataclasses.replace(upload, alpha=alpha, inverse=downdate, report=report | self.report())
        return self.add_first(upload)

    def policy_parts(self, index: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
        facts, tensors = super().policy_parts(index)
        lift = self.replica.lift
        assert isinstance(lift, TangentFeatures)
        unit = read_scalars(self._unit[index, 0])[0] if isinstance(self._unit, Tensor) else self._unit
        facts |= {"network": lift.network.form, "unit": unit, "global_scale": self._global_scale * unit}
        tensors["features_at"] = lift.theta_0
        if not self.config.use_global:
            del tensors["solution"], tensors["inverse"]
        if self.config.use_local:
            theta = self.replica.theta if self.config.aggregate else self.theta[index]
            assert theta is not None and self.replica.inverses is not None
            facts["local_scale"] = self._local_scale * unit
            coming = range(self.iteration + 1, self.iteration + 2 + POLICY_ALPHAS)
            zero = self.alpha_history.new_zeros(())
            alphas = torch.stack([zero + self.alpha(t) for t in coming])
            own = self.local.subset(slice(index, index + 1)).inverse
            local = own if self.chain.privacy.is_private else self.replica.inverses.parts
            tensors |= {"theta": theta, "local": local, "alphas": alphas}
        return facts, tensors

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
