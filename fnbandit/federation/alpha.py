"""Rules for alpha, the weight of UCB^b against UCB^a (Sec. 3.3)."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from fnbandit.config import Config
from fnbandit.config.registry import build
from fnbandit.covariance import Covariance, Lift
from fnbandit.environments import Environment
from fnbandit.federation.triggers import RoundCounters
from fnbandit.numerics.device import put_values
from fnbandit.numerics.memory import Memory, precisions
from fnbandit.numerics.products import chunks
from fnbandit.numerics.state import State

HUGE = 1e9
"""Errors that an attacker uploads"""


class AlphaRule:
    """Base class, one object per group of agents; its defaults suit rules by which agents compute no alpha_i."""

    numbers = 1
    """Number of numbers that make up alpha_i in an upload"""
    covered_by_theorem = False
    """True for the rule that Theorem 1 and App. F analyse"""
    needs_prediction_errors = False
    """True where `observe` needs the predictions of both means"""
    last_global = math.inf
    """Last iteration with alpha < 1; UCB^a has no weight after it"""

    def __init__(self, config: Config) -> None:
        self._config = config

    def at(self, iteration: int, last_round: int, broadcast: Tensor | float) -> Tensor | float:
        """Return alpha in an iteration, given the iteration of the last round and the alpha that it broadcast."""
        raise NotImplementedError

    def start(self, environment: Environment, lift: Lift, local: Covariance, agents: int, like: Tensor) -> None:
        """Allocate the state of n = `agents` agents, whose initial local covariances are `local`. Called once."""

    def receive(self, iteration: int, contexts: Tensor) -> None:
        """Receive the contexts of an iteration, [n, arms, dim]."""

    def update_uncertainties(self, local: Covariance, change: Tensor) -> None:
        """Apply a change of the local covariances, as `Covariance.absorb` returns it."""

    def observe(self, from_global: Tensor, from_local: Tensor, rewards: Tensor) -> None:
        """Compare both means of the pulled arms, computed before the pull, with the rewards, each [n].

        Called only after the first training.
        """

    def observe_all(self, means: Tensor, rewards: Tensor) -> None:
        """Call `observe` for all k iterations before an upload at once: both means [n, k, 2] and rewards [n, k]."""

    def rewind(self, length: int) -> None:
        """Drop all but the first `length` iterations of the present epoch."""

    def upload(self) -> Tensor | None:
        """Return alpha_i of every agent, [n] or [n, numbers] (Alg. 1, line 15); None where agents compute none."""
        return None

    def combine(self, alphas: Tensor, counters: RoundCounters | None = None) -> Tensor:
        """Return the alpha that the server broadcasts: the least of all alpha_i, [N] (Alg. 2, line 4).

        `counters` are those of the round or, in a one-agent round, of that agent.
        """
        return alphas.min()

    def argue_for(self, value: float, alphas: Tensor) -> Tensor:
        """Return uploads, in place of honest ones [n, ..], that make `combine` return a value, 0 or 1, if they can."""
        return torch.full_like(alphas, value)

    def memory(self, environment: Environment) -> Memory:
        """Return the bytes of an agent's state."""
        return Memory(0)

    def state(self) -> State:
        """Return all that `load` needs; the first dimension of every tensor is the agents."""
        return {}

    def load(self, state: State) -> None:
        """Continue from a `state`."""


