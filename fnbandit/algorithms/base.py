"""What every group of agents does, whatever it learns with: read contexts, choose, observe, remember."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fnbandit.config import Config
from fnbandit.environments import Environment, Stream
from fnbandit.memory import Memory, precisions
from fnbandit.randomness import BLOCK
from fnbandit.rounds.shared import Shared
from fnbandit.state import State, prefixed, unprefixed


def resolve_device(name: str) -> torch.device:
    """The torch device that `config.device` names."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"device={name!r}: expected auto, cpu, cuda or cuda:INDEX") from None
    if device.type not in ("cpu", "cuda") or (device.type == "cpu" and device.index):
        raise ValueError(f"device={name!r}: expected auto, cpu, cuda or cuda:INDEX")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"device={name!r}: {torch.cuda.device_count()} CUDA devices here; accepted: auto, cpu")
    return device


@dataclass(frozen=True)
class Trace:
    """What happened in some iterations, each [iterations, agents] (weight: [iterations])."""

    arms: np.ndarray
    rewards: np.ndarray
    regret: np.ndarray
    weight: np.ndarray
    time: np.ndarray | None = None
    """Simulated seconds at the end of every iteration, [iterations, agents], with a clock"""


class Scored(NamedTuple):
    """The scores of all contexts, [n, arms], and what `learn` will need of how they came about."""

    values: Tensor
    evidence: Any = None


