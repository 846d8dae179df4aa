"""Agents that do not wait for each other: each acts on its own last download, and is in an iteration of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fnbandit.algorithms.base import Group, Trace
from fnbandit.config import Config
from fnbandit.covariance.full import change_of
from fnbandit.covariance.prospects import OwnRows, Prospects, iterations_ahead
from fnbandit.environments import Environment
from fnbandit.environments.ragged import RaggedStream
from fnbandit.memory import Memory, precisions
from fnbandit.randomness import BLOCK
from fnbandit.rounds.exchange import AgentUpload, Download, Statistics
from fnbandit.rounds.triggers import Moment
from fnbandit.slices import TILE
from fnbandit.state import State

OWN_ROWS = 128
"""Rows between two exchanges that memory is reckoned with"""


class Outlook(NamedTuple):
    """What agents see that look ahead, of m pairs of an agent and an iteration."""

    agents: np.ndarray
    """[m], as indices in the group"""
    iterations: np.ndarray
    """[m]"""
    contexts: Tensor
    """[m, arms, dim]"""
    features: Tensor
    """[m, arms, p]"""
    met: Tensor
    u: Tensor
    """What V's version has made of them (`Versions.meet`)"""
    places: Tensor
    """Each agent's pairs [n', iterations]; where it looks at fewer iterations, its last one's"""


@dataclass(frozen=True)
class Gains:
    """The part of an epoch that triggers for single agents look at."""

    values: Tensor

    def gain(self) -> Tensor:
        return self.values


