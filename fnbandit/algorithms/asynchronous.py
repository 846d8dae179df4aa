"""Agents that do not wait for each other: each acts on its own last download, and is in an iteration of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fnbandit.algorithms.base import Group, Scored, Trace
from fnbandit.config import Config
from fnbandit.covariance.versions import OwnRows
from fnbandit.environments import Environment
from fnbandit.environments.ragged import RaggedStream
from fnbandit.memory import Memory, precisions
from fnbandit.rounds.exchange import AgentUpload, Download, Statistics
from fnbandit.rounds.messages import Contents
from fnbandit.rounds.triggers import Moment
from fnbandit.state import State

OWN_ROWS = 128
"""Rows between two exchanges that memory is reckoned with"""


class Found(NamedTuple):
    """What V-bar says of an iteration's features x [n', arms, p]: of the active agents."""

    features: Tensor
    downloaded_mean: Tensor
    """[n', arms], by what was downloaded alone"""
    downloaded_variance: Tensor
    mean: Tensor
    """[n', arms], with the agent's own rows"""
    variance: Tensor
    met: tuple[Tensor, Tensor]
    """What V^-1 x is made of"""
    own: list[tuple[np.ndarray, Tensor]]
    """Own rows' products with x"""
    prediction: Tensor | None = None
    """What a network says, if it was asked"""


@dataclass(frozen=True)
class Gains:
    """The part of an epoch that triggers for single agents look at."""

    values: Tensor

    def gain(self) -> Tensor:
        return self.values


class AsynchronousGroup(Group):
    """n agents; a step is one iteration of the active ones, each in its own iteration.

    `scores` and `learn` see the active agents only: iterations [n'], contexts [n', arms, dim].
    """

    communicates = True
    asynchronous = True

    def __init__(self, config: Config, environment: Environment, agents: range, shared: Any = None) -> None:
        super().__init__(config, environment, agents, None)
        self.statistics: Statistics = shared or self.make_statistics(config, environment, self.like)
        n, p = len(agents), self.statistics.parameters
        self.ragged = RaggedStream(environment, agents, self.dtype, self.device)
        self.contexts = self.like.new_zeros(n, config.horizon, environment.dim)
        """Of the arms pulled"""
        self.weights = torch.zeros(n, config.horizon, dtype=torch.float64, device=self.device)
        self.done = np.zeros(n, dtype=np.int64)
        """Iterations that every agent has finished"""
        self.last = np.zeros(n, dtype=np.int64)
        """Each agent's iteration of its last exchange"""
        self.versions = np.zeros(n, dtype=np.int64)
        """Of V, as downloaded"""
        self.inverse_versions = np.zeros(n, dtype=np.int64)
        self.solutions = self.like.new_zeros(n, p)
        """V^-1 B, as downloaded"""
        self.gains = self.like.new_zeros(n)
        """log det(V + own rows) - log det V"""
        self.rows = OwnRows(n, p, self.like)
        self.active = np.arange(n)
        self._scale = config.number("exploration_global") * config.number("regularization") ** 0.5
        self._known = self.statistics.trigger.next_round(0)
        """Iterations between two exchanges, where they are known beforehand"""

    @classmethod
    def make_statistics(cls, config: Config, environment: Environment, like: Tensor) -> Statistics:
        """What the agents of a process share."""
        raise NotImplementedError

    @classmethod
    def memory(cls, config: Config, environment: Environment) -> Memory:
        """In the worst case every agent works with a base of its own."""
        p, real = cls.parameter_count(config, environment), precisions(config)[0]
        own = config.horizon * (environment.dim + 1) + min(config.horizon, OWN_ROWS) * p + 3 * p
        base = p * p + p * p // 2
        return super().memory(config, environment) + Memory((own + base) * real, 4 * p * p * real)

    # One iteration

    def advance_active(self, active: np.ndarray) -> np.ndarray:
        """One iteration of some agents (indices in the group); who of them must upload, [n'] of bool."""
        self.active = active
        index, t = self._index(active), self.done[active] + 1
        contexts, means, noise = self.ragged.at(active, t)
        scored = self.scores(t, contexts)
        self._lost |= scored.values.isnan().any()
        arms = scored.values.argmax(dim=1)
        every = torch.arange(len(active), device=self.device)
        chosen = means[every, arms]
        rewards = chosen + noise
        places = self._index(t - 1)
        self.arms[index, places] = arms
        self.rewards[index, places] = rewards
        self.regret[index, places] = means.amax(dim=1) - chosen
        self.contexts[index, places] = contexts[every, arms]
        self.done[active] = t
        self.learn(t, contexts, arms, rewards, scored.evidence)
        return self._add_row(arms, rewards, scored.evidence)

    def _index(self, values: np.ndarray) -> Tensor:
        return torch.from_numpy(values).to(self.device)

    def look(self, contexts: Tensor) -> Found:
        """Features of the active agents' contexts, and what V and V-bar say of them."""
        x, active = self.statistics.lift(contexts), self.active
        met, u = self.statistics.covariance.meet(self.versions[active], x)
        mean = torch.bmm(self.solutions[self._index(active)][:, None], x.mT).squeeze(1)
        variance = ((met * x).sum(-1) - u.square().sum(-1)).clamp_(min=0)
        more, less, own = self.rows.evaluate(active, x)
        return Found(x, mean, variance, mean + more, (variance - less).clamp_(min=0), (met, u), own)

    def learn(self, iteration: Any, contexts: Tensor, arms: Tensor, rewards: Tensor, evidence: Any) -> None:
        """Nothing but the row of V-bar, which every algorithm adds."""

    def _add_row(self, arms: Tensor, rewards: Tensor, found: Found) -> np.ndarray:
        """V-bar grows by the features of the arms pulled; which agents must upload now."""
        active, every = self.active, torch.arange(len(arms), device=self.device)
        index = self._index(active)
        variance = found.variance[every, arms]
        self.gains[index] += torch.log1p(variance)
        fired = self._fired(index)
        going = np.flatnonzero(~fired)
        if len(going):
            some = self._index(going)
            pulled = (every[some], arms[some])
            met, u = (part[pulled][:, None] for part in found.met)
            solved = self.statistics.covariance.product(self.versions[active[going]], met, u).squeeze(1)
            own = [(np.flatnonzero(~fired[who]), who, products) for who, products in found.own]
            places = np.full(len(active), -1)
            places[going] = np.arange(len(going))
            kept = [(places[who[keep]], products[self._index(keep)]) for keep, who, products in own if len(keep)]
            row = self.rows.lowered(active[going], solved, arms[some], kept)
            root = (1 + variance[some]).sqrt()
            surprise = (rewards[some] - found.mean[pulled]) / root
            self.rows.append(active[going], row / root[:, None], surprise)
        return fired

    def _fired(self, index: Tensor) -> np.ndarray:
        done, last = self.done[self.active], self.last[self.active]
        if self._known is not None:
            return done - last >= self._known
        trigger = self.statistics.trigger
        return (self._measure(self.active) > trigger.level).cpu().numpy()

    def _measure(self, agents: np.ndarray) -> Tensor:
        """What the trigger measures of some agents."""
        iteration, last = self._index(self.done[agents]), self._index(self.last[agents])
        moment: Any = Moment(iteration, last, 0)  # type: ignore[arg-type]
        epoch: Any = Gains(self.gains[self._index(agents)])
        return self.statistics.trigger.measure(epoch, moment)

    # Exchanges

    def steps_of(self, agent: int) -> int:
        """Steps of the training that an agent's next upload waits for."""
        return 0

    def train(self, agents: np.ndarray) -> None:
        """What agents (indices in the group) do before they upload."""

    def upload(self, agent: int) -> AgentUpload:
        """What an agent sends: W_new and B_new, and what an algorithm adds."""
        t, last, channel = int(self.done[agent]), int(self.last[agent]), self.statistics.channel
        who = self.agents[agent : agent + 1]
        contexts = self.contexts[agent : agent + 1, last:t]
        rows = channel.rows(who, t, contexts)
        moments = torch.bmm(self.rewards[agent : agent + 1, None, last:t], self.statistics.lift(contexts)).squeeze(1)
        measure = float(self._measure(np.array([agent]))[0])
        return self.complete(agent, AgentUpload(measure, rows[0].clone(), channel.moments(who, t, moments)[0]))

    def complete(self, agent: int, upload: AgentUpload) -> AgentUpload:
        """An upload with what an algorithm sends beside W_new and B_new."""
        return upload

    def receive(self, agent: int, download: Download) -> None:
        """Begin anew with the server's statistics."""
        self.last[agent] = self.done[agent]
        self.versions[agent], self.inverse_versions[agent] = download.version, download.inverses
        self.solutions[agent] = download.solution
        self.gains[agent] = 0
        self.rows.reset(agent)

    def trace(self, start: int, end: int) -> Trace:
        """As for other groups, but for alpha, [iterations, agents]: each agent has its own."""
        return replace(super().trace(start, end), weight=self.weights[:, start:end].T.cpu().numpy().copy())

    # States

    def agent_tensors(self) -> list[str]:
        """Attributes with the agents first, of which a checkpoint keeps all."""
        return ["arms", "rewards", "regret", "weights", "contexts", "solutions", "gains"]

    def agent_numbers(self) -> list[str]:
        """The same, whole numbers that live in numpy."""
        return ["done", "last", "versions", "inverse_versions"]

    def agent_state(self, agent: int) -> State:
        """Everything of one agent that `load_agent` needs to go on with the same bits."""
        state = {name: getattr(self, name)[agent] for name in self.agent_tensors()}
        state |= {name: torch.tensor(getattr(self, name)[agent]) for name in self.agent_numbers()}
        return state | self.rows.state_of(agent)

    def load_agent(self, agent: int, state: State) -> None:
        """Take over an agent's state."""
        for name in self.agent_tensors():
            getattr(self, name)[agent] = state[name].to(getattr(self, name))
        for name in self.agent_numbers():
            getattr(self, name)[agent] = int(state[name])
        self.rows.load_of(agent, state)


class FedLinUCB(AsynchronousGroup):
    """FedLinUCB (He et al. 2022, Alg. 1) on raw contexts: choices by what was downloaded alone.

    An agent pulls argmax <x, theta> + beta ||x||_{V^-1} with the V and theta = V^-1 b of its last download, and
    exchanges with the server when its own rows since have made det(V + W_new) more than 1 + gamma times det V.
    """

    learns_on = "contexts"

    @classmethod
    def make_statistics(cls, config: Config, environment: Environment, like: Tensor) -> Statistics:
        both_ways = Contents(covariances=1, vectors=1)
        return Statistics(config, lambda contexts: contexts, environment.dim, like, (both_ways, both_ways))

    def scores(self, iteration: Any, contexts: Tensor) -> Scored:
        found = self.look(contexts)
        return Scored(found.downloaded_mean + self._scale * found.downloaded_variance.sqrt(), found)
