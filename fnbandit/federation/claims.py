"""The uploads of all agents in one exchange, as the server receives them agent by agent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Claims:
    """Values of n agents in one exchange; None where the exchange does not have a field."""

    rows: Tensor
    """Number of observations that each agent's sums cover, [n]; the server knows it and does not ask"""
    covariance: Tensor | None = None
    """W_i [n, p, p], or its diagonal [n, p], in double precision"""
    moments: Tensor | None = None
    """B_i [n, p]"""
    squares: Tensor | None = None
    """Sum of squares of the rewards or errors, [n]"""
    theta: Tensor | None = None
    """theta_i [n, p]"""
    alphas: Tensor | None = None
    """alpha_i, [n] or [n, r]"""

    @property
    def values(self) -> dict[str, Tensor]:
        """The fields that the exchange has."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def select(self, index: Tensor) -> Claims:
        """Return the claims of some of the agents."""
        return Claims(**{name: value[index] for name, value in self.values.items()})

    def add(self, others: Claims) -> Claims:
        """Return the sums of two claims with the same fields."""
        return Claims(**{name: value + others.values[name] for name, value in self.values.items()})

    def substitute(self, index: Tensor, others: Claims) -> Claims:
        """Return these claims with others in place of those of some agents."""
        changed: dict[str, Any] = {}
        for name, value in self.values.items():
            changed[name] = value.index_copy(0, index, others.values[name].to(value))
        return replace(self, **changed)


@dataclass(frozen=True)
class Scene:
    """Facts of an exchange that attackers know."""

    seed: int
    iteration: int
    exchange: int
    liars: Tensor
    """Numbers of the attackers that upload, [b]"""
    honest: Tensor
    """Numbers of the honest agents that upload, [h]"""
    theta: Tensor | None
    """theta [p] that all agents hold"""
    matrices: Any
    """`OwnMatrices` or `OwnDiagonals`"""
    alpha_rule: Any
    """Rule for alpha"""


def is_finite(values: Tensor) -> Tensor:
    """Return True for each of n agents whose values [n, ..] have a finite sum, [n]: they are finite and not huge."""
    return torch.isfinite(values.flatten(1).sum(1) if values.ndim > 1 else values)
