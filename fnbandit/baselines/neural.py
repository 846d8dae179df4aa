"""Neural UCB (Zhou et al. 2020), Neural Thompson sampling (Zhang et al. 2021), and Neural UCB on pooled data."""

from __future__ import annotations

from torch import Tensor

from fnbandit.baselines.sampling import Normals
from fnbandit.config import Config
from fnbandit.covariance import Diagonal, Full
from fnbandit.environments import Environment
from fnbandit.groups import Group, Trace
from fnbandit.network import Network
from fnbandit.training import check_converged, train


class NeuralGroup(Group):
    """n independent learners, features taken at the current theta, networks trained in every iteration.

    With s(x) = sqrt(lambda) ||g(x; theta)/sqrt(m)||_{V^-1}, V = lambda I + sum of g g^T / m:
    UCB  f(x; theta) + nu s(x);  TS  a draw from N(f(x; theta), nu^2 s(x)^2), independent per arm.
    """

    learners_share = False
    """Whether one learner serves all agents"""

    def __init__(self, config: Config, environment: Environment, agents: range) -> None:
        super().__init__(config, environment, agents)
        self._learners = 1 if self.learners_share else len(agents)
        regularization = config.number("regularization")
        self.network = Network(config, environment.dim)
        self._scale = config.number("exploration_local") * regularization**0.5
        kind = Diagonal if config.diagonal else Full
        self._covariance: Full | Diagonal = kind(self._learners, self.network.parameters, regularization, self.like)
        self._initial = self.network.initial_parameters(config.seed).to(self.like).to(self.network_dtype)
        self.theta = self._initial.repeat(self._learners, 1)
        """[learners, p]"""
        observations = config.horizon * len(agents) // self._learners
        self._inputs = self.theta.new_zeros(self._learners, self.network.padded_dim, observations)
        self._targets = self.theta.new_zeros(self._learners, observations)
        self._normals = Normals(config.seed, agents, environment.arms, self.like)
        self._loss = self._targets.new_zeros(self._learners)

    def saved(self) -> dict[str, int | None]:
        covariance = "_covariance.diagonal" if self.config.diagonal else "_covariance"
        return super().saved() | {covariance: None, "theta": None, "_inputs": None, "_targets": None}

    def choose(self, iteration: int, contexts: Tensor) -> Tensor:
        return self.scores(iteration, contexts).argmax(dim=1)

    def scores(self, iteration: int, contexts: Tensor) -> Tensor:
        """[n, arms]"""
        prediction = self.network.predict(self.theta, self.network.inputs(contexts.to(self.network_dtype)))
        self._x = self.network.tangent_features(self.theta.to(self.dtype), self.network.inputs(contexts))
        bonus = self._scale * self._covariance.quadratic(self._x).clamp_(min=0).sqrt_()
        if self.config.algorithm == "neural-ts":
            bonus = bonus * self._normals.at(iteration)
        return prediction.to(self.dtype) + bonus

    def learn(self, iteration: int, contexts: Tensor, arms: Tensor, rewards: Tensor) -> None:
        shape = (self._learners, len(arms) // self._learners)
        rows = self.chosen(self._x, arms).unflatten(0, shape)
        if isinstance(self._covariance, Diagonal):
            self._covariance.absorb(rows.square().sum(1))
        else:
            self._covariance.absorb(rows)
        part = slice((iteration - 1) * shape[1], iteration * shape[1])
        chosen = self.chosen(contexts, arms).to(self.network_dtype).unflatten(0, shape)
        self._inputs[:, : self.network.inputs_dim, part] = self.network.inputs(chosen)
        self._targets[:, part] = rewards.to(self.network_dtype).unflatten(0, shape)
        stop = self.config.stop_training_after
        if stop is None or iteration <= stop:
            start = self._initial.expand_as(self.theta) if self.config.training_start == "initial" else self.theta
            x, y = self._inputs[:, :, : part.stop], self._targets[:, : part.stop]
            self.theta, self._loss = train(self.config, self.network, start, self._initial, x, y)

    def trace(self, start: int, end: int) -> Trace:
        check_converged(self.config, float(self._loss.sum()), end)
        return super().trace(start, end)


class PooledNeuralGroup(NeuralGroup):
    """One Neural UCB that chooses for all agents and sees all that they see: what federation is judged by."""

    learners_share = True
