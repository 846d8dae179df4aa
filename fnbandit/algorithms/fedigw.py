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
from fnbandit.algorithms.federated_network import FederatedNetworkGroup
from fnbandit.algorithms.traits import Traits
from fnbandit.config import Config
from fnbandit.config.registry import resolve_part
from fnbandit.core import Upload
from fnbandit.environments import Environment
from fnbandit.federation.messages import Contents
from fnbandit.federation.replica import Networks, Replica
from fnbandit.networks.features import TangentFeatures
from fnbandit.networks.network import Network
from fnbandit.networks.training import estimate_training_memory
from fnbandit.numerics.device import put_values
from fnbandit.numerics.memory import Memory
from fnbandit.numerics.randomness import Purpose, uniforms


class FedIGW(FederatedNetworkGroup):
    """n agents that draw arms by inverse gap weighting; their networks are trained and averaged as FN-UCB's are.

    With f = f(x; theta_sync) and the best arm b = argmax f, arm a != b has probability
        p(a) = 1 / (K + gamma (f(b) - f(a))),
    and b has the rest. Arms are uniform before the first training.
    """

    traits = Traits(schedule="barrier", features="tangent", releases=("networks",))

    def __init__(self, config: Config, environment: Environment, agents: range, replica: Replica | None = None) -> None:
        super().__init__(config, environment, agents, replica)
        if self.replica.trigger.next_round(0) is None:
            raise ValueError(
                f"trigger={config.trigger!r}: agents of algorithm={config.algorithm} have no matrices to measure; "
                "expected always, period or geometric"
            )
        self.start_networks()

    @classmethod
    def make_replica(cls, config: Config, environment: Environment, like: Tensor) -> Replica:
        lift = TangentFeatures(config, environment.dim, like)
        trains_locally = resolve_part("federation", config.federation).trains_locally
        up, down = Contents(networks=int(trains_locally)), Contents(networks=1)
        networks = Networks(lift.network, lift.theta_0.to(getattr(torch, config.network_dtype)))
        return Replica(config, lift, lift.network.parameter_count, like, up, down, networks)

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
        arms = (limits <= put_values(draws, self.device, self.dtype)).sum(1).clamp(max=contexts.shape[1] - 1)
        drawn = torch.zeros_like(limits).scatter(1, arms[:, None], 1.0)
        return Scored(drawn.where(limits.isfinite(), torch.nan))

    def learn(self, iteration: int, contexts: Tensor, arms: Tensor, rewards: Tensor, evidence: Any) -> None:
        self.keep_inputs(iteration, contexts, arms)

    def rewind(self, iteration: int) -> None:
        self.iteration = iteration

    def start_epoch(self) -> None:
        """Do nothing: the replica holds the new network."""

    def upload(self) -> Upload:
        """Return theta_i, without statistics."""
        nothing = torch.full_like(self.rewards[:, 0], torch.nan)
        upload = Upload(self.agents, self.iteration, self.replica.last_round, nothing, report=self.report())
        return self.send(self.add_first(upload))

    def policy_parts(self, index: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return the parts of the greedy policy: the arm b."""
        assert isinstance(self.replica.lift, TangentFeatures) and self.replica.theta is not None
        tensors = {"theta": self.replica.theta, "features_at": self.replica.lift.theta_0}
        return {"network": self._network.form}, tensors

    @classmethod
    def parameter_count(cls, config: Config, environment: Environment) -> int:
        return Network(config, environment.dim).parameter_count

    @classmethod
    def memory(cls, config: Config, environment: Environment) -> Memory:
        return super(FederatedGroup, cls).memory(config, environment) + estimate_training_memory(config, environment)
