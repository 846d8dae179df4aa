"""Local gradient descent on an agent's own history (Alg. 1, line 14), all agents of a group at once."""

from __future__ import annotations

import torch
from torch import Tensor

from fnbandit.config import Config
from fnbandit.network import Network


def train(
    config: Config, network: Network, start: Tensor, initial: Tensor, x: Tensor, y: Tensor
) -> tuple[Tensor, Tensor]:
    """J gradient steps from `start` [n, p] on inputs x [n, d, t] and rewards y [n, t].

    paper  0.5 sum (f - y)^2 + 0.5 m lambda ||theta - theta_0||^2              (Eq. 1)
    mean   mean (f - y)^2 + 0.5 (lambda / t) ||theta||^2                       (App. E)

    Returns theta [n, p] and the mean squared error before the last step, [n].
    """
    regularization = config.number("regularization")
    count = x.shape[2]
    if config.training_loss == "paper":
        scale, decay, anchor = 1.0, config.width * regularization, initial
    else:
        scale, decay, anchor = 2.0 / count, regularization / count, torch.zeros_like(initial)
    rate = config.number("training_rate")
    theta = start.clone()
    gradient = torch.empty_like(theta)
    layers, blocks = network.layers(theta, len(theta)), network.layers(gradient, len(theta))
    residual = None
    for _ in range(int(config.number("training_steps"))):
        residual = network.gradient(layers, x, y, out=blocks)
        # theta <- theta - rate * (scale * gradient + decay * (theta - anchor))
        theta.lerp_(anchor, rate * decay).sub_(gradient, alpha=rate * scale)
    if residual is None:
        residual = network.predict(theta, x) - y
    loss = torch.bmm(residual[:, None], residual[:, :, None]).flatten() / count
    if not bool(torch.isfinite(loss).all() & torch.isfinite(theta).all()):
        raise ValueError(f"training_rate={rate!r}: training diverged at {count} observations; try a smaller rate")
    return theta, loss
