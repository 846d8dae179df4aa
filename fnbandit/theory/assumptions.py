"""Lists the assumptions of the theorems that a config violates, one line each."""

from __future__ import annotations

import math

import numpy as np
import torch

from fnbandit.config import Config
from fnbandit.config.registry import resolve_part
from fnbandit.environments import Environment
from fnbandit.federation.alpha import make_alpha, stride
from fnbandit.networks.features import TangentFeatures
from fnbandit.theory.dimensions import Received, ntk, receive_contexts

LOOKED_AT = 500
"""Number of received contexts on which assumptions are checked"""
RISK = 0.01
"""Probability with which a recommended width may still leave a point without an active unit"""


def remarks(config: Config, environment: Environment) -> list[str]:
    """Return every assumption of the theorems that fails for a config, and its consequence; most are of FN-UCB alone.

    Checks LOOKED_AT of the contexts that agents receive and the sample of the domain; takes a few milliseconds.
    """
    traits = resolve_part("algorithm", config.algorithm).traits
    worlds = list_world_remarks(config, traits.communicates or traits.runs_in_one_group)
    if not traits.uses_alpha:
        return worlds
    given = receive_contexts(environment, config, range(config.agents), LOOKED_AT)
    lines = [*worlds, *_network(config), *_contexts(given), *_rewards(given), *_weight(config)]
    if config.network == "ntk":
        least, needed = _eigenvalue(given, config.depth), None
        if least <= 0:
            lines.append("Assumption 1 (Sec. 2): H has no lambda_0 > 0, because contexts repeat or one is 0")
        else:
            needed = require_width(config, environment.arms, least)
        lines += [_width(config, needed), *inactive(config, environment, given)]
    return lines


def list_world_remarks(config: Config, is_joint: bool) -> list[str]:
    """Return a line for each way in which agents do not observe one h at once; `is_joint`: they learn together."""
    lines = []
    if is_joint and resolve_part("heterogeneity", config.heterogeneity).has_variants:
        lines.append(
            f"Sec. 2: all agents are assumed to have the same h, but with heterogeneity={config.heterogeneity} "
            "each has its own: B, nu and the bounds on regret do not hold"
        )
    if resolve_part("drift", config.drift).moves:
        lines.append(
            f"Sec. 2: h is assumed to stay the same, but drift={config.drift} changes it: B, nu and the bounds on "
            "regret do not hold"
        )
    if config.feedback_delay:
        lines.append(
            f"Alg. 1, line 8: a reward is observed in its own iteration, with feedback_delay={config.feedback_delay} "
            "later: the bounds on regret do not hold"
        )
    return lines


def _network(config: Config) -> list[str]:
    if config.network == "ntk":
        return []
    return ["network=standard: the theorems assume App. B's network=ntk (no biases, doubled contexts, f = 0)"]


def _contexts(given: Received) -> list[str]:
    """Check Assumption 1: ||x|| = 1. The network itself ensures [x]_j = [x]_{j + d/2}."""
    lengths = np.linalg.norm(given.x, axis=1)
    if np.abs(lengths - 1).max() < 1e-6:
        return []
    return [f"Assumption 1 (Sec. 2): contexts have lengths from {lengths.min():.3g} to {lengths.max():.3g}, not 1"]


def _rewards(given: Received) -> list[str]:
    """Check Sec. 2's |h| <= 1, by which App. C.5 bounds the regret of single iterations."""
    largest = np.abs(given.h).max()
    return [f"Sec. 2: |h| <= 1 is assumed, but |h| reaches {largest:.3g}"] if largest > 1 + 1e-9 else []


def _weight(config: Config) -> list[str]:
    lines = []
    if config.reward_unit != "one":
        lines.append(f"reward_unit={config.reward_unit}: bonuses are nu times an agent's own unit, in the theory nu")
    if config.use_global and config.use_local and not make_alpha(config).covered_by_theorem:
        lines.append(f"weight={config.weight}: Theorem 1 and App. F bound the regret of weight=theory only")
    return lines


