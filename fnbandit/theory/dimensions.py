"""Contexts that agents receive, their NTK matrix, and effective dimensions (App. B, Sec. 3.2)."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fnbandit.config import Config
from fnbandit.config.registry import resolve_part
from fnbandit.covariance import Lift
from fnbandit.environments import Environment
from fnbandit.environments.base import draw_block
from fnbandit.networks.features import TangentFeatures
from fnbandit.numerics.products import add_gram
from fnbandit.numerics.randomness import BLOCK, Purpose, generator

EXACT_CONTEXTS = 10_000
"""Largest number of contexts for which the NTK matrix of all is computed; beyond, a power law through a sample"""
SAMPLE = 4_000
"""Number of contexts in such a sample; largest number on which B is computed"""
EXACT_WORK = 5e10
"""Largest count * p^2 for which the features of all contexts are computed; beyond, second moments of a sample"""
JITTER = 1e-8
"""Addition to the diagonal of H before its inversion, as a share of the diagonal's mean"""


class Received(NamedTuple):
    """Contexts that some agents receive."""

    x: np.ndarray
    """[count, dim]"""
    h: np.ndarray
    """Values of the reward function, [count]"""
    total: int
    """Number of all contexts, of which `count` are here"""


# The NTK matrix (App. B)


def arc_cosine(covariance: Tensor, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Return E[relu(u) relu(v)] and P(u > 0, v > 0) for centred Gaussians u, v (App. B).

    `covariance` [a, b] is that of (u, v); `left` [a] and `right` [b] are the variances.
    """
    scale = torch.outer(left.sqrt(), right.sqrt())
    cosine = (covariance / scale.where(scale > 0, 1)).clamp_(-1, 1)
    both = (math.pi - torch.arccos(cosine)) / (2 * math.pi)
    relu = scale * ((1 - cosine.square()).sqrt_() / (2 * math.pi) + both * cosine)
    return relu, both


def ntk(x: np.ndarray, depth: int) -> tuple[np.ndarray, np.ndarray]:
    """Return H = (H~^(L) + Sigma^(L)) / 2 (App. B) and H~^(L), for contexts x [count, dim] and L = depth.

    With App. B's initialisation the Gram matrix of g(x; theta_0)/sqrt(m) tends to H~^(L): the
    part of its last layer to Sigma^(L), that of the other layers to H~^(L) - Sigma^(L), half of which enters H.
    """
    points = torch.from_numpy(x)
    sigma = points @ points.mT
    tangent = sigma.clone()
    for _ in range(depth - 1):
        variance = sigma.diagonal().clone()
        relu, both = arc_cosine(sigma, variance, variance)
        sigma = relu.mul_(2)
        tangent = tangent.mul_(both).mul_(2).add_(sigma)
    return ((tangent + sigma) / 2).numpy(), tangent.numpy()


def norm_of(h: np.ndarray, matrix: np.ndarray) -> float:
    """Return sqrt(2 h^T H^-1 h), the least B (Sec. 2), for h [count] and H [count, count].

    JITTER times its mean is added to the diagonal of H. This changes the result of a regular H by a relative amount of
    about JITTER, and replaces the inverse of a singular H (from a repeated context) by its pseudo-inverse.
    """
    regular = torch.from_numpy(matrix).clone()
    regular.diagonal().add_(JITTER * float(regular.diagonal().mean()))
    factor = torch.linalg.cholesky(regular)
    half = torch.linalg.solve_triangular(factor, torch.from_numpy(h)[:, None], upper=False)
    return math.sqrt(2) * float(half.norm())


# Contexts


def contexts_of(environment: Environment, agents: range, horizon: int) -> Received:
    """Return all contexts that these agents receive, agent by agent: agents * horizon * arms."""
    x, h = [], []
    for agent in agents:
        blocks = [draw_block(environment, agent, index) for index in range(-(-horizon // BLOCK))]
        x.append(np.concatenate([block.contexts for block in blocks])[:horizon].reshape(-1, environment.dim))
        h.append(np.concatenate([block.means for block in blocks])[:horizon].ravel())
    joined = np.concatenate(x)
    return Received(joined, np.concatenate(h).astype(np.float64), len(joined))


def receive_contexts(environment: Environment, config: Config, agents: range, most: int) -> Received:
    """Return the contexts that these agents receive, or a sample of `most` of them where there are more.

    The sample is uniform over agents, iterations and arms, and a function of the seed and of the first agent.
    """
    per_agent = config.horizon * environment.arms
    total = per_agent * len(agents)
    if total <= most:
        return contexts_of(environment, agents, config.horizon)
    random = generator(config.seed, Purpose.THEORY, agents.start)
    chosen = np.sort(random.choice(total, size=most, replace=False))
    owner, offset = np.divmod(chosen, per_agent)
    iteration, arm = np.divmod(offset, environment.arms)
    x, h = np.empty((most, environment.dim)), np.empty(most)
    for agent, index in {(int(a), int(t) // BLOCK) for a, t in zip(owner, iteration, strict=True)}:
        rows = np.flatnonzero((owner == agent) & (iteration // BLOCK == index))
        block = draw_block(environment, agents[agent], index)
        x[rows] = block.contexts[iteration[rows] % BLOCK, arm[rows]]
        h[rows] = block.means[iteration[rows] % BLOCK, arm[rows]]
    return Received(x, h, total)


# Effective dimensions (Sec. 2)


def features_in_use(config: Config, environment: Environment) -> tuple[Lift, int] | None:
    """Return the features whose Gram matrix replaces H, and their number p; None for network=ntk, whose H is App. B's.

    network=standard is not the network of App. B, and its features have no limit as m grows. The analysis of linear
    UCB needs only the Gram matrix of the features in use, K = G G^T with rows g(x; theta_0): App. C.2 and D hold for
    log det(I + K/lambda) without change, and without step (d) from K to H, which requires a wide network. This also
    applies to algorithms on raw contexts.
    """
    features = resolve_part("algorithm", config.algorithm).traits.features
    if not features:
        name = config.algorithm
        raise ValueError(f"algorithm={name!r}: has no effective dimension here; give numbers in place of 'theory'")
    if features == "context":
        return (lambda x: x), environment.dim
    if config.network == "ntk":
        return None
    lift = TangentFeatures(config, environment.dim, torch.empty(0, dtype=torch.float64))
    return lift, lift.network.parameter_count


def log_determinant_of_ntk(x: np.ndarray, depth: int, regularization: float) -> float:
    """Return log det(I + H/lambda) over contexts x."""
    return _log_determinant(torch.from_numpy(ntk(x, depth)[0]), regularization)


def log_determinant_of_features(lift: Lift, parameters: int, given: Received, regularization: float) -> float:
    """Return log det(I + G G^T/lambda) = log det(I + G^T G/lambda) for the features G [count, p] of contexts.

    G^T G of a sample is scaled up to the number of all contexts.
    """
    moments = torch.zeros(parameters, parameters, dtype=torch.float64)
    for part in torch.from_numpy(given.x).split(max(1, 4_000_000 // parameters)):
        g = lift(part[None])[0]
        add_gram(moments, g)
    return _log_determinant(moments.mul_(given.total / len(given.x)), regularization)


def _log_determinant(matrix: Tensor, regularization: float) -> float:
    matrix.div_(regularization).diagonal().add_(1)
    return 2 * float(torch.linalg.cholesky(matrix).diagonal().log().sum())


def effective_dimension(
    environment: Environment, config: Config, agents: range, regularization: float
) -> tuple[float, bool]:
    """Return d~ = log det(I + H/lambda) / log(1 + count/lambda) (Sec. 2) of these agents' contexts; True if exact.

    H is the NTK matrix for network=ntk, else the Gram matrix of the features in use. Beyond EXACT_CONTEXTS the log det
    of the NTK matrix is extrapolated by a power law of the number of contexts, through its exact values on SAMPLE
    contexts and on half of them; the error is about ten per cent at five times the sample. For features a sample of at
    least 2 p contexts is enough.
    """
    use = features_in_use(config, environment)
    if use is not None:
        lift, p = use
        given = receive_contexts(environment, config, agents, most=max(SAMPLE, 2 * p, int(EXACT_WORK / p**2)))
        determinant = log_determinant_of_features(lift, p, given, regularization)
        exact = len(given.x) == given.total
    else:
        exact = config.horizon * environment.arms * len(agents) <= EXACT_CONTEXTS
        given = receive_contexts(environment, config, agents, most=EXACT_CONTEXTS if exact else SAMPLE)
        determinant = log_determinant_of_ntk(given.x, config.depth, regularization)
        if not exact:
            half = log_determinant_of_ntk(given.x[::2], config.depth, regularization)
            determinant *= (given.total / len(given.x)) ** math.log2(determinant / half)
    return determinant / math.log(1 + given.total / regularization), exact
