"""The theory as numbers: NTK matrices, effective dimensions, nu, D, eta, J and the bounds, constants set to 1."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fnbandit.config import Config
from fnbandit.environments import Environment, make_environment
from fnbandit.presets import THEORY_FIELDS
from fnbandit.randomness import BLOCK, Purpose, generator
from fnbandit.registry import find

EXACT_CONTEXTS = 10_000
"""Up to this many contexts the Gram matrix of all of them is used; beyond, a power law from a sample."""
SAMPLE = 4_000
"""Contexts in such a sample."""
AGENTS_LOOKED_AT = 16
"""d~_max is the largest of at most this many agents' d~_i."""


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


def log_determinant(x: np.ndarray, depth: int, regularization: float) -> float:
    """log det(I + H/lambda) over contexts x."""
    gram = torch.from_numpy(ntk(x, depth)[0]).div_(regularization)
    gram.diagonal().add_(1)
    return 2 * float(torch.linalg.cholesky(gram).diagonal().log().sum())


def contexts_of(environment: Environment, agents: range, horizon: int) -> np.ndarray:
    """All contexts that these agents receive, [agents * horizon * arms, dim]."""
    blocks = range(-(-horizon // BLOCK))
    parts = [
        np.concatenate([environment.block(agent, index).contexts for index in blocks])[:horizon] for agent in agents
    ]
    return np.concatenate(parts).reshape(-1, environment.dim)


def effective_dimension(
    environment: Environment, config: Config, agents: range, regularization: float
) -> tuple[float, bool]:
    """d~ = log det(I + H/lambda) / log(1 + count/lambda) over these agents' contexts; whether it is exact.

    Beyond EXACT_CONTEXTS the log det is a power law of the number of contexts, through its exact
    values on SAMPLE contexts and on half of them: some ten per cent off at five times the sample.
    """
    per_agent = config.horizon * environment.arms
    count = per_agent * len(agents)
    if count <= EXACT_CONTEXTS:
        determinant = log_determinant(contexts_of(environment, agents, config.horizon), config.depth, regularization)
    else:
        x = _sampled(environment, config, agents)
        half = log_determinant(x[::2], config.depth, regularization)
        whole = log_determinant(x, config.depth, regularization)
        determinant = whole * (count / len(x)) ** math.log2(whole / half)
    return determinant / math.log(1 + count / regularization), count <= EXACT_CONTEXTS


def _sampled(environment: Environment, config: Config, agents: range) -> np.ndarray:
    """SAMPLE of these agents' contexts, drawn without regard to agent or iteration."""
    random = generator(config.seed, Purpose.THEORY, agents.start)
    per_agent = config.horizon * environment.arms
    chosen = np.sort(random.choice(per_agent * len(agents), size=SAMPLE, replace=False))
    who, place = np.divmod(chosen, per_agent)
    when, arm = np.divmod(place, environment.arms)
    points = np.empty((SAMPLE, environment.dim))
    for agent, index in {(int(a), int(t) // BLOCK) for a, t in zip(who, when, strict=True)}:
        here = np.flatnonzero((who == agent) & (when // BLOCK == index))
        block = environment.block(agents[agent], index)
        points[here] = block.contexts[when[here] % BLOCK, arm[here]]
    return points


@dataclass(frozen=True)
class Theory:
    """The paper's quantities for a config. Bounds have their constants and log factors set to 1."""

    regularization: float
    effective_dimension: float
    """d~"""
    largest_local_dimension: float
    """d~_max"""
    exact: bool
    """Whether both come from the Gram matrix of all contexts, and of all agents"""
    exploration_global: float
    """nu_TKN"""
    exploration_local: float
    """nu_TK"""
    threshold: float
    """D = T / (N d~)"""
    training_rate: float
    """eta"""
    training_steps: int
    """J"""
    regret_bound: float
    """d~ sqrt(TN) + d~_max N sqrt(T), times sqrt(N) in the second term for Less Comm."""
    rounds_bound: float
    """ceil(T / zeta) + ceil(R' zeta / D) with zeta = sqrt(D T / R') (App. D), for the config's D"""


def nu(
    norm_bound: float, noise_bound: float, failure: float, dimension: float, count: float, regularization: float
) -> float:
    """B + R sqrt(2 (log(1/failure) + 1) + d log(1 + count/lambda)) (Sec. 3.2)."""
    inside = 2 * (math.log(1 / failure) + 1) + dimension * math.log(1 + count / regularization)
    return norm_bound + noise_bound * math.sqrt(inside)


def training(config: Config, regularization: float) -> tuple[float, int]:
    """eta and J of App. C.1 with C_2 = C_4 = 1.

    The paper prints J with log(sqrt(lambda / (T^3 L)) / (3 N)), which is negative; the condition
    that it serves, (1 - eta m lambda)^J sqrt(T L / lambda) T N <= 1/3, asks for the inverse.
    """
    horizon, depth = config.horizon, config.depth
    rate = 1 / (config.width * regularization + config.width * horizon * depth)
    ratio = 3 * config.agents * math.sqrt(horizon**3 * depth / regularization)
    return rate, math.ceil((1 + horizon * depth / regularization) * math.log(ratio))


def describe(config: Config, environment: Environment | None = None) -> Theory:
    """All of the theory's numbers for a config."""
    environment = environment or make_environment(config)
    horizon, agents = config.horizon, config.agents
    given = config.regularization
    regularization = 1 + 2 / horizon if given == "theory" else given
    dimension, exact = effective_dimension(environment, config, range(agents), regularization)
    looked_at = range(min(agents, AGENTS_LOOKED_AT))
    locals_ = [effective_dimension(environment, config, range(i, i + 1), regularization) for i in looked_at]
    local = max(value for value, _ in locals_)
    exact = exact and all(flag for _, flag in locals_) and len(looked_at) == agents
    per_agent = horizon * environment.arms
    threshold = horizon / (agents * dimension)
    rate, steps = training(config, regularization)
    information = dimension * math.log(1 + per_agent * agents / regularization) + 1
    used = threshold if config.threshold == "theory" else config.threshold
    zeta = math.sqrt(used * horizon / information)
    averaged = getattr(find("algorithm", config.algorithm), "averages_inverses", False)
    less = math.sqrt(agents) if averaged else 1.0
    bound = dimension * math.sqrt(horizon * agents) + local * agents * math.sqrt(horizon) * less
    return Theory(
        regularization=regularization,
        effective_dimension=dimension,
        largest_local_dimension=local,
        exact=exact,
        exploration_global=nu(
            config.norm_bound, config.noise_bound, config.delta / 3, dimension, per_agent * agents, regularization
        ),
        exploration_local=nu(
            config.norm_bound, config.noise_bound, config.delta / (3 * agents), local, per_agent, regularization
        ),
        threshold=threshold,
        training_rate=rate,
        training_steps=steps,
        regret_bound=bound,
        rounds_bound=math.ceil(horizon / zeta) + math.ceil(information * zeta / used) if used else math.inf,
    )


def resolve(config: Config, environment: Environment | None = None) -> Config:
    """The config with every 'theory' replaced by its number; weight='theory' is a rule and stays."""
    names = [name for name in THEORY_FIELDS if getattr(config, name) == "theory"]
    if not names:
        return config
    simple = {"regularization", "training_rate", "training_steps"}
    if set(names) <= simple:
        given = config.regularization
        regularization = 1 + 2 / config.horizon if given == "theory" else given
        rate, steps = training(config, regularization)
        values = {"regularization": regularization, "training_rate": rate, "training_steps": steps}
    else:
        numbers = describe(config, environment)
        values = {name: getattr(numbers, name) for name in names}
    return config.replace(**{name: values[name] for name in names})
