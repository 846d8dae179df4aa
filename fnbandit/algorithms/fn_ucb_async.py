"""FN-UCB whose agents do not wait for each other, n agents at once."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fnbandit.algorithms.asynchronous import AsynchronousGroup, Outlook
from fnbandit.algorithms.base import Scored
from fnbandit.algorithms.bounds import combine_bounds, global_bound, local_bound
from fnbandit.algorithms.federated_network import root_mean_square
from fnbandit.algorithms.fn_ucb import FNUCBLessComm
from fnbandit.config import Config
from fnbandit.core import Download, StatisticsVersion, Upload
from fnbandit.covariance.full import Full
from fnbandit.environments import Environment
from fnbandit.federation.alpha import make_alpha
from fnbandit.federation.first_come import VersionedReplica
from fnbandit.networks.features import TangentFeatures
from fnbandit.networks.network import Network
from fnbandit.networks.ragged import can_train, pad_lengths, train_ragged
from fnbandit.networks.training import estimate_training_memory, steps_due, train
from fnbandit.numerics.device import put_values
from fnbandit.numerics.memory import Memory, precisions
from fnbandit.numerics.state import State, add_prefix, remove_prefix


class FNUCBAsynchronous(AsynchronousGroup):
    """n agents of FN-UCB (Less Comm.), each with the V, B, theta, averaged inverse and alpha of its last download.

    An agent scores its contexts as in Alg. 1, lines 4-7, with its own rows since that download. When its trigger fires
    it trains, uploads {W_new, B_new, theta_i, alpha_i, downdate rows of V_local^-1}, and downloads; other agents do
    not take part.
    """

    traits = dataclasses.replace(FNUCBLessComm.traits, schedule="first-come")

    def __init__(
        self, config: Config, environment: Environment, agents: range, replica: VersionedReplica | None = None
    ) -> None:
        super().__init__(config, environment, agents, replica)
        assert isinstance(self.replica.lift, TangentFeatures)
        n = len(agents)
        self._unit = self.like.new_ones(n, 1)
        """Unit of the bonuses"""
        rule = make_alpha(config)
        self._needs_errors, self._single = rule.needs_prediction_errors, rule.numbers == 1
        # alpha in an iteration is an affine function of the downloaded alpha.
        before, after = ([float(rule.at(t, 0, alpha)) for t in range(1, config.horizon + 1)] for alpha in (0.0, 1.0))
        self._alpha_before = put_values(np.array(before), self.device, self.dtype)
        self._alpha_slope = put_values(np.array(after), self.device, self.dtype) - self._alpha_before
        self.alphas = self.like.new_zeros(n)
        """alpha, as downloaded"""
        self.alphas_ahead = self.ahead[:, :, 0].clone()
        """alpha in the iterations that every agent has evaluated ahead"""
        self.predictions = self.ahead.clone()
        """Predictions of the downloaded network for their contexts"""
        self.trained = np.zeros(n, dtype=np.int64)
        """1 where the downloaded network is a trained one"""
        self.last_trained = np.zeros(n, dtype=np.int64)
        """Iteration of every agent's own last training"""
        self._losses = torch.full((n,), torch.nan, dtype=self.dtype, device=self.device)
        self._diverged = torch.zeros_like(self._losses)
        self._steps = np.zeros(n, dtype=np.int64)
        """Steps of the training for the present upload"""
        if config.use_local:
            self._start_networks(environment)

    def _start_networks(self, environment: Environment) -> None:
        lift, config = self.replica.lift, self.config
        assert isinstance(lift, TangentFeatures)
        n, p = len(self.agents), self.replica.parameters
        self._network = lift.network
        self._theta_0 = lift.theta_0.to(self.network_dtype)
        self.theta = self._theta_0.repeat(n, 1)
        """theta_i [n, p]"""
        self.thetas = self.theta.clone()
        """The averaged network, as downloaded, [n, p]"""
        self.uploaders = np.ones(n, dtype=np.int64)
        """Number of agents in the averaged inverse, as downloaded"""
        self._regularization = config.number("regularization")
        self._local_scale = config.number("exploration_local") * self._regularization**0.5
        self._local = [Full(1, p, self._regularization, self.like, lift) for _ in self.agents]
        """V_local,i"""
        self._rules = [make_alpha(config) for _ in self.agents]
        for rule, local in zip(self._rules, self._local, strict=True):
            rule.start(environment, lift, local, 1, self.like)
        self.caution = self.theta.new_ones(n)
        """Factor of the gradients: 1, halved after every divergence"""
        self.means = self.like.new_zeros(n, config.horizon if self._needs_errors else 0, 2)
        """Both means of the pulled arms, computed before the pull"""

    @classmethod
    def make_replica(cls, config: Config, environment: Environment, like: Tensor) -> VersionedReplica:
        lift = TangentFeatures(config, environment.dim, like)
        theta = lift.theta_0.to(getattr(torch, config.network_dtype)) if config.use_local else None
        contents = FNUCBLessComm.contents(config)
        return VersionedReplica(config, lift, lift.network.parameter_count, like, contents, theta)

    @classmethod
    def parameter_count(cls, config: Config, environment: Environment) -> int:
        return Network(config, environment.dim).parameter_count

    @classmethod
    def memory(cls, config: Config, environment: Environment) -> Memory:
        p, real = cls.parameter_count(config, environment), precisions(config)[0]
        memory = super().memory(config, environment) + estimate_training_memory(config, environment)
        if not config.use_local:
            return memory
        # A second matrix for the averaged inverse, and V_local^-1.
        own = p * p + p * p // 2 + 2 * p * min(config.horizon, p // 2)
        return memory + make_alpha(config).memory(environment) + Memory(own * real, 4 * p * p * real)

    # Alg. 1, lines 4-7

    def score_ahead(self, outlook: Outlook, index: Tensor, mean: Tensor, variance: Tensor) -> None:
        """Compute UCB^b and alpha of contexts ahead, which do not change before the next download."""
        places, pairs = outlook.places, self._index(outlook.agents)
        self.alphas_ahead[index] = self._alpha(outlook.iterations, outlook.agents, pairs)[places]
        if not self.config.use_local:
            return
        prediction = self._predict(pairs, outlook.contexts)
        self.predictions[index] = prediction[places]
        deviation = self._deviation(outlook.features, outlook.agents)
        self.ahead[index] = local_bound(prediction, deviation, self._local_scale * self._unit[pairs])[places]

    def scores(self, iteration: Any, contexts: Tensor) -> Scored:
        """Return (1 - alpha) UCB^a + alpha UCB^b of the active agents' contexts."""
        index, places = self.index, self.places
        alpha = self.alphas_ahead[index, places]
        self.alpha_history[index, self._index(iteration - 1)] = alpha.to(self.alpha_history)
        mean, variance = self.prospects.at(index, places)
        a = b = None
        if self.config.use_global:
            a = global_bound(mean, variance, self._scale, False, self._unit[index])
        if self.config.use_local:
            b = self.ahead[index, places]
        return Scored(combine_bounds(a, b, alpha[:, None]), mean)

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
        """Return ||x|| in the averaged inverse: I / lambda minus the mean downdate of the agents in the average."""
        inverses = self.replica.inverses
        assert inverses is not None
        downdate = inverses.quadratic(self.inverse_versions[agents], x)
        downdate = downdate / self._index(self.uploaders[agents])[:, None]
        return (x.square().sum(-1) / self._regularization - downdate).clamp_(min=0).sqrt_()

    def learn(self, iteration: Any, contexts: Tensor, arms: Tensor, rewards: Tensor, evidence: Tensor) -> None:
        if self._needs_errors and self.config.use_local:
            every = torch.arange(len(arms), device=self.device)
            prediction = self.predictions[self.index, self.places, arms]
            means = torch.stack([evidence[every, arms], prediction], dim=1)
            self.means[self.index, self._index(iteration - 1)] = means

    # Alg. 1, lines 14-16

    def steps_of(self, agent: int) -> int:
        stop, t = self.config.stop_training_after, int(self.done[agent])
        if not self.config.use_local or (stop is not None and t > stop):
            return 0
        return steps_due(self.config, int(self.last_trained[agent]), t)

    def train(self, agents: np.ndarray) -> None:
        """Train theta_i of agents that are about to upload; agents with histories of similar length train together."""
        self._steps[agents] = [self.steps_of(int(agent)) for agent in agents]
        agents = agents[self._steps[agents] > 0]
        lengths = pad_lengths(self.done[agents])
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
            # theta_0 predicts rewards / unit; trained parameters predict the rewards themselves.
            known = {"initial": np.zeros(len(agents)), "own": self.last_trained[agents],
                     "aggregate": self.trained[agents]}[config.training_start] > 0  # fmt: skip
            start = torch.where(self._index(known)[:, None], self._network.rescale(start, 1 / unit), start)
            y = y / unit
        caution, steps = self.caution[index], self._steps[agents]
        if can_train(config):
            found = train_ragged(config, self._network, start, self._theta_0, x, y, counts, steps, caution)
        else:
            t = int(counts[0])
            found = train(config, self._network, start, self._theta_0, x[..., :t], y[:, :t], int(steps[0]), caution)
        self.theta[index] = self._network.rescale(found.theta, unit)
        self.caution[index] = caution * (1 - found.diverged / 2)
        self._losses[index] = (found.loss * unit.flatten().square()).to(self._losses)
        self._diverged[index] = found.diverged.to(self._diverged)
        self.last_trained[agents] = counts

    def _histories(self, index: Tensor, counts: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return inputs [n', padded_dim, r] and rewards [n', r], padded with 0 after each agent's own."""
        length = min(int(pad_lengths(counts).max()), self.config.horizon)
        more = int(pad_lengths(counts).max()) - length
        mask = self._index((np.arange(length) < counts[:, None]).astype(np.float64)).to(self.theta)
        x = self._network.inputs(self.contexts[index, :length].to(self.network_dtype)) * mask[:, None]
        y = self.rewards[index, :length].to(self.network_dtype) * mask
        padding = (0, more, 0, self._network.padded_dim - x.shape[1])
        return torch.nn.functional.pad(x, padding), torch.nn.functional.pad(y, (0, more))

    def complete(self, agent: int, upload: Upload) -> Upload:
        """Return the upload with theta_i, alpha_i and the downdate rows of V_local^-1."""
        if not self.config.use_local:
            return upload
        one, last, t = slice(agent, agent + 1), upload.since, upload.iteration
        rule, local = self._rules[agent], self._local[agent]
        if self._needs_errors and self.trained[agent]:
            rule.observe_all(self.means[one, last:t], self.rewards[one, last:t])
        if rule.covered_by_theorem:
            for past in range(last, t):
                rule.receive(past + 1, self.ragged.at(np.array([agent]), np.array([past + 1]))[0])
        assert isinstance(upload.covariance, Tensor)
        downdate = local.absorb(upload.covariance)
        rule.update_uncertainties(local, downdate)
        alpha = rule.upload()
        trained = self._steps[agent] > 0
        report = {"alpha": alpha} if alpha is not None and self._single else {}
        if trained:
            steps = torch.full_like(self._losses[one], float(self._steps[agent]))
            report |= {"loss": self._losses[one].clone(), "steps": steps, "diverged": self._diverged[one].clone()}
        return dataclasses.replace(
            upload,
            theta=self.theta[one].clone(),
            alpha=None if alpha is None else alpha.clone(),
            inverse=downdate,
            trained=bool(trained),
            report=report,
        )

    def _reference_theta(self, agent: int) -> Tensor | None:
        return self.thetas[agent] if self.config.use_local else None

    def receive(self, agent: int, download: Download) -> None:
        super().receive(agent, download)
        if self.config.reward_unit == "rms":
            self._unit[agent] = root_mean_square(self.rewards[agent : agent + 1, : self.done[agent]])[0]
        if download.theta is not None:
            assert isinstance(download.statistics, StatisticsVersion)
            self.thetas[agent] = download.theta
            self.alphas[agent] = download.alpha
            self.uploaders[agent] = max(1, download.statistics.uploaders)
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
            state |= add_prefix("local", self._local[agent].state())
            state |= add_prefix("alpha", self._rules[agent].state())
        return state

    def load_agent(self, agent: int, state: State) -> None:
        super().load_agent(agent, state)
        if self.config.use_local:
            self._local[agent].load(remove_prefix("local", state))
            self._rules[agent].load(remove_prefix("alpha", state))
