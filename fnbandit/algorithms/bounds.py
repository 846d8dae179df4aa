"""The two upper confidence bounds and their weighted sum (Alg. 1, lines 5-7). All [agents, arms]."""

from __future__ import annotations

from torch import Tensor


def global_bound(mean: Tensor, variance: Tensor, scale: float, rescale: bool, unit: Tensor | float = 1.0) -> Tensor:
    """Return UCB^a = <g, theta-bar> + nu_TKN sqrt(lambda) ||g||_{V-bar^-1} (Alg. 1, line 5).

    scale is nu_TKN sqrt(lambda), variance the squared norm. Diagonal matrices inflate the first term: `rescale` maps it
    over an agent's contexts to [0, 1] (footnote in Sec. 5.2). `unit` multiplies bonuses and rescaled means.
    """
    if rescale:
        low, high = mean.aminmax(dim=-1, keepdim=True)
        spread = high - low
        mean = (mean - low) / spread.where(spread > 0, 1) * unit
    return mean + scale * unit * variance.sqrt()


def local_bound(prediction: Tensor, deviation: Tensor, scale: Tensor | float) -> Tensor:
    """Return UCB^b = f(x; theta_sync,NN) + nu_TK sqrt(lambda) deviation (Alg. 1, line 6).

    scale is nu_TK sqrt(lambda), deviation the norm of g in the local inverses.
    """
    return prediction + scale * deviation


def combine_bounds(a: Tensor | None, b: Tensor | None, weight: Tensor | float) -> Tensor:
    """Return (1 - alpha) UCB^a + alpha UCB^b (Alg. 1, line 7); a bound of weight 0 may be None."""
    if a is None or b is None:
        only = b if a is None else a
        assert only is not None
        return only
    return (1 - weight) * a + weight * b
