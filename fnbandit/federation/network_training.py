"""Rules by which a round trains the network that the agents share (Alg. 1, line 14, and Alg. 2, line 4).

The paper averages the networks that agents have trained on their own histories (`Averaging`). The mean of networks that
have each seen little is a poor network. Gradients and Gauss-Newton matrices are sums over agents, as W and B are, so
the other rules train one network on the observations of all agents, exchange by exchange, and no agent shows any.

A rule is a generator, which `BarrierServer` runs: it yields what it asks of the agents, receives the sums of their
uploads by field of `Upload`, and returns the new network.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fnbandit.config import Config
from fnbandit.config.registry import build, resolve_part
from fnbandit.core import Content, Triangle
from fnbandit.covariance.gram import pack_triangle, symmetric
from fnbandit.federation.aggregation import Aggregation, make_aggregation
from fnbandit.networks.ragged import RAGGED_RULES
from fnbandit.networks.training import WORSE, loss_factors, rates
from fnbandit.numerics.device import read_scalars
from fnbandit.numerics.state import State

DAMPING = 0.003
"""First damping of a Gauss-Newton step, relative to an observation's share of the curvature of unit features"""
EASE, TIGHTEN = 0.2, 2.0
"""Smallest factor of the damping after a step that reduced the loss; factor after the first one that did not, which
doubles with each further one"""
LEAST_OF_SUMS = 16
"""Smallest number of observations of all participants from which gradients, or federation=exact, train a network"""
LARGEST_CURVATURE = 2048
"""Most parameters of a network that federation=exact trains by curvature, whose messages grow with their square"""
CONVERGED = 1e-3
"""A step that reduces the loss by a smaller share is the last one"""
TYPICAL_STEPS = 5.5
"""Gauss-Newton steps in a round, on average over runs of the built-in tasks"""


class Ask(NamedTuple):
    """The next exchange of a round: parameters that agents receive, and the content of their uploads."""

    theta: Tensor
    content: Content
    place: int = 0
    """Number, among the exchanges of this training so far, of the one whose sums it goes on from"""


@dataclass(frozen=True)
class TrainingTask:
    """The start of a round's training."""

    theta: Tensor
    """[p]; predicts rewards in their unit"""
    initial: Tensor
    """theta_0 [p]"""
    totals: dict[str, Any]
    """Sums of the first uploads of the round"""
    steps: int
    """J"""
    iteration: int
    observations: int
    """Number of observations of all participants"""
    factor: float
    """Observations for each one in the sample"""
    has_trained: bool
    """True where agents have trained, or train now, for this round"""
    has_full_matrices: bool
    """False where messages must not grow with the square of the parameters"""


@dataclass(frozen=True)
class TrainedNetwork:
    """The result of a round's training."""

    theta: Tensor
    """[p]"""
    squares: float = math.nan
    """Sum of squared errors on the sample, where it is known"""
    steps: int = 0
    """Number of exchanges that trained the network"""
    curvature: Triangle | None = None
    """Sum over the sample of g g^T at theta, where it is known"""
    moments: Tensor | None = None
    """Sum over the sample of (y - f) g at theta, [p], where it is known"""
    place: int = 0
    """Number of the exchange that these sums come from"""


Training = Generator[Ask, dict[str, Any], TrainedNetwork]


class NetworkTraining:
    """Base class: `train` runs the exchanges of one round."""

    trains_locally = False
    """True where every agent trains a network of its own before it uploads"""
    is_linear = True
    """True where the server needs sums over agents only"""
    gradient_rule: Aggregation | None = None
    """Rule that combines the agents' mean gradients; None for their sum"""
    least_observations = 1
    """Smallest number of observations of all participants with which a network is trained"""

    def __init__(self, config: Config) -> None:
        self._config = config

    def train(self, task: TrainingTask) -> Training:
        """Train from `task.theta`: yield the next exchange, receive its sums, return the new network."""
        raise NotImplementedError

    def expect_exchanges(self, steps: float, has_full_matrices: bool, parameters: int) -> tuple[Content, float]:
        """Return the content of the exchanges that `train` asks for, and about how many a training of J steps has."""
        return "gradient", steps

    def state(self) -> State:
        """Return all that `load` needs to continue with the same bits after a round."""
        return {}

    def load(self, state: State) -> None:
        """Continue from a `state`."""


def count_networks(config: Config) -> int:
    """Return the networks in the first message of a round: 1 where agents train their own, else 0."""
    return int(resolve_part("federation", config.federation).trains_locally)


class GradientSums(NetworkTraining):
    """J steps of the optimiser at the server, each on a sum of the agents' gradients.

    A first fit to fewer observations leads to a poor network, which later steps do not leave.
    """

    least_observations = LEAST_OF_SUMS

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        optimizer = resolve_part("training_optimizer", config.training_optimizer)
        if optimizer not in RAGGED_RULES:
            raise ValueError(
                f"training_optimizer={config.training_optimizer!r}: federation={config.federation} accepts adam, gd"
            )
        self._optimizer = RAGGED_RULES[optimizer]
        self.gradient_rule = build("aggregation", config.aggregation, config)

    def train(self, task: TrainingTask) -> Training:
        scale, decay = loss_factors(self._config, task.observations)
        towards = task.initial if self._config.training_loss == "paper" else torch.zeros_like(task.theta)
        theta, gradient = task.theta.clone(), torch.empty_like(task.theta)
        direction = self._optimizer(gradient, task.steps)
        losses: list[Tensor] = []
        for step, rate in enumerate(rates(self._config, task.steps, task.iteration)):
            totals = yield Ask(theta.clone(), "gradient")
            losses += [totals["squares"]] if "squares" in totals else []  # with privacy agents do not tell their errors
            gradient.copy_(totals["moments"]).mul_(-scale * task.factor).add_(theta - towards, alpha=decay)
            theta.add_(direction(step), alpha=rate)
        if not losses:
            is_finite = math.isfinite(read_scalars(theta.abs().amax())[0])
            return TrainedNetwork(theta if is_finite else task.theta, steps=task.steps)
        first, squares, largest = read_scalars(losses[0], losses[-1], theta.abs().amax())
        is_sane = math.isfinite(largest) and squares <= WORSE * max(first, task.observations / task.factor)
        return TrainedNetwork(theta if is_sane else task.theta, squares, task.steps)


