"""Training on an agent's own history (Alg. 1, line 14), all agents of a batch at once, without autograd."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fnbandit.config import Config
from fnbandit.config.registry import build
from fnbandit.environments import Environment
from fnbandit.networks.network import Layers, Network
from fnbandit.numerics.memory import Memory, precisions
from fnbandit.numerics.products import WORKSPACE, multiply

CACHE = 6_000_000
"""Bytes of activations that a CPU computes at once, at most: more do not fit its caches"""
MATURE = 8
"""Number of first rounds in which `train_debiased` replaces `train`, after epochs of several iterations"""
WORSE = 100.0
"""A training has diverged where its loss exceeds this factor times both the first loss and the rewards' mean square"""


class Trained(NamedTuple):
    """Result of training for n agents."""

    theta: Tensor
    """[n, p]"""
    loss: Tensor
    """Mean squared error before the last step, [n]"""
    diverged: Tensor
    """1 for agents whose training diverged, 0 for others, [n]; the theta of the former is that of the start"""


@dataclass(frozen=True)
class Task:
    """The loss of n agents: scale / 2 * sum (f - y)^2 + decay / 2 * ||theta - towards||^2."""

    config: Config
    """For optimisers whose step depends on a field of their own"""
    network: Network
    x: Tensor
    """Inputs [n, padded_dim, t]"""
    minus_y: Tensor
    """Negative rewards, [n, 1, t]"""
    scale: float
    decay: float
    towards: Tensor | None
    """theta_0 [1, p]; None is 0"""
    caution: Tensor
    """Factor of the gradients, [n, 1, 1]: 1, halved after every divergence"""


class GradientDescent:
    """theta <- theta - rate * gradient"""

    def __init__(self, task: Task, start: Tensor) -> None:
        self._task = task
        self._layers = task.network.unpack(start)
        self._towards = None if task.towards is None else task.network.unpack(task.towards)
        self._workspace = task.network.workspace(task.x)

    def step(self, rate: float) -> Tensor:
        """Make one step; return the residuals before it, [n, 1, t]."""
        task = self._task
        residual = task.network.descend(
            self._layers, self._layers, task.x, task.minus_y, task.caution,
            keep=1 - rate * task.decay, add=-rate * task.scale, workspace=self._workspace,
        )  # fmt: skip
        if self._towards is not None:
            for layer, towards in zip(self._layers, self._towards, strict=True):
                for values, goal in zip(layer, towards, strict=True):
                    if values is not None and goal is not None:
                        values += goal * (rate * task.decay)
        return residual

    def theta(self) -> Tensor:
        """Return the parameters after the steps so far, [n, p]."""
        return self._task.network.pack(self._layers)


class Adam:
    """Adam (Kingma and Ba 2015) as in torch.optim.Adam; its moments start from zero in each training.

    All agents' parameters are one flat buffer, which one fused call per step updates.
    """

    def __init__(self, task: Task, start: Tensor) -> None:
        network, n = task.network, len(start)
        self._task, self._start = task, start
        self._theta, self._layers = network.flat(n, start)
        copy_layers(network.unpack(start), self._layers)
        self._gradient, self._slopes = network.flat(n, start)
        self._moments = torch.zeros_like(self._theta), torch.zeros_like(self._theta)
        self._towards, self._decay = None, task.decay
        if task.towards is not None:
            self._decay = 0.0
            self._towards, layers = network.flat(n, start)
            copy_layers(network.unpack(task.towards.expand_as(start)), layers)
        self._steps = torch.zeros((), device=start.device)
        self._workspace = network.workspace(task.x)

    def step(self, rate: float) -> Tensor:
        """Make one step; return the residuals before it, [n, 1, t]."""
        task = self._task
        residual = task.network.descend(
            self._layers, self._slopes, task.x, task.minus_y, task.caution,
            keep=0.0, add=task.scale, workspace=self._workspace,
        )  # fmt: skip
        if self._towards is not None:
            # The difference first: it is 0 where theta did not move, and Adam turns any rounding error into a step.
            self._gradient.add_(self._theta - self._towards, alpha=task.decay)
        self._steps += 1
        torch._fused_adam_(
            [self._theta], [self._gradient], [self._moments[0]], [self._moments[1]], [], [self._steps],
            lr=rate, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=self._decay, amsgrad=False, maximize=False,
        )  # fmt: skip
        return residual

    def theta(self) -> Tensor:
        """Return the parameters after the steps so far, [n, p].

        Adam is invariant to the scale of gradients, so caution scales the change of the parameters instead.
        """
        theta, caution = self._task.network.pack(self._layers), self._task.caution[:, :, 0]
        return torch.where(caution == 1, theta, self._start + caution * (theta - self._start))


def copy_layers(source: Layers, target: Layers) -> None:
    """Copy all weights and biases."""
    for values, places in zip(source, target, strict=True):
        for value, place in zip(values, places, strict=True):
            if value is not None and place is not None:
                place.copy_(value)


