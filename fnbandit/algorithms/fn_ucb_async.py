"""FN-UCB whose agents never wait for each other, n of them at once."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fnbandit.algorithms.asynchronous import AsynchronousGroup, Outlook
from fnbandit.algorithms.base import Scored
from fnbandit.algorithms.confidence import combined, global_bound, local_bound
from fnbandit.algorithms.fn_ucb import FNUCBLessComm, root_mean_square
from fnbandit.config import Config
from fnbandit.covariance.full import Full
from fnbandit.environments import Environment
from fnbandit.memory import Memory, precisions
from fnbandit.network import Network, TangentFeatures
from fnbandit.ragged_training import can_train, padded_lengths, train_ragged
from fnbandit.rounds.exchange import AgentUpload, Download, Statistics
from fnbandit.rounds.weights import make_weight
from fnbandit.state import State, prefixed, unprefixed
from fnbandit.training import steps_due, train, training_memory


class FNUCBAsynchronous(AsynchronousGroup):
    """n agents of FN-UCB (Less Comm.), each with the V, B, theta, averaged inverse and alpha of its last download.

    An agent scores its contexts as in Alg. 1, lines 4-7, with its own rows since that download. When the trigger
    fires it trains, uploads {W_new, B_new, theta_i, alpha_i, what V_local^-1 has lost}, and downloads; no other agent
    is touched.
    """

    learns_on = "tangent features"
    averages_inverses = True

    def __init__(self, config: Config, environment: Environment, agents: range, shared: Any = None) -> None:
        super().__init__(config, environment, agents, shared)
        assert isinstance(self.statistics.lift, TangentFeatures)
        n = len(agents)
        self._unit = self.like.new_ones(n, 1)
        """What bonuses are multiples of"""
        weight = make_weight(config)
        self._compares, self._single = weight.compares, weight.numbers == 1
        # A weight is what it is before anything was broadcast, and what the broadcast adds in proportion.
        before, after = ([float(weight.at(t, 0, alpha)) for t in range(1, config.horizon + 1)] for alpha in (0.0, 1.0))
        self._alpha_before = self.like.new_tensor(before)
        self._alpha_slope = self.like.new_tensor(after) - self._alpha_before
        self.alphas = self.like.new_zeros(n)
        """alpha, as downloaded"""
        self.alphas_ahead = self.ahead[:, :, 0].clone()
        """alpha in the iterations that every agent has looked at"""
        self.predictions = self.ahead.clone()
        """What the downloaded network says of their contexts"""
        self.trained = np.zeros(n, dtype=np.int64)
        """1 where the downloaded network has been trained"""
        self.last_trained = np.zeros(n, dtype=np.int64)
        """Each agent's iteration of its own last training"""
        self._losses = torch.full((n,), torch.nan, dtype=self.dtype, device=self.device)
        self._diverged = torch.zeros_like(self._losses)
        self._steps = np.zeros(n, dtype=np.int64)
        """Of the training for the present upload"""
        if config.use_local:
            self._start_networks(environment)

    def _start_networks(self, environment: Environment) -> None:
        lift, config = self.statistics.lift, self.config
        assert isinstance(lift, TangentFeatures)
        n, p = len(self.agents), self.statistics.parameters
        self._network = lift.network
        self._theta_0 = lift.theta_0.to(self.network_dtype)
        self.theta = self._theta_0.repeat(n, 1)
        """theta_i [n, p]"""
        self.thetas = self.theta.clone()
        """The averaged network, as downloaded, [n, p]"""
        self.uploaders = np.ones(n, dtype=np.int64)
        """Agents in the averaged inverse, as downloaded"""
        self._regularization = config.number("regularization")
        self._local_scale = config.number("exploration_local") * self._regularization**0.5
        self._local = [Full(1, p, self._regularization, self.like, lift) for _ in self.agents]
        """V_local,i"""
        self._weights = [make_weight(config) for _ in self.agents]
        for weight, local in zip(self._weights, self._local, strict=True):
            weight.start(environment, lift, local, 1, self.like)
        self.caution = self.theta.new_ones(n)
        """What gradients are multiplied by: 1, and half as much after every divergence"""
        self.means = self.like.new_zeros(n, config.horizon if self._compares else 0, 2)
        """What both means said of the arms pulled, before their rewards were seen"""

    @classmethod
    def make_statistics(cls, config: Config, environment: Environment, like: Tensor) -> Statistics:
        lift = TangentFeatures(config, environment.dim, like)
        theta = lift.theta_0.to(getattr(torch, config.network_dtype)) if config.use_local else None
        return Statistics(config, lift, lift.network.parameter_count, like, FNUCBLessComm.contents(config), theta)

    @classmethod
    def parameter_count(cls, config: Config, environment: Environment) -> int:
        return Network(config, environment.dim).parameter_count

    @classmethod
    def memory(cls, config: Config, environment: Environment) -> Memory:
        p, real = cls.parameter_count(config, environment), precisions(config)[0]
        memory = super().memory(config, environment) + training_memory(config, environment)
        if not config.use_local:
            return memory
        # A second matrix for the averaged inverse, and the agent's own.
        own = p * p + p * p // 2 + 2 * p * min(config.horizon, p // 2)
        return memory + make_weight(config).memory(environment) + Memory(own * real, 4 * p * p * real)

    # Alg. 1, lines 4-7

    def score_ahead(self, outlook: Outlook, index: Tensor, mean: Tensor, variance: Tensor) -> None:
        """UCB^b and alpha of the contexts seen, which do not change before the next download."""
        places, pairs = outlook.places, self._index(outlook.agents)
        self.alphas_ahead[index] = self._alpha(outlook.iterations, outlook.agents, pairs)[places]
        if not self.config.use_local:
            return
        prediction = self._predict(pairs, outlook.contexts)
        self.predictions[index] = prediction[places]
        deviation = self._deviation(outlook.features, outlook.agents)
        self.ahead[index] = local_bound(prediction, deviation, self._local_scale * self._unit[pairs])[places]

    def scores(self, iteration: Any, contexts: Tensor) -> Scored:
        """(1 - alpha) UCB^a + alpha UCB^b of the active agents' contexts."""
        index, places = self.index, self.places
        alpha = self.alphas_ahead[index, places]
        self.weights[index, self._index(iteration - 1)] = alpha.to(self.weights)
        mean, variance = self.prospects.at(index, places)
        a = b = None
        if self.config.use_global:
            a = global_bound(mean, variance, self._scale, False, self._unit[index])
        if self.config.use_local:
            b = self.ahead[index, places]
        return Scored(combined(a, b, alpha[:, None]), mean)

    def _alpha(self, iteration: np.ndarray, agents: np.ndarray, index: Tensor) -> Tensor:
        place = self._index(iteration - 1)
        alpha = self._alpha_before[place] + self._alpha_slope[place] * self.alphas[index]
        if self.config.first_iteration_only and self.config.use_global:
            alpha = alpha * self._index((iteration == self.last[agents] + 1).astype(np.float64)).to(alpha)
        return alpha

    def _predict(self, index: Tensor, contexts: Tensor) -> Tensor:
        theta = (self.thetas if self.config.aggregate else self.theta)[index]
        inputs = self._network.inputs(contexts.to(self.network_dtype))
        return self._network.predict(theta, inputs).to(self.dtype)

    def _deviation(self, x: Tensor, agents: np.ndarray) -> Tensor:
        """||x|| in the averaged inverse: I / lambda less what those in the average have lost."""
        inverses = self.statistics.inverses
        assert inverses is not None
        lost = inverses.quadratic(self.inverse_versions[agents], x)
        lost = lost / self._index(self.uploaders[agents])[:, None]
        return (x.square().sum(-1) / self._regularization - lost).clamp_(min=0).sqrt_()

    def learn(self, iteration: Any, contexts: Tensor, arms: Tensor, rewards: Tensor, evidence: Tensor) -> None:
        if self._compares and self.config.use_local:
            every = torch.arange(len(arms), device=self.device)
            prediction = self.predictions[self.index, self.places, arms]
            said = torch.stack([evidence[every, arms], prediction], dim=1)
            self.means[self.index, self._index(iteration - 1)] = said

    # Alg. 1, lines 14-16

    def steps_of(self, agent: int) -> int:
        stop, t = self.config.stop_training_after, int(self.done[agent])
        if not self.config.use_local or (stop is not None and t > stop):
            return 0
        return steps_due(self.config, int(self.last_trained[agent]), t)

    def train(self, agents: np.ndarray) -> None:
        """theta_i of agents that are about to upload; those with about as long a history together."""
        self._steps[agents] = [self.steps_of(int(agent)) for agent in agents]
        agents = agents[self._steps[agents] > 0]
        lengths = padded_lengths(self.done[agents])
        if not can_train(self.config):
            lengths = agents
        for length in np.unique(lengths):
            self._train(agents[lengths == length])

    def _train(self, agents: np.ndarray) -> None:
        config, index, counts = self.config, self._index(agents), self.done[agents]
        starts = {"initial": self._theta_0.expand(len(agents), -1), "own": self.theta[index],
                  "aggregate": self.thetas[index]}  # fmt: skip
        start = starts[config.training_start]
        x, y = self._histories(index, counts)
        unit = self.theta.new_ones(len(agents), 1)
        if config.reward_unit == "rms":
            unit = torch.cat([root_mean_square(own[None, :count]) for own, count in zip(y, counts, strict=True)])
            # theta_0 stands for a network in this unit, what has been trained for one in the rewards' own.
            known = {"initial": np.zeros(len(agents)), "own": self.last_trained[agents],
                     "aggregate": self.trained[agents]}[config.training_start] > 0  # fmt: skip
            start = torch.where(self._index(known)[:, None], self._network.scaled(start, 1 / unit), start)
            y = y / unit
        caution, steps = self.caution[index], self._steps[agents]
        if can_train(config):
            found = train_ragged(config, self._network, start, self._theta_0, x, y, counts, steps, caution)
        else:
            t = int(counts[0])
            found = train(config, self._network, start, self._theta_0, x[..., :t], y[:, :t], int(steps[0]), caution)
        self.theta[index] = self._network.scaled(found.theta, unit)
        self.caution[index] = caution * (1 - found.diverged / 2)
        self._losses[index] = (found.loss * unit.flatten().square()).to(self._losses)
        self._diverged[index] = found.diverged.to(self._diverged)
        self.last_trained[agents] = counts

    def _histories(self, index: Tensor, counts: np.ndarray) -> tuple[Tensor, Tensor]:
        """Inputs [n', padded_dim, r] and rewards [n', r], 0 beyond an agent's own."""
        length = min(int(padded_lengths(counts).max()), self.config.horizon)
        more = int(padded_lengths(counts).max()) - length
        there = self._index((np.arange(length) < counts[:, None]).astype(np.float64)).to(self.theta)
        x = self._network.inputs(self.contexts[index, :length].to(self.network_dtype)) * there[:, None]
        y = self.rewards[index, :length].to(self.network_dtype) * there
        padding = (0, more, 0, self._network.padded_dim - x.shape[1])
        return torch.nn.functional.pad(x, padding), torch.nn.functional.pad(y, (0, more))

    def complete(self, agent: int, upload: AgentUpload) -> AgentUpload:
        """Add theta_i, alpha_i and what V_local^-1 has lost."""
        if not self.config.use_local:
            return upload
        one, t = slice(agent, agent + 1), int(self.done[agent])
        weight, local = self._weights[agent], self._local[agent]
        last = int(self.last[agent])
        if self._compares and self.trained[agent]:
            weight.observe_all(self.means[one, last:t], self.rewards[one, last:t])
        if weight.analysed:
            for past in range(last, t):
                weight.receive(past + 1, self.ragged.at(np.array([agent]), np.array([past + 1]))[0])
        change = local.absorb(upload.news[None])
        weight.absorbed(local, change)
        alpha = weight.upload()
        theta = self.statistics.channel.theta(self.agents[one], t, self.theta[one], self.thetas[agent])
        trained = self._steps[agent] > 0
        report = {"alpha": float(alpha[0])} if alpha is not None and self._single else {}
        if trained:
            report |= {"loss": float(self._losses[agent]), "steps": float(self._steps[agent]),
                       "diverged": float(self._diverged[agent])}  # fmt: skip
        return dataclasses.replace(upload, theta=theta[0].clone(), weight=None if alpha is None else alpha[0].clone(),
                                   change=change[0], trained=bool(trained), report=report)  # fmt: skip

    def receive(self, agent: int, download: Download) -> None:
        super().receive(agent, download)
        if self.config.reward_unit == "rms":
            self._unit[agent] = root_mean_square(self.rewards[agent : agent + 1, : self.done[agent]])[0]
        if download.theta is not None:
            self.thetas[agent] = download.theta
            self.alphas[agent] = download.weight
            self.uploaders[agent] = max(1, download.uploaders)
            self.trained[agent] = download.trained

    # States

    def agent_tensors(self) -> list[str]:
        names = [*super().agent_tensors(), "_unit", "alphas_ahead"]
        local = ["predictions", "alphas", "theta", "thetas", "caution", "means", "_losses", "_diverged"]
        return [*names, *local] if self.config.use_local else names

    def agent_numbers(self) -> list[str]:
        names = super().agent_numbers()
        return [*names, "trained", "last_trained", "uploaders", "_steps"] if self.config.use_local else names

    def agent_state(self, agent: int) -> State:
        state = super().agent_state(agent)
        if self.config.use_local:
            state |= prefixed("local", self._local[agent].state())
            state |= prefixed("weight", self._weights[agent].state())
        return state

    def load_agent(self, agent: int, state: State) -> None:
        super().load_agent(agent, state)
        if self.config.use_local:
            self._local[agent].load(unprefixed("local", state))
            self._weights[agent].load(unprefixed("weight", state))