class GaussNewton(NetworkTraining):
    """Levenberg-Marquardt steps at the server, on the sums of the agents' gradients and of g g^T.

    With A = sum g g^T and b = sum (y - f) g at theta, a step solves (scale A + (decay + mu) I) step = scale b -
    decay (theta - towards). Where it reduces the loss, mu follows the reduction's share of the one that the quadratic
    model expects (Nielsen 1999); otherwise the server goes back and increases mu.
    """

    def train(self, task: TrainingTask) -> Training:
        scale, decay = loss_factors(self._config, task.observations)
        weight, mu = scale * task.factor, DAMPING * scale * task.observations
        towards = task.initial.double() if self._config.training_loss == "paper" else 0.0
        theta = task.theta
        totals = yield Ask(theta, "curvature")
        curvature, moments = _receive(totals)
        squares, distance = read_scalars(totals["squares"], _square_distance(theta, towards))
        loss = _loss(squares, distance, weight, decay)
        steps, tighten, place = self._config.newton_steps, TIGHTEN, 0
        for step in range(1, steps + 1):
            damped = weight * curvature
            damped.diagonal().add_(decay + mu)
            right = weight * moments - decay * (theta.double() - towards)
            factor = torch.linalg.cholesky_ex(damped).L
            change = torch.cholesky_solve(right[:, None], factor)[:, 0]
            candidate = (theta.double() + change).to(theta)
            expected = 0.5 * (change * (mu * change + right)).sum()
            totals = yield Ask(candidate, "curvature", place)
            found = _receive(totals)
            new_squares, distance, reduction = read_scalars(
                totals["squares"], _square_distance(candidate, towards), expected
            )
            new = _loss(new_squares, distance, weight, decay)
            if not new < loss:
                mu, tighten = mu * tighten, 2 * tighten
                continue
            gain = min(1.0, (loss - new) / reduction)
            mu, tighten = mu * max(EASE, 1 - (2 * gain - 1) ** 3), TIGHTEN
            is_converged = loss - new < CONVERGED * loss
            theta, loss, squares, place, (curvature, moments) = candidate, new, new_squares, step, found
            if is_converged:
                steps = step
                break
        return TrainedNetwork(theta, squares, steps + 1, Triangle(pack_triangle(curvature)), moments, place)

    def expect_exchanges(self, steps: float, has_full_matrices: bool, parameters: int) -> tuple[Content, float]:
        return "curvature", 1 + min(TYPICAL_STEPS, self._config.newton_steps)


class ExactFederation(NetworkTraining):
    """Gauss-Newton steps from `least_observations` on; gradients with diagonal matrices and for large networks, because
    messages of gradients have p numbers.

    J steps on gradients in the first rounds, instead, take fifty times more exchanges, and the networks that follow
    from them are no better.
    """

    least_observations = LEAST_OF_SUMS

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._gradients, self._newton = GradientSums(config), GaussNewton(config)

    def train(self, task: TrainingTask) -> Training:
        return (yield from self._choose(task.has_full_matrices, task.theta.numel()).train(task))

    def expect_exchanges(self, steps: float, has_full_matrices: bool, parameters: int) -> tuple[Content, float]:
        return self._choose(has_full_matrices, parameters).expect_exchanges(steps, has_full_matrices, parameters)

    def _choose(self, has_full_matrices: bool, parameters: int) -> NetworkTraining:
        return self._newton if has_full_matrices and parameters <= LARGEST_CURVATURE else self._gradients


class Averaging(NetworkTraining):
    """The average of the networks that agents train on their own histories (the paper), `averagings` times a round."""

    trains_locally = True

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._rule = make_aggregation(config)
        self.is_linear = self._rule.linear

    def train(self, task: TrainingTask) -> Training:
        theta, totals = task.theta, task.totals
        for exchange in range(self._config.averagings if task.has_trained else 1):
            if exchange:
                totals = yield Ask(theta, "network")
            theta = self._rule(totals["theta"], theta)
        return TrainedNetwork(theta)

    def expect_exchanges(self, steps: float, has_full_matrices: bool, parameters: int) -> tuple[Content, float]:
        return "network", self._config.averagings - 1

    def state(self) -> State:
        return self._rule.state()

    def load(self, state: State) -> None:
        self._rule.load(state)


def _receive(totals: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Return A [p, p] and b [p] of an exchange, in double precision."""
    triangle, moments = totals["covariance"].values, totals["moments"].double()
    return symmetric(triangle, len(moments)), moments


def _square_distance(theta: Tensor, towards: Tensor | float) -> Tensor:
    """Return ||theta - towards||^2 in double precision."""
    return (theta.double() - towards).square().sum()


def _loss(squares: float, distance: float, weight: float, decay: float) -> float:
    """Return the loss that `networks.training.Task` defines; infinity where it is NaN."""
    loss = 0.5 * weight * squares + 0.5 * decay * distance
    return loss if math.isfinite(loss) else math.inf
