"""Agents that do not wait for each other: each uses its own last download, and is in its own iteration."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fnbandit.algorithms.base import AgentBatch, Scored
from fnbandit.algorithms.traits import Traits
from fnbandit.config import Config
from fnbandit.core import Download, StatisticsVersion, Trace, Upload
from fnbandit.covariance.full import compute_downdate
from fnbandit.covariance.lookahead import OwnRows, Prospects, iterations_ahead
from fnbandit.environments import Environment
from fnbandit.environments.stream import RaggedStream
from fnbandit.federation.channels import Chain
from fnbandit.federation.first_come import VersionedReplica
from fnbandit.federation.triggers import RoundCounters
from fnbandit.numerics.device import put_values, read_values
from fnbandit.numerics.memory import Memory, precisions
from fnbandit.numerics.products import TILE, add_product, multiply
from fnbandit.numerics.randomness import BLOCK
from fnbandit.numerics.state import State, add_prefix, remove_prefix

OWN_ROWS = 128
"""Rows between two exchanges that the estimate of memory assumes"""


class Outlook(NamedTuple):
    """Contexts ahead of agents, for m pairs of an agent and an iteration, and their products with V^-1."""

    agents: np.ndarray
    """Indices in the group, [m]"""
    iterations: np.ndarray
    """[m]"""
    contexts: Tensor
    """[m, arms, dim]"""
    features: Tensor
    """[m, arms, p]"""
    base: Tensor
    u: Tensor
    """The two parts of V^-1 times the features, at each agent's version (`Versions.split_product`)"""
    places: Tensor
    """Indices of each agent's pairs [n', iterations]; its last pair repeats where it evaluates fewer iterations"""


@dataclass(frozen=True)
class Gains:
    """The part of an epoch that triggers of single agents read."""

    values: Tensor

    def gain(self) -> Tensor:
        return self.values


