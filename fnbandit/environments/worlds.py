"""Tasks in which agents differ, and tasks that drift: they wrap any task and change its rewards, never its contexts.

A variant of a task has other rewards for the same contexts. A reward function becomes h(R x) with an orthogonal matrix
R, which for h(<a, x>) is another a; where contexts tell arms apart, arms exchange their rewards. A drift moves the
whole task along one path between the task and another variant. Variants are functions of (seed, purpose, variant), and
positions on the path of the iteration, so that no state is kept. Regret is against each agent's own best arm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from fnbandit.config import Config
from fnbandit.config.registry import build, resolve_part
from fnbandit.environments.base import Block, Environment, draw_block, draw_domain
from fnbandit.numerics.randomness import BLOCK, Purpose, generator


class SameTask:
    """All agents have the same task. Base class of the differences between agents."""

    has_variants = False
    """True where agents have variants of the task"""
    has_domains = False
    """True where agents receive contexts of their own domain"""

    def __init__(self, config: Config) -> None:
        self._config = config

    def mix(self, agent: int) -> Sequence[tuple[float, int]]:
        """Return the variants whose rewards add up to an agent's, each with its factor; variant 0 is the task."""
        return [(1.0, 0)]


class ClusteredTasks(SameTask):
    """Agent i has variant i mod groups."""

    has_variants = True

    def mix(self, agent: int) -> Sequence[tuple[float, int]]:
        return [(1.0, agent % self._config.groups)]


class PersonalTasks(SameTask):
    """h_i = (1 - rho) h + rho h'_i with a variant h'_i for each agent."""

    has_variants = True

    def mix(self, agent: int) -> Sequence[tuple[float, int]]:
        share = self._config.personal_share
        return [(factor, variant) for factor, variant in ((1 - share, 0), (share, 1 + agent)) if factor]


class DomainTasks(SameTask):
    """Agents receive rows of their own domain of a table, whose rewards are the same for all agents."""

    has_domains = True


class NoDrift:
    """The task never changes. Base class of drifts: a path from the task, at angle 0, to another one at pi / 2."""

    moves = False

    def __init__(self, config: Config) -> None:
        self._config = config

    def angles(self, iterations: np.ndarray) -> np.ndarray:
        """Return the position on the path in iterations [n], in radians, [n]."""
        return np.zeros(len(iterations))


class RotatingDrift(NoDrift):
    """drift_rate radians per iteration: a(t) = cos(w t) a + sin(w t) b with b orthogonal to a."""

    moves = True

    def angles(self, iterations: np.ndarray) -> np.ndarray:
        return self._config.drift_rate * iterations


class SwitchingDrift(NoDrift):
    """The other end of the path after iteration T/2."""

    moves = True

    def angles(self, iterations: np.ndarray) -> np.ndarray:
        return np.where(iterations > self._config.horizon / 2, np.pi / 2, 0.0)


class Variants(Protocol):
    """Variants of a task, and the path of its drift."""

    def means(self, block: Block, variant: int, angles: np.ndarray | None) -> np.ndarray:
        """Return a variant's mean rewards in a block, [BLOCK, arms], at angles [BLOCK] of the drift (None: at 0)."""
        ...


class RotatedFunction:
    """Variants h(R D x) of a reward function h: R is a uniform orthogonal matrix, D = cos(angle) I + sin(angle) J.

    J turns every plane of a uniform basis by a right angle, so that <a, D x> = <cos(angle) a + sin(angle) b, x> with b
    orthogonal to a, uniform on the unit sphere. In an odd dimension one vector of the basis stays. D turns the a of
    all variants alike, so that their angles stay.
    """

    def __init__(self, config: Config, task: Any) -> None:
        self._rewards, self._seed, self.dim = task.rewards, config.seed, task.dim
        if resolve_part("drift", config.drift).moves and self.dim < 2:
            raise ValueError(f"dim={self.dim}: drift={config.drift} turns directions; expected at least 2")
        basis = draw_orthogonal(generator(config.seed, Purpose.DRIFT), self.dim)
        even = self.dim // 2 * 2
        self._quarter = basis[:, 1:even:2] @ basis[:, 0:even:2].T - basis[:, 0:even:2] @ basis[:, 1:even:2].T
        """J [dim, dim]"""
        self._fixed = np.outer(basis[:, -1], basis[:, -1]) if self.dim % 2 else np.zeros((self.dim, self.dim))
        """Projection on the vector that stays"""
        self._matrices: dict[int, np.ndarray] = {}

    def means(self, block: Block, variant: int, angles: np.ndarray | None) -> np.ndarray:
        shape = block.means.shape
        x = block.contexts.reshape(-1, self.dim)
        if angles is not None:
            turn = np.repeat(angles, shape[1])[:, None]
            fixed = x @ self._fixed
            x = np.cos(turn) * (x - fixed) + np.sin(turn) * (x @ self._quarter.T) + fixed
        if variant:
            x = x @ self._matrix(variant).T
        return self._rewards(x).reshape(shape)

    def _matrix(self, variant: int) -> np.ndarray:
        if variant not in self._matrices:
            self._matrices[variant] = draw_orthogonal(generator(self._seed, Purpose.VARIANT, variant), self.dim)
        return self._matrices[variant]