class AsynchronousGroup(Group):
    """n agents; a step is one iteration of the active ones, each in its own iteration.

    An agent looks at several iterations at once (`look_ahead`), and an algorithm keeps in `ahead` what it makes of
    them with what has been downloaded (`score_ahead`). `scores` and `learn` see the active agents only: iterations
    [n'], contexts [n', arms, dim].
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
        most = iterations_ahead(environment.arms)
        self.prospects = Prospects(n, most, environment.arms, self.like)
        self.ahead = self.like.new_zeros(n, most, environment.arms)
        """What an algorithm makes of each context by what was downloaded alone"""
        self._outlooks: dict[int, Outlook] = {}
        """What agents have seen that may still need it, by number"""
        self._outlook_of, self._place_in_outlook = np.full(n, -1), np.zeros(n, dtype=np.int64)
        """In which of these every agent has seen what is ahead of it (-1: in none), and as which of its agents"""
        self.looked_from = np.zeros(n, dtype=np.int64)
        """Iterations that every agent had finished when it looked ahead"""
        self.looked_until = np.zeros(n, dtype=np.int64)
        """The last iteration that it has looked at"""
        self.length = np.ones(n, dtype=np.int64)
        """Iterations between its last two exchanges"""
        self.active = np.arange(n)
        self.index = self.places = self._index(self.active)
        """The active agents, and where their iterations stand among those that they have looked at"""
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
        seen = iterations_ahead(environment.arms) * environment.arms
        looking = seen * (5 * p + p // 2 + 2 * seen)
        return super().memory(config, environment) + Memory((own + base + looking) * real, 4 * p * p * real)

    # One iteration

    def advance_active(self, active: np.ndarray) -> np.ndarray:
        """One iteration of agents (indices in the group) that have looked at it; who must upload, [n'] of bool."""
        self.active, t = active, self.done[active] + 1
        self.index, self.places = self._index(active), self._index(t - 1 - self.looked_from[active])
        contexts, means, noise = self.ragged.at(active, t)
        scored = self.scores(t, contexts)
        self._lost |= scored.values.isnan().any()
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
        fired = self._fired()
        self._outlook_of[active[fired]] = -1
        return fired

    def _index(self, values: np.ndarray) -> Tensor:
        return torch.from_numpy(values).to(self.device)

    def learn(self, iteration: Any, contexts: Tensor, arms: Tensor, rewards: Tensor, evidence: Any) -> None:
        """Nothing but the row of V-bar, which every algorithm adds."""

    # Looking ahead

    def look_ahead(self, agents: np.ndarray) -> None:
        """Let agents look at iterations after those that they have finished; the more at once, the faster."""
        self._settle(agents[self.done[agents] > self.last[agents] + self.rows.lengths[agents]])
        # Those that work with the same matrix side by side.
        agents = agents[np.argsort(self.versions[agents], kind="stable")]
        self.looked_from[agents] = self.done[agents]
        self.looked_until[agents] = self.done[agents] + self._count_ahead(agents)
        index, outlook = self._index(agents), self._outlook(agents)
        x, met, u = (values[outlook.places].flatten(1, 2) for values in (outlook.features, outlook.met, outlook.u))
        mean = torch.bmm(self.solutions[index][:, None], x.mT).squeeze(1)
        gram = torch.baddbmm(torch.bmm(met, x.mT), u, u.mT, alpha=-1)
        self.score_ahead(outlook, index, mean, gram.diagonal(dim1=1, dim2=2).clamp(min=0))
        for few, z, coefficients in self.rows.of(agents):
            own = torch.bmm(x[few], z.mT)
            gram[few] -= torch.bmm(own, own.mT)
            mean[few] += torch.bmm(own, coefficients[:, :, None].expand(-1, -1, 2))[:, :, 0]
        self.prospects.start(index, gram, mean)

    def _outlook(self, agents: np.ndarray) -> Outlook:
        """Meet V with all contexts that agents, ordered by version, have decided to look at."""
        counts = self.looked_until[agents] - self.looked_from[agents]
        more = self.statistics.covariance.to_fill(self.versions[agents], counts, self.ahead.shape[2])
        who = np.repeat(np.arange(len(agents)), counts + more)
        first = np.cumsum(counts + more) - (counts + more)
        iterations = self.looked_from[agents][who] + 1 + np.arange(len(who)) - first[who]
        iterations = np.minimum(iterations, self.looked_until[agents][who])
        contexts = self.ragged.contexts(agents[who], iterations)
        x = self.statistics.lift(contexts)
        met, u = self.statistics.covariance.meet(self.versions[agents[who]], x)
        places = first[:, None] + np.minimum(np.arange(self.ahead.shape[1]), counts[:, None] - 1)
        outlook = Outlook(agents[who], iterations, contexts, x, met, u, self._index(places))
        number = max(self._outlooks, default=0) + 1
        self._outlook_of[agents], self._place_in_outlook[agents] = number, np.arange(len(agents))
        needed = [one for one in np.unique(self._outlook_of).tolist() if one >= 0]
        self._outlooks = {one: self._outlooks.get(one, outlook) for one in needed}
        return outlook

    def _count_ahead(self, agents: np.ndarray) -> np.ndarray:
        """As many iterations as an agent is likely to have before it downloads anew."""
        gone, last = self.done[agents] - self.last[agents], self.length[agents]
        likely = np.maximum(last + last // 4, gone + gone // 4 + 1) - gone
        if self._known is not None:
            likely = self._known - gone
        left = np.minimum(self.config.horizon - self.done[agents], BLOCK - self.done[agents] % BLOCK)
        return np.minimum(np.minimum(likely, self.ahead.shape[1]), left)

    def _settle(self, agents: np.ndarray) -> None:
        """Make the rows of the arms that agents have pulled since they looked ahead last."""
        if not len(agents):
            return
        unseen = agents[self._outlook_of[agents] < 0]
        if len(unseen):  # They come from a checkpoint.
            self._outlook(unseen[np.argsort(self.versions[unseen], kind="stable")])
        agents, x, met, u = self._pulled(agents)
        start = self.last[agents] + self.rows.lengths[agents]
        counts, most = self.done[agents] - start, self.ahead.shape[1]
        index, offsets = self._index(agents), np.arange(most)
        there = self._index((offsets < counts[:, None]).astype(np.float64)).to(self.like)
        for values in (x, met, u):
            values *= there[:, :, None]
        solved = self.statistics.covariance.product(self.versions[agents], met, u)
        mean = torch.bmm(self.solutions[index][:, None], x.mT).squeeze(1)
        self.rows.solved(agents, x, solved, mean)
        places = self._index(np.minimum(start[:, None] + offsets, self.config.horizon - 1))
        surprise = self.rewards[index[:, None], places] * there - mean
        change = change_of(x, solved, surprise[:, :, None])
        self.rows.append(agents, counts, change[:, :, :-1], change[:, :, -1])

    def _pulled(self, agents: np.ndarray) -> tuple[np.ndarray, Tensor, Tensor, Tensor]:
        """Agents in another order, and what V made of the contexts that they pulled of those seen, [n', k, ..]."""
        parts, order = [], []
        for number in np.unique(self._outlook_of[agents]).tolist():
            outlook, some = self._outlooks[number], agents[self._outlook_of[agents] == number]
            pairs = outlook.places[self._index(self._place_in_outlook[some])]
            offsets = self.looked_from[some][:, None] + np.arange(pairs.shape[1])
            iterations = self._index(np.minimum(offsets, self.config.horizon - 1))
            arms = self.arms[self._index(some)[:, None], iterations]
            parts.append([values[pairs, arms] for values in (outlook.features, outlook.met, outlook.u)])
            order.append(some)
        x, met, u = (torch.cat(values) for values in zip(*parts, strict=True))
        return np.concatenate(order), x, met, u

    def score_ahead(self, outlook: Outlook, index: Tensor, mean: Tensor, variance: Tensor) -> None:
        """Keep of what agents see what `scores` will need in `ahead`; means and variances [n', contexts] in V."""
        raise NotImplementedError

    def _fired(self) -> np.ndarray:
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

    def uploads(self, agents: np.ndarray) -> list[AgentUpload]:
        """What agents send: W_new and B_new, and what an algorithm adds."""
        measures, counts = self._measure(agents).tolist(), self.done[agents] - self.last[agents]
        # In tiles of one size: a row's last bits must not depend on how many there are.
        tiles = -(-counts // TILE)
        who, first = np.repeat(np.arange(len(agents)), tiles), np.cumsum(tiles) - tiles
        offsets = (np.arange(len(who)) - first[who])[:, None] * TILE + np.arange(TILE)
        iterations = self._index(self.last[agents][who][:, None] + np.minimum(offsets, counts[who][:, None] - 1))
        features = self.statistics.lift(self.contexts[self._index(agents[who])[:, None], iterations]).flatten(0, 1)
        parts = [rows[:count] for rows, count in zip(features.split((tiles * TILE).tolist()), counts, strict=True)]
        return [self._upload(int(agent), *values) for agent, *values in zip(agents, measures, parts, strict=True)]

    def _upload(self, agent: int, measure: float, rows: Tensor) -> AgentUpload:
        t, last, channel = int(self.done[agent]), int(self.last[agent]), self.statistics.channel
        who = self.agents[agent : agent + 1]
        moments = torch.bmm(self.rewards[agent : agent + 1, None, last:t], rows[None]).squeeze(1)
        sent = AgentUpload(measure, channel.rows(who, t, rows[None])[0], channel.moments(who, t, moments)[0])
        return self.complete(agent, sent)

    def complete(self, agent: int, upload: AgentUpload) -> AgentUpload:
        """An upload with what an algorithm sends beside W_new and B_new."""
        return upload

    def receive(self, agent: int, download: Download) -> None:
        """Begin anew with the server's statistics."""
        self.length[agent] = self.done[agent] - self.last[agent]
        self.last[agent] = self.looked_until[agent] = self.done[agent]
        self._outlook_of[agent] = -1
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
        prospects = [f"prospects.{name}" for name in ("gram", "factor", "mean", "variance")]
        return ["arms", "rewards", "regret", "weights", "contexts", "solutions", "gains", "ahead", *prospects]

    def agent_numbers(self) -> list[str]:
        """The same, whole numbers that live in numpy."""
        return ["done", "last", "versions", "inverse_versions", "looked_from", "looked_until", "length"]

    def agent_state(self, agent: int) -> State:
        """Everything of one agent that `load_agent` needs to go on with the same bits."""
        state = {name: attrgetter(name)(self)[agent] for name in self.agent_tensors()}
        state |= {name: torch.tensor(getattr(self, name)[agent]) for name in self.agent_numbers()}
        return state | self.rows.state_of(agent)

    def load_agent(self, agent: int, state: State) -> None:
        """Take over an agent's state."""
        for name in self.agent_tensors():
            values = attrgetter(name)(self)
            values[agent] = state[name].to(values)
        for name in self.agent_numbers():
            getattr(self, name)[agent] = int(state[name])
        self.rows.load_of(agent, state)
        self._outlook_of[agent] = -1