def _eigenvalue(given: Received, depth: int) -> float:
    """Return an upper bound on lambda_0 (Assumption 1): the least eigenvalue of a part of H; 0 if below rounding."""
    values = np.linalg.eigvalsh(ntk(given.x, depth)[0])
    return float(values[0]) if values[0] > 1e-12 * values[-1] else 0.0


def require_width(config: Config, arms: int, eigenvalue: float) -> float:
    """Return the least m that satisfies all conditions of App. C.1 with C = 1, for lambda_0 = eigenvalue.

    Conditions 1 to 3 bound m, conditions 4 to 6 bound m / (log m)^3.
    """
    T, K, N, L = float(config.horizon), float(arms), float(config.agents), float(config.depth)
    lam = 1 + 2 / T if config.regularization == "theory" else config.regularization
    delta, root = config.delta, (1 + math.sqrt(T / lam)) ** 6
    direct = max(
        (T * K * N * L) ** 6 * math.log(T * K * N * L / delta),
        (T * K * N) ** 4 * L**6 * math.log((T * K * N) ** 2 * L / delta) / eigenvalue**4,
        math.sqrt(lam) * L**-1.5 * math.log(T * K * N * L**2 / delta) ** 1.5,
    )
    over_logs = max(
        T * L**12 / lam + T**7 * lam**-8 * L**18 * (lam + L * T) ** 6 + L**21 * T**7 * lam**-7 * root,
        T**10 * N**6 * lam**-4 * L**18,
        T**16 * N**6 * L**24 * lam**-10 * root,
    )
    # m = c (log m)^3 from below: the iteration rises to the largest solution.
    m = max(over_logs, 100.0)
    for _ in range(100):
        m = over_logs * math.log(m) ** 3
    return max(direct, m)


def _width(config: Config, needed: float | None) -> str:
    required = "a positive lambda_0" if needed is None else f"about 1e{math.log10(needed):.0f} or more, constants 1"
    return f"width={config.width}: the conditions on m of App. C.1 require {required}; no feasible width satisfies them"


def inactive(config: Config, environment: Environment, given: Received) -> list[str]:
    """Return a line where alpha of weight=theory is, or may become, permanently 0.

    The reason is a point that activates no unit of theta_0. It has g(x; theta_0) = 0 and sigma = 0, so
    sigma_min / sigma_max of Sec. 3.3 is 0, as the paper defines it. Each hidden layer of App. B's network has m/2
    different rows, each active for half of all directions: a point activates no unit of some layer with a probability
    of at most (L - 1) 2^(-m/2).
    """
    if not make_alpha(config).covered_by_theorem:
        return []
    points = np.concatenate([environment.domain(config.domain_sample), given.x])
    lift = TangentFeatures(config, environment.dim, torch.empty(0, dtype=torch.float64))
    parts = torch.from_numpy(points).split(max(1, 4_000_000 // lift.network.parameter_count))
    dead = np.concatenate([(lift(part[None])[0] == 0).all(1).numpy() for part in parts])
    inside = int(dead[: len(dead) - len(given.x)].sum())
    every = stride(config, environment.arms)
    tracked = config.agents * environment.arms * (-(-config.horizon // every) if every else 0) + config.domain_sample
    layers = config.hidden_layers
    expected = tracked * layers * 2.0 ** (-config.width / 2)
    if not dead.any() and expected <= RISK:
        return []
    width = 2 * math.ceil(math.log2(tracked * layers / RISK))
    cure = f"width={width} avoids it with probability {1 - RISK}" if width > config.width else "use another seed"
    share = f"{dead.sum()} of {len(dead):,} points checked ({dead.mean():.2%})"
    of = f"{share} activate no unit of theta_0, so sigma is 0 there"
    if inside:
        return [f"weight=theory: alpha is permanently 0 (Sec. 3.3): {of}; {cure}"]
    return [f"weight=theory: alpha may become permanently 0 (Sec. 3.3): {of}, {expected:.2g} expected in all; {cure}"]
