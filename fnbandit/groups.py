"""What every group of agents does, whatever it learns with: read contexts, choose, observe, remember."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fnbandit.config import Config
from fnbandit.covariance import Full
from fnbandit.environments import Environment, Stream
from fnbandit.server import parts


def resolve_device(name: str) -> torch.device:
    """The torch device that `config.device` names."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"device={name!r}: expected auto, cpu, cuda or cuda:INDEX") from None
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


class Group(ABC):
    """n agents as one batched state, at iteration `iteration`."""

    def __init__(self, config: Config, environment: Environment, agents: range) -> None:
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
        self._index = torch.arange(n, device=self.device)
        self.arms = torch.zeros(n, horizon, dtype=torch.int64, device=self.device)
        self.rewards = self.like.new_zeros(n, horizon)
        self.regret = self.like.new_zeros(n, horizon)
        self.weights = torch.zeros(horizon, dtype=torch.float64, device=self.device)
        """alpha"""

    def saved(self) -> dict[str, int | None]:
        """Attributes that make up the state between epochs; the axis of those that grow with iterations."""
        return {"arms": 1, "rewards": 1, "regret": 1}

    def state(self) -> dict[str, Tensor]:
        """Everything, but what all groups share, that `load` needs to go on with the same bits.

        Every tensor's first dimension is the agents, so that states can be joined and split.
        """
        state: dict[str, Tensor] = {}
        for name, axis in self.saved().items():
            value = operator.attrgetter(name)(self)
            if isinstance(value, Full):
                state |= {f"{name}.{part}": tensor.clone() for part, tensor in value.state().items()}
            else:
                state[name] = self._filled(value, axis, self.iteration).clone()
        return state

    def load(self, iteration: int, state: dict[str, Tensor]) -> None:
        """Take over a `state` of these agents at an iteration."""
        self.iteration = iteration
        for name, axis in self.saved().items():
            value = operator.attrgetter(name)(self)
            if isinstance(value, Full):
                value.load(parts(state, name))
            else:
                self._filled(value, axis, iteration).copy_(state[name])

    @staticmethod
    def _filled(tensor: Tensor, axis: int | None, iteration: int) -> Tensor:
        return tensor if axis is None else tensor.narrow(axis, 0, iteration)

    def step(self) -> None:
        """One iteration: receive contexts, choose, query, learn (Alg. 1, lines 3-10)."""
        t = self.iteration + 1
        contexts = self.stream.contexts(t)
        arms = self.choose(t, contexts)
        means = self.stream.means(t)
        chosen = means[self._index, arms]
        rewards = chosen + self.stream.noise(t)
        self.arms[:, t - 1] = arms
        self.rewards[:, t - 1] = rewards
        self.regret[:, t - 1] = means.amax(dim=1) - chosen
        self.iteration = t
        self.learn(t, contexts, arms, rewards)

    def chosen(self, contexts: Tensor, arms: Tensor) -> Tensor:
        """The chosen one of an agent's contexts or features [n, arms, d] -> [n, d]."""
        return contexts[self._index, arms]

    @abstractmethod
    def choose(self, iteration: int, contexts: Tensor) -> Tensor:
        """The arm that every agent pulls, [n], for contexts [n, arms, dim]."""

    @abstractmethod
    def learn(self, iteration: int, contexts: Tensor, arms: Tensor, rewards: Tensor) -> None:
        """Take in the rewards [n] of the arms pulled [n]."""

    def advance(self, limit: int) -> bool:
        """Run to iteration `limit` or to the first trigger; whether one fired."""
        while self.iteration < limit:
            self.step()
        return False

    def trace(self, start: int, end: int) -> Trace:
        """Iterations start + 1 to end."""
        part = slice(start, end)
        return Trace(
            arms=self.arms[:, part].T.cpu().numpy(),
            rewards=self.rewards[:, part].T.cpu().numpy(),
            regret=self.regret[:, part].T.cpu().numpy(),
            weight=self.weights[part].cpu().numpy().copy(),
        )