class Ramp(AlphaRule):
    """alpha rises linearly from 0 in the first iteration to 1 after `ramp` iterations (Sec. 5)."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.last_global = config.ramp

    def at(self, iteration: int, last_round: int, broadcast: Tensor | float) -> Tensor | float:
        return min(1.0, (iteration - 1) / self._config.ramp)


class ErrorGatedRamp(AlphaRule):
    """The ramp, scaled down while the network predicts rewards worse than the mean of UCB^a.

    Every agent keeps discounted sums of the squared errors with which both means predict the rewards of the arms that
    it pulls: e_a for UCB^a, e_b for the network. It uploads both; the server averages them, and
        alpha = min(1, (t - 1) / ramp) * min(1, 2 (e_a / e_b)^2):
    a network has full weight once its squared error is at most sqrt(2) times the other. The errors are those of the
    network that the round replaces, on arms that UCB^a has chosen, whose rewards are similar. After an epoch of
    several iterations they are poor evidence: the new network may be much better, and the errors of a network that
    has few observations underestimate its true error. After such an epoch the last factor stays between 1/2, with
    which an untrained network does little harm, and the larger of 1/2 and r / 5 in the r-th round. alpha is 0 before
    the first round (Alg. 1, line 1), and stays on its device.
    """

    numbers = 2
    needs_prediction_errors = True
    discount = 0.9
    """Factor by which the weight of an error shrinks in every iteration"""
    margin = 2.0
    """Factor of (e_a / e_b)^2"""
    half = 0.5
    """Least factor after epochs of several iterations"""
    grown = 5
    """Rounds before networks may have full weight after epochs of several iterations"""

    def at(self, iteration: int, last_round: int, broadcast: Tensor | float) -> Tensor | float:
        return broadcast * min(1.0, (iteration - 1) / self._config.ramp)

    def start(self, environment: Environment, lift: Lift, local: Covariance, agents: int, like: Tensor) -> None:
        self._errors = like.new_zeros(agents, 2)
        """e_a and e_b up to the last round"""
        self._recent: list[Tensor] = []
        """Squared errors of every iteration since the last round, [agents, 2] each"""

    def observe(self, from_global: Tensor, from_local: Tensor, rewards: Tensor) -> None:
        self._recent.append((torch.stack([from_global, from_local], dim=1) - rewards[:, None]).square())

    def observe_all(self, means: Tensor, rewards: Tensor) -> None:
        count = means.shape[1]
        factors = self.discount ** torch.arange(count - 1, -1, -1, dtype=means.dtype, device=means.device)
        squares = (means - rewards[:, :, None]).square_().mul_(factors[:, None])
        self._errors = self.discount**count * self._errors + squares.sum(1)

    def rewind(self, length: int) -> None:
        del self._recent[length:]

    def upload(self) -> Tensor:
        for errors in self._recent:
            self._errors = self.discount * self._errors + errors
        self._recent = []
        return self._errors

    def combine(self, alphas: Tensor, counters: RoundCounters | None = None) -> Tensor:
        """Return 2 (e_a / e_b)^2 of the means over agents of alphas [N, 2], clamped to its bounds."""
        from_global, from_local = alphas.mean(0)
        ratio = from_global / from_local.clamp(min=torch.finfo(alphas.dtype).tiny)
        low, high = 0.0, 1.0
        if counters is not None and counters.iteration > counters.last_round + 1:
            low, high = self.half, min(1.0, max(self.half, (counters.rounds + 1) / self.grown))
        return (self.margin * ratio.square()).clamp(min=low, max=high)

    def argue_for(self, value: float, alphas: Tensor) -> Tensor:
        """Return huge errors of the mean that alpha should not trust, and none of the other."""
        errors = torch.zeros_like(alphas)
        errors[:, 0 if value else 1] = HUGE
        return errors

    def state(self) -> State:
        return {"errors": self._errors}

    def load(self, state: State) -> None:
        self._errors = state["errors"].to(self._errors)
        self._recent = []


class Constant(AlphaRule):
    """alpha = `weight_value` in every iteration."""

    def at(self, iteration: int, last_round: int, broadcast: Tensor | float) -> Tensor | float:
        return self._config.weight_value


class SingleBound(AlphaRule):
    """One of the two bounds alone: alpha is 0 (UCB^a) or 1 (UCB^b) in every iteration (Fig. 1c)."""

    def __init__(self, config: Config, value: float) -> None:
        super().__init__(config)
        self._value = value
        self.last_global = 0 if value else math.inf

    def at(self, iteration: int, last_round: int, broadcast: Tensor | float) -> Tensor | float:
        return self._value


class DomainRatio(AlphaRule):
    """alpha_{t,i} = sigma_min / sigma_max over the domain (Sec. 3.3; Alg. 1, line 15).

    The domain contains all contexts that agents can receive. It is sampled by `domain_sample` of its points, the same
    for all agents, and by contexts that the agent has received: those of every s-th iteration, from the first on, with
    the least s = `stride` for which they are at most `received_sample` over the horizon (s = 1 keeps all).
    sigma^2 / lambda = g^T V_local^-1 g of every such point is kept for every agent. A round updates it by the downdate
    of the local inverse, which avoids a p x p product per point. Features of received contexts are recomputed, in
    chunks of agents, because they take much more memory than the contexts.
    alpha is 0 before the first round (Alg. 1, line 1), and stays on its device.
    """

    covered_by_theorem = True

    def at(self, iteration: int, last_round: int, broadcast: Tensor | float) -> Tensor | float:
        return broadcast

    def start(self, environment: Environment, lift: Lift, local: Covariance, agents: int, like: Tensor) -> None:
        self._lift = lift
        self._stride = stride(self._config, environment.arms)
        domain = put_values(environment.domain(self._config.domain_sample), like.device, like.dtype)
        self._points = lift(domain[None])[0]
        """Features [points, p]"""
        self._variances = local.quadratic(self._points.expand(agents, -1, -1))
        """sigma^2 / lambda of the domain's points, [agents, points]"""
        self._contexts = like.new_empty(agents, 0, environment.dim)
        """Contexts received up to the last round, [agents, r, dim]"""
        self._received = like.new_empty(agents, 0)
        """sigma^2 / lambda of `_contexts`, [agents, r]"""
        self._recent: list[Tensor] = []
        """Contexts of every iteration since the last round, [agents, arms or 0, dim] each"""

    def receive(self, iteration: int, contexts: Tensor) -> None:
        kept = self._stride and (iteration - 1) % self._stride == 0
        # A copy: a view would keep the stream's whole block in memory.
        self._recent.append(contexts.clone() if kept else self._contexts[:, :0])

    def rewind(self, length: int) -> None:
        del self._recent[length:]

    def update_uncertainties(self, local: Covariance, change: Tensor) -> None:
        self._variances = local.reduce_variances(self._variances, change, self._points)
        for part in self._chunks(self._contexts):
            x = self._lift(self._contexts[part])
            self._received[part] = local.reduce_variances(self._received[part], change[part], x)
        new = torch.cat([self._contexts[:, :0], *self._recent], dim=1)
        self._recent = []
        if not new.shape[1]:
            return
        variances = [local.subset(part).quadratic(self._lift(new[part])) for part in self._chunks(new)]
        self._contexts = torch.cat([self._contexts, new], dim=1)
        self._received = torch.cat([self._received, torch.cat(variances)], dim=1)

    def _chunks(self, contexts: Tensor) -> Iterator[slice]:
        """Yield slices of agents whose contexts' features fit the work space; none where there are no contexts."""
        count = contexts.shape[1]
        return chunks(len(contexts) if count else 0, max(1, count) * self._points.shape[1], contexts)

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
    """Return the stride s with which weight=theory keeps the contexts of every s-th iteration; 0: of none.

    It is the least s with arms * ceil(T / s) <= `received_sample`.
    """
    iterations = config.received_sample // arms
    return -(-config.horizon // iterations) if iterations else 0


def make_alpha(config: Config) -> AlphaRule:
    """Make the rule that a config of FN-UCB names."""
    if not (config.use_global and config.use_local):
        return SingleBound(config, value=1.0 if config.use_local else 0.0)
    return build("weight", config.weight, config)
