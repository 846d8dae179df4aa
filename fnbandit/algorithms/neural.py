"""Neural UCB (Zhou et al. 2020), Neural Thompson sampling (Zhang et al. 2021), and Neural UCB on pooled data."""

from __future__ import annotations

import dataclasses
from typing import Any

from torch import Tensor

from fnbandit.algorithms.base import Group, Scored
from fnbandit.algorithms.sampling import Normals
from fnbandit.algorithms.traits import Traits
from fnbandit.config import Config
from fnbandit.covariance import matrices
from fnbandit.environments import Environment
from fnbandit.federation.replica import Replica
from fnbandit.networks.network import Network
from fnbandit.networks.training import estimate_training_memory, steps_due, train
from fnbandit.numerics.device import put_values
from fnbandit.numerics.memory import Memory, precisions


class NetworkLearners(Group):
    """Networks that are trained in every iteration: one for each agent, or one for all (`Traits.runs_in_one_group`)."""

    traits = Traits(features="tangent")

    def __init__(self, config: Config, environment: Environment, agents: range, replica: Replica | None = None) -> None:
        super().__init__(config, environment, agents, replica)
        self._learners = 1 if self.traits.runs_in_one_group else len(agents)
        self.network = Network(config, environment.dim)
        initial = put_values(self.network.initial_parameters(config.seed), self.device, self.dtype)
        self._theta_0 = initial.to(self.network_dtype)
        self.theta = self._theta_0.repeat(self._learners, 1)
        """[learners, p]"""
        observations = config.horizon * len(agents) // self._learners
        self._inputs = self.theta.new_zeros(self._learners, self.network.padded_dim, observations)
        self._targets = self.theta.new_zeros(self._learners, observations)
        self._caution = self._targets.new_ones(self._learners)
        """Factor of the gradients: 1, halved after every divergence"""
        self._last_trained = 0

    def list_state(self) -> dict[str, int | None]:
        names = ("theta", "_inputs", "_targets", "_caution", "_last_trained")
        return super().list_state() | dict.fromkeys(names)

    def predict(self, contexts: Tensor) -> Tensor:
        """Return f(x; theta) of contexts [n, arms, dim] -> [n, arms], in the statistics' precision."""
        inputs = self.network.inputs(contexts.to(self.network_dtype))
        return self.network.predict(self.theta, inputs).to(self.dtype)

    def learn(self, iteration: int, contexts: Tensor, arms: Tensor, rewards: Tensor, evidence: Any) -> None:
        shape = (self._learners, len(arms) // self._learners)
        part = slice((iteration - 1) * shape[1], iteration * shape[1])
        chosen = self.select_pulled(contexts, arms).to(self.network_dtype).unflatten(0, shape)
        self._inputs[:, : self.network.inputs_dim, part] = self.network.inputs(chosen)
        self._targets[:, part] = rewards.to(self.network_dtype).unflatten(0, shape)
        stop = self.config.stop_training_after
        steps = steps_due(self.config, self._last_trained, iteration)
        if steps and (stop is None or iteration <= stop):
            start = self._theta_0.expand_as(self.theta) if self.config.training_start == "initial" else self.theta
            x, y = self._inputs[:, :, : part.stop], self._targets[:, : part.stop]
            self.theta, _, diverged = train(self.config, self.network, start, self._theta_0, x, y, steps, self._caution)
            self._caution = self._caution * (1 - diverged / 2)
            self._last_trained = iteration

    def policy_parts(self, index: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return the parts of the greedy policy: the network's predictions."""
        theta = self.theta[index if self._learners > 1 else 0]
        return {"network": self.network.form}, {"theta": theta, "features_at": theta}

    @classmethod
    def parameter_count(cls, config: Config, environment: Environment) -> int:
        return Network(config, environment.dim).parameter_count

    @classmethod
    def memory(cls, config: Config, environment: Environment) -> Memory:
        memory = super().memory(config, environment) + estimate_training_memory(config, environment)
        if not cls.traits.runs_in_one_group:
            return memory
        activations = config.horizon * 2 * config.hidden_layers * config.width
        return memory + Memory(activations * precisions(config)[1])


class NeuralUCB(NetworkLearners):
    """n independent learners: f(x; theta) + nu sqrt(lambda) ||g(x; theta)/sqrt(m)||_{V^-1},

    with features taken at the current theta and V = lambda I + sum of g g^T / m.
    """

    def __init__(self, config: Config, environment: Environment, agents: range, replica: Replica | None = None) -> None:
        super().__init__(config, environment, agents, replica)
        regularization = config.number("regularization")
        self._scale = config.number("exploration_local") * regularization**0.5
        self._covariance = matrices(config).covariance(
            self._learners, self.network.parameter_count, regularization, self.like
        )

    def list_state(self) -> dict[str, int | None]:
        return super().list_state() | {"_covariance": None}

    def scores(self, iteration: int, contexts: Tensor) -> Scored:
        prediction = self.predict(contexts)
        x = self.network.tangent_features(self.theta.to(self.dtype), self.network.inputs(contexts))
        deviation = self._covariance.quadratic(x).clamp_(min=0).sqrt_()
        return Scored(prediction + self.bonus(iteration, self._scale * deviation), x)

    def bonus(self, iteration: int, deviation: Tensor) -> Tensor:
        """Return the exploration term of every context, [n, arms], given nu times its standard deviation."""
        return deviation

    def learn(self, iteration: int, contexts: Tensor, arms: Tensor, rewards: Tensor, evidence: Tensor) -> None:
        rows = self.select_pulled(evidence, arms).unflatten(0, (self._learners, len(arms) // self._learners))
        self._covariance.absorb_rows(rows)
        super().learn(iteration, contexts, arms, rewards, evidence)

    def policy_parts(self, index: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
        facts, tensors = super().policy_parts(index)
        learner = index if self._learners > 1 else 0
        inverse = self._covariance.inverse[learner : learner + 1]
        return facts | {"local_scale": self._scale, "local_learns": True}, tensors | {"local": inverse}

    @classmethod
    def memory(cls, config: Config, environment: Environment) -> Memory:
        numbers = matrices(config).numbers(cls.parameter_count(config, environment))
        return super().memory(config, environment) + Memory(numbers * precisions(config)[0])


class NeuralTS(NeuralUCB):
    """A draw from N(f(x; theta), nu^2 lambda ||g||^2), independent per arm."""

    def __init__(self, config: Config, environment: Environment, agents: range, replica: Replica | None = None) -> None:
        super().__init__(config, environment, agents, replica)
        self._normals = Normals(config.seed, agents, environment.arms, self.like)

    def policy_parts(self, index: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
        return Group.policy_parts(self, index)

    def bonus(self, iteration: int, deviation: Tensor) -> Tensor:
        return deviation * self._normals.at(iteration + self.ahead)


class PooledNeuralUCB(NeuralUCB):
    """One Neural UCB that chooses for all agents and learns from all observations: the baseline for federation."""

    traits = dataclasses.replace(NeuralUCB.traits, runs_in_one_group=True)
