"""Attackers: the last floor(byzantine_share N) agents, who act as the algorithm says and lie in their messages.

All of them work together. They know the honest uploads of the exchange, its theta, and the rule for alpha. So the
server computes their uploads, where all agents' values are in one place, and the bits are the same in every layout.
`poison` and `report` change the rewards that attackers learn from and the triggers that they report: no other agent's
values enter there, and the attackers' own process computes them.

Attacks on vectors change B, gradients and theta_i - theta_sync, and leave W as it is. Regret is that of the honest
agents.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from fnbandit.config import Config
from fnbandit.config.registry import build
from fnbandit.federation.claims import Claims, Scene
from fnbandit.numerics.randomness import Purpose, uniforms

FIELDS_OF_DRAWS = ("moments", "squares", "theta", "alphas", "covariance")
"""Order of the fields in the keys of draws"""
INNER_PRODUCT = 2.0
"""tau of inner-product manipulation with attack_scale=1 (Xie et al. 2020)"""
A_LITTLE = 1.5
"""Standard deviations of a-little-is-enough with attack_scale=1 (Baruch et al. 2019)"""


class Attack:
    """Base class: attackers that are honest."""

    lies = False
    """True where the server needs every agent's own values, to put lies in place of the attackers' uploads"""
    is_omniscient = False
    """True where a lie needs at least one honest upload"""

    def __init__(self, config: Config) -> None:
        self._scale, self._arm = config.attack_scale, config.attack_arm

    def check(self, arms: int) -> None:
        """Raise ValueError where the attack does not suit a task with a number of arms."""

    def poison(self, rewards: Tensor, means: Tensor, arms: Tensor) -> Tensor:
        """Return the rewards [n] that attackers learn from, given all arms' mean rewards [n, arms] and their arms."""
        return rewards

    def report(self, measure: Tensor, level: float) -> Tensor:
        """Return the trigger's measures [n] that attackers report; above `level` they ask for a round."""
        return measure

    def forge(self, honest: Claims, own: Claims, scene: Scene) -> Claims:
        """Return the attackers' claims in place of their `own` honest ones."""
        return own

    def lie(self, claims: Claims, scene: Scene) -> Claims:
        """Return the claims of all agents with those of the attackers forged."""
        if not len(scene.liars) or (self.is_omniscient and not len(scene.honest)):
            return claims
        return claims.substitute(
            scene.liars, self.forge(claims.select(scene.honest), claims.select(scene.liars), scene)
        )


class NoAttack(Attack):
    """All agents are honest."""


class VectorAttack(Attack):
    """Base class of attacks that replace directions: B, gradients, and theta_i - theta_sync."""

    lies = is_omniscient = True

    def turn(self, honest: Tensor, own: Tensor) -> Tensor:
        """Return the attackers' directions [b, p] from the honest [h, p] and their own [b, p]."""
        raise NotImplementedError

    def forge(self, honest: Claims, own: Claims, scene: Scene) -> Claims:
        if own.moments is not None and honest.moments is not None:
            own = replace(own, moments=self.turn(honest.moments, own.moments))
        if own.theta is not None and honest.theta is not None and scene.theta is not None:
            change = self.turn(honest.theta - scene.theta, own.theta - scene.theta)
            own = replace(own, theta=scene.theta + change)
        return own


class SignFlip(VectorAttack):
    """The own direction, reversed: -scale times it."""

    def turn(self, honest: Tensor, own: Tensor) -> Tensor:
        return -self._scale * own


class InnerProduct(VectorAttack):
    """-2 scale times the mean honest direction (Xie et al. 2020)."""

    def turn(self, honest: Tensor, own: Tensor) -> Tensor:
        return (-self._scale * INNER_PRODUCT * honest.mean(0)).expand_as(own)


class ALittleIsEnough(VectorAttack):
    """The mean plus 1.5 scale standard deviations of the honest, coordinate by coordinate (Baruch et al. 2019)."""

    def turn(self, honest: Tensor, own: Tensor) -> Tensor:
        spread = honest.std(0) if len(honest) > 1 else torch.zeros_like(honest[0])
        return (honest.mean(0) + self._scale * A_LITTLE * spread).expand_as(own)


class Zero(Attack):
    """0 in all fields but alpha."""

    lies = True

    def forge(self, honest: Claims, own: Claims, scene: Scene) -> Claims:
        zeros = {name: torch.zeros_like(value) for name, value in own.values.items() if name not in ("rows", "alphas")}
        return replace(own, **zeros)