class AsynchronousGroup(AgentBatch, ABC):
    """n agents; a step is one iteration of the active ones, each in its own iteration.

    An agent evaluates the contexts of several iterations at once (`look_ahead`); an algorithm computes from them and
    the last download the values of `ahead` (`score_ahead`). `scores` and `learn` receive the active agents only:
    iterations [n'], contexts [n', arms, dim].
    """

    traits = Traits(schedule="first-come")

    def __init__(
        self, config: Config, environment: Environment, agents: range, replica: VersionedReplica | None = None
    ) -> None:
        if config.feedback_delay:
            raise ValueError(f"feedback_delay={config.feedback_delay}: algorithm={config.algorithm} accepts 0")
        super().__init__(config, environment, agents)
        self.replica: VersionedReplica = replica or self.make_replica(config, environment, self.like)
        n, p = len(agents), self.replica.parameters
        self.chains = [Chain(config, p, self.replica.lift) for _ in agents]
        """The chain of channels of every agent, with its state"""
        self.ragged = RaggedStream(environment, agents, self.dtype, self.device)
        self.contexts = self.like.new_zeros(n, config.horizon, environment.dim)
        """Contexts of the pulled arms"""
        self.alpha_history = torch.zeros(n, config.horizon, dtype=torch.float64, device=self.device)
        self.done = np.zeros(n, dtype=np.int64)
        """Number of iterations that every agent has finished"""
        self.last = np.zeros(n, dtype=np.int64)
        """Iteration of every agent's last exchange"""
        self.versions = np.zeros(n, dtype=np.int64)
        """Version of V, as downloaded"""
        self.inverse_versions = np.zeros(n, dtype=np.int64)
        self.solutions = self.like.new_zeros(n, p)
        """V^-1 B, as downloaded"""
        self.gains = self.like.new_zeros(n)
        """log det(V + own rows) - log det V"""
        self.rows = OwnRows(n, p, self.like)
        most = iterations_ahead(environment.arms)
        self.prospects = Prospects(n, most, environment.arms, self.like)
        self.ahead = self.like.new_zeros(n, most, environment.arms)
        """Values of the contexts ahead that an algorithm computes from the last download alone"""
        self._outlooks: dict[int, Outlook] = {}
        """Outlooks that some agent may still need, by number"""
        self._outlook_of, self._place_in_outlook = np.full(n, -1), np.zeros(n, dtype=np.int64)
        """Number of every agent's outlook (-1: none), and the agent's place in it"""
        self.looked_from = np.zeros(n, dtype=np.int64)
        """Number of iterations that every agent had finished when it last looked ahead"""
        self.looked_until = np.zeros(n, dtype=np.int64)
        """Last iteration that every agent has evaluated ahead"""
        self.length = np.ones(n, dtype=np.int64)
        """Iterations between every agent's last two exchanges"""
        self.active = np.arange(n)
        self.index = self.places = self._index(self.active)
        """The active agents, and the places of their iterations among those that they have evaluated ahead"""
        self._scale = config.number("exploration_global") * config.number("regularization") ** 0.5
        self._known = self.replica.trigger.next_round(0)
        """Iterations between two exchanges; None where they are not known beforehand"""

    @classmethod
    @abstractmethod
    def make_replica(cls, config: Config, environment: Environment, like: Tensor) -> VersionedReplica:
        """Make the statistics that the agents of a process share."""

    @classmethod
    def memory(cls, config: Config, environment: Environment) -> Memory:
        """Return the bytes in the worst case, in which every agent has its own base of V^-1."""
        p, real = cls.parameter_count(config, environment), precisions(config)[0]
        own = config.horizon * (environment.dim + 1) + min(config.horizon, OWN_ROWS) * p + 3 * p
        base = p * p + p * p // 2
        ahead = iterations_ahead(environment.arms) * environment.arms
        lookahead = ahead * (5 * p + p // 2 + 2 * ahead)
        return super().memory(config, environment) + Memory((own + base + lookahead) * real, 4 * p * p * real)

    # One iteration

    def advance_active(self, active: np.ndarray) -> np.ndarray:
        """Run one iteration, evaluated ahead, of agents (indices in the group); return [n'], True where they upload."""
        self.active, t = active, self.done[active] + 1
        self.index, self.places = self._index(active), self._index(t - 1 - self.looked_from[active])
        contexts, means, noise = self.ragged.at(active, t)
        scored = self.scores(t, contexts)
        self._has_nan |= scored.values.isnan().any()
        arms = scored.values.argmax(dim=1)
        every = torch.arange(len(active), device=self.device)
        chosen = means[every, arms]
        rewards = chosen + noise
        at = self.index, self._index(t - 1)
        self.arms[at] = arms
        self.rewards[at] = rewards
        self.regret[at] = means.amax(dim=1) - chosen
        self.contexts[at] = contexts[every, arms]
        self.done[active] = t
        self.learn(t, contexts, arms, rewards, scored.evidence)
        self.gains[self.index] += torch.log1p(self.prospects.pull(self.index, self.places, arms, rewards))
        fired = self._find_fired()
        self._outlook_of[active[fired]] = -1
        return fired

    def _index(self, values: np.ndarray) -> Tensor:
        return put_values(values, self.device)

    @abstractmethod
    def scores(self, iteration: np.ndarray, contexts: Tensor) -> Scored:
        """Return the scores of the active agents' contexts [n', arms, dim], each in its own iteration [n']."""

    def learn(self, iteration: np.ndarray, contexts: Tensor, arms: Tensor, rewards: Tensor, evidence: Any) -> None:
        """Learn from the rewards [n']; the group itself adds the row of V-bar. Does nothing by default."""

    # Lookahead

    def look_ahead(self, agents: np.ndarray) -> None:
        """Evaluate the contexts of iterations after those that agents have finished; more at once is faster."""
        self._append_rows(agents[self.done[agents] > self.last[agents] + self.rows.lengths[agents]])
        # Agents of one version, which share a matrix, become neighbours.
        agents = agents[np.argsort(self.versions[agents], kind="stable")]
        self.looked_from[agents] = self.done[agents]
        self.looked_until[agents] = self.done[agents] + self._count_ahead(agents)
        index, outlook = self._index(agents), self._outlook(agents)
        x, base, u = (values[outlook.places].flatten(1, 2) for values in (outlook.features, outlook.base, outlook.u))
        mean = multiply(self.solutions[index][:, None], x.mT).squeeze(1)
        gram = add_product(multiply(base, x.mT), u, u.mT, scale=-1)
        self.score_ahead(outlook, index, mean, gram.diagonal(dim1=1, dim2=2).clamp(min=0))
        for part, z, coefficients in self.rows.of(agents):
            own = multiply(x[part], z.mT)
            gram[part] -= multiply(own, own.mT)
            mean[part] += multiply(own, coefficients[:, :, None]).squeeze(2)
        self.prospects.start(index, gram, mean)

    def _outlook(self, agents: np.ndarray) -> Outlook:
        """Multiply V^-1 with the contexts up to `looked_until` of agents, which are ordered by version."""
        counts = self.looked_until[agents] - self.looked_from[agents]
        more = self.replica.covariance.to_fill(self.versions[agents], counts, self.ahead.shape[2])
        owners = np.repeat(np.arange(len(agents)), counts + more)
        first = np.cumsum(counts + more) - (counts + more)
        iterations = self.looked_from[agents][owners] + 1 + np.arange(len(owners)) - first[owners]
        iterations = np.minimum(iterations, self.looked_until[agents][owners])
        contexts = self.ragged.contexts(agents[owners], iterations)
        x = self.replica.lift(contexts)
        base, u = self.replica.covariance.split_product(self.versions[agents[owners]], x)
        places = first[:, None] + np.minimum(np.arange(self.ahead.shape[1]), counts[:, None] - 1)
        outlook = Outlook(agents[owners], iterations, contexts, x, base, u, self._index(places))
        number = max(self._outlooks, default=0) + 1
        self._outlook_of[agents], self._place_in_outlook[agents] = number, np.arange(len(agents))
        needed = [one for one in np.unique(self._outlook_of).tolist() if one >= 0]
        self._outlooks = {one: self._outlooks.get(one, outlook) for one in needed}
        return outlook

    def _count_ahead(self, agents: np.ndarray) -> np.ndarray:
        """Return the expected iterations of every agent before its next download, at most those of a lookahead."""
        gone, last = self.done[agents] - self.last[agents], self.length[agents]
        likely = np.maximum(last + last // 4, gone + gone // 4 + 1) - gone
        if self._known is not None:
            likely = self._known - gone
        left = np.minimum(self.config.horizon - self.done[agents], BLOCK - self.done[agents] % BLOCK)
        return np.minimum(np.minimum(likely, self.ahead.shape[1]), left)

    def _append_rows(self, agents: np.ndarray) -> None:
        """Append the rows of the arms that agents have pulled since their last lookahead."""
        if not len(agents):
            return
        restored = agents[self._outlook_of[agents] < 0]
        if len(restored):  # A checkpoint does not contain outlooks.
            self._outlook(restored[np.argsort(self.versions[restored], kind="stable")])
        agents, x, base, u = self._gather_pulled(agents)
        start = self.last[agents] + self.rows.lengths[agents]
        counts, most = self.done[agents] - start, self.ahead.shape[1]
        index, offsets = self._index(agents), np.arange(most)
        mask = self._index((offsets < counts[:, None]).astype(np.float64)).to(self.like)
        for values in (x, base, u):
            values *= mask[:, :, None]
        solved = self.replica.covariance.join_product(self.versions[agents], base, u)
        mean = multiply(self.solutions[index][:, None], x.mT).squeeze(1)
        self.rows.correct_for_own_rows(agents, x, solved, mean)
        places = self._index(np.minimum(start[:, None] + offsets, self.config.horizon - 1))
        residuals = self.rewards[index[:, None], places] * mask - mean
        change = compute_downdate(x, solved, residuals[:, :, None])
        self.rows.append(agents, counts, change[:, :, :-1], change[:, :, -1])

    def _gather_pulled(self, agents: np.ndarray) -> tuple[np.ndarray, Tensor, Tensor, Tensor]:
        """Return agents in another order, and features, base and u of their pulled contexts ahead, [n', k, ..]."""
        parts, order = [], []
        for number in np.unique(self._outlook_of[agents]).tolist():
            outlook, some = self._outlooks[number], agents[self._outlook_of[agents] == number]
            pairs = outlook.places[self._index(self._place_in_outlook[some])]
            offsets = self.looked_from[some][:, None] + np.arange(pairs.shape[1])
            iterations = self._index(np.minimum(offsets, self.config.horizon - 1))
            arms = self.arms[self._index(some)[:, None], iterations]
            parts.append([values[pairs, arms] for values in (outlook.features, outlook.base, outlook.u)])
            order.append(some)
        x, base, u = (torch.cat(values) for values in zip(*parts, strict=True))
        return np.concatenate(order), x, base, u

    def score_ahead(self, outlook: Outlook, index: Tensor, mean: Tensor, variance: Tensor) -> None:
        """Store values for `scores` in `ahead`, given the means and variances of contexts by V, [n', contexts]."""
        raise NotImplementedError

    def _find_fired(self) -> np.ndarray:
        done, last = self.done[self.active], self.last[self.active]
        if self._known is not None:
            return done - last >= self._known
        trigger = self.replica.trigger
        return read_values(self._measure(self.active) > trigger.level)

    def _measure(self, agents: np.ndarray) -> Tensor:
        """Return the trigger's measure of some agents."""
        iteration, last = self._index(self.done[agents]), self._index(self.last[agents])
        counters: Any = RoundCounters(iteration, last, 0)  # type: ignore[arg-type]
        epoch: Any = Gains(self.gains[self._index(agents)])
        return self.replica.trigger.measure(epoch, counters)

    # Exchanges

    def steps_of(self, agent: int) -> int:
        """Return the steps of the training before an agent's next upload."""
        return 0

    def train(self, agents: np.ndarray) -> None:
        """Train agents (indices in the group) before they upload. Does nothing by default."""

    def uploads(self, agents: np.ndarray) -> list[Upload]:
        """Return the uploads of agents: W_new, B_new, and the algorithm's further fields."""
        measures, counts = self._measure(agents)[:, None], self.done[agents] - self.last[agents]
        # In tiles of one size: the last bits of a row must not depend on the number of rows.
        tiles = -(-counts // TILE)
        owners, first = np.repeat(np.arange(len(agents)), tiles), np.cumsum(tiles) - tiles
        offsets = (np.arange(len(owners)) - first[owners])[:, None] * TILE + np.arange(TILE)
        iterations = self._index(self.last[agents][owners][:, None] + np.minimum(offsets, counts[owners][:, None] - 1))
        features = self.replica.lift(self.contexts[self._index(agents[owners])[:, None], iterations]).flatten(0, 1)
        parts = [rows[:count] for rows, count in zip(features.split((tiles * TILE).tolist()), counts, strict=True)]
        return [self._upload(int(agent), *values) for agent, *values in zip(agents, measures, parts, strict=True)]

    def _upload(self, agent: int, measure: Tensor, rows: Tensor) -> Upload:
        t, last, chain = int(self.done[agent]), int(self.last[agent]), self.chains[agent]
        moments = multiply(self.rewards[agent : agent + 1, None, last:t], rows[None]).squeeze(1)
        upload = Upload(self.agents[agent : agent + 1], t, last, measure, rows[None], moments)
        return chain.send(self.complete(agent, chain.send_statistics(upload)), self._reference_theta(agent))

    def complete(self, agent: int, upload: Upload) -> Upload:
        """Return the upload with the algorithm's further fields."""
        return upload

    def _reference_theta(self, agent: int) -> Tensor | None:
        """Return theta_sync [p] as the agent has downloaded it."""
        return None

    def receive(self, agent: int, download: Download) -> None:
        """Start an agent's next epoch with the server's statistics."""
        version = download.statistics
        assert isinstance(version, StatisticsVersion)
        self.length[agent] = self.done[agent] - self.last[agent]
        self.last[agent] = self.looked_until[agent] = self.done[agent]
        self._outlook_of[agent] = -1
        self.versions[agent], self.inverse_versions[agent] = version.covariance, version.inverses
        self.solutions[agent] = version.solution
        self.gains[agent] = 0
        self.rows.reset(agent)

    def trace(self, start: int, end: int) -> Trace:
        """Return iterations start + 1 to end; alpha is [iterations, agents], as each agent has its own."""
        return self._cut_trace(start, end, self.alpha_history[:, start:end].T)

    # States

    def agent_tensors(self) -> list[str]:
        """Return names of tensors with the agents as first dimension, which a checkpoint keeps beside the histories."""
        prospects = [f"prospects.{name}" for name in ("gram", "factor", "mean", "variance")]
        return ["contexts", "solutions", "gains", "ahead", *prospects]

    def agent_numbers(self) -> list[str]:
        """Return names of numpy arrays of integers, [n], which a checkpoint keeps."""
        return ["done", "last", "versions", "inverse_versions", "looked_from", "looked_until", "length"]

    def agent_state(self, agent: int) -> State:
        """Return all of one agent that `load_agent` needs to continue with the same bits."""
        state = {name: attrgetter(name)(self)[agent] for name in self.agent_tensors()}
        state |= {name: torch.tensor(getattr(self, name)[agent]) for name in self.agent_numbers()}
        return state | self.rows.state_of(agent) | add_prefix("chain", self.chains[agent].state())

    def load_agent(self, agent: int, state: State) -> None:
        """Continue from an agent's state."""
        for name in self.agent_tensors():
            values = attrgetter(name)(self)
            values[agent] = state[name].to(values)
        for name in self.agent_numbers():
            getattr(self, name)[agent] = int(state[name])
        self.rows.load_of(agent, state)
        self.chains[agent].load(remove_prefix("chain", state))
        self._outlook_of[agent] = -1