class ExchangedArms:
    """Variants in which arms exchange their rewards, by a permutation that is not the identity.

    At an angle of the drift, rewards are cos^2(angle) times the task's and sin^2(angle) times those of the drift's own
    permutation.
    """

    def __init__(self, config: Config, task: Any) -> None:
        self._seed, self._arms = config.seed, task.arms
        self._other = draw_exchange(generator(config.seed, Purpose.DRIFT), task.arms)

    def means(self, block: Block, variant: int, angles: np.ndarray | None) -> np.ndarray:
        means = block.means
        if variant:
            means = means[:, draw_exchange(generator(self._seed, Purpose.VARIANT, variant), self._arms)]
        if angles is not None:
            share = np.sin(angles)[:, None] ** 2
            means = (1 - share) * means + share * means[:, self._other]
        return means


def draw_orthogonal(random: np.random.Generator, dim: int) -> np.ndarray:
    """Draw a uniform (Haar) orthogonal matrix: the Q of a normal matrix whose R has a positive diagonal."""
    q, r = np.linalg.qr(random.standard_normal((dim, dim)))
    return q * np.sign(np.diag(r))


def draw_exchange(random: np.random.Generator, arms: int) -> np.ndarray:
    """Draw a permutation of the arms, uniform among those that are not the identity."""
    while True:
        order = random.permutation(arms)
        if (order != np.arange(arms)).any():
            return order


class World:
    """A task whose agents have variants of it, or which drifts; contexts and noise are those of the task."""

    digest: str | None = None
    """SHA-256 of the content of a user's table, if the task has one"""

    def __init__(self, config: Config, task: Any, difference: SameTask, drift: NoDrift) -> None:
        self.arms, self.dim = task.arms, task.dim
        self.task: Environment = task
        """The task itself"""
        self._difference, self._drift = difference, drift
        if getattr(task, "codes_arms", False):
            self._variants: Variants = ExchangedArms(config, task)
        elif hasattr(task, "rewards"):
            self._variants = RotatedFunction(config, task)
        else:
            choice = f"heterogeneity={config.heterogeneity!r}" if difference.has_variants else f"drift={config.drift!r}"
            raise ValueError(
                f"{choice}: environment={config.environment!r} has neither `rewards`, a method that returns h of "
                "contexts, nor `codes_arms = True`; expected one of them"
            )
        for name in ("noise_bound", "digest"):
            if hasattr(task, name):
                setattr(self, name, getattr(task, name))

    def block(self, agent: int, index: int) -> Block:
        block = draw_block(self.task, agent, index)
        angles = (
            self._drift.angles(np.arange(index * BLOCK + 1, (index + 1) * BLOCK + 1)) if self._drift.moves else None
        )
        parts = [
            factor * self._variants.means(block, variant, angles) for factor, variant in self._difference.mix(agent)
        ]
        return replace(block, means=sum(parts[1:], parts[0]))

    def domain(self, count: int) -> np.ndarray:
        return draw_domain(self.task, count)


def deals_domains(config: Config) -> bool:
    """Return True where agents receive rows of their own domain."""
    return resolve_part("heterogeneity", config.heterogeneity).has_domains


def make_world(config: Config, task: Any) -> Environment:
    """Return the task with the config's differences between agents and its drift; the task itself without any."""
    difference: SameTask = build("heterogeneity", config.heterogeneity, config)
    drift: NoDrift = build("drift", config.drift, config)
    if difference.has_domains:
        if not getattr(task, "domain_names", ()):
            raise ValueError(
                f"heterogeneity={config.heterogeneity!r}: environment={config.environment!r} has no domains; "
                "expected environment=routing, or a table with a column that domain_column names"
            )
        task.deal_domains()
    return World(config, task, difference, drift) if difference.has_variants or drift.moves else task
