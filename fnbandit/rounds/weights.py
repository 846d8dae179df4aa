"""The sequences of alpha, the weight of UCB^b against UCB^a (Sec. 3.3)."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from fnbandit.config import Config
from fnbandit.covariance import Covariance, Lift
from fnbandit.environments import Environment
from fnbandit.memory import Memory, precisions
from fnbandit.registry import made
from fnbandit.rounds.triggers import Moment
from fnbandit.slices import few_at_once
from fnbandit.state import State


class Weight:
    """The protocol, one object per group of agents; what is here holds for weights that agents need not compute."""

    numbers = 1
    """How many numbers alpha_i takes in an upload"""
    analysed = False
    """Whether it is the one that Theorem 1 and App. F are on"""
    compares = False
    """Whether it asks how well both means predict rewards: `observe`"""
    last_global = math.inf
    """The last iteration in which UCB^a counts: afterwards alpha is 1 for good"""

    def __init__(self, config: Config) -> None:
        self._config = config

    def at(self, iteration: int, last_round: int, broadcast: Tensor | float) -> Tensor | float:
        """alpha in an iteration, given the iteration of the last round and the alpha it broadcast."""
        raise NotImplementedError

    def start(self, environment: Environment, lift: Lift, local: Covariance, agents: int, like: Tensor) -> None:
        """Called once, with the agents' local covariances as they begin."""

    def receive(self, iteration: int, contexts: Tensor) -> None:
        """The contexts of an iteration, [n, arms, dim]."""

    def absorbed(self, local: Covariance, change: Tensor) -> None:
        """The local covariances have changed, as `Covariance.absorb` says."""

    def observe(self, from_global: Tensor, from_local: Tensor, rewards: Tensor) -> None:
        """What both means said of the pulled arms before their rewards were seen, each [n]; not before a training."""

    def observe_all(self, said: Tensor, rewards: Tensor) -> None:
        """The same of all k iterations before an upload: both means [n, k, 2] and rewards [n, k]."""

    def rewind(self, length: int) -> None:
        """Forget all but the first iterations of the present epoch."""

    def upload(self) -> Tensor | None:
        """alpha_i of every agent, [n] (Alg. 1, line 15)."""
        return None

    def combine(self, weights: Tensor, moment: Moment | None = None) -> Tensor:
        """What the server broadcasts for all agents' alpha_i, [N]: the least (Alg. 2, line 5).

        `moment` is the round's or, where agents exchange one by one, that agent's.
        """
        return weights.min()

    def memory(self, environment: Environment) -> Memory:
        """Bytes that it takes."""
        return Memory(0)

    def state(self) -> State:
        """What `load` needs; every tensor's first dimension is the agents."""
        return {}

    def load(self, state: State) -> None:
        """Take over another copy's `state`."""


