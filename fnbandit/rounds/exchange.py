"""One agent at a time: what it uploads, what the server makes of it, and what the agent hears."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from fnbandit.config import Config
from fnbandit.covariance import Lift
from fnbandit.covariance.full import CHUNK, change_of
from fnbandit.covariance.versions import Versions
from fnbandit.registry import made
from fnbandit.rounds.common import Common
from fnbandit.rounds.messages import Contents, Cost
from fnbandit.rounds.triggers import Moment
from fnbandit.rounds.weights import make_weight
from fnbandit.state import State, prefixed, unprefixed


@dataclass(frozen=True)
class AgentUpload:
    """What one agent sends, with k observations since its last exchange."""

    measure: float
    """What the trigger compares with its level"""
    news: Tensor
    """W_new: its rows [k, p]"""
    moments: Tensor
    """B_new [p]"""
    theta: Tensor | None = None
    """theta_i [p]"""
    weight: Tensor | None = None
    """alpha_i, a number, or [r] where it is made of several"""
    change: Tensor | None = None
    """What V_local^-1 has lost, as rows [k, p]"""
    trained: bool = False
    """Whether theta_i has been trained for this upload"""
    report: dict[str, float] = field(default_factory=dict)
    """Quantities for the record (see `results.QUANTITIES`)"""


@dataclass(frozen=True)
class Download:
    """What the server's statistics are when it answers an agent; matrices as versions."""

    agent: int
    version: int
    """Of V"""
    solution: Tensor
    """V^-1 B [p]"""
    theta: Tensor | None = None
    """The averaged network [p]"""
    weight: Tensor | float = 0.0
    """alpha"""
    inverses: int = 0
    """The version of the sum of what local inverses have lost"""
    uploaders: int = 0
    """Agents in the averages: those that have ever uploaded"""
    trained: bool = False
    """Whether any network in the average has been trained"""


class Statistics(Common):
    """V^-1 and what local inverses have lost in sum, at every version; and the parts that exchanges are made of.

    One per process: its agents share it, and in one process the server too.
    """

    def __init__(
        self,
        config: Config,
        lift: Lift,
        parameters: int,
        like: Tensor,
        contents: tuple[Contents, Contents],
        theta: Tensor | None = None,
    ) -> None:
        super().__init__(config, lift, parameters, *contents)
        self.parameters, self.like = parameters, like
        self.covariance = Versions(parameters, like, 1 / config.number("regularization"), -1.0)
        """V^-1, V = lambda I + W"""
        self.inverses = None if theta is None else Versions(parameters, like, 0.0, 1.0)
        """sum of I / lambda - V_local^-1 over agents, where there are networks"""
        self.theta_0 = theta
        """[p], in the network's precision, where there are networks"""

    def cost(self, rows: int, news: int) -> Cost:
        """Of an exchange in which an agent sends `rows` rows and hears of `news`."""
        up, down = self.channel.up(self._up, rows), self.channel.down(self._down, rows, news)
        return Cost(1, 1, up.numbers, down.numbers, up.bytes, down.bytes)

    def keep(self, versions: np.ndarray, inverses: np.ndarray) -> None:
        """Forget what nobody works with any more."""
        self.covariance.keep(versions)
        if self.inverses is not None:
            self.inverses.keep(inverses)

    def state(self) -> State:
        """Everything that `load` needs to go on with the same bits."""
        state = prefixed("covariance", self.covariance.state())
        return state if self.inverses is None else state | prefixed("inverses", self.inverses.state())

    def load(self, state: State) -> None:
        """Take over another copy's `state`."""
        self.covariance.load(unprefixed("covariance", state))
        if self.inverses is not None:
            self.inverses.load(unprefixed("inverses", state))