def train(
    config: Config,
    network: Network,
    start: Tensor,
    initial: Tensor,
    x: Tensor,
    y: Tensor,
    steps: int,
    caution: Tensor | None = None,
) -> Trained:
    """Train from `start` [n, p], at least one step, on inputs x [n, padded_dim, t] and rewards y [n, t].

    `config.training_loss` selects the loss:

    paper  0.5 sum (f - y)^2 + 0.5 m lambda ||theta - theta_0||^2              (Eq. 1)
    mean   mean (f - y)^2 + 0.5 (lambda / t) ||theta||^2                       (App. E)

    `training_decay` replaces lambda where it is a number. An agent whose training diverges goes back to `start`;
    `caution` [n] is the factor of its gradients. An agent that has seen no reward but 0 also keeps `start`, where the
    optimizer is Adam: its steps do not depend on the size of gradients, so that decay alone would lead to a network
    whose units are inactive for ever.
    """
    caution = start.new_ones(len(start)) if caution is None else caution
    at_once = len(x)
    if x.device.type == "cpu":
        per_agent = x.shape[2] * (x.shape[1] + 2 * config.width * config.hidden_layers) * x.itemsize
        at_once = max(1, CACHE // per_agent)
    parts = zip(start.split(at_once), x.split(at_once), y.split(at_once), caution.split(at_once), strict=True)
    trained = [_train(config, network, *part, initial, steps) for part in parts]
    return Trained(*(torch.cat(values) for values in zip(*trained, strict=True)))


def train_debiased(
    config: Config, network: Network, start: Tensor, initial: Tensor, x: Tensor, y: Tensor, steps: int, caution: Tensor
) -> Trained:
    """Apply `train`, and reduce the bias that short histories cause in the mean over agents.

    A network that fits few observations moves less than it would on all agents' observations together, and so does the
    mean of such networks. An agent therefore also trains on n of its t observations, spread evenly, and returns
        (theta_i - r theta_i^r) / (1 - r),  r = n / t,
    which removes the part of the bias that shrinks as 1 / t (Zhang et al. 2013), and is theta_i where both agree. It
    increases the variance of theta_i, and so is used in the first rounds only, where the bias matters more.
    """
    whole = train(config, network, start, initial, x, y, steps, caution)
    count = x.shape[2]
    subsample = int(config.training_subsample * count)
    if not subsample:
        return whole
    index = torch.arange(subsample, device=x.device) * count // subsample
    part = train(config, network, start, initial, x[:, :, index], y[:, index], steps, caution)
    share = subsample / count
    theta = (whole.theta - share * part.theta) / (1 - share)
    sane = (whole.diverged + part.diverged == 0)[:, None]
    return whole._replace(theta=theta.where(sane, whole.theta))


def _train(
    config: Config, network: Network, start: Tensor, x: Tensor, y: Tensor, caution: Tensor, initial: Tensor, steps: int
) -> Trained:
    count = x.shape[2]
    scale, decay = loss_factors(config, count)
    towards = initial[None] if config.training_loss == "paper" else None
    if count == 1:
        # Use one observation twice, at half its weight: a trailing dimension of one has other last bits.
        x, y, scale = x.expand(-1, -1, 2), y.expand(-1, 2), scale / 2
    task = Task(config, network, x, -y[:, None], scale, decay, towards, caution[:, None, None])
    optimizer = build("training_optimizer", config.training_optimizer, task, start)
    losses = []
    for step, rate in enumerate(rates(config, steps, count)):
        residual = optimizer.step(rate)
        if step in (0, steps - 1):
            losses.append(mean_square(residual))
    first, loss = losses[0], losses[-1]
    theta = optimizer.theta()
    sane = torch.isfinite(theta).all(1) & (loss <= WORSE * torch.maximum(first, y.square().mean(1)))
    moves = sane if config.training_optimizer != "adam" else sane & (y != 0).any(1)
    return Trained(theta.where(moves[:, None], start), loss.where(moves, first), (~sane).to(loss))


def loss_factors(config: Config, observations: int) -> tuple[float, float]:
    """Return `scale` and `decay` of a `Task` with a number of observations."""
    pull = config.number("regularization") if config.training_decay == "lambda" else float(config.training_decay)
    return (1.0, config.width * pull) if config.training_loss == "paper" else (2.0 / observations, pull / observations)


def mean_square(residual: Tensor) -> Tensor:
    """Return the mean square of residuals [n, 1, t] for each agent, [n]."""
    return multiply(residual, residual.mT).flatten() / residual.shape[2]


def rates(config: Config, steps: int, observations: int) -> list[float]:
    """Return the rate of every step of a training on a number of observations: constant, or falling linearly to 0."""
    rate = first_rate(config, observations)
    if config.training_schedule == "linear":
        return [rate * (1 - k / steps) for k in range(steps)]
    return [rate] * steps


def first_rate(config: Config, observations: int) -> float:
    """Return the rate of the first step of a training on a number of observations."""
    rate = config.number("training_rate")
    return rate / math.sqrt(1 + observations / config.training_fade) if config.training_fade else rate


def steps_due(config: Config, last_trained: int, iteration: int) -> int:
    """Return J, the steps of a training in iteration t, where u is the iteration of the last training (0: none).

    training_steps=auto: C log(t / u) steps, so that effort follows the number of new observations, however frequent
    rounds are. At most, and in the first training, `training_cap` steps; none while fewer than `training_least` are
    due, which then add up: Adam's first steps from zero moments are all as long as the rate, and disturb a converged
    network. J depends on counts only, and so is the same for all agents in every layout.
    """
    if config.training_steps != "auto":
        return int(config.number("training_steps"))
    if not last_trained:
        return config.training_cap
    due = int(config.training_effort * math.log(iteration / last_trained))
    return min(config.training_cap, due) if due >= config.training_least else 0


def estimate_training_memory(config: Config, environment: Environment) -> Memory:
    """Return the memory of an agent's history and network for training, and of the work space of a process."""
    network, single = Network(config, environment.dim), precisions(config)[1]
    numbers = config.horizon * (network.padded_dim + 1) + 6 * network.parameter_count
    return Memory(numbers * single, 3 * CACHE + 4 * WORKSPACE)
