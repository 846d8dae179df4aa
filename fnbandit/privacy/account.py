"""The server's account of V_last where W has noise."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fnbandit.config import Config
from fnbandit.core import Triangle
from fnbandit.covariance.gram import pack_triangle, symmetric
from fnbandit.numerics.products import multiply
from fnbandit.numerics.state import State
from fnbandit.privacy.factorization import BinaryTree, Toeplitz


class NoisyAccount:
    """The noisy sum of W, and V = lambda' I + its positive part.

    Noise makes eigenvalues negative and B wrong by about s sqrt(k / 2), with s the standard deviation of a diagonal
    entry of the sum's noise and k its dimension. lambda' = lambda + s sqrt(k / 2) keeps V^-1 B bounded where W is
    small.
    """

    def __init__(
        self, config: Config, like: Tensor, parameters: int, factorization: Toeplitz | BinaryTree, noise: float
    ) -> None:
        """`noise` is the standard deviation of the draws for a diagonal entry of the sum over agents."""
        self._regularization, self._like, self._parameters = config.number("regularization"), like, parameters
        self._factorization, self._noise = factorization, noise
        self._step, self._factor = -1, 1.0
        self._sum = torch.zeros(parameters * (parameters + 1) // 2, dtype=torch.float64, device=like.device)
        """Upper triangle of the sum of W, in double precision"""

    def combine(self, update: Triangle) -> Triangle:
        """Add a round's W_new; return V."""
        self._sum = self._sum + update.values
        self._step += 1
        return self._repair()

    def renew(self, update: Triangle, factor: float) -> Triangle:
        """Begin again with `factor` times W of a sample; return V."""
        self._sum, self._step, self._factor = update.values * factor, 0, factor
        return self._repair()

    def _repair(self) -> Triangle:
        values, vectors = torch.linalg.eigh(symmetric(self._sum, self._parameters))
        spread = self._noise * self._factor * self._factorization.deviation(self._step)
        values = values.clamp(min=0) + self._regularization + spread * math.sqrt(self._parameters / 2)
        return Triangle(pack_triangle(multiply((vectors * values)[None], vectors.mT[None])[0]))

    def state(self) -> State:
        return {"sum": self._sum, "step": torch.tensor(self._step), "factor": torch.tensor(self._factor)}

    def load(self, state: State) -> None:
        self._sum = state["sum"].to(self._sum)
        self._step, self._factor = int(state["step"]), float(state["factor"])