class Noise(Attack):
    """The honest values plus Gaussian noise of scale times their root mean square, in W, B, squares and theta_i."""

    lies = True

    def forge(self, honest: Claims, own: Claims, scene: Scene) -> Claims:
        changed = {}
        for place, name in enumerate(FIELDS_OF_DRAWS):
            value = getattr(own, name)
            if value is None or name == "alphas":
                continue
            flat = value.reshape(len(value), -1)
            key = (scene.iteration * 2**20 + scene.exchange) * len(FIELDS_OF_DRAWS) + place
            draws = draw_normals(scene.seed, scene.liars, key, flat.shape[1]).to(flat)
            noise = (draws * flat.square().mean(1, keepdim=True).sqrt() * self._scale).view_as(value)
            if name == "covariance":
                noise = scene.matrices.symmetrize(noise)
            changed[name] = value + noise
        return replace(own, **changed)


class Mimic(Attack):
    """A copy of the first honest agent's upload."""

    lies = is_omniscient = True

    def forge(self, honest: Claims, own: Claims, scene: Scene) -> Claims:
        count = len(own.rows)
        copies = {name: value[:1].expand(count, *value.shape[1:]) for name, value in honest.values.items()}
        return replace(own, **copies | {"rows": own.rows})


class Overconfident(Attack):
    """W_i = scale n L^2 I, with L^2 the mean squared length of honest rows: nobody has a bonus any more."""

    lies = is_omniscient = True

    def forge(self, honest: Claims, own: Claims, scene: Scene) -> Claims:
        if own.covariance is None or honest.covariance is None:
            return own
        lengths = scene.matrices.traces(honest.covariance).sum() / honest.rows.sum().clamp(min=1)
        scales = self._scale * lengths * own.rows
        return replace(own, covariance=scene.matrices.identities(scales, own.covariance.shape[1]))


class Anxious(Attack):
    """W_i = 0 and B_i = 0, so that V_i^-1 = I / lambda for ever: the bonus of UCB^b never vanishes."""

    lies = True

    def forge(self, honest: Claims, own: Claims, scene: Scene) -> Claims:
        if own.covariance is None:
            return own
        moments = None if own.moments is None else torch.zeros_like(own.moments)
        return replace(own, covariance=torch.zeros_like(own.covariance), moments=moments)


class AlphaAtZero(Attack):
    """Uploads that argue for alpha = 0."""

    lies = True
    value = 0.0

    def forge(self, honest: Claims, own: Claims, scene: Scene) -> Claims:
        if own.alphas is None:
            return own
        return replace(own, alphas=scene.alpha_rule.argue_for(self.value, own.alphas))


class AlphaAtOne(AlphaAtZero):
    """Uploads that argue for alpha = 1."""

    value = 1.0


class RewardFlip(Attack):
    """Rewards h_max + h_min - r over the arms of the iteration; all that is sent is true of them."""

    def poison(self, rewards: Tensor, means: Tensor, arms: Tensor) -> Tensor:
        low, high = means.aminmax(dim=1)
        return low + high - rewards


class Promote(Attack):
    """The iteration's largest mean reward for the arm `attack_arm`, its smallest for the others."""

    def check(self, arms: int) -> None:
        if self._arm >= arms:
            raise ValueError(f"attack_arm={self._arm}: expected a number from 0 to {arms - 1}")

    def poison(self, rewards: Tensor, means: Tensor, arms: Tensor) -> Tensor:
        low, high = means.aminmax(dim=1)
        return high.where(arms == self._arm, low)


class TriggerFlood(Attack):
    """A report in every iteration that asks for a round."""

    def report(self, measure: Tensor, level: float) -> Tensor:
        return torch.full_like(measure, level + self._scale)


def draw_normals(seed: int, agents: Tensor, key: int, count: int) -> Tensor:
    """Return standard normal numbers [b, count], a function of (seed, agent, key), by Box and Muller's method."""
    draws = 1 - uniforms(seed, Purpose.ATTACK, agents.cpu().numpy(), key, 2 * count)
    angle, length = torch.from_numpy(draws).split(count, dim=1)
    return (-2 * length.log()).sqrt() * (2 * torch.pi * angle).cos()


def make_attack(config: Config) -> Attack:
    """Make the attack that a config names."""
    return build("attack", config.attack, config)
