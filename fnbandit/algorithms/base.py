"""Base classes of all algorithms: groups of agents that receive contexts, choose arms, learn, and keep a history."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fnbandit.algorithms.traits import Traits
from fnbandit.config import Config
from fnbandit.core import Trace
from fnbandit.environments import Environment, Stream
from fnbandit.federation.attacks import make_attack
from fnbandit.federation.replica import Replica
from fnbandit.numerics.device import read_values, resolve_device
from fnbandit.numerics.memory import Memory, precisions
from fnbandit.numerics.randomness import BLOCK
from fnbandit.numerics.state import State, add_prefix, remove_prefix


class Scored(NamedTuple):
    """Scores of all contexts, [n, arms], and intermediate values that `learn` needs."""

    values: Tensor
    evidence: Any = None


class AgentBatch:
    """n agents of one process as one batched state: their configuration, device and history."""

    traits = Traits()
    """Facts about the algorithm that other modules read"""
    replica: Any = None
    """Statistics that the agents share with other batches of their process; None where they never communicate"""

    def __init__(self, config: Config, environment: Environment, agents: range) -> None:
        self.config = config
        self.agents = agents
        self.device = resolve_device(config.device)
        self.dtype = getattr(torch, config.statistics_dtype)
        self.network_dtype = getattr(torch, config.network_dtype)
        self.like = torch.empty(0, dtype=self.dtype, device=self.device)
        """An empty tensor of the statistics' precision and device"""
        n, horizon = len(agents), config.horizon
        self.index = torch.arange(n, device=self.device)
        """0 to n - 1, to pick one arm of every agent: values[self.index, arms]"""
        self.arms = torch.zeros(n, horizon, dtype=torch.int64, device=self.device)
        self.rewards = self.like.new_zeros(n, horizon)
        self.regret = self.like.new_zeros(n, horizon)
        self._has_nan = torch.zeros((), dtype=torch.bool, device=self.device)
        """True once any score was NaN"""

    @classmethod
    def memory(cls, config: Config, environment: Environment) -> Memory:
        """Return the bytes of an agent's history and contexts; subclasses add their own."""
        history = config.horizon * 3 * 8
        stream = BLOCK * environment.arms * (environment.dim + 2) * 8 * (2 if config.feedback_delay else 1)
        features = 4 * environment.arms * cls.parameter_count(config, environment) * precisions(config)[0]
        return Memory(history + stream + features)

    @classmethod
    def parameter_count(cls, config: Config, environment: Environment) -> int:
        """Return p, the length of a feature row."""
        return environment.dim

    def policy_parts(self, index: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return the facts and tensors of a `fnbandit.policy.Policy` of one agent of the batch, as it is now."""
        raise ValueError(f"algorithm={self.config.algorithm!r}: its scores are no fixed formula, so it has no policy")

    def _cut_trace(self, start: int, end: int, alpha: Tensor) -> Trace:
        """Return iterations start + 1 to end with their alpha; raise ValueError where a score in them was NaN."""
        if read_values(self._has_nan):
            raise ValueError(
                f"statistics_dtype={self.config.statistics_dtype!r}: scores became NaN by iteration {end}: "
                f"regularization={self.config.regularization!r} is too small for this precision, "
                "or rewards and exploration are too large; use float64 or a larger regularization"
            )
        part = slice(start, end)
        return Trace(
            arms=read_values(self.arms[:, part].T),
            rewards=read_values(self.rewards[:, part].T),
            regret=read_values(self.regret[:, part].T),
            alpha=read_values(alpha).copy(),
        )


HISTORIES = ("arms", "rewards", "regret")
"""Tensors with a column for every decision; all others that grow have one for every reward learned"""


class Group(AgentBatch, ABC):
    """n agents in lock-step, at iteration `iteration`. A subclass is an algorithm.

    Iterations count the rewards that agents have learned. Without a delay of the feedback these are the decisions; with
    one, a decision is `delay` iterations ahead, and the first `delay` decisions are those of iterations below 1.

    It scores contexts (the arm with the best score is pulled) and learns from rewards:

        class Mine(Group):
            def scores(self, iteration, contexts):                          # [n, arms, dim]
                return Scored(...)                                          # [n, arms]
            def learn(self, iteration, contexts, arms, rewards, evidence):  # [n], [n]
                ...
    """

    def __init__(self, config: Config, environment: Environment, agents: range, replica: Replica | None = None) -> None:
        super().__init__(config, environment, agents)
        self.delay = config.feedback_delay
        """Iterations between a decision and the one after which its reward is learned"""
        self.iteration = -self.delay
        """Number of rewards learned, minus those that decisions still wait for before the first one arrives"""
        self.ahead = 0
        """Difference between the iteration whose contexts are scored and the one that `scores` receives"""
        self._attack = make_attack(config)
        self._attack.check(environment.arms)
        self._liars = slice(max(0, config.honest_agents - agents.start), None)
        """The attackers among the agents"""
        self.stream = Stream(environment, agents, self.dtype, self.device)
        self.past = Stream(environment, agents, self.dtype, self.device) if self.delay else self.stream
        """The stream of the contexts whose rewards arrive"""
        self.alpha_history = torch.zeros(config.horizon, dtype=torch.float64, device=self.device)
        """alpha of every iteration"""

    @classmethod
    def make_replica(cls, config: Config, environment: Environment, like: Tensor) -> Replica | None:
        """Make the statistics that the agents of a process share; None for agents that never communicate."""
        return None

    def list_state(self) -> dict[str, int | None]:
        """Return the attributes of the state between epochs -> their axis that grows with iterations, or None.

        They are tensors whose first dimension is the agents (or learners), objects with a `state` and a `load` of
        such tensors, or integers that all agents have in common. Whatever `learn` changes must be listed here, or a
        resumed run continues with other bits.
        """
        return {"arms": 1, "rewards": 1, "regret": 1}

    def state(self) -> State:
        """Return all that `load` needs, beside the replica's state, to continue with the same bits.

        The first dimension of every tensor is the agents, so that states can be joined and split.
        """
        state: State = {}
        for name, axis in self.list_state().items():
            value = operator.attrgetter(name)(self)
            if isinstance(value, Tensor):
                state[name] = self._cut_filled(name, value, axis).clone()
            elif isinstance(value, int):
                state[name] = torch.full((len(self.agents),), value)
            else:
                state |= {key: tensor.clone() for key, tensor in add_prefix(name, value.state()).items()}
        return state

    def load(self, iteration: int, state: State) -> None:
        """Continue from a `state` of these agents at an iteration."""
        self.iteration = iteration
        for name, axis in self.list_state().items():
            value = operator.attrgetter(name)(self)
            if isinstance(value, Tensor):
                filled = self._cut_filled(name, value, axis)
                if filled.shape != state[name].shape:  # copy_ might broadcast it
                    raise ValueError(f"{name} has shape {tuple(state[name].shape)}, expected {tuple(filled.shape)}")
                filled.copy_(state[name])
            elif isinstance(value, int):
                setattr(self, name, int(state[name][0]))
            else:
                value.load(remove_prefix(name, state))

    def _cut_filled(self, name: str, tensor: Tensor, axis: int | None) -> Tensor:
        filled = self.iteration + self.delay if name in HISTORIES else max(0, self.iteration)
        return tensor if axis is None else tensor.narrow(axis, 0, filled)

    def step(self) -> None:
        """Run one iteration: receive contexts, choose, query, learn (Alg. 1, lines 3-10)."""
        learned = self.iteration + 1
        t = learned + self.delay
        self.ahead = t - max(1, learned)
        contexts = self.stream.contexts(t)
        scored = self.scores(t - self.ahead, contexts)
        self._has_nan |= scored.values.isnan().any()
        arms = scored.values.argmax(dim=1)
        means = self.stream.means(t)
        chosen = means[self.index, arms]
        rewards = chosen + self.stream.noise(t)
        if self._liars.start < len(rewards):
            liars = self._liars
            rewards[liars] = self._attack.poison(rewards[liars], means[liars], arms[liars])
        self.arms[:, t - 1] = arms
        self.rewards[:, t - 1] = rewards
        self.regret[:, t - 1] = means.amax(dim=1) - chosen
        self.iteration = learned
        if self.delay:
            if learned < 1:
                return
            contexts, arms = self.past.contexts(learned), self.arms[:, learned - 1]
            rewards, scored = self.rewards[:, learned - 1], self.scores(learned, contexts)
        self.learn(learned, contexts, arms, rewards, scored.evidence)

    def select_pulled(self, contexts: Tensor, arms: Tensor) -> Tensor:
        """Return values of the pulled arms: contexts or features [n, arms, d] -> [n, d], scores [n, arms] -> [n]."""
        return contexts[self.index, arms]

    @abstractmethod
    def scores(self, iteration: int, contexts: Tensor) -> Scored:
        """Return the scores of contexts [n, arms, dim]; every agent pulls the arm with its highest.

        Random draws are functions of iteration + `ahead`.
        """

    @abstractmethod
    def learn(self, iteration: int, contexts: Tensor, arms: Tensor, rewards: Tensor, evidence: Any) -> None:
        """Learn from the rewards [n] of the pulled arms [n]; `evidence` is that of `scores`."""

    def advance(self, limit: int) -> bool:
        """Run to iteration `limit` or to the first trigger; return True where one fired."""
        while self.iteration < limit:
            self.step()
        return False

    def trace(self, start: int, end: int) -> Trace:
        """Return decisions start + 1 to end; raise ValueError where a score in them was NaN."""
        return self._cut_trace(start, end, self.alpha_history[start:end])
