"""Training of agents with histories of different lengths, together: what agents do that do not wait for each other.

Histories are filled up with zeros that have no weight. To how many depends on an agent's own history alone, and an
agent that has made its steps stands still, so that nobody's bits depend on who trains beside it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from fnbandit.config import Config
from fnbandit.network import Network
from fnbandit.registry import find
from fnbandit.training import CACHE, WORSE, Adam, GradientDescent, Trained, copy_layers, rates

Rule = Callable[[Tensor], Tensor]
"""A gradient to the direction that is gone at the rate; both flat"""


def padded_lengths(lengths: np.ndarray) -> np.ndarray:
    """Observations that histories are filled up to: 16, 32, 64, ..."""
    return 16 * 2 ** np.ceil(np.log2(np.maximum(lengths, 16) / 16)).astype(np.int64)


def descent(gradient: Tensor) -> Rule:
    """Gradient descent."""
    return lambda slopes: -slopes


def adam(gradient: Tensor) -> Rule:
    """Adam: a fused step of rate 1 from 0."""
    direction, first, second = (torch.zeros_like(gradient) for _ in range(3))
    count = torch.zeros((), device=gradient.device)

    def step(slopes: Tensor) -> Tensor:
        count.add_(1)
        direction.zero_()
        torch._fused_adam_(
            [direction], [slopes], [first], [second], [], [count],
            lr=1.0, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0, amsgrad=False, maximize=False,
        )  # fmt: skip
        return direction

    return step


RULES = {GradientDescent: descent, Adam: adam}


def can_train(config: Config) -> bool:
    """Whether the optimizer is known here; a user's own is not."""
    return find("training_optimizer", config.training_optimizer) in RULES


def train_ragged(
    config: Config,
    network: Network,
    start: Tensor,
    initial: Tensor,
    x: Tensor,
    y: Tensor,
    counts: np.ndarray,
    steps: np.ndarray,
    caution: Tensor,
) -> Trained:
    """As `training.train`, for agents with counts [n] observations and steps [n] of their own.

    x [n, padded_dim, r] and y [n, r] hold 0 beyond an agent's observations.
    """
    per_agent = x.shape[2] * (x.shape[1] + 2 * config.width * config.hidden_layers) * x.itemsize
    few = max(1, CACHE // per_agent)
    # Those with as many steps together, so that few wait for others.
    order = np.argsort(-steps, kind="stable")
    trained: list[Trained] = []
    for part in np.array_split(order, -(-len(order) // few)):
        index = torch.from_numpy(part).to(x.device)
        values = (start[index], initial, x[index], y[index], counts[part], steps[part], caution[index])
        trained.append(_train(config, network, *values))
    back = torch.from_numpy(np.argsort(order, kind="stable")).to(x.device)
    return Trained(*(torch.cat(values)[back] for values in zip(*trained, strict=True)))


def _train(
    config: Config, network: Network, start: Tensor, initial: Tensor, x: Tensor, y: Tensor, counts: np.ndarray,
    steps: np.ndarray, caution: Tensor,
) -> Trained:  # fmt: skip
    n, pull = len(start), config.training_decay
    number = torch.from_numpy(counts).to(start)
    there = (torch.arange(x.shape[2], device=x.device) < number[:, None]).to(start)
    strength = config.number("regularization") if pull == "lambda" else float(pull)
    scale, decay, towards = 2 / number, strength / number, torch.zeros_like(initial)
    if config.training_loss == "paper":
        scale, decay, towards = torch.ones_like(number), torch.full_like(number, config.width * strength), initial
    weights = ((caution * scale)[:, None] * there)[:, None]
    theta, layers = network.flat(n, start)
    copy_layers(network.unpack(start), layers)
    goal, goals = network.flat(n, start)
    copy_layers(network.unpack(towards.expand_as(start)), goals)
    gradient, slopes = network.flat(n, start)
    pulls, owner = (_spread(network, values) for values in (decay, torch.arange(n, device=x.device).to(start)))
    own = owner.long()
    plan = np.zeros((int(steps.max()), n))
    for place, (count, observations) in enumerate(zip(steps, counts, strict=True)):
        plan[: int(count), place] = rates(config, int(count), int(observations))
    schedule = torch.from_numpy(plan).to(start)
    rule = RULES[find("training_optimizer", config.training_optimizer)]
    direction = rule(gradient)
    minus_y, workspace = -y[:, None], network.workspace(x)
    losses = start.new_zeros(2, n)
    last = torch.from_numpy(steps - 1)
    for step in range(len(plan)):
        residual = network.descend(layers, slopes, x, minus_y, weights, keep=0.0, add=1.0, workspace=workspace)
        if step == 0 or bool((last == step).any()):
            loss = (residual[:, 0].square() * there).sum(1) / number
            if step == 0:
                losses[0] = loss
            losses[1] = torch.where((last == step).to(loss.device), loss, losses[1])
        gradient.addcmul_(theta - goal, pulls)
        theta.addcmul_(direction(gradient), schedule[step].index_select(0, own))
    result = network.pack(layers)
    if rule is adam:
        # Adam heeds no gradient's size: a cautious agent goes a part of the way.
        result = torch.where(caution[:, None] == 1, result, start + caution[:, None] * (result - start))
    first, loss = losses
    mean = y.square().sum(1) / number
    sane = torch.isfinite(result).all(1) & (loss <= WORSE * torch.maximum(first, mean))
    return Trained(result.where(sane[:, None], start), loss.where(sane, first), (~sane).to(loss))


def _spread(network: Network, values: Tensor) -> Tensor:
    """A number of every agent [n] for each of its parameters, flat."""
    buffer, layers = network.flat(len(values), values)
    for pair in layers:
        for tensor in pair:
            if tensor is not None:
                tensor.copy_(values[:, None, None].expand_as(tensor))
    return buffer
