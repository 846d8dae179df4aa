"""W_i of every agent at the server, where a rule needs every agent's own values: [N, p, p], or their diagonals [N, p].

All values are in double precision. They are the same tensors in every layout, because the server holds all N agents.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fnbandit.core import Triangle
from fnbandit.covariance.gram import invert, pack_triangle
from fnbandit.numerics.products import chunks, multiply


class OwnMatrices:
    """Operations on full matrices W [N, p, p] of N agents."""

    @staticmethod
    def of_update(update: Any, lift: Callable[[Tensor], Tensor], parameters: int) -> Tensor:
        """Return G^T G of every agent, for the gathered contexts or rows [N, k, ..]."""
        rows = update.values
        found = [_square(lift(rows[part])) for part in chunks(len(rows), rows.shape[1] * parameters, rows.double())]
        return torch.cat(found)

    @staticmethod
    def empty(agents: int, parameters: int, like: Tensor) -> Tensor:
        """Return matrices of zeros."""
        return like.new_zeros(agents, parameters, parameters, dtype=torch.float64)

    @staticmethod
    def identities(scales: Tensor, parameters: int) -> Tensor:
        """Return scales [n] times I."""
        return scales[:, None, None] * torch.eye(parameters, dtype=torch.float64, device=scales.device)

    @staticmethod
    def symmetrize(values: Tensor) -> Tensor:
        """Return symmetric matrices whose entries have the variance of those of values [n, p, p]."""
        return (values.triu() + values.triu(1).mT).contiguous()

    @staticmethod
    def traces(values: Tensor) -> Tensor:
        return values.diagonal(dim1=1, dim2=2).sum(1)

    @staticmethod
    def add_up(values: Tensor, weights: Tensor) -> Tensor:
        """Return the sums of weights [k, n] times W_i, [k, p, p]."""
        return multiply(weights[None], values.flatten(1)[None])[0].unflatten(1, values.shape[1:])

    @staticmethod
    def times(values: Tensor, vectors: Tensor) -> Tensor:
        """Return W_i v_i [n, p] for vectors [n, p]."""
        return multiply(values, vectors[:, :, None])[:, :, 0]

    @staticmethod
    def factor(values: Tensor, ridge: Tensor) -> Tensor:
        """Return factors of W_i + ridge_i I, for ridges [n]; NaN where it is not positive."""
        damped = values.clone()
        damped.diagonal(dim1=1, dim2=2).add_(ridge[:, None])
        found = torch.linalg.cholesky_ex(damped)
        found.L[found.info != 0] = torch.nan
        return found.L

    @staticmethod
    def energies(factors: Tensor, vectors: Tensor) -> Tensor:
        """Return v_i^T (W_i + ridge_i I)^-1 v_i, [n], from the `factor`s."""
        return torch.linalg.solve_triangular(factors, vectors[:, :, None], upper=False).square().sum((1, 2))

    @staticmethod
    def solve(factors: Tensor, vectors: Tensor) -> Tensor:
        """Return (W_i + ridge_i I)^-1 v_i, [n, p], from the `factor`s."""
        return torch.cholesky_solve(vectors[:, :, None], factors)[:, :, 0]

    @staticmethod
    def whiten(total: Tensor, vectors: Tensor) -> Tensor:
        """Return L^T v_i, [n, p], with L L^T = `total`: their distances are those of the v_i in the norm of `total`."""
        factor = torch.linalg.cholesky_ex(total).L
        return multiply(vectors[None], factor[None])[0]

    @staticmethod
    def unwhiten(total: Tensor, vector: Tensor) -> Tensor:
        """Inverse of `whiten` for one vector [p]."""
        factor = torch.linalg.cholesky_ex(total).L
        return torch.linalg.solve_triangular(factor.mT, vector[:, None], upper=True)[:, 0]

    @staticmethod
    def regularize(total: Tensor, regularization: float) -> Tensor:
        """Return `total` + regularization I."""
        return total + regularization * torch.eye(len(total), dtype=total.dtype, device=total.device)

    @staticmethod
    def mean_inverse(values: Tensor, regularization: float) -> Tensor:
        """Return the mean over agents of (W_i + regularization I)^-1, [p, p]."""
        total = torch.zeros_like(values[0])
        for matrix in values:
            total += invert(OwnMatrices.regularize(matrix, regularization))
        return total / len(values)

    @staticmethod
    def inverse_change(before: Tensor, mean: Tensor) -> Triangle:
        """Return the change from the `parts` [1, p, p] of a mean inverse to `mean`, as `MeanInverse.apply` takes it."""
        return Triangle(pack_triangle(before[0].double() - mean))

    @staticmethod
    def gains(values: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
        """Return log det(V + W_i) - log det V with V = `total`, and the same of the diagonals, [n] each."""
        before = torch.linalg.cholesky_ex(total).L.diagonal().log().sum()
        after = torch.linalg.cholesky_ex(total + values).L.diagonal(dim1=1, dim2=2).log().sum(1)
        ratios = torch.log1p(values.diagonal(dim1=1, dim2=2) / total.diagonal())
        return 2 * (after - before), ratios.sum(1)

    @staticmethod
    def as_statistics(total: Tensor, regularization: float) -> Triangle:
        """Return lambda I + `total` in the form that `Estimate.renew` takes."""
        return Triangle(pack_triangle(OwnMatrices.regularize(total, regularization)))

    @staticmethod
    def as_sum(total: Tensor) -> Triangle:
        """Return `total` in the form of the sum of curvatures."""
        return Triangle(pack_triangle(total))


class OwnDiagonals:
    """The operations of `OwnMatrices` on diagonals [N, p]."""

    @staticmethod
    def of_update(update: Any, lift: Callable[[Tensor], Tensor], parameters: int) -> Tensor:
        return update.to(torch.float64, copy=True)

    @staticmethod
    def empty(agents: int, parameters: int, like: Tensor) -> Tensor:
        return like.new_zeros(agents, parameters, dtype=torch.float64)

    @staticmethod
    def identities(scales: Tensor, parameters: int) -> Tensor:
        return scales[:, None].repeat(1, parameters)

    @staticmethod
    def symmetrize(values: Tensor) -> Tensor:
        return values

    @staticmethod
    def traces(values: Tensor) -> Tensor:
        return values.sum(1)

    @staticmethod
    def add_up(values: Tensor, weights: Tensor) -> Tensor:
        return multiply(weights[None], values[None])[0]

    @staticmethod
    def times(values: Tensor, vectors: Tensor) -> Tensor:
        return values * vectors

    @staticmethod
    def factor(values: Tensor, ridge: Tensor) -> Tensor:
        damped = values + ridge[:, None]
        good = (damped > 0).all(1) & damped.isfinite().all(1)
        return damped.sqrt().where(good[:, None], torch.nan)

    @staticmethod
    def energies(factors: Tensor, vectors: Tensor) -> Tensor:
        return (vectors / factors).square().sum(1)

    @staticmethod
    def solve(factors: Tensor, vectors: Tensor) -> Tensor:
        return vectors / factors.square()

    @staticmethod
    def whiten(total: Tensor, vectors: Tensor) -> Tensor:
        return vectors * total.sqrt()

    @staticmethod
    def unwhiten(total: Tensor, vector: Tensor) -> Tensor:
        return vector / total.sqrt()

    @staticmethod
    def regularize(total: Tensor, regularization: float) -> Tensor:
        return total + regularization

    @staticmethod
    def mean_inverse(values: Tensor, regularization: float) -> Tensor:
        return (1 / (values + regularization)).mean(0)

    @staticmethod
    def inverse_change(before: Tensor, mean: Tensor) -> Tensor:
        """Return the mean itself, which `MeanDiagonalInverse.apply` takes."""
        return mean.to(before)

    @staticmethod
    def gains(values: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
        ratios = torch.log1p(values / total).sum(1)
        return ratios, ratios

    @staticmethod
    def as_statistics(total: Tensor, regularization: float) -> Tensor:
        """Return the sum of W_i, [1, p]: `DiagonalEstimate.renew` adds lambda."""
        return total[None]

    @staticmethod
    def as_sum(total: Tensor) -> Tensor:
        return total


def _square(rows: Tensor) -> Tensor:
    """Return G^T G [n, p, p] of rows [n, k, p], copied: the bits of a product depend on their place in memory, too."""
    g = rows.to(torch.float64, copy=True).contiguous()
    return multiply(g.mT, g)
