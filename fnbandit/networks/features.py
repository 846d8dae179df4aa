"""Features of contexts: gradients of a network at its initial parameters, or at those of the last round."""

from __future__ import annotations

import torch
from torch import Tensor

from fnbandit.config import Config
from fnbandit.networks.network import Network
from fnbandit.numerics.device import put_values


class TangentFeatures:
    """Maps contexts [n, k, dim] to g(x; theta_0)/sqrt(m), [n, k, p]; returns rows that are features already unchanged.

    All agents share theta_0 (Alg. 1, line 1), so contexts determine their features, and are fewer numbers.
    """

    def __init__(self, config: Config, dim: int, like: Tensor) -> None:
        self.network = Network(config, dim)
        self.theta_0 = put_values(self.network.initial_parameters(config.seed), like.device, like.dtype)
        """[p], in the statistics' precision"""

    def __call__(self, contexts: Tensor) -> Tensor:
        if contexts.shape[-1] == self.network.parameter_count:
            return contexts
        return self.network.tangent_features(self.theta_0, self.network.inputs(contexts))


class LearnedFeatures:
    """Maps contexts to features of a trained network: its gradient, or the part of that for the last layer.

    The network is linear in its last layer: f(x; theta) = <x's features, `center`>, where `center` is theta there and 0
    elsewhere. Before the first training features are those of theta_0, and `center` is 0.
    """

    def __init__(self, config: Config, dim: int, like: Tensor, is_whole: bool) -> None:
        self.network = Network(config, dim)
        self._is_whole = is_whole
        self.theta = put_values(self.network.initial_parameters(config.seed), like.device, like.dtype)
        """Parameters [p] at which features are taken"""
        last = self.network.last_layer
        self.parameter_count = self.network.parameter_count if is_whole else last.stop - last.start
        self.center = torch.zeros_like(self.theta[-self.parameter_count :])
        """[p]"""

    @property
    def is_gradient(self) -> bool:
        """True where features are the gradient of f with respect to all parameters."""
        return self._is_whole and self.network.output_scale == 1

    def move(self, theta: Tensor) -> None:
        """Take features at the parameters [p] of a trained network from now on."""
        self.theta = theta.to(self.theta)
        self.center = self.center_of(theta)

    def center_of(self, theta: Tensor) -> Tensor:
        """Return `center` for the parameters of a trained network, in the precision of the features."""
        center, last = torch.zeros_like(self.center), theta[self.network.last_layer]
        center[len(center) - len(last) :] = last.to(center) * self.network.output_scale
        return center

    def __call__(self, contexts: Tensor) -> Tensor:
        """Return the features of contexts [n, k, dim], [n, k, p]."""
        return self.at(self.theta, self.network.inputs(contexts))

    def at(self, theta: Tensor, inputs: Tensor) -> Tensor:
        """Return the features of inputs [n, d, k] at other parameters, [n, k, p]."""
        if self._is_whole:
            return self.network.tangent_features(theta.to(self.theta), inputs)
        return self.network.last_features(theta.to(self.theta), inputs)
