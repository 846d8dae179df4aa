"""AgentGroup: the agent's part of FN-UCB (Alg. 1) for n agents at once."""

from __future__ import annotations

import torch
from torch import Tensor

from fnbandit.confidence import combined, global_bound, local_bound
from fnbandit.config import Config
from fnbandit.covariance import Diagonal, DiagonalEpoch, Full, FullEpoch, diagonal_gain, few_at_once
from fnbandit.environments import Environment
from fnbandit.groups import Group
from fnbandit.messages import Upload
from fnbandit.server import GlobalStatistics
from fnbandit.training import train
from fnbandit.weighting import DomainRatio, needs_global, weight_at

LOOKS_ON_ACCELERATOR = 8
"""Iterations between two looks at the trigger where looking means waiting for a device."""


class AgentGroup(Group):
    """n agents of FN-UCB, FN-UCB (Less Comm.) or DisLinUCB: advance, rewind, upload, start the next epoch.

    Inside an epoch the agents touch nothing but their own rows, so that they can run ahead of
    other groups and come back.
    """

    def __init__(
        self, config: Config, environment: Environment, agents: range, statistics: GlobalStatistics | None = None
    ) -> None:
        super().__init__(config, environment, agents)
        self.statistics = statistics or GlobalStatistics(config, environment.dim, self.like)
        self._features = self.statistics.features
        self.network, self.parameters = self._features.network, self._features.parameters
        root = config.number("regularization") ** 0.5
        self._global_scale = config.number("exploration_global") * root
        self._local_scale = config.number("exploration_local") * root
        self._epoch = DiagonalEpoch(len(agents)) if config.diagonal else FullEpoch(len(agents))
        if config.networked:
            self._start_networks(environment)
        self._looks = 1 if self.device.type == "cpu" else LOOKS_ON_ACCELERATOR
        self.start_epoch()

    def _start_networks(self, environment: Environment) -> None:
        assert self.network is not None
        config, n = self.config, len(self.agents)
        self._initial = self._features.initial.to(self.network_dtype)
        """theta_0 [p], in the network's precision"""
        self.own_parameters = self._initial.repeat(n, 1)
        """theta_i [n, p]"""
        self._inputs = self.own_parameters.new_zeros(n, self.network.padded_dim, config.horizon)
        peers = self.statistics.peers
        self.local: Full | Diagonal
        """V_local,i"""
        if config.diagonal:
            self.local = Diagonal(n, self.parameters, config.number("regularization"), self.like)
        elif peers is not None:
            self.local = Full.view(peers[self.agents.start : self.agents.stop])
        else:
            self.local = Full(n, self.parameters, config.number("regularization"), self.like)
        self._ratio = None
        if config.weight == "theory":
            domain = torch.from_numpy(environment.domain(config.domain_sample)).to(self.like)
            self._ratio = DomainRatio(self._features(domain[None])[0], self.local, n)

    def saved(self) -> dict[str, int | None]:
        names = super().saved()
        if self.config.networked:
            names |= {"own_parameters": None, "_inputs": 2}
            if self.config.diagonal:
                names["local.diagonal"] = None
            elif self.statistics.peers is None:
                names["local"] = None
            if self._ratio is not None:
                names["_ratio.variances"] = None
        return names

    def load(self, iteration: int, state: dict[str, Tensor]) -> None:
        super().load(iteration, state)
        self.start_epoch()

    # Alg. 1, lines 4-7

    def choose(self, iteration: int, contexts: Tensor) -> Tensor:
        self._x = self._features(contexts)
        return self.scores(iteration, contexts).argmax(dim=1)

    def scores(self, iteration: int, contexts: Tensor) -> Tensor:
        """(1 - alpha) UCB^a + alpha UCB^b of every context, [n, arms]."""
        weight = weight_at(self.config, iteration, self.last_round, self.statistics.weight)
        self.weights[iteration - 1] = weight
        a = b = None
        if needs_global(self.config, iteration):
            mean, variance = self._epoch.evaluate(self._x)
        # A weight that is computed stays on its device: to look at it would mean to wait.
        if isinstance(weight, Tensor) or weight < 1:
            a = global_bound(mean, variance, self._global_scale, rescale=self.config.diagonal)
        if isinstance(weight, Tensor) or weight > 0:
            assert self.network is not None and self.statistics.parameters is not None
            theta = self.statistics.parameters if self.config.aggregate else self.own_parameters
            inputs = self.network.inputs(contexts.to(self.network_dtype))
            prediction = self.network.predict(theta, inputs).to(self.dtype)
            b = local_bound(prediction, self.statistics.deviation(self._x), self._local_scale)
        return combined(a, b, weight)

    # Alg. 1, lines 8-10

    def learn(self, iteration: int, contexts: Tensor, arms: Tensor, rewards: Tensor) -> None:
        if needs_global(self.config, iteration):
            self._epoch.append(self._x, arms, rewards)
        if self.config.trigger == "diagonal":
            self._squares += self.chosen(self._x, arms).square()
        context = self.chosen(contexts, arms)
        self._recent.append(context)
        if self.config.networked:
            assert self.network is not None
            inputs = self.network.inputs(context.to(self.network_dtype)[:, None])[:, :, 0]
            self._inputs[:, : inputs.shape[1], iteration - 1] = inputs

    # Alg. 1, lines 11-13

    def measure(self) -> Tensor:
        """(t - t_last) * log det ratio of every agent, [n]; NaN where nothing depends on it any more."""
        if not needs_global(self.config, self.iteration):
            return torch.full_like(self.rewards[:, 0], torch.nan)
        if self.config.trigger == "diagonal":
            gain = diagonal_gain(self._squares, self.statistics.diagonal)
        else:
            gain = self._epoch.gain()
        return (self.iteration - self.last_round) * gain

    def advance(self, limit: int) -> bool:
        """Run to iteration `limit`, or to the first trigger of any of these agents; whether one fired."""
        if self.config.trigger == "always":
            limit = min(limit, self.iteration + 1)
        elif self.config.trigger == "period":
            limit = min(limit, self.last_round + self.config.period)
        if self.config.trigger in ("always", "period"):
            super().advance(limit)
            return self.fired()
        while self.iteration < limit:
            start = self.iteration
            measures = []
            for _ in range(min(self._looks, limit - start)):
                self.step()
                measures.append(self.measure())
            fired = (torch.stack(measures) > self.config.number("threshold")).any(1)
            if fired.any():
                self.rewind(start + 1 + int(fired.int().argmax()))
                return True
        return False

    def fired(self) -> bool:
        """Whether one of these agents asks for a round in the iteration just done."""
        if self.config.trigger == "always":
            return True
        if self.config.trigger == "period":
            return self.iteration - self.last_round == self.config.period
        return bool((self.measure() > self.config.number("threshold")).any())

    def rewind(self, iteration: int) -> None:
        """Go back to an iteration of this epoch, as if the later ones had not been."""
        steps = iteration - self.last_round
        exact = self._epoch.truncate(steps) and (self.config.trigger != "diagonal" or iteration == self.iteration)
        self.iteration = iteration
        if exact:
            del self._recent[steps:]
            return
        self.start_epoch()
        for t in range(self.last_round + 1, iteration + 1):
            contexts = self.stream.contexts(t)
            self._x = self._features(contexts)
            if needs_global(self.config, t):
                self._epoch.evaluate(self._x)
            self.learn(t, contexts, self.arms[:, t - 1], self.rewards[:, t - 1])

    # Alg. 1, lines 14-18

    def upload(self) -> Upload:
        """Train, and tell the server what is new."""
        t = self.iteration
        measure = self.measure()
        parameters = weight = local = loss = covariance = moments = None
        if isinstance(self._epoch, DiagonalEpoch):
            new = covariance = self._epoch.squares
            moments = self._epoch.new_moments
        else:
            self._epoch.end()
            new = torch.stack(self._recent, dim=1)
            if needs_global(self.config, t + 1):
                covariance = new
                moments = self._moments(new, self.rewards[:, self.last_round : t])
        if self.config.networked:
            parameters, loss = self._train()
            local = self._absorb(new)
            weight = None if self._ratio is None else self._ratio.ratio()
        return Upload(covariance, moments, measure, parameters, weight, local, loss)

    def _moments(self, contexts: Tensor, rewards: Tensor) -> Tensor:
        """B_new [n, p] (Alg. 1, line 9) for contexts [n, k, dim] and rewards [n, k]."""
        parts = few_at_once(len(contexts), contexts.shape[1] * self.parameters, self.like)
        moments = [torch.bmm(rewards[few][:, None], self._features(contexts[few])) for few in parts]
        return torch.cat(moments).squeeze(1)

    def _train(self) -> tuple[Tensor, Tensor | None]:
        """theta_i [n, p] (Alg. 1, line 14)."""
        assert self.network is not None and self.statistics.parameters is not None
        stop = self.config.stop_training_after
        if stop is not None and self.iteration > stop:
            return self.own_parameters, None
        initial = self._initial
        start = {
            "initial": initial.expand_as(self.own_parameters),
            "own": self.own_parameters,
            "aggregate": self.statistics.parameters.expand_as(self.own_parameters),
        }[self.config.training_start]
        x = self._inputs[:, :, : self.iteration]
        y = self.rewards[:, : self.iteration].to(self.network_dtype)
        self.own_parameters, loss = train(self.config, self.network, start, initial, x, y)
        return self.own_parameters, loss

    def _absorb(self, new: Tensor) -> Tensor:
        """Bring V_local up to date (Alg. 1, line 10) with new contexts or squares; what the server must know of it."""
        if isinstance(self.local, Diagonal):
            self.local.absorb(new)
            if self._ratio is not None:
                self._ratio.replace(self.local)
            return self.local.inverse
        change = self.local.absorb(new, self._features)
        if self._ratio is not None:
            self._ratio.shrink(change)
        return change

    def start_epoch(self) -> None:
        """Begin an epoch with the global statistics as they are (Alg. 1, line 18)."""
        statistics = self.statistics
        self.last_round = statistics.last_round
        start = statistics.moments if self.config.diagonal else statistics.estimate
        self._epoch.start(statistics.covariance, start)  # type: ignore[arg-type]
        self._recent: list[Tensor] = []
        if self.config.trigger == "diagonal":
            self._squares = torch.zeros_like(statistics.moments).repeat(len(self.agents), 1)
