"""ReLU networks on flat parameter rows, batched over agents: prediction, tangent features, gradients.

Shapes: n agents, r contexts, d inputs, p parameters. A network's parameters are one row of length p; theta is [n, p]
or, shared by all agents, [p]. Layer l is a matrix [outputs, inputs] (with a last column for the bias, where there is
one), flattened row by row. Contexts are columns, [n, d, r], so that the output layer is a product of a row and a
matrix.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from fnbandit.config import Config
from fnbandit.numerics.products import add_product, chunks, multiply
from fnbandit.numerics.randomness import Purpose, generator

ALIGNED = 16
"""Every part of the work space begins at a multiple of this number of numbers"""
WHOLE = 64
"""The length of a flat buffer is a multiple of this: no vector register of an elementwise kernel is partly filled"""
Layers = list[tuple[Tensor, Tensor | None]]
"""Weights [n, outputs, inputs] and bias [n, outputs, 1] of every layer, each contiguous"""
Workspace = tuple[list[Tensor], list[Tensor], Tensor]
"""Activations and their gradients, [n, width, r] per hidden layer, and residuals, [n, 1, r]"""


class Network:
    """A fully connected ReLU network with one output, as `config.network` describes it.

    standard  f(x) = W_L relu(... W_1 x + b_1 ...) + b_L, initial entries N(0, 1), except between hidden layers,
              where `config.initialization` sets their scale.
    ntk       App. B: no biases, f(x) = sqrt(m) W_L relu(... W_1 x), on doubled contexts
              (x, x)/sqrt(2), with block initialisation, so that f(x; theta_0) = 0.
    """

    def __init__(self, config: Config, dim: int) -> None:
        self._ntk = config.network == "ntk"
        self._width = config.width
        self._scaled = config.initialization == "scaled"
        self._bias = 0 if self._ntk else 1
        sizes = [2 * dim if self._ntk else dim, *[config.width] * config.hidden_layers, 1]
        self._shapes = [(outputs, inputs + self._bias) for inputs, outputs in pairwise(sizes)]
        ends = np.cumsum([outputs * inputs for outputs, inputs in self._shapes])
        self._slices = [slice(int(e) - o * i, int(e)) for e, (o, i) in zip(ends, self._shapes, strict=True)]
        self.inputs_dim = sizes[0] + self._bias
        self.parameter_count = int(ends[-1])
        self.output_scale = math.sqrt(config.width) if self._ntk else 1.0
        self._space: Tensor | None = None

    @property
    def flops(self) -> int:
        """Floating-point operations of one step of training on one observation: 4 d m + 6 m for a hidden layer."""
        products = [outputs * inputs for outputs, inputs in self._shapes]
        return 6 * sum(products) - 2 * products[0]

    @property
    def form(self) -> tuple[list[tuple[int, int]], bool, float]:
        """Shapes of the layers, True for doubled contexts without biases, factor of the output: all but parameters."""
        return self._shapes, self._ntk, self.output_scale

    def initial_parameters(self, seed: int) -> Tensor:
        """Return theta_0 ~ init(.), [p] in float64."""
        random = generator(seed, Purpose.INITIAL_PARAMETERS)
        if not self._ntk:
            theta = random.standard_normal(self.parameter_count)
            between = list(zip(self._slices, self._shapes, strict=True))[1:-1] if self._scaled else []
            for part, (_, inputs) in between:
                theta[part] *= math.sqrt(2 / (inputs - self._bias))
            return torch.from_numpy(theta)
        layers = []
        for outputs, inputs in self._shapes[:-1]:
            block = random.normal(0, math.sqrt(4 / self._width), (outputs // 2, inputs // 2))
            layers.append(np.kron(np.eye(2), block))
        last = random.normal(0, math.sqrt(2 / self._width), self._width // 2)
        layers.append(np.concatenate([last, -last]))
        return torch.from_numpy(np.concatenate([layer.ravel() for layer in layers]))

    def rescale(self, theta: Tensor, factors: Tensor) -> Tensor:
        """Return parameters [n, p] whose outputs are factors [n, 1] times those of theta: scale the last layer."""
        last = self._slices[-1].start
        return torch.cat([theta[:, :last], theta[:, last:] * factors], dim=1)

    def inputs(self, contexts: Tensor) -> Tensor:
        """Return contexts [n, r, dim] as columns [n, d, r]: with a row of ones for standard, doubled for ntk."""
        columns = contexts.mT
        if self._ntk:
            return torch.cat([columns, columns], dim=1) / math.sqrt(2)
        return torch.nn.functional.pad(columns, (0, 0, 0, 1), value=1.0)

    def layers(self, theta: Tensor, n: int) -> list[Tensor]:
        """Return views of theta, one [n, outputs, inputs] tensor per layer."""
        rows = theta.expand(n, self.parameter_count)
        return [rows[:, s].unflatten(1, shape) for s, shape in zip(self._slices, self._shapes, strict=True)]

    def _affine(self, layer: Tensor, a: Tensor) -> Tensor:
        """Apply a layer to a: [n, inputs, r] -> [n, outputs, r]. The first bias multiplies the ones in the inputs."""
        if layer.shape[2] == a.shape[1]:
            return multiply(layer, a)
        return multiply(layer[:, :, :-1], a).add_(layer[:, :, -1:])

    def _activations(self, layers: list[Tensor], x: Tensor) -> list[Tensor]:
        """Return the inputs of every layer, [n, inputs, r]."""
        activations = [x]
        for layer in layers[:-1]:
            activations.append(self._affine(layer, activations[-1]).relu_())
        return activations

    def predict(self, theta: Tensor, x: Tensor) -> Tensor:
        """Return f(x; theta) for inputs x [n, d, r] -> [n, r]."""
        layers = self.layers(theta, len(x))
        return self.output_scale * self._affine(layers[-1], self._activations(layers, x)[-1]).squeeze(1)

    @property
    def last_layer(self) -> slice:
        """The parameters of the last layer, in which the output is linear."""
        return self._slices[-1]

    def last_features(self, theta: Tensor, x: Tensor) -> Tensor:
        """Return the part of `tangent_features` that belongs to the last layer, [n, r, q]."""
        hidden = self._activations(self.layers(theta, len(x)), x)[-1].mT
        return torch.nn.functional.pad(hidden, (0, 1), value=1.0) if self._bias else hidden

    def sum_gradients(self, theta: Tensor, x: Tensor, y: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return sum_r w_r (y_r - f(x_r; theta)) d f(x_r) / d theta, [n, p], and sum_r w_r (y_r - f(x_r; theta))^2.

        x [n, padded_dim, r], y [n, r]; theta [p] is the same for all agents; squares are [n, 1]. `mask` [n, r] has the
        weights w, or is False where an observation does not count.
        """
        if x.shape[2] == 1:
            # Products with one observation have other last bits in other batches.
            x, y = x.expand(-1, -1, 2), y.expand(-1, 2)
            mask = (torch.ones_like(y, dtype=torch.bool) if mask is None else mask).expand(-1, 2).clone()
            mask[:, 1] = 0
        counted = x.new_ones(len(x), 1, 1) if mask is None else mask[:, None].to(x)
        layers = self.unpack(theta.expand(len(x), -1))
        _, sums = self.flat(len(x), theta)
        residual = self.descend(layers, sums, x, -y[:, None], counted, keep=0.0, add=-1.0, workspace=self.workspace(x))
        residual = residual * (counted if mask is None else counted.sqrt())
        return self.pack(sums), multiply(residual, residual.mT)[:, 0]

    def tangent_features(self, theta: Tensor, x: Tensor) -> Tensor:
        """Return g(x; theta)/sqrt(m) (ntk) or g(x; theta) (standard) for inputs x [n, d, r] -> [n, r, p].

        Both are the gradient of the output before it is scaled by sqrt(m).
        """
        features = x.new_empty(len(x), x.shape[2], self.parameter_count)
        layers = self.layers(theta, len(x))
        for chunk in chunks(len(x), features[0].numel(), x):
            self._tangent_features([layer[chunk] for layer in layers], x[chunk], features[chunk])
        return features

    def _tangent_features(self, layers: list[Tensor], x: Tensor, features: Tensor) -> None:
        activations = self._activations(layers, x)
        delta = x.new_ones(len(x), 1, x.shape[2])
        for index in reversed(range(len(layers))):
            block = features[:, :, self._slices[index]].unflatten(2, self._shapes[index])
            incoming = activations[index].mT[:, :, None, :]
            torch.mul(delta.mT[..., None], incoming, out=block[..., : incoming.shape[-1]])
            if incoming.shape[-1] < block.shape[-1]:
                block[..., -1] = delta.mT
            if index:
                delta = self._back(delta, layers[index], activations[index], torch.empty_like(activations[index]))

    @property
    def padded_dim(self) -> int:
        """Rows of a history that training reads: inputs, then zeros up to a multiple of 8, which is faster."""
        return -(-self.inputs_dim // 8) * 8

    def unpack(self, theta: Tensor) -> Layers:
        """Return a copy of theta [n, p] as contiguous (weights, bias) per layer, for `descend` to change in place.

        The first layer's bias stays in its weights, which multiply the ones in the inputs; columns of zeros follow,
        which multiply the inputs' padding.
        """
        copy = {"memory_format": torch.contiguous_format}
        layers: Layers = []
        for index, layer in enumerate(self.layers(theta, len(theta))):
            if self._bias and index:
                layers.append((layer[:, :, :-1].clone(**copy), layer[:, :, -1:].clone(**copy)))
            else:
                zeros = self.padded_dim - layer.shape[2] if index == 0 else 0
                layers.append((torch.nn.functional.pad(layer, (0, zeros)).clone(**copy), None))
        return layers

    def flat(self, n: int, like: Tensor) -> tuple[Tensor, Layers]:
        """Return a buffer of zeros, and its parts as layers like those of `unpack`: one pass over it serves all agents.

        Parts are in the order of layers, and the length of each is a multiple of WHOLE: elementwise kernels treat a
        partly filled vector register differently, and the agents whose numbers are in it would depend on the number
        of agents in the process.
        """
        shapes = []
        for index, (outputs, inputs) in enumerate(self._shapes):
            shapes.append((n, outputs, inputs - self._bias if index else self.padded_dim))
            if index and self._bias:
                shapes.append((n, outputs, 1))
        sizes = [-(-math.prod(shape) // WHOLE) * WHOLE for shape in shapes]
        buffer = like.new_zeros(sum(sizes))
        parts = iter([part[: math.prod(s)].view(s) for part, s in zip(buffer.split(sizes), shapes, strict=True)])
        layers = [(next(parts), next(parts) if index and self._bias else None) for index in range(len(self._shapes))]
        return buffer, layers

    def whole(self, n: int, like: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return a buffer of zeros, as `flat` does, and one [n, outputs, inputs] part per layer, biases included.

        In a network with biases every hidden layer has one additional last unit, whose output is 1 and which is the
        next layer's last input: see `fill`.
        """
        shapes = [(n, outputs + self._bias, inputs) for outputs, inputs in self._shapes]
        shapes[-1] = (n, *self._shapes[-1])
        shapes[0] = (*shapes[0][:2], self.padded_dim)
        sizes = [-(-math.prod(shape) // WHOLE) * WHOLE for shape in shapes]
        buffer = like.new_zeros(sum(sizes))
        parts = zip(buffer.split(sizes), shapes, strict=True)
        return buffer, [part[: math.prod(shape)].view(shape) for part, shape in parts]

    def fill(self, whole: list[Tensor], theta: Tensor, one: float = 0.0) -> None:
        """Write theta [n, p] to the layers of `whole`, and `one` as the weight by which a constant unit gets its 1."""
        for layer, part in zip(self.layers(theta, len(theta)), whole, strict=True):
            _, outputs, inputs = layer.shape
            part[:, :outputs, :inputs] = layer
            part[:, outputs:, inputs - 1] = one

    def rows(self, whole: list[Tensor]) -> Tensor:
        """Return the parameters [n, p] in the layers of `whole`. Inverse of `fill`."""
        parts = zip(whole, self._shapes, strict=True)
        return torch.cat([part[:, :outputs, :inputs].flatten(1) for part, (outputs, inputs) in parts], dim=1)

    def pack(self, layers: Layers) -> Tensor:
        """Return layers as rows [n, p]. Inverse of `unpack`."""
        whole = [weights if bias is None else torch.cat([weights, bias], dim=2) for weights, bias in layers]
        whole[0] = whole[0][:, :, : self.inputs_dim]
        return torch.cat([layer.flatten(1) for layer in whole], dim=1)

    def workspace(self, x: Tensor) -> Workspace:
        """Return the tensors that `descend` writes to, for inputs x [n, padded_dim, r]: parts of one kept buffer.

        Newly allocated memory in every step would cost a page fault per 4 kB.
        """
        n, _, r = x.shape
        widths = [outputs for outputs, _ in self._shapes[:-1]] * 2 + [1]
        sizes = [-(-n * width * r // ALIGNED) * ALIGNED for width in widths]
        if self._space is None or len(self._space) < sum(sizes) or self._space.dtype != x.dtype:
            self._space = x.new_empty(sum(sizes) * 5 // 4)
        parts = self._space[: sum(sizes)].split(sizes)
        views = [part[: n * width * r].view(n, width, r) for part, width in zip(parts, widths, strict=True)]
        return views[: len(views) // 2], views[len(views) // 2 : -1], views[-1]

    def descend(
        self,
        layers: Layers,
        into: Layers,
        x: Tensor,
        minus_y: Tensor,
        caution: Tensor,
        keep: float,
        add: float,
        workspace: Workspace,
    ) -> Tensor:
        """into <- keep * into + add * caution * sum_r (f(x_r) - y_r) * d f(x_r) / d theta, in place.

        The network is `layers`; `into` is `layers` itself (gradient descent) or the buffer of the gradient.
        x [n, padded_dim, r], minus_y = -y [n, 1, r], caution [n, 1, 1]. Return the residuals f(x_r) - y_r, [n, 1, r].
        """
        activations, deltas, residual = workspace
        below = x
        for (weights, bias), pre in zip(layers[:-1], activations, strict=True):
            if bias is None:
                multiply(weights, below, out=pre)
            else:
                add_product(bias, weights, below, out=pre)
            below = pre.relu_()
        weights, bias = layers[-1]
        add_product(minus_y, weights, below, scale=self.output_scale, out=residual)
        if bias is not None:
            residual += bias
        delta = residual * caution
        for index in reversed(range(len(layers))):
            weights, _ = layers[index]
            below, above = activations[index - 1] if index else x, delta
            if index:
                delta = self._back(above, weights, below, out=deltas[index - 1])
            to_weights, to_bias = into[index]
            add_product(to_weights, above, below.mT, scale=add * self.output_scale, keep=keep, out=to_weights)
            if to_bias is not None:
                to_bias.mul_(keep).add_(above.sum(-1, keepdim=True), alpha=add * self.output_scale)
        return residual

    def _back(self, delta: Tensor, layer: Tensor, activation: Tensor, out: Tensor) -> Tensor:
        """Propagate delta [n, outputs, r] back through a layer and the ReLU before it to out [n, inputs, r]."""
        multiply(layer[:, :, : activation.shape[1]].mT, delta, out=out)
        return torch.ops.aten.threshold_backward.grad_input(out, activation, 0, grad_input=out)
