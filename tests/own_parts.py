"""Parts as a user would write them, in a module of their own."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

from fnbandit import Block, Group, Scored
from fnbandit.algorithms.fn_ucb import FNUCB
from fnbandit.algorithms.fn_ucb_async import FNUCBAsynchronous
from fnbandit.federation.aggregation import Aggregation
from fnbandit.federation.alpha import AlphaRule
from fnbandit.federation.channels import Channel
from fnbandit.federation.triggers import Trigger
from fnbandit.networks.training import GradientDescent


class MeanReward(Group):
    """Pulls the arm whose rewards have been best on average, every arm first."""

    def __init__(self, config, environment, agents, shared=None):
        super().__init__(config, environment, agents, shared)
        self.sums = self.like.new_zeros(len(agents), environment.arms)
        self.counts = torch.zeros_like(self.sums)

    def list_state(self):
        return super().list_state() | {"sums": None, "counts": None}

    def scores(self, iteration, contexts):
        return Scored(torch.where(self.counts > 0, self.sums / self.counts.clamp(min=1), torch.inf))

    def learn(self, iteration, contexts, arms, rewards, evidence):
        self.sums[self.index, arms] += rewards
        self.counts[self.index, arms] += 1


class OwnFNUCB(FNUCB):
    """FN-UCB under a name that the registry does not know."""


class OwnAsynchronous(FNUCBAsynchronous):
    """Asynchronous FN-UCB under a name that the registry does not know."""


class PrimeTrigger(Trigger):
    measures = False

    def next_round(self, last_round):
        return next(n for n in range(last_round + 1, 10**6) if n > 1 and all(n % d for d in range(2, n)))


class HalfWeight(AlphaRule):
    def at(self, iteration, last_round, broadcast):
        return 0.5


class SquaredRate(GradientDescent):
    """Gradient descent at the square of the rate; it reads a field of the config."""

    def step(self, rate):
        return super().step(rate * self._task.config.training_rate)


class FirstAgent(Aggregation):
    def __call__(self, values, last):
        return values[0]


class Free(Channel):
    def resize_upload(self, sizes, contents, rows):
        return dataclasses.replace(sizes, real_bits=0, network_bits=0, scalar_bits=0)


class TwoArms:
    """An environment object: arm 1 pays 1, arm 0 nothing."""

    arms, dim = 2, 3

    def __init__(self, config=None):
        pass

    def block(self, agent, index):
        random = np.random.default_rng([agent, index])
        means = np.tile([0.0, 1.0], (32, 1))
        return Block(random.normal(size=(32, 2, 3)), means, np.zeros(32))

    def domain(self, count):
        return np.random.default_rng(0).normal(size=(count, 3))


def first_coordinate(x):
    return x[:, 0]


class Feedback(Channel):
    """Rounds theta_i to tenths and adds the rounding error of the last upload to the next one."""

    def __init__(self, config, parameters, lift):
        super().__init__(config, parameters, lift)
        self._errors = None

    def send(self, upload, known):
        wanted = upload.theta if self._errors is None else upload.theta + self._errors
        sent = (wanted * 10).round() / 10
        self._errors = wanted - sent
        return dataclasses.replace(upload, theta=sent)

    def state(self):
        return {} if self._errors is None else {"errors": self._errors}

    def load(self, state):
        self._errors = state.get("errors")
