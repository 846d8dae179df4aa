"""The part of Algorithm 1 that all algorithms with rounds have in common: UCB^a, the trigger, the statistics."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fnbandit.algorithms.base import Group, Scored
from fnbandit.algorithms.confidence import global_bound
from fnbandit.config import Config
from fnbandit.covariance import Evaluation, matrices
from fnbandit.environments import Environment
from fnbandit.memory import Memory, precisions
from fnbandit.rounds.messages import Upload
from fnbandit.rounds.shared import Shared
from fnbandit.state import State

LOOKS_ON_ACCELERATOR = 8
"""Iterations between two looks at the trigger where looking means waiting for a device."""


class Seen(NamedTuple):
    """What agents have found of an iteration's contexts before they chose."""

    features: Tensor
    """[n, arms, p]"""
    found: Evaluation | None
    """What V-bar says of them, if it matters"""
    prediction: Tensor | None = None
    """What a network says of them, [n, arms], if it was asked"""


class FederatedGroup(Group):
    """n agents that run UCB^a on shared features and communicate: advance, rewind, upload, start the next epoch.

    Inside an epoch the agents touch nothing but their own rows, so that they can run ahead of
    other groups and come back.
    """

    communicates = True

    def __init__(self, config: Config, environment: Environment, agents: range, shared: Shared | None = None) -> None:
        super().__init__(config, environment, agents, shared)
        made = shared or self.make_shared(config, environment, self.like)
        assert made is not None
        self.shared: Shared = made
        self._global_scale = config.number("exploration_global") * config.number("regularization") ** 0.5
        self.epoch = self.shared.estimate.epoch(len(agents))
        self._looks = 1 if self.device.type == "cpu" else LOOKS_ON_ACCELERATOR

    @classmethod
    def memory(cls, config: Config, environment: Environment) -> Memory:
        kind, p, real = matrices(config), cls.parameter_count(config, environment), precisions(config)[0]
        own = Memory(kind.epoch_numbers(p, config.horizon) * real, 4 * kind.numbers(p) * real)
        return super().memory(config, environment) + own

    def load(self, iteration: int, state: State) -> None:
        super().load(iteration, state)
        self.start_epoch()

    def needs_global(self, iteration: int) -> bool:
        """Whether V_last and UCB^a still matter in an iteration or after it; if not, they are left alone."""
        return True

    # Alg. 1, lines 4-7

    def scores(self, iteration: int, contexts: Tensor) -> Scored:
        seen = self.look(iteration, contexts)
        assert seen.found is not None
        return Scored(self.global_bound(seen.found), seen)

    def look(self, iteration: int, contexts: Tensor) -> Seen:
        """Features and, where it matters, V-bar's mean and variance of contexts [n, arms, dim]."""
        x = self.shared.lift(contexts)
        return Seen(x, self.epoch.evaluate(x) if self.needs_global(iteration) else None)

    def global_bound(self, found: Evaluation) -> Tensor:
        """UCB^a [n, arms] (line 5)."""
        return global_bound(found.mean, found.variance, self._global_scale, self.shared.estimate.inflated)

    # Alg. 1, lines 8-10

    def learn(self, iteration: int, contexts: Tensor, arms: Tensor, rewards: Tensor, evidence: Seen) -> None:
        self.epoch.append(evidence.features, contexts, arms, rewards, evidence.found)

    # Alg. 1, lines 11-13

    def measure(self) -> Tensor:
        """What the trigger measures of every agent, [n]; NaN where nothing depends on it any more."""
        if not self.needs_global(self.iteration):
            return torch.full_like(self.rewards[:, 0], torch.nan)
        return self.shared.trigger.measure(self.epoch, self.shared.moment(self.iteration))

    def advance(self, limit: int) -> bool:
        """Run to iteration `limit`, or to the first trigger of any of these agents; whether one fired."""
        trigger = self.shared.trigger
        known = trigger.next_round(self.shared.last_round)
        if known is not None:
            super().advance(min(limit, known))
            return self.iteration == known
        while self.iteration < limit:
            start = self.iteration
            measures = []
            for _ in range(min(self._looks, limit - start)):
                self.step()
                measures.append(self.measure())
            fired = (torch.stack(measures) > trigger.level).any(1)
            if fired.any():
                self.rewind(start + 1 + int(fired.int().argmax()))
                return True
        return False

    def rewind(self, iteration: int) -> None:
        """Go back to an iteration of this epoch, as if the later ones had not been."""
        exact = self.epoch.truncate(iteration - self.shared.last_round)
        self.iteration = iteration
        if exact:
            return
        self.epoch.start()
        for t in range(self.shared.last_round + 1, iteration + 1):
            contexts = self.stream.contexts(t)
            seen = self.look(t, contexts)
            self.epoch.append(seen.features, contexts, self.arms[:, t - 1], self.rewards[:, t - 1], seen.found)

    # Alg. 1, lines 14-18

    def train(self) -> None:
        """What agents do before they upload (line 14)."""
        self.epoch.release()

    def upload(self) -> Upload:
        """Tell the server what is new (line 16)."""
        t, channel = self.iteration, self.shared.channel
        measure = self.measure()
        rows = channel.rows(self.agents, t, self.epoch.news())
        if not self.needs_global(t + 1):
            return self.complete(Upload(measure, None, None), rows)
        moments = self.epoch.moments(self.rewards[:, self.shared.last_round : t])
        return self.complete(Upload(measure, rows, channel.moments(self.agents, t, moments)), rows)

    def complete(self, upload: Upload, rows: Tensor) -> Upload:
        """An upload with what an algorithm sends beside W_new and B_new; `rows` is W_new as the server sees it."""
        return upload

    def start_epoch(self) -> None:
        """Begin an epoch with the shared statistics as they are (line 18)."""
        self.epoch.start()
