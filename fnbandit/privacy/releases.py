"""The messages of a run that depend on data, counted before it starts, and the noise that each of them gets."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from fnbandit.config import Config
from fnbandit.config.registry import build, resolve_part
from fnbandit.networks.training import steps_due
from fnbandit.privacy.accounting import find_noise
from fnbandit.privacy.factorization import FACTORIZATIONS, BinaryTree, Toeplitz

REPLACED = 2.0
"""Distance of two clipped vectors, in units of the clip"""
REPLACED_SQUARE = 2 * math.sqrt(2)
"""Frobenius distance of u u^T and v v^T with ||u||^2 and ||v||^2 at most 2 L^2, in units of L^2"""


@dataclass(frozen=True)
class Releases:
    """Numbers of releases, and the noise of each. Every round and every exchange is known from the config alone."""

    rounds: int
    """Rounds that release anything"""
    network_exchanges: dict[int, int]
    """Iteration of a round that trains -> its exchanges in which agents send networks or gradients"""
    sequences: tuple[int, ...]
    """Lengths of sequences of W and B; a sequence ends where features change, since all W and B are then sent anew"""
    places: dict[int, tuple[int, int]]
    """Iteration of a round -> its sequence, and its step in that"""
    noise: float
    """Standard deviation of the noise of a single release of sensitivity 1"""
    factorization: type[Toeplitz | BinaryTree]

    @property
    def networks(self) -> int:
        """Exchanges in which agents send networks or gradients."""
        return sum(self.network_exchanges.values())

    @property
    def exchanges(self) -> int:
        """Largest number of them in one round."""
        return max(self.network_exchanges.values(), default=0)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of quantities that are released."""
        return ("networks",) * (self.networks > 0) + ("statistics",) * bool(self.sequences)

    @property
    def network_noise(self) -> float:
        """z: standard deviation of the noise of a network or gradient, over its sensitivity."""
        return self.noise * math.sqrt(len(self.kinds) * self.networks)

    @property
    def statistics_noise(self) -> float:
        """Standard deviation of every draw behind W and B, over their sensitivity."""
        squares = sum(self.factorization(length).sensitivity ** 2 for length in self.sequences)
        return self.noise * math.sqrt(len(self.kinds) * squares)

    def cost(self, iteration: int) -> float:
        """Return the cost of all releases up to an iteration: with all of them, 1 / noise^2."""
        networks = sum(count for t, count in self.network_exchanges.items() if t <= iteration)
        lengths = {sequence: step + 1 for t, (sequence, step) in self.places.items() if t <= iteration}
        squares = sum(self.factorization(length).sensitivity ** 2 for length in lengths.values())
        cost = networks / self.network_noise**2 if networks else 0.0
        return cost + (squares / self.statistics_noise**2 if squares else 0.0)


@functools.lru_cache(maxsize=64)
def plan_releases(config: Config) -> Releases:
    """Count the releases of a run with privacy."""
    algorithm = resolve_part("algorithm", config.algorithm)
    kinds = algorithm.traits.releases
    if not kinds:
        raise ValueError(
            f"algorithm={config.algorithm!r}: privacy={config.privacy} accepts fedigw, fn-linear, dislinucb"
        )
    rule = resolve_part("federation", config.federation)
    trigger = build("trigger", config.trigger, config)
    networks: dict[int, int] = {}
    places: dict[int, tuple[int, int]] = {}
    sequence = step = 0
    last_trained, t = 0, trigger.next_round(0)
    if t is None:
        raise ValueError(
            f"trigger={config.trigger!r}: the times of its rounds tell of data; privacy={config.privacy} accepts "
            "always, period, geometric"
        )
    while t is not None and t <= config.horizon:
        stop = config.stop_training_after
        trains = "networks" in kinds and (stop is None or t <= stop)
        steps = steps_due(config, last_trained, t) if trains else 0
        if steps:
            networks[t] = config.averagings if rule.trains_locally else steps
            last_trained = t
            sequence, step = (sequence + 1 if places else 0), 0
        if "statistics" in kinds:
            places[t] = sequence, step
            step += 1
        t = trigger.next_round(t)
    lengths: dict[int, int] = {}
    for place, _ in places.values():
        lengths[place] = lengths.get(place, 0) + 1
    return Releases(
        rounds=len(places) or len(networks),
        network_exchanges=networks,
        sequences=tuple(lengths.values()),
        places=places,
        noise=find_noise(config.privacy_epsilon, config.privacy_delta),
        factorization=FACTORIZATIONS[config.privacy_factorization],
    )
