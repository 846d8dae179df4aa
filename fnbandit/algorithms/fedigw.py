"""FedIGW (Li et al. 2023, "Harnessing federated learning in contextual bandits"): inverse gap weighting.

Agents explore by the predicted gaps of one shared network, and federated averaging of networks trained on the agents'
own histories is all that they communicate: p numbers a message, no matrices.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fnbandit.algorithms.base import Scored
from fnbandit.algorithms.federated import FederatedGroup
from fnbandit.algorithms.fn_ucb import FNUCB
from fnbandit.algorithms.traits import Traits
from fnbandit.config import Config
from fnbandit.core import Upload
from fnbandit.environments import Environment
from fnbandit.federation.messages import Contents
from fnbandit.federation.replica import Networks, Replica
from fnbandit.networks.network import TangentFeatures
from fnbandit.networks.training import estimate_training_memory, steps_due
from fnbandit.numerics.memory import Memory
from fnbandit.numerics.randomness import Purpose, uniforms


class FedIGW(FNUCB):
    """n agents that draw arms by inverse gap weighting; their networks are trained and averaged as FN-UCB's are.

    With f = f(x; theta_sync) and the best arm b = argmax f, arm a != b has probability
        p(a) = 1 / (K + gamma (f(b) - f(a))),
    and b has the rest. Arms are uniform before the first training.
    """

    traits = Traits(schedule="barrier", features="tangent")

    def __init__(self, config: Config, environment: Environment, agents: range, replica: Replica | None = None) -> None:
        FederatedGroup.__init__(self, config, environment, agents, replica)
        if self.replica.trigger.next_round(0) is None:
            raise ValueError(
                f"trigger={config.trigger!r}: agents of algorithm={config.algorithm} have no matrices to measure; "
                "expected always, period or geometric"
            )
        assert isinstance(self.replica.lift, TangentFeatures)
        self._network = self.replica.lift.network
        self._theta_0 = self.replica.lift.theta_0.to(self.network_dtype)
        self.theta = self._theta_0.repeat(len(agents), 1)
        self._inputs = self.theta.new_zeros(len(agents), self._network.padded_dim, config.horizon)
        self._caution = self.theta.new_ones(len(agents))
        self._has_trained = False

    @classmethod
    def make_replica(cls, config: Config, environment: Environment, like: Tensor) -> Replica:
        lift, alone = TangentFeatures(config, environment.dim, like), Contents(networks=1)
        networks = Networks(lift.theta_0.to(getattr(torch, config.network_dtype)))
        # No statistics are kept; those of diagonal matrices take the least memory.
        p = lift.network.parameter_count
        return Replica(config.replace(diagonal=True), lift, p, like, alone, alone, networks)

    def list_state(self) -> dict[str, int | None]:
        own = {"arms": 1, "rewards": 1, "regret": 1, "theta": None, "_inputs": 2, "_caution": None}
        return own | {"chain": None}

    def probabilities(self, contexts: Tensor) -> Tensor:
        """Return the probability of each arm, [n, arms], for contexts [n, arms, dim]."""
        arms = contexts.shape[1]
        if not self.replica.last_trained:
            return self.like.new_full(contexts.shape[:2], 1 / arms)
        predicted = self.predict(contexts)
        best = predicted.argmax(1, keepdim=True)
        others = 1 / (arms + self.config.gap_weight * (predicted.gather(1, best) - predicted))
        others.scatter_(1, best, 0.0)
        return others.scatter(1, best, 1 - others.sum(1, keepdim=True))

    def predict(self, contexts: Tensor) -> Tensor:
        inputs = self._network.inputs(contexts.to(self.network_dtype))
        assert self.replica.theta is not None
        return self._network.predict(self.replica.theta, inputs).to(self.dtype)

    def scores(self, iteration: int, contexts: Tensor) -> Scored:
        """Return 1 for the arm that is drawn, 0 for the others."""
        draws = uniforms(self.config.seed, Purpose.EXPLORATION, self.agents, iteration + self.ahead, 1)
        limits = self.probabilities(contexts).cumsum(1)
        arms = (limits <= torch.from_numpy(draws).to(self.like)).sum(1).clamp(max=contexts.shape[1] - 1)
        drawn = torch.zeros_like(limits).scatter(1, arms[:, None], 1.0)
        return Scored(drawn.where(limits.isfinite(), torch.nan))

    def learn(self, iteration: int, contexts: Tensor, arms: Tensor, rewards: Tensor, evidence: Any) -> None:
        context = self.select_pulled(contexts, arms).to(self.network_dtype)
        inputs = self._network.inputs(context[:, None])[:, :, 0]
        self._inputs[:, : inputs.shape[1], iteration - 1] = inputs

    def rewind(self, iteration: int) -> None:
        self.iteration = iteration

    def start_epoch(self) -> None:
        """Do nothing: the replica holds the new network."""

    def train(self) -> None:
        """Train theta_i [n, p] on the agent's own history, where training is due."""
        self._has_trained = False
        stop, t = self.config.stop_training_after, self.iteration
        self._steps = 0 if stop is not None and t > stop else steps_due(self.config, self.replica.last_trained, t)
        if self._steps:
            self._train_networks(self.config.training_start, self.replica.last_trained > 0)

    def upload(self) -> Upload:
        """Return theta_i alone."""
        nothing = torch.full_like(self.rewards[:, 0], torch.nan)
        return self.send(
            Upload(
                self.agents,
                self.iteration,
                self.replica.last_round,
                nothing,
                theta=self.theta,
                trained=self._has_trained,
                report=self._report(None),
            )
        )

    def policy_parts(self, index: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return the parts of the greedy policy: the arm b."""
        assert isinstance(self.replica.lift, TangentFeatures) and self.replica.theta is not None
        tensors = {"theta": self.replica.theta, "features_at": self.replica.lift.theta_0}
        return {"network": self._network.form}, tensors

    @classmethod
    def memory(cls, config: Config, environment: Environment) -> Memory:
        return super(FederatedGroup, cls).memory(config, environment) + estimate_training_memory(config, environment)
