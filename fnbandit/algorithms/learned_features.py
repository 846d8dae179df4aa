"""Federated UCB on the features of the network that rounds train: FN-UCB (exact) and federated neural-linear UCB."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fnbandit.algorithms.base import Scored
from fnbandit.algorithms.bounds import global_bound
from fnbandit.algorithms.experts import Experts
from fnbandit.algorithms.federated import ContextEvaluation
from fnbandit.algorithms.federated_network import FederatedNetworkGroup
from fnbandit.algorithms.traits import Traits
from fnbandit.config import Config
from fnbandit.config.registry import resolve_part
from fnbandit.core import Download, Upload
from fnbandit.covariance import matrices
from fnbandit.environments import Environment
from fnbandit.federation.clusters import find_clusters
from fnbandit.federation.messages import Contents
from fnbandit.federation.network_training import count_networks
from fnbandit.federation.replica import ClusterRule, Networks, Replica
from fnbandit.networks.features import LearnedFeatures
from fnbandit.networks.training import estimate_training_memory
from fnbandit.numerics.device import put_values, read_scalars
from fnbandit.numerics.memory import Memory, precisions
from fnbandit.numerics.products import multiply


class FNExact(FederatedNetworkGroup):
    """n agents with one upper confidence bound on the features g of the network that all of them train together:

        f(x; theta) + <g(x), delta> + nu sqrt(lambda) ||g(x)||_{V-bar^-1}

    in the unit of the rewards. V = lambda I + sum of g g^T, delta = V-bar^-1 B-bar and B the sum of (y - f(x; theta)) g
    are those of UCB^a (Alg. 1, line 5) with theta in place of theta_0: they contain all agents' observations up to the
    last round, and the agent's own since. In a round that trains, features change: the server replaces V and B by sums
    over a sample of all agents' whole histories. In other rounds agents send W_new and B_new, as in the paper. Rows of
    agents that are absent from a round that trains return with the next such round in which they take part.

    Diagonal matrices would inflate <g, delta> (footnote in Sec. 5.2), and leave it out.
    """

    traits = Traits(schedule="barrier", features="tangent", releases=("networks", "statistics"))
    uses_whole_gradient = True
    """True where g is the gradient with respect to all parameters"""

    def __init__(self, config: Config, environment: Environment, agents: range, replica: Replica | None = None) -> None:
        super().__init__(config, environment, agents, replica)
        assert self.replica.features is not None
        self.features: LearnedFeatures = self.replica.features
        self._targets = torch.zeros_like(self.rewards)
        """Rewards in their unit, less f(x; theta)"""
        self.start_networks()

    @classmethod
    def make_replica(cls, config: Config, environment: Environment, like: Tensor) -> Replica:
        features = cls.make_features(config, environment, like)
        network = features.network
        theta_0 = put_values(network.initial_parameters(config.seed), like.device, like.dtype)
        theta_0 = theta_0.to(getattr(torch, config.network_dtype))
        contents = Contents(covariances=1, vectors=1, networks=count_networks(config))
        networks = Networks(network, theta_0, features=features)
        # Rows of an epoch are features already, because theta changes.
        p, clusters = features.parameter_count, cls.choose_clusters(config)
        return Replica(config, lambda rows: rows, p, like, contents, contents, networks, clusters)

    @classmethod
    def choose_clusters(cls, config: Config) -> ClusterRule | None:
        """Return the rule by which the server finds clusters of agents; None where it finds none."""
        return None

    @classmethod
    def make_features(cls, config: Config, environment: Environment, like: Tensor) -> LearnedFeatures:
        """Make the features that all agents share."""
        return LearnedFeatures(config, environment.dim, like, cls.uses_whole_gradient)

    def list_state(self) -> dict[str, int | None]:
        return super().list_state() | {"_targets": 1}

    @property
    def targets(self) -> Tensor:
        return self._targets

    def look(self, iteration: int, contexts: Tensor) -> ContextEvaluation:
        x = self.features(contexts)
        prediction = multiply(self.features.center.expand(len(x), 1, -1), x.mT)[:, 0]
        return ContextEvaluation(x, self.epoch.evaluate(x), prediction)

    def scores(self, iteration: int, contexts: Tensor) -> Scored:
        evaluation = self.look(iteration, contexts)
        found, prediction = evaluation.found, evaluation.prediction
        assert found is not None and prediction is not None
        mean = torch.zeros_like(found.mean) if self.replica.estimate.inflated else found.mean
        return Scored(prediction + global_bound(mean, found.variance, self._global_scale, False), evaluation)

    def learn(self, iteration: int, contexts: Tensor, arms: Tensor, rewards: Tensor, evidence: Any) -> None:
        targets = rewards / self.replica.unit - self.select_pulled(evidence.prediction, arms)
        self._targets[:, iteration - 1] = targets
        self.append(evidence, contexts, arms, targets)
        self.keep_inputs(iteration, contexts, arms)

    def append(self, evaluation: ContextEvaluation, contexts: Tensor, arms: Tensor, targets: Tensor) -> None:
        super().append(evaluation, evaluation.features, arms, targets)

    def upload(self) -> Upload:
        """Return the first upload of a round; without W_new and B_new where the round will replace W and B."""
        t, replica = self.iteration, self.replica
        if not replica.renews_statistics(t):
            return super().upload()
        measure = self.measure()
        self.epoch.carry(measure.new_zeros(len(self.agents)), 0, self._targets[:, t:t])
        return self.send(self.add_first(Upload(self.agents, t, replica.last_round, measure, report=self.report())))

    def complete(self, upload: Upload) -> Upload:
        return self.add_first(replace(upload, report=self.report()))

    def policy_parts(self, index: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return the parts of the policy: <g, center + delta> and the bonus, in the unit of the rewards."""
        facts, tensors = super().policy_parts(index)
        keeps, center = facts.pop("rescales"), self.features.center
        facts |= {
            "network": self._network.form,
            "uses_last_layer": not self.uses_whole_gradient,
            "reward_unit": read_scalars(self.replica.unit)[0],
            "keeps_solution": keeps,
        }
        solution = center if keeps else center + tensors["solution"]
        return facts, tensors | {"solution": solution, "features_at": self.features.theta}

    @classmethod
    def parameter_count(cls, config: Config, environment: Environment) -> int:
        return cls.make_features(config, environment, torch.empty(0)).parameter_count

    @classmethod
    def memory(cls, config: Config, environment: Environment) -> Memory:
        kind, p, real = matrices(config), cls.parameter_count(config, environment), precisions(config)[0]
        rows = Memory(config.horizon * real + kind.epoch_numbers(p, config.horizon) * real // 4)
        return super().memory(config, environment) + estimate_training_memory(config, environment) + rows


class FNLinear(FNExact):
    """n agents of federated neural-linear UCB: `FNExact` with the features of the last layer alone.

    Its matrices have m + 1 rows and columns, so that a message is a few hundred numbers. With `personalization` agents
    have estimates of their own on these features and on the contexts themselves, see `experts`.
    """

    uses_whole_gradient = False

    def __init__(self, config: Config, environment: Environment, agents: range, replica: Replica | None = None) -> None:
        super().__init__(config, environment, agents, replica)
        kind = resolve_part("personalization", config.personalization)
        self.experts: Experts | None = kind(config, self.replica, len(agents), self.like) if kind.is_personal else None

    @classmethod
    def make_features(cls, config: Config, environment: Environment, like: Tensor) -> LearnedFeatures:
        has_contexts = resolve_part("personalization", config.personalization).is_personal
        return LearnedFeatures(config, environment.dim, like, cls.uses_whole_gradient, has_contexts)

    @classmethod
    def choose_clusters(cls, config: Config) -> ClusterRule | None:
        return find_clusters if resolve_part("personalization", config.personalization).has_cluster else None

    def list_state(self) -> dict[str, int | None]:
        return super().list_state() | ({} if self.experts is None else {"experts": None})

    def scores(self, iteration: int, contexts: Tensor) -> Scored:
        if self.experts is None:
            return super().scores(iteration, contexts)
        shared = self.look(iteration, contexts)
        assert shared.prediction is not None
        found = self.experts.evaluate(contexts, shared.features, shared.found, shared.prediction)
        return Scored(self.experts.score(found), (shared, found))

    def learn(self, iteration: int, contexts: Tensor, arms: Tensor, rewards: Tensor, evidence: Any) -> None:
        shared, found = (evidence, None) if self.experts is None else evidence
        super().learn(iteration, contexts, arms, rewards, shared)
        if self.experts is not None and found is not None:
            self.experts.append(found, arms, rewards)

    def rewind(self, iteration: int) -> None:
        super().rewind(iteration)
        if self.experts is not None:
            self.experts.truncate(iteration - self.replica.last_round)

    def exchange(self, download: Download) -> Upload:
        upload = super().exchange(download)
        if self.experts is None or download.asks != "statistics":
            return upload
        replica, newest = self.replica, self._newest
        assert replica.theta is not None and replica.training_unit is not None
        targets = self.rewards[:, newest] / replica.training_unit
        own = self.experts.collect(replica.theta, self._inputs[:, :, newest], targets)
        return replace(upload, own=own) if replica.find_clusters else upload

    def start_epoch(self) -> None:
        super().start_epoch()
        if self.experts is not None:
            self.experts.start(self.agents, self._inputs[:, :, self._newest], self.rewards[:, self._newest])

    def policy_parts(self, index: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
        if self.experts is None:
            return super().policy_parts(index)
        raise ValueError(f"personalization={self.config.personalization!r}: mixed experts have no policy; none has one")

    @classmethod
    def memory(cls, config: Config, environment: Environment) -> Memory:
        kind = resolve_part("personalization", config.personalization)
        if not kind.is_personal:
            return super().memory(config, environment)
        return super().memory(config, environment) + kind.memory(config, cls.parameter_count(config, environment))

    @property
    def _newest(self) -> slice:
        """The observations that are not forgotten."""
        count = self.replica.forgetting.count(self.iteration)
        return slice(self.iteration - count, self.iteration)
