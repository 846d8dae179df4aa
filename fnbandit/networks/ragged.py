"""Joint training of agents with histories of different lengths, for agents that do not wait for each other.

Histories are padded with zeros, for which a network's output and residual are 0. The padded length depends on an
agent's own history alone, and the rate of an agent that finished its steps is 0, so an agent's bits do not depend on
the agents that train with it. Few agents train at once, so the fixed cost of a step dominates: biases are weights here
(`Network.whole`), and elementwise operations run over one buffer. Such a network is positively homogeneous in its
inputs, so the factor of an agent's gradient is multiplied into its history beforehand: its square root into the
residuals, and its square root into the activations that they are multiplied by.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from fnbandit.config import Config
from fnbandit.config.registry import resolve_part
from fnbandit.networks.network import Network
from fnbandit.networks.training import CACHE, WORSE, Adam, GradientDescent, Trained, first_rate, loss_factors
from fnbandit.numerics.device import put_values
from fnbandit.numerics.products import add_product, multiply

THROUGH_RELU = torch.ops.aten.threshold_backward.grad_input

Rule = Callable[[int], Tensor]
"""Maps a step's index to a flat update direction, which it computes from the current gradient buffer"""


def pad_lengths(lengths: np.ndarray) -> np.ndarray:
    """Return the padded lengths of histories: 32, 64, 128, 192, 256, 384, 512, ...

    With fewer lengths more agents train together; with more lengths there is less padding, which matters for long
    histories.
    """
    least = 32 * 2 ** np.ceil(np.log2(np.maximum(lengths, 32) / 32)).astype(np.int64)
    return np.where((lengths <= least * 3 // 4) & (least > 128), least * 3 // 4, least)


def descent(gradient: Tensor, steps: int) -> Rule:
    """Return the rule of gradient descent."""
    return lambda step: gradient.neg_()


def adam(gradient: Tensor, steps: int) -> Rule:
    """Return the rule of Adam: a fused step of rate 1 from 0. A decoupled decay of 1 resets the last direction to 0."""
    direction, first, second = (torch.zeros_like(gradient) for _ in range(3))
    counts = torch.arange(1.0, steps + 1, device=gradient.device).unbind()

    def rule(step: int) -> Tensor:
        torch._fused_adamw_(
            [direction], [gradient], [first], [second], [], [counts[step]],
            lr=1.0, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=1.0, amsgrad=False, maximize=False,
        )  # fmt: skip
        return direction

    return rule


RAGGED_RULES = {GradientDescent: descent, Adam: adam}


def can_train(config: Config) -> bool:
    """Return True where `train_ragged` supports the optimizer; it does not support a user's own."""
    return resolve_part("training_optimizer", config.training_optimizer) in RAGGED_RULES


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
    """Train as `training.train` does, each agent on its own number of observations, counts [n], and steps [n].

    x [n, padded_dim, r] and y [n, r] are 0 beyond an agent's observations.
    """
    per_agent = x.shape[2] * (x.shape[1] + 2 * config.width * config.hidden_layers) * x.itemsize
    at_once = max(1, CACHE // per_agent) if x.device.type == "cpu" else len(x)
    # Agents with similar numbers of steps train together, so that few wait for others.
    order = np.argsort(-steps, kind="stable")
    trained: list[Trained] = []
    for part in np.array_split(order, -(-len(order) // at_once)):
        index = put_values(part, x.device)
        values = (start[index], initial, x[index], y[index], counts[part], steps[part], caution[index])
        trained.append(_train(config, network, *values))
    inverse = put_values(np.argsort(order, kind="stable"), x.device)
    return Trained(*(torch.cat(values)[inverse] for values in zip(*trained, strict=True)))


def _train(
    config: Config, network: Network, start: Tensor, initial: Tensor, x: Tensor, y: Tensor, counts: np.ndarray,
    steps: np.ndarray, caution: Tensor,
) -> Trained:  # fmt: skip
    n, p = start.shape
    number = put_values(counts, start.device, start.dtype)
    pairs = np.array([loss_factors(config, int(count)) for count in counts])
    factors = put_values(pairs, start.device, start.dtype)
    theta, layers = network.whole(n, start)
    network.fill(layers, start, one=1.0)
    goal = None
    if config.training_loss == "paper":
        goal, goals = network.whole(n, start)
        network.fill(goals, initial.expand(n, p))
    gradient, slopes = network.whole(n, start)
    pulls = _spread(network, factors[:, 1], p)
    optimizer = resolve_part("training_optimizer", config.training_optimizer)
    direction = RAGGED_RULES[optimizer](gradient, int(steps.max()))
    weight = caution * factors[:, 0] * network.output_scale
    root = weight.sqrt()[:, None, None]
    descend = _Descent(network, layers, slopes, root * x, -root * y[:, None])
    first = np.array([first_rate(config, int(count)) for count in counts])
    is_linear = config.training_schedule == "linear"
    losses = start.new_zeros(2, n)
    ends = {0, *steps.tolist()}
    for step in range(int(steps.max())):
        if step in ends:
            # The rate of agents that finished their steps is 0.
            active = np.where(steps > step, first, 0.0)
            pair = put_values(np.stack([active, active / steps]), start.device, start.dtype)
            highest, fall = (_spread(network, rate, p) for rate in pair)
            rates = highest.clone()
        residual = descend()
        if step == 0 or step + 1 in ends:
            loss = residual[:, 0].square().sum(1) / (weight * number)
            if step == 0:
                losses[0] = loss
            losses[1] = torch.where(put_values(steps == step + 1, loss.device), loss, losses[1])
        gradient.addcmul_(theta if goal is None else theta - goal, pulls)
        if is_linear:
            torch.add(highest, fall, alpha=-step, out=rates)
        theta.addcmul_(direction(step), rates)
    result = network.rows(layers)
    if optimizer is Adam:
        # Adam is invariant to the scale of gradients, so caution scales the change of the parameters instead.
        result = torch.where(caution[:, None] == 1, result, start + caution[:, None] * (result - start))
    before, loss = losses
    mean = y.square().sum(1) / number
    sane = torch.isfinite(result).all(1) & (loss <= WORSE * torch.maximum(before, mean))
    return Trained(result.where(sane[:, None], start), loss.where(sane, before), (~sane).to(loss))


class _Descent:
    """Writes the gradient of sum_r (f(x_r) - y_r)^2 / 2 of n networks, divided by the scale of their outputs.

    A call returns the residuals f(x_r) - y_r, [n, 1, r].
    """

    def __init__(
        self, network: Network, layers: list[Tensor], slopes: list[Tensor], x: Tensor, minus_y: Tensor
    ) -> None:
        self._layers, self._minus_y, self._scale = layers, minus_y, network.output_scale
        n, _, r = x.shape
        hidden = [x.new_empty(n, layer.shape[1], r) for layer in layers[:-1]]
        deltas = [torch.empty_like(values) for values in hidden]
        self._residual = torch.empty_like(minus_y)
        # The zeros below the inputs make the products of the backward pass faster, not those of the forward pass.
        inputs = network.inputs_dim
        ups = [layers[0][:, :, :inputs], *layers[1:-1]]
        self._up = list(zip(ups, [x[:, :inputs], *hidden[:-1]], hidden, strict=True))
        self._top = hidden[-1]
        above = [*deltas, self._residual]
        self._down = [
            (layers[index].mT, above[index], hidden[index - 1],
             hidden[index - 1].mT, deltas[index - 1], slopes[index])
            for index in reversed(range(1, len(layers)))
        ]  # fmt: skip
        self._first = (above[0], x.mT, slopes[0])

    def __call__(self) -> Tensor:
        for layer, below, values in self._up:
            multiply(layer, below, out=values).relu_()
        add_product(self._minus_y, self._layers[-1], self._top, scale=self._scale, out=self._residual)
        for layer, above, values, columns, delta, slope in self._down:
            multiply(above, columns, out=slope)
            multiply(layer, above, out=delta)
            THROUGH_RELU(delta, values, 0, grad_input=delta)
        above, below, slope = self._first
        multiply(above, below, out=slope)
        return self._residual


def _spread(network: Network, values: Tensor, parameters: int) -> Tensor:
    """Return a flat buffer with each agent's value, of values [n], at each of its parameters; 0 elsewhere."""
    buffer, layers = network.whole(len(values), values)
    network.fill(layers, values[:, None].expand(-1, parameters))
    return buffer
