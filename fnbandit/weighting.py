"""The sequences of alpha, the weight of UCB^b against UCB^a (Sec. 3.3)."""

from __future__ import annotations

import torch
from torch import Tensor

from fnbandit.config import Config
from fnbandit.covariance import Diagonal, Full


def weight_at(config: Config, iteration: int, last_round: int, broadcast: Tensor | float) -> Tensor | float:
    """alpha in an iteration, given the iteration of the last round and the alpha it broadcast.

    ramp rises linearly from 0 in the first iteration to 1 after `ramp` iterations; theory uses
    the server's minimum over agents, 0 before the first round (Alg. 1, line 1), and leaves it on its device.
    """
    if not config.networked:
        return 0.0
    if not config.use_global:
        return 1.0
    if config.first_iteration_only and iteration != last_round + 1:
        return 0.0
    if config.weight == "ramp":
        return min(1.0, (iteration - 1) / config.ramp)
    return config.weight_value if config.weight == "constant" else broadcast


def needs_global(config: Config, iteration: int) -> bool:
    """Whether V_last and UCB^a still matter in an iteration or after it, with full matrices.

    They do not once alpha is 1 for good and no trigger looks at log det: then they are left alone.
    """
    if config.diagonal or config.trigger in ("logdet", "diagonal") or not config.networked:
        return True
    if not config.use_global:
        return False
    return config.weight != "ramp" or config.first_iteration_only or iteration <= config.ramp


class DomainRatio:
    """alpha_{t,i} = sigma_min / sigma_max over (a sample of) the domain (Alg. 1, line 15).

    Keeps sigma^2 of every point for every agent, and takes off what each change of the local
    inverses takes off: ||Z x||^2, instead of a p x p product per point.
    """

    def __init__(self, features: Tensor, local: Full | Diagonal, agents: int) -> None:
        self._features = features
        """[points, p]"""
        self.variances = local.quadratic(features.expand(agents, -1, -1))
        """sigma^2 / lambda, [agents, points]"""

    def shrink(self, change: Tensor) -> None:
        """Full local covariances have changed by Z [agents, k, p]."""
        projected = torch.bmm(change, self._features.mT.expand(len(change), -1, -1))
        self.variances -= projected.square_().sum(1)

    def replace(self, local: Diagonal) -> None:
        """Diagonal local covariances have changed."""
        squares = self._features.square().mT
        self.variances = torch.bmm(local.inverse[:, None], squares.expand(len(self.variances), -1, -1)).squeeze(1)

    def ratio(self) -> Tensor:
        """sigma_min / sigma_max, [agents]."""
        low, high = self.variances.clamp(min=0).aminmax(dim=1)
        return (low / high.where(high > 0, 1)).sqrt()