class Group(ABC):
    """n agents as one batched state, at iteration `iteration`. A subclass is an algorithm.

    It scores contexts (the arm with the best score is pulled) and learns from rewards:

        class Mine(Group):
            def scores(self, iteration, contexts):                          # [n, arms, dim]
                return Scored(...)                                          # [n, arms]
            def learn(self, iteration, contexts, arms, rewards, evidence):  # [n], [n]
                ...
    """

    learns_on = ""
    """What its bounds are linear in: the "tangent features" of its network, the "contexts" themselves, or neither"""
    communicates = False
    """Whether its agents take part in rounds"""
    asynchronous = False
    """Whether they do so one by one, without waiting for each other"""
    one_group = False
    """Whether all agents must sit in one group, because one learner serves them all"""

    def __init__(self, config: Config, environment: Environment, agents: range, shared: Shared | None = None) -> None:
        self.config = config
        self.agents = agents
        self.iteration = 0
        self.device = resolve_device(config.device)
        self.dtype = getattr(torch, config.statistics_dtype)
        self.network_dtype = getattr(torch, config.network_dtype)
        self.like = torch.empty(0, dtype=self.dtype, device=self.device)
        """An empty tensor of the statistics' precision and device"""
        self.stream = Stream(environment, agents, self.dtype, self.device)
        n, horizon = len(agents), config.horizon
        self.index = torch.arange(n, device=self.device)
        """0 to n - 1, to pick one arm of every agent: values[self.index, arms]"""
        self.arms = torch.zeros(n, horizon, dtype=torch.int64, device=self.device)
        self.rewards = self.like.new_zeros(n, horizon)
        self.regret = self.like.new_zeros(n, horizon)
        self.weights = torch.zeros(horizon, dtype=torch.float64, device=self.device)
        """alpha"""
        self._lost = torch.zeros((), dtype=torch.bool, device=self.device)
        """Whether a score has ever been no number"""

    @classmethod
    def make_shared(cls, config: Config, environment: Environment, like: Tensor) -> Shared | None:
        """What the agents of a process share; None for an algorithm whose agents never communicate."""
        return None

    @classmethod
    def memory(cls, config: Config, environment: Environment) -> Memory:
        """What the history and the contexts of an agent take; subclasses add what they keep."""
        history = config.horizon * 3 * 8
        stream = BLOCK * environment.arms * (environment.dim + 2) * 8
        features = 4 * environment.arms * cls.parameter_count(config, environment) * precisions(config)[0]
        return Memory(history + stream + features)

    @classmethod
    def parameter_count(cls, config: Config, environment: Environment) -> int:
        """p, the length of a feature row."""
        return environment.dim

    def saved(self) -> dict[str, int | None]:
        """Attributes that make up the state between epochs; the axis of those that grow with iterations.

        Tensors with the agents (or learners) first, or objects with a `state` and a `load` of such tensors.
        """
        return {"arms": 1, "rewards": 1, "regret": 1}

    def state(self) -> State:
        """Everything, but what all groups share, that `load` needs to go on with the same bits.

        Every tensor's first dimension is the agents, so that states can be joined and split.
        """
        state: State = {}
        for name, axis in self.saved().items():
            value = operator.attrgetter(name)(self)
            if isinstance(value, Tensor):
                state[name] = self._filled(value, axis, self.iteration).clone()
            else:
                state |= {key: tensor.clone() for key, tensor in prefixed(name, value.state()).items()}
        return state

    def load(self, iteration: int, state: State) -> None:
        """Take over a `state` of these agents at an iteration."""
        self.iteration = iteration
        for name, axis in self.saved().items():
            value = operator.attrgetter(name)(self)
            if isinstance(value, Tensor):
                filled = self._filled(value, axis, iteration)
                if filled.shape != state[name].shape:  # which copy_ might stretch
                    raise ValueError(f"{name} has shape {tuple(state[name].shape)}, expected {tuple(filled.shape)}")
                filled.copy_(state[name])
            else:
                value.load(unprefixed(name, state))

    @staticmethod
    def _filled(tensor: Tensor, axis: int | None, iteration: int) -> Tensor:
        return tensor if axis is None else tensor.narrow(axis, 0, iteration)

    def step(self) -> None:
        """One iteration: receive contexts, choose, query, learn (Alg. 1, lines 3-10)."""
        t = self.iteration + 1
        contexts = self.stream.contexts(t)
        scored = self.scores(t, contexts)
        self._lost |= scored.values.isnan().any()
        arms = scored.values.argmax(dim=1)
        means = self.stream.means(t)
        chosen = means[self.index, arms]
        rewards = chosen + self.stream.noise(t)
        self.arms[:, t - 1] = arms
        self.rewards[:, t - 1] = rewards
        self.regret[:, t - 1] = means.amax(dim=1) - chosen
        self.iteration = t
        self.learn(t, contexts, arms, rewards, scored.evidence)

    def chosen(self, contexts: Tensor, arms: Tensor) -> Tensor:
        """The chosen one of an agent's contexts or features [n, arms, d] -> [n, d]; of values [n, arms] -> [n]."""
        return contexts[self.index, arms]

    @abstractmethod
    def scores(self, iteration: int, contexts: Tensor) -> Scored:
        """The scores of contexts [n, arms, dim]; every agent pulls its best."""

    @abstractmethod
    def learn(self, iteration: int, contexts: Tensor, arms: Tensor, rewards: Tensor, evidence: Any) -> None:
        """Take in the rewards [n] of the arms pulled [n], with the evidence that `scores` returned."""

    def advance(self, limit: int) -> bool:
        """Run to iteration `limit` or to the first trigger; whether one fired."""
        while self.iteration < limit:
            self.step()
        return False

    def trace(self, start: int, end: int) -> Trace:
        """Iterations start + 1 to end; a ValueError where a score in them was no number."""
        if self._lost:
            raise ValueError(
                f"statistics_dtype={self.config.statistics_dtype!r}: scores are no numbers by iteration {end}; "
                f"regularization={self.config.regularization!r} asks for more digits than that has, "
                "or rewards and exploration are too large: try float64 or a larger regularization"
            )
        part = slice(start, end)
        return Trace(
            arms=self.arms[:, part].T.cpu().numpy(),
            rewards=self.rewards[:, part].T.cpu().numpy(),
            regret=self.regret[:, part].T.cpu().numpy(),
            weight=self.weights[part].cpu().numpy().copy(),
        )
