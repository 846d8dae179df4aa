"""Local gradient descent on an agent's own history (Alg. 1, line 14), all agents of a group at once."""

from __future__ import annotations

import torch
from torch import Tensor

from fnbandit.config import Config
from fnbandit.environments import Environment
from fnbandit.memory import Memory, precisions
from fnbandit.network import Network
from fnbandit.slices import WORKSPACE

CACHE = 6_000_000
"""Bytes of activations that are worked on at once on a CPU: more fall out of its caches."""


def train(
    config: Config, network: Network, start: Tensor, initial: Tensor, x: Tensor, y: Tensor
) -> tuple[Tensor, Tensor]:
    """J gradient steps from `start` [n, p] on a history of inputs x [n, padded_dim, t] and rewards y [n, t].

    paper  0.5 sum (f - y)^2 + 0.5 m lambda ||theta - theta_0||^2              (Eq. 1)
    mean   mean (f - y)^2 + 0.5 (lambda / t) ||theta||^2                       (App. E)

    Returns theta [n, p] and the mean squared error before the last step, [n]: NaN where training has diverged,
    which `check_converged` tells once it is on the host.
    """
    at_once = len(x)
    if x.device.type == "cpu":
        per_agent = x.shape[2] * (x.shape[1] + 2 * config.width * config.hidden_layers) * x.itemsize
        at_once = max(1, CACHE // per_agent)
    parts = zip(start.split(at_once), x.split(at_once), y.split(at_once), strict=True)
    trained = [_train(config, network, *part, initial) for part in parts]
    theta, loss = (torch.cat(values) for values in zip(*trained, strict=True))
    return theta, loss.where(torch.isfinite(theta).all(1) & torch.isfinite(loss), torch.nan)


def training_memory(config: Config, environment: Environment) -> Memory:
    """What an agent's history and network take for training, and the work space of a process."""
    network, single = Network(config, environment.dim), precisions(config)[1]
    numbers = config.horizon * (network.padded_dim + 1) + 6 * network.parameter_count
    return Memory(numbers * single, 3 * CACHE + 4 * WORKSPACE)


def check_converged(config: Config, loss: float, iteration: int) -> None:
    """Raise where `train` has returned a NaN."""
    if loss != loss:
        rate = config.number("training_rate")
        raise ValueError(f"training_rate={rate!r}: training diverged at iteration {iteration}; try a smaller rate")


def _train(
    config: Config, network: Network, start: Tensor, x: Tensor, y: Tensor, initial: Tensor
) -> tuple[Tensor, Tensor]:
    regularization = config.number("regularization")
    count = x.shape[2]
    if config.training_loss == "paper":
        scale, decay = 1.0, config.width * regularization
    else:
        scale, decay = 2.0 / count, regularization / count
    rate = config.number("training_rate")
    if count == 1:
        # One observation twice, at half its weight: a trailing dimension of one has other last bits.
        x, y, scale = x.expand(-1, -1, 2), y.expand(-1, 2), scale / 2
    minus_y = -y[:, None]
    layers = network.unpack(start)
    pull = network.unpack(initial[None] * (rate * decay)) if config.training_loss == "paper" else []
    residual, workspace = None, network.workspace(x)
    for _ in range(int(config.number("training_steps"))):
        # theta <- theta - rate * (scale * gradient + decay * (theta - theta_0 or 0))
        residual = network.descend(layers, x, minus_y, keep=1 - rate * decay, rate=rate * scale, workspace=workspace)
        for layer, towards in zip(layers, pull, strict=False):
            for values, initial_values in zip(layer, towards, strict=True):
                if values is not None and initial_values is not None:
                    values += initial_values
    theta = network.pack(layers)
    if residual is None:
        residual = (network.predict(theta, x[:, : network.inputs_dim]) - y)[:, None]
    return theta, torch.bmm(residual, residual.mT).flatten() / residual.shape[2]