class Ramp(Weight):
    """Rises linearly from 0 in the first iteration to 1 after `ramp` iterations (Sec. 5)."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.last_global = config.ramp

    def at(self, iteration: int, last_round: int, broadcast: Tensor | float) -> Tensor | float:
        return min(1.0, (iteration - 1) / self._config.ramp)


class Earned(Weight):
    """The ramp, held back while networks know less than UCB^a does.

    Every agent keeps discounted sums of the squared errors that the two means make on the rewards of the arms it
    pulls, before it sees them: e_a of UCB^a's, e_b of the network's. It uploads both; the server averages them, and
        alpha = min(1, (t - 1) / ramp) * min(1, 2 (e_a / e_b)^2):
    a network counts in full once its squared error is at most sqrt(2) times the other's. These errors are of the
    network that the round replaces, on arms that UCB^a has chosen, whose rewards are much alike. After an epoch of
    several iterations they say little: the new network may be much better, and a young one looks better than it is.
    There the last factor is kept between 1/2, where a network that knows nothing does little harm, and the larger of
    1/2 and r / 5 in the r-th round. alpha is 0 before the first round (Alg. 1, line 1), and stays on its device.
    """

    numbers = 2
    compares = True
    discount = 0.9
    """By which an error counts less with every iteration"""
    margin = 2.0
    half = 0.5
    grown = 5
    """Rounds, after epochs of several iterations, before networks may count in full"""

    def at(self, iteration: int, last_round: int, broadcast: Tensor | float) -> Tensor | float:
        return broadcast * min(1.0, (iteration - 1) / self._config.ramp)

    def start(self, environment: Environment, lift: Lift, local: Covariance, agents: int, like: Tensor) -> None:
        self._errors = like.new_zeros(agents, 2)
        """e_a and e_b up to the last round"""
        self._recent: list[Tensor] = []
        """Squared errors of the iterations since, [agents, 2] each"""

    def observe(self, from_global: Tensor, from_local: Tensor, rewards: Tensor) -> None:
        self._recent.append((torch.stack([from_global, from_local], dim=1) - rewards[:, None]).square())

    def observe_all(self, said: Tensor, rewards: Tensor) -> None:
        count = said.shape[1]
        factors = self.discount ** torch.arange(count - 1, -1, -1, dtype=said.dtype, device=said.device)
        squares = (said - rewards[:, :, None]).square_().mul_(factors[:, None])
        self._errors = self.discount**count * self._errors + squares.sum(1)

    def rewind(self, length: int) -> None:
        del self._recent[length:]

    def upload(self) -> Tensor:
        for errors in self._recent:
            self._errors = self.discount * self._errors + errors
        self._recent = []
        return self._errors

    def combine(self, weights: Tensor, moment: Moment | None = None) -> Tensor:
        """2 (e_a / e_b)^2 of the means over agents, for weights [N, 2], within its bounds."""
        from_global, from_local = weights.mean(0)
        ratio = from_global / from_local.clamp(min=torch.finfo(weights.dtype).tiny)
        low, high = 0.0, 1.0
        if moment is not None and moment.iteration > moment.last_round + 1:
            low, high = self.half, min(1.0, max(self.half, (moment.rounds + 1) / self.grown))
        return (self.margin * ratio.square()).clamp(min=low, max=high)

    def state(self) -> State:
        return {"errors": self._errors}

    def load(self, state: State) -> None:
        self._errors = state["errors"].to(self._errors)
        self._recent = []


class Constant(Weight):
    """`weight_value`, always."""

    def at(self, iteration: int, last_round: int, broadcast: Tensor | float) -> Tensor | float:
        return self._config.weight_value


class Only(Weight):
    """One of the two bounds alone: alpha is 0 (UCB^a) or 1 (UCB^b) for ever (Fig. 1c)."""

    def __init__(self, config: Config, value: float) -> None:
        super().__init__(config)
        self._value = value
        self.last_global = 0 if value else math.inf

    def at(self, iteration: int, last_round: int, broadcast: Tensor | float) -> Tensor | float:
        return self._value


class DomainRatio(Weight):
    """alpha_{t,i} = sigma_min / sigma_max over the domain (Sec. 3.3; Alg. 1, line 15).

    The domain contains all contexts that are ever received. It is seen on `domain_sample` of its points, the same for
    all agents, and on the contexts that the agent itself has received: those of every s-th iteration, from the
    first on, with the least s = `stride` for which they are at most `received_sample` over the horizon (s = 1 takes
    all). sigma^2 / lambda = g^T V_local^-1 g of every such point is kept for every agent, and brought up to date in
    each round by what the local inverses have lost, instead of a p x p product per point; features of received
    contexts are computed anew, a few agents' at a time, because they take much more memory than the contexts.
    alpha is 0 before the first round (Alg. 1, line 1), and stays on its device.
    """

    analysed = True

    def at(self, iteration: int, last_round: int, broadcast: Tensor | float) -> Tensor | float:
        return broadcast

    def start(self, environment: Environment, lift: Lift, local: Covariance, agents: int, like: Tensor) -> None:
        self._lift = lift
        self._stride = stride(self._config, environment.arms)
        domain = torch.from_numpy(environment.domain(self._config.domain_sample)).to(like)
        self._points = lift(domain[None])[0]
        """Features [points, p]"""
        self._variances = local.quadratic(self._points.expand(agents, -1, -1))
        """sigma^2 / lambda of the domain's points, [agents, points]"""
        self._contexts = like.new_empty(agents, 0, environment.dim)
        """Contexts received up to the last round, [agents, r, dim]"""
        self._received = like.new_empty(agents, 0)
        """sigma^2 / lambda of them, [agents, r]"""
        self._recent: list[Tensor] = []
        """Of the iterations since, [agents, arms or 0, dim] each"""

    def receive(self, iteration: int, contexts: Tensor) -> None:
        kept = self._stride and (iteration - 1) % self._stride == 0
        # A copy: a view would hold all of the stream's block.
        self._recent.append(contexts.clone() if kept else self._contexts[:, :0])

    def rewind(self, length: int) -> None:
        del self._recent[length:]

    def absorbed(self, local: Covariance, change: Tensor) -> None:
        self._variances = local.reduced(self._variances, change, self._points)
        for few in self._few(self._contexts):
            x = self._lift(self._contexts[few])
            self._received[few] = local.reduced(self._received[few], change[few], x)
        new = torch.cat([self._contexts[:, :0], *self._recent], dim=1)
        self._recent = []
        if not new.shape[1]:
            return
        variances = [local.some(few).quadratic(self._lift(new[few])) for few in self._few(new)]
        self._contexts = torch.cat([self._contexts, new], dim=1)
        self._received = torch.cat([self._received, torch.cat(variances)], dim=1)

    def _few(self, contexts: Tensor) -> Iterator[slice]:
        """Agents whose contexts' features fit the work space; nobody where there are no contexts."""
        count = contexts.shape[1]
        return few_at_once(len(contexts) if count else 0, max(1, count) * self._points.shape[1], contexts)

    def upload(self) -> Tensor:
        low, high = torch.cat([self._variances, self._received], dim=1).clamp_(min=0).aminmax(dim=1)
        return (low / high.where(high > 0, 1)).sqrt()

    def memory(self, environment: Environment) -> Memory:
        received = self._config.horizon * environment.arms // max(1, stride(self._config, environment.arms))
        return Memory((received * (environment.dim + 1) + self._config.domain_sample) * precisions(self._config)[0])

    def state(self) -> State:
        return {"variances": self._variances, "contexts": self._contexts, "received": self._received}

    def load(self, state: State) -> None:
        self._variances = state["variances"].to(self._variances)
        self._contexts = state["contexts"].to(self._contexts)
        self._received = state["received"].to(self._received, copy=True)
        self._recent = []


def stride(config: Config, arms: int) -> int:
    """Every how many iterations weight=theory keeps the contexts received; 0: never.

    The least s with arms * ceil(T / s) <= `received_sample`.
    """
    iterations = config.received_sample // arms
    return -(-config.horizon // iterations) if iterations else 0


def make_weight(config: Config) -> Weight:
    """The weight that a config of FN-UCB asks for."""
    if not (config.use_global and config.use_local):
        return Only(config, value=1.0 if config.use_local else 0.0)
    return made("weight", config.weight, config)
