"""Training of agents with histories of different lengths, together: what agents do that do not wait for each other.

Histories are filled up with zeros, on which a network says 0 and errs by 0. To how many depends on an agent's own
history alone, and an agent that has made its steps stands still, so that nobody's bits depend on who trains beside it.
Few agents train at once, so that what a step costs whatever their number counts: biases are weights here
(`Network.whole`), and all that is elementwise goes over one buffer. Such a network is positively homogeneous: what an
agent's gradient is to be multiplied by is multiplied into its history beforehand, half of it (its root) each into the
residuals and what they meet.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from fnbandit.config import Config
from fnbandit.network import Network
from fnbandit.registry import find
from fnbandit.training import CACHE, WORSE, Adam, GradientDescent, Trained, first_rate, loss_factors

THROUGH_RELU = torch.ops.aten.threshold_backward.grad_input

Rule = Callable[[int], Tensor]
"""The direction that is gone at the rate in a step, by the gradient as it is then; both flat"""


def padded_lengths(lengths: np.ndarray) -> np.ndarray:
    """Observations that histories are filled up to: 32, 64, 128, 192, 256, 384, 512, ...

    Few lengths let many agents train together, more of them fill up less, which counts where histories are long.
    """
    least = 32 * 2 ** np.ceil(np.log2(np.maximum(lengths, 32) / 32)).astype(np.int64)
    return np.where((lengths <= least * 3 // 4) & (least > 128), least * 3 // 4, least)


def descent(gradient: Tensor, steps: int) -> Rule:
    """Gradient descent."""
    return lambda step: gradient.neg_()


def adam(gradient: Tensor, steps: int) -> Rule:
    """Adam: a fused step of rate 1 from 0. Decoupled decay of 1 at that rate is what sets the last one to 0."""
    direction, first, second = (torch.zeros_like(gradient) for _ in range(3))
    counts = torch.arange(1.0, steps + 1, device=gradient.device).unbind()

    def rule(step: int) -> Tensor:
        torch._fused_adamw_(
            [direction], [gradient], [first], [second], [], [counts[step]],
            lr=1.0, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=1.0, amsgrad=False, maximize=False,
        )  # fmt: skip
        return direction

    return rule


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
    n, p = start.shape
    number = torch.from_numpy(counts).to(start)
    factors = start.new_tensor([loss_factors(config, int(count)) for count in counts])
    theta, layers = network.whole(n, start)
    network.fill(layers, start, one=1.0)
    goal = None
    if config.training_loss == "paper":
        goal, goals = network.whole(n, start)
        network.fill(goals, initial.expand(n, p))
    gradient, slopes = network.whole(n, start)
    pulls = _spread(network, factors[:, 1], p)
    optimizer = find("training_optimizer", config.training_optimizer)
    direction = RULES[optimizer](gradient, int(steps.max()))
    weight = caution * factors[:, 0] * network.output_scale
    root = weight.sqrt()[:, None, None]
    descend = _Descent(network, layers, slopes, root * x, -root * y[:, None])
    first = np.array([first_rate(config, int(count)) for count in counts])
    falls = config.training_schedule == "linear"
    losses = start.new_zeros(2, n)
    ends = {0, *steps.tolist()}
    for step in range(int(steps.max())):
        if step in ends:
            # Those that have made their steps stand still.
            going = np.where(steps > step, first, 0.0)
            begun, fall = (_spread(network, torch.from_numpy(rate).to(start), p) for rate in (going, going / steps))
            rates = begun.clone()
        residual = descend()
        if step == 0 or step + 1 in ends:
            loss = residual[:, 0].square().sum(1) / (weight * number)
            if step == 0:
                losses[0] = loss
            losses[1] = torch.where(torch.from_numpy(steps == step + 1).to(loss.device), loss, losses[1])
        gradient.addcmul_(theta if goal is None else theta - goal, pulls)
        if falls:
            torch.add(begun, fall, alpha=-step, out=rates)
        theta.addcmul_(direction(step), rates)
    result = network.rows(layers)
    if optimizer is Adam:
        # Adam heeds no gradient's size: a cautious agent goes a part of the way.
        result = torch.where(caution[:, None] == 1, result, start + caution[:, None] * (result - start))
    before, loss = losses
    mean = y.square().sum(1) / number
    sane = torch.isfinite(result).all(1) & (loss <= WORSE * torch.maximum(before, mean))
    return Trained(result.where(sane[:, None], start), loss.where(sane, before), (~sane).to(loss))


class _Descent:
    """Writes the gradient of sum_r (f(x_r) - y_r)^2 / 2 of n networks over the scale of their outputs.

    Returns f(x_r) - y_r, [n, 1, r].
    """

    def __init__(
        self, network: Network, layers: list[Tensor], slopes: list[Tensor], x: Tensor, minus_y: Tensor
    ) -> None:
        self._layers, self._minus_y, self._scale = layers, minus_y, network.output_scale
        n, _, r = x.shape
        hidden = [x.new_empty(n, layer.shape[1], r) for layer in layers[:-1]]
        deltas = [torch.empty_like(values) for values in hidden]
        self._residual = torch.empty_like(minus_y)
        # The zeros below the inputs make the products of the way back faster, not those of the way up.
        inputs = network.inputs_dim
        ups = [layers[0][:, :, :inputs], *layers[1:-1]]
        self._up = list(zip(ups, [x[:, :inputs], *hidden[:-1]], hidden, strict=True))
        self._top = hidden[-1]
        above = [*deltas, self._residual]
        self._down = [
            (torch.mul if index == len(layers) - 1 else torch.bmm, layers[index].mT, above[index], hidden[index - 1],
             hidden[index - 1].mT, deltas[index - 1], slopes[index])
            for index in reversed(range(1, len(layers)))
        ]  # fmt: skip
        self._first = (above[0], x.mT, slopes[0])

    def __call__(self) -> Tensor:
        for layer, below, values in self._up:
            torch.bmm(layer, below, out=values).relu_()
        torch.baddbmm(self._minus_y, self._layers[-1], self._top, alpha=self._scale, out=self._residual)
        for product, layer, above, values, columns, delta, slope in self._down:
            torch.bmm(above, columns, out=slope)
            product(layer, above, out=delta)
            THROUGH_RELU(delta, values, 0, grad_input=delta)
        above, below, slope = self._first
        torch.bmm(above, below, out=slope)
        return self._residual


def _spread(network: Network, values: Tensor, parameters: int) -> Tensor:
    """A number of every agent [n] for each of its parameters, flat; 0 elsewhere."""
    buffer, layers = network.whole(len(values), values)
    network.fill(layers, values[:, None].expand(-1, parameters))
    return buffer