class ExchangeServer:
    """Takes in one agent's upload after another, and answers each with the statistics as they are then.

    It adds W_new and B_new. In its averages, over the agents that have ever uploaded, it replaces the agent's network,
    weighted by w(staleness), and lets the agent's local inverse lose w(staleness) times what it has lost since the
    agent's last upload. Of the alphas that it has it makes one, as synchronous rounds do.
    """

    def __init__(self, config: Config, statistics: Statistics) -> None:
        self.statistics = statistics
        self._weigh = made("staleness", config.staleness, config)
        self._weight = make_weight(config)
        n, like = config.agents, statistics.like
        self.exchanges = 0
        self.heard = np.zeros(n, dtype=np.int64)
        """Exchanges up to every agent's last one"""
        self._counts = np.zeros(n, dtype=np.int64)
        """Exchanges of every agent"""
        self.sum_of_moments = like.new_zeros(statistics.parameters)
        """B [p]"""
        self._shares = torch.zeros(n, dtype=torch.float64)
        """Weights of the agents' networks; 0: has never uploaded"""
        self._trained = False
        self.theta = statistics.theta_0
        """The averaged network [p]"""
        if self.theta is not None:
            self._thetas = self.theta.new_zeros(n, len(self.theta))
            numbers = self._weight.numbers
            self._alphas = like.new_zeros(n) if numbers == 1 else like.new_zeros(n, numbers)

    def staleness(self, agent: int) -> int:
        """Others' exchanges since the agent's last one."""
        return int(self.exchanges - self.heard[agent])

    def take(self, agent: int, upload: AgentUpload, iteration: int, last: int) -> Download:
        """Take in an agent's upload of an iteration, its last exchange having been in another; the answer."""
        moment = Moment(iteration, last, int(self._counts[agent]))
        self._counts[agent] += 1
        weight = self._weigh(self.staleness(agent))
        self.exchanges += 1
        self.heard[agent] = self.exchanges
        solution = self._absorb(upload.news[None], upload.moments)
        version, inverses = self.statistics.covariance.latest, self.statistics.inverses
        if inverses is None or upload.theta is None or upload.change is None or self.theta is None:
            return Download(agent, version, solution)
        inverses.append(upload.change * weight**0.5)
        self._shares[agent] = weight
        self._thetas[agent] = upload.theta
        self._trained |= upload.trained
        shares = self._shares.to(self._thetas)
        self.theta = torch.mv(self._thetas.mT, shares) / shares.sum()
        there = np.flatnonzero(self.heard)
        alpha: Tensor | float = 0.0
        if upload.weight is not None:
            self._alphas[agent] = upload.weight
            alpha = self._weight.combine(self._alphas[torch.from_numpy(there)], moment)
        return Download(agent, version, solution, self.theta, alpha, inverses.latest, len(there), self._trained)

    def _absorb(self, rows: Tensor, moments: Tensor) -> Tensor:
        """V <- V + G^T G for rows [1, k, p], B <- B + moments; V^-1 B [p]."""
        self.sum_of_moments = self.sum_of_moments + moments
        covariance, right = self.statistics.covariance, self.sum_of_moments[None, None]
        solution = None
        for part in rows.split(CHUNK, dim=1):
            both = part if solution is not None else torch.cat([part, right], dim=1)
            solved = covariance.solve_latest(both[0])[None]
            if solution is None:
                solved, solution = solved[:, :-1], solved[:, -1:]
            change = change_of(part, solved)
            covariance.append(change[0])
            solution = solution - torch.bmm(torch.bmm(right, change.mT), change)
        assert solution is not None
        return solution[0, 0]

    def state(self) -> State:
        """Everything but the statistics that `load` needs to go on with the same bits."""
        state = {
            "exchanges": torch.tensor(self.exchanges),
            "heard": torch.from_numpy(self.heard),
            "counts": torch.from_numpy(self._counts),
            "sum_of_moments": self.sum_of_moments,
            "shares": self._shares,
            "trained": torch.tensor(self._trained),
        }
        if self.theta is not None:
            state |= {"theta": self.theta, "thetas": self._thetas, "alphas": self._alphas}
        return state

    def load(self, state: State) -> None:
        """Take over another copy's `state`; the statistics are loaded apart, with the versions that agents hold."""
        self.exchanges, self._trained = int(state["exchanges"]), bool(state["trained"])
        self.heard = state["heard"].numpy().copy()
        self._counts = state["counts"].numpy().copy()
        self.sum_of_moments = state["sum_of_moments"].to(self.sum_of_moments)
        self._shares = state["shares"].clone()
        if self.theta is not None:
            self.theta = state["theta"].to(self.theta)
            self._thetas = state["thetas"].to(self._thetas, copy=True)
            self._alphas = state["alphas"].to(self._alphas, copy=True)
