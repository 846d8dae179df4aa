"""The sequences of alpha, the weight of UCB^b against UCB^a (Sec. 3.3)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fnbandit.config import Config
from fnbandit.covariance import Covariance, Lift
from fnbandit.environments import Environment
from fnbandit.registry import find
from fnbandit.state import State


class Weight:
    """The protocol, one object per group of agents; what is here holds for weights that agents need not compute."""

    last_global = math.inf
    """The last iteration in which UCB^a counts: afterwards alpha is 1 for good"""

    def __init__(self, config: Config) -> None:
        self._config = config

    def at(self, iteration: int, last_round: int, broadcast: Tensor | float) -> Tensor | float:
        """alpha in an iteration, given the iteration of the last round and the alpha it broadcast."""
        raise NotImplementedError

    def start(self, environment: Environment, lift: Lift, local: Covariance, agents: int, like: Tensor) -> None:
        """Called once, with the agents' local covariances as they begin."""

    def absorbed(self, local: Covariance, change: Tensor) -> None:
        """The local covariances have changed, as `Covariance.absorb` says."""

    def upload(self) -> Tensor | None:
        """alpha_i of every agent, [n] (Alg. 1, line 15); the server broadcasts the least (Alg. 2, line 5)."""
        return None

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
    """alpha_{t,i} = sigma_min / sigma_max over (a sample of) the domain (Alg. 1, line 15).

    Keeps sigma^2 of every point for every agent, and brings it up to date with each change of the local
    inverses instead of a p x p product per point. alpha is 0 before the first round (Alg. 1, line 1), and
    stays on its device.
    """

    def at(self, iteration: int, last_round: int, broadcast: Tensor | float) -> Tensor | float:
        return broadcast

    def start(self, environment: Environment, lift: Lift, local: Covariance, agents: int, like: Tensor) -> None:
        domain = torch.from_numpy(environment.domain(self._config.domain_sample)).to(like)
        self._points = lift(domain[None])[0]
        """Features [points, p]"""
        self._variances = local.quadratic(self._points.expand(agents, -1, -1))
        """sigma^2 / lambda, [agents, points]"""

    def absorbed(self, local: Covariance, change: Tensor) -> None:
        self._variances = local.reduced(self._variances, change, self._points)

    def upload(self) -> Tensor:
        low, high = self._variances.clamp(min=0).aminmax(dim=1)
        return (low / high.where(high > 0, 1)).sqrt()

    def state(self) -> State:
        return {"variances": self._variances}

    def load(self, state: State) -> None:
        self._variances = state["variances"].to(self._variances)


def make_weight(config: Config) -> Weight:
    """The weight that a config of FN-UCB asks for."""
    if not (config.use_global and config.use_local):
        return Only(config, value=1.0 if config.use_local else 0.0)
    return find("weight", config.weight)(config)
