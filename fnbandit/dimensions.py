"""Contexts that agents receive, their NTK matrix, and effective dimensions (App. B, Sec. 3.2)."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fnbandit.config import Config
from fnbandit.covariance import Lift
from fnbandit.environments import Environment
from fnbandit.network import TangentFeatures
from fnbandit.randomness import BLOCK, Purpose, generator
from fnbandit.registry import find

EXACT_CONTEXTS = 10_000
"""Up to this many contexts the NTK matrix of all of them is used; beyond, a power law from a sample."""
SAMPLE = 4_000
"""Contexts in such a sample; and the most on which B is computed."""
EXACT_WORK = 5e10
"""Up to count * p^2 = this, all contexts' own features are used; beyond, a sample's second moments."""
JITTER = 1e-8
"""What is added to H's diagonal where it is inverted, as a share of its mean."""


class Received(NamedTuple):
    """Contexts that some agents receive."""

    x: np.ndarray
    """[count, dim]"""
    h: np.ndarray
    """The reward function's values, [count]"""
    total: int
    """How many there are; `count` of them are here"""


# The NTK matrix (App. B)


def arc_cosine(covariance: Tensor, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """E[relu(u) relu(v)] and P(u > 0, v > 0) for centred Gaussians u, v (App. B).

    covariance [a, b] is that of (u, v), left [a] and right [b] their variances.
    """
    scale = torch.outer(left.sqrt(), right.sqrt())
    cosine = (covariance / scale.where(scale > 0, 1)).clamp_(-1, 1)
    both = (math.pi - torch.arccos(cosine)) / (2 * math.pi)
    relu = scale * ((1 - cosine.square()).sqrt_() / (2 * math.pi) + both * cosine)
    return relu, both


def ntk(x: np.ndarray, depth: int) -> tuple[np.ndarray, np.ndarray]:
    """H = (H~^(L) + Sigma^(L)) / 2 (App. B) and H~^(L), for contexts x [count, dim] and L = depth.

    With App. B's initialisation the Gram matrix of g(x; theta_0)/sqrt(m) tends to H~^(L): its
    last layer's part to Sigma^(L), the other layers' to H~^(L) - Sigma^(L), of which H takes half.
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
    """sqrt(2 h^T H^-1 h), the least B (Sec. 2), for h [count] and H [count, count].

    H's diagonal is raised by JITTER times its mean, which moves a regular H's result by about as little and makes
    the inverse of a singular one (a context that stands twice) its pseudo-inverse.
    """
    regular = torch.from_numpy(matrix).clone()
    regular.diagonal().add_(JITTER * float(regular.diagonal().mean()))
    factor = torch.linalg.cholesky(regular)
    half = torch.linalg.solve_triangular(factor, torch.from_numpy(h)[:, None], upper=False)
    return math.sqrt(2) * float(half.norm())


# Contexts


def contexts_of(environment: Environment, agents: range, horizon: int) -> Received:
    """All contexts that these agents receive, agent by agent: agents * horizon * arms."""
    x, h = [], []
    for agent in agents:
        blocks = [environment.block(agent, index) for index in range(-(-horizon // BLOCK))]
        x.append(np.concatenate([block.contexts for block in blocks])[:horizon].reshape(-1, environment.dim))
        h.append(np.concatenate([block.means for block in blocks])[:horizon].ravel())
    joined = np.concatenate(x)
    return Received(joined, np.concatenate(h).astype(np.float64), len(joined))


def received(environment: Environment, config: Config, agents: range, most: int) -> Received:
    """The contexts that these agents receive if they are at most `most`, else so many of them.

    A sample is drawn without regard to agent or iteration, as a function of the seed and of the first agent.
    """
    per_agent = config.horizon * environment.arms
    total = per_agent * len(agents)
    if total <= most:
        return contexts_of(environment, agents, config.horizon)
    random = generator(config.seed, Purpose.THEORY, agents.start)
    chosen = np.sort(random.choice(total, size=most, replace=False))
    who, place = np.divmod(chosen, per_agent)
    when, arm = np.divmod(place, environment.arms)
    x, h = np.empty((most, environment.dim)), np.empty(most)
    for agent, index in {(int(a), int(t) // BLOCK) for a, t in zip(who, when, strict=True)}:
        here = np.flatnonzero((who == agent) & (when // BLOCK == index))
        block = environment.block(agents[agent], index)
        x[here] = block.contexts[when[here] % BLOCK, arm[here]]
        h[here] = block.means[when[here] % BLOCK, arm[here]]
    return Received(x, h, total)


# Effective dimensions (Sec. 2)


def features_in_use(config: Config, environment: Environment) -> tuple[Lift, int] | None:
    """The features whose Gram matrix stands for H, and their number p; None for network=ntk, whose H is App. B's.

    network=standard is no network of App. B, and its features have no limit as m grows. What the analysis of linear
    UCB needs of it is the Gram matrix of the features in use, K = G G^T with rows g(x; theta_0): App. C.2 and D hold
    for log det(I + K/lambda) as they stand, without the step (d) from K to H that asks for a wide network. The same
    goes for algorithms on raw contexts.
    """
    kind = find("algorithm", config.algorithm).learns_on
    if not kind:
        name = config.algorithm
        raise ValueError(f"algorithm={name!r}: has no effective dimension here; give numbers in place of 'theory'")
    if kind == "contexts":
        return (lambda x: x), environment.dim
    if config.network == "ntk":
        return None
    lift = TangentFeatures(config, environment.dim, torch.empty(0, dtype=torch.float64))
    return lift, lift.network.parameter_count


def log_determinant_of_ntk(x: np.ndarray, depth: int, regularization: float) -> float:
    """log det(I + H/lambda) over contexts x."""
    return _log_determinant(torch.from_numpy(ntk(x, depth)[0]), regularization)


def log_determinant_of_features(lift: Lift, parameters: int, given: Received, regularization: float) -> float:
    """log det(I + G G^T/lambda) = log det(I + G^T G/lambda) for the features G [count, p] of contexts.

    Where only a sample is given, its G^T G is scaled up to the number of all contexts.
    """
    moments = torch.zeros(parameters, parameters, dtype=torch.float64)
    for part in torch.from_numpy(given.x).split(max(1, 4_000_000 // parameters)):
        g = lift(part[None])[0]
        moments.addmm_(g.mT, g)
    return _log_determinant(moments.mul_(given.total / len(given.x)), regularization)


def _log_determinant(matrix: Tensor, regularization: float) -> float:
    matrix.div_(regularization).diagonal().add_(1)
    return 2 * float(torch.linalg.cholesky(matrix).diagonal().log().sum())


def effective_dimension(
    environment: Environment, config: Config, agents: range, regularization: float
) -> tuple[float, bool]:
    """d~ = log det(I + H/lambda) / log(1 + count/lambda) (Sec. 2) over these agents' contexts; whether it is exact.

    H is the NTK matrix for network=ntk, else the Gram matrix of the features in use. Beyond EXACT_CONTEXTS the former's
    log det is a power law of the number of contexts, through its exact values on SAMPLE contexts and on half of
    them: some ten per cent off at five times the sample. Of features a sample of at least 2 p contexts is enough.
    """
    use = features_in_use(config, environment)
    if use is not None:
        lift, p = use
        given = received(environment, config, agents, most=max(SAMPLE, 2 * p, int(EXACT_WORK / p**2)))
        determinant = log_determinant_of_features(lift, p, given, regularization)
        exact = len(given.x) == given.total
    else:
        exact = config.horizon * environment.arms * len(agents) <= EXACT_CONTEXTS
        given = received(environment, config, agents, most=EXACT_CONTEXTS if exact else SAMPLE)
        determinant = log_determinant_of_ntk(given.x, config.depth, regularization)
        if not exact:
            half = log_determinant_of_ntk(given.x[::2], config.depth, regularization)
            determinant *= (given.total / len(given.x)) ** math.log2(determinant / half)
    return determinant / math.log(1 + given.total / regularization), exact


# Formulas
