"""The promise of a run with privacy, as a dry run prints it, summary.json keeps it and trackers show it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from fnbandit.config import Config
from fnbandit.config.registry import resolve_part
from fnbandit.environments import Environment
from fnbandit.networks.network import Network
from fnbandit.privacy.accounting import find_epsilon
from fnbandit.privacy.releases import REPLACED, REPLACED_SQUARE, Releases, plan_releases

FEATURE_SHARE = 0.5
"""Mean squared norm of clipped features, over the square of the clip, that the ratio of signal to noise assumes"""
MECHANISMS = {
    ("networks", True): "clipped changes of networks with Gaussian noise",
    ("networks", False): "clipped mean gradients with Gaussian noise",
    ("statistics", True): "W and B of clipped rows with Gaussian noise, {factorization} factorization",
}
UNITS = {"agent": "an agent's whole history", "event": "one interaction of one agent: its contexts, arm and reward"}
OWN_DATA = "an agent uses its own raw data freely, and its own users are not protected from each other"
LATER_ARMS = (
    "neighbours have all other interactions in common, arms included: an arm that the agent would have pulled "
    "otherwise after another interaction is not part of the promise"
)
SEED = (
    "noise is a function of the seed: whoever knows the seed can subtract it; records show what the experimenter sees"
)


@dataclass(frozen=True)
class Promise:
    """Everything that the observer sees in the whole run is (epsilon, delta)-private for neighbours by one unit."""

    unit: str
    """agent: its whole history; event: one interaction of one agent"""
    trust: str
    """local: nobody; central: who sums the agents' messages, or a protocol that reveals their sum only"""
    mechanism: str
    epsilon: float
    delta: float
    clip: dict[str, float]
    """Largest norms: C of networks or mean gradients; L of features and R of rewards"""
    rounds: int
    """Rounds that release anything"""
    releases: dict[str, int]
    """Number of releases by kind"""
    z: dict[str, float]
    """Standard deviation of the noise over the sensitivity, by kind; of statistics, that of the correlated draws"""
    ratio: float
    """Signal to noise: of a round's networks, or of the last W; the smaller one"""
    neighbours: str = "replace one"
    observer: str = "the server and all other agents, who see every message of the run"

    @property
    def not_covered(self) -> tuple[str, ...]:
        """Facts about what is not promised."""
        return (OWN_DATA, LATER_ARMS, SEED) if self.unit == "event" else (OWN_DATA, SEED)

    def summary(self, config: Config, iteration: int) -> dict[str, Any]:
        """Return the promise for summary.json, with the epsilon of the releases up to an iteration."""
        cost = plan_releases(config).cost(iteration - config.feedback_delay)
        spent = {"released_epsilon": find_epsilon(cost, self.delta)}
        return asdict(self) | spent | {"not_covered": self.not_covered}

    def params(self) -> dict[str, Any]:
        """Return the promise as parameters for trackers."""
        clip = ", ".join(f"{name} {value:g}" for name, value in self.clip.items())
        z = ", ".join(f"{name} {value:.4g}" for name, value in self.z.items())
        return {"privacy_unit": self.unit, "privacy_trust": self.trust, "privacy_mechanism": self.mechanism,
                "privacy_epsilon": self.epsilon, "privacy_delta": self.delta, "privacy_clips": clip,
                "privacy_rounds": self.rounds, "privacy_z": z}  # fmt: skip

    def lines(self, allows_noise: bool) -> list[str]:
        """Describe the promise in a few lines."""
        clip = ", ".join(f"{name} {value:g}" for name, value in self.clip.items())
        z = ", ".join(f"z of {name} {value:.3g}" for name, value in self.z.items())
        adds = "every agent adds noise" if self.trust == "local" else "noise is added once to the sum, which is trusted"
        ratio = f"privacy  signal to noise {self.ratio:.2g}"
        if self.ratio < 1:
            ratio += ": allowed by privacy_allow_noise" if allows_noise else ": a run is refused below 1"
        return [
            f"privacy  epsilon {self.epsilon:g}, delta {self.delta:g}, unit: {UNITS[self.unit]}, neighbours replace it",
            f"privacy  against {self.observer}; trust {self.trust}: {adds}",
            f"privacy  {self.mechanism}; {z}; largest norms: {clip}; {self.rounds} rounds",
            ratio,
            *(f"privacy  {text}" for text in self.not_covered),
        ]


def make_promise(config: Config, environment: Environment) -> Promise | None:
    """Return the promise of a config; None where there is none."""
    if not resolve_part("privacy", config.privacy).is_private:
        return None
    releases = plan_releases(config)
    trains_locally = resolve_part("federation", config.federation).trains_locally
    clip: dict[str, float] = {}
    z: dict[str, float] = {}
    names, ratios = [], []
    if releases.networks:
        clip["networks" if trains_locally else "gradients"] = config.privacy_clip
        z["networks"] = releases.network_noise
        names.append(MECHANISMS["networks", trains_locally])
        ratios.append(_network_ratio(config, environment, releases, 1 if trains_locally else releases.exchanges))
    if releases.sequences:
        clip |= {"features": config.privacy_feature_clip, "rewards": config.privacy_reward_clip}
        z["statistics"] = releases.statistics_noise
        names.append(MECHANISMS["statistics", True].format(factorization=config.privacy_factorization))
        ratios.append(_statistics_ratio(config, environment, releases))
    return Promise(
        unit="event" if releases.sequences else "agent",
        trust=config.privacy,
        mechanism="; ".join(names),
        epsilon=config.privacy_epsilon,
        delta=config.privacy_delta,
        clip=clip,
        rounds=releases.rounds,
        releases={"networks": releases.networks, "statistics": len(releases.places)},
        z=z,
        ratio=min(ratios, default=math.inf),
    )


def check_promise(promise: Promise | None, config: Config) -> None:
    """Raise a one-line ValueError where the noise is larger than the signal, unless the config allows it."""
    if promise is not None and promise.ratio < 1 and not config.privacy_allow_noise:
        raise ValueError(
            f"privacy_epsilon={config.privacy_epsilon!r}: signal to noise {promise.ratio:.2g} is below 1; more agents, "
            "fewer rounds, a larger epsilon or privacy=central raise it, privacy_allow_noise=True runs all the same"
        )


def _network_ratio(config: Config, environment: Environment, releases: Releases, steps: int) -> float:
    """Return C over the norm of the noise in a round's mean of networks, or of its `steps` mean gradients.

    The steps of a round add up, and the noise of `steps` of them grows with the square root.
    """
    numbers = Network(config, environment.dim).parameter_count
    messages = resolve_part("privacy", config.privacy).count_noisy(config)
    noise = REPLACED * releases.network_noise * math.sqrt(messages * numbers) / config.agents
    return math.sqrt(steps) / noise


def _statistics_ratio(config: Config, environment: Environment, releases: Releases) -> float:
    """Return an average eigenvalue of W after the last round over the largest one of its noise, about s sqrt(2 k)."""
    k = resolve_part("algorithm", config.algorithm).parameter_count(config, environment)
    messages = resolve_part("privacy", config.privacy).count_noisy(config)
    sequence, step = releases.places[max(releases.places)]
    spread = releases.factorization(releases.sequences[sequence]).deviation(step)
    noise = REPLACED_SQUARE * releases.statistics_noise * spread * math.sqrt(2 * k * messages)
    return FEATURE_SHARE * config.agents * max(releases.places) / k / noise
