"""Expected seconds of a run, computed before it starts.

The layout of actors, `--dry-run` and progress bars use these estimates. The time of a run on one core is the sum over
its iterations of

    OVER_IDEAL times the least time of its arithmetic and traffic (`work.py`)
    the fixed costs of calls: `Overhead` for steps, rounds and exchanges, TRAINING_STEP for each training step, AGENT
    for each agent

A step advances agents by one iteration. Where agents wait for each other, or the iterations of their rounds are known
before, one step advances all agents. Otherwise agents that have just communicated advance without the others, k steps
to their next upload: an iteration of all agents takes one step per distinct upload time within k iterations.
"""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fnbandit.algorithms.base import Group
from fnbandit.algorithms.traits import Traits
from fnbandit.config import Config
from fnbandit.config.presets import THEORY_FIELDS
from fnbandit.config.registry import build, resolve_part
from fnbandit.environments import Environment, make_environment
from fnbandit.numerics.device import one_thread
from fnbandit.planning.arithmetic import Rates, Work
from fnbandit.planning.training import count_training_passes, expect_training, steps_of_training
from fnbandit.planning.work import asynchronous_work, iteration_work, learners_work, round_work, work_on_features

OVER_IDEAL = 3.5
"""Ratio of the time to the least time of the work; `make bench` measures 2 to 4"""
TRAINING_STEP = 130e-6
"""Seconds of a training step of all agents that train together, without arithmetic"""
TRAINING_EXCHANGE = 1e-3
"""Seconds of an exchange that trains, without arithmetic"""
AGENT = 3e-6
"""Seconds of an agent's iteration, without arithmetic: its share of contexts, rewards and records"""
HORIZON_PARTS = 16
"""Number of parts of the horizon; the work of a part is that of its middle iteration times its length"""
OWN_GAP = 1.4
"""Ratio of the gap of an agent with a network that does not wait to that of agents whose first one triggers for all"""
LEARNED_SHARE = 0.018
"""Dimensions that matter in the features of a trained network, as a share of all, over the root of the observations"""
TYPICAL = Rates(double=3e10, single=6e10, stream=1e10)
"""Rates of a typical core, to compare runs and layouts"""


@dataclass(frozen=True)
class Overhead:
    """Seconds of calls, without arithmetic, on a typical core."""

    step: float
    """One iteration of the agents that advance together"""
    round: float = 0.0
    """A round, or the exchanges of agents that upload at the same time"""
    exchange: float = 0.0
    """Each of those exchanges"""


OVERHEADS = {
    ("none", False): Overhead(0.3e-3),
    ("none", True): Overhead(0.45e-3),
    ("barrier", False): Overhead(0.35e-3, 0.5e-3),
    ("barrier", True): Overhead(0.6e-3, 1.5e-3),
    ("first-come", False): Overhead(0.6e-3, 2e-3, 0.2e-3),
    ("first-come", True): Overhead(0.75e-3, 3e-3, 0.9e-3),
}
"""By `Traits.schedule` and `Traits.has_network`"""


def measure_rates(repeats: int = 2) -> Rates:
    """Measure the rates of one thread of this machine: the best of `repeats`, a tenth of a second each."""
    with one_thread():
        products = []
        for dtype in (torch.float64, torch.float32):
            a = torch.randn(1000, 1000, dtype=dtype)
            products.append(2e9 / min(process_seconds(functools.partial(torch.mm, a, a)) for _ in range(repeats)))
        source = torch.randn(10_000_000)
        target = torch.empty_like(source)
        copy = min(process_seconds(lambda: target.copy_(source)) for _ in range(repeats + 1))
    return Rates(double=products[0], single=products[1], stream=2 * source.nbytes / copy)


def process_seconds(action: Callable[[], Any]) -> float:
    """Return the processor seconds that this process spends on an action; other processes hardly affect them."""
    began = time.process_time()
    action()
    return time.process_time() - began


def run_seconds(config: Config, rates: Rates = TYPICAL) -> float:
    """Return the expected seconds of a run on one core; the default rates are for comparisons with other runs."""
    return _run_seconds(config.replace(seed=0), rates)


@functools.cache
def _run_seconds(config: Config, rates: Rates) -> float:
    return group_seconds(config, make_environment(config), config.agents, rates)


def group_seconds(config: Config, environment: Environment, agents: int, rates: Rates = TYPICAL) -> float:
    """Return the expected seconds of a process with `agents` of a run's agents, without waiting for other processes."""
    config = without_theory_values(config)
    return sum(
        width * _iteration_seconds(config, environment, agents, t, rates) for t, width in divide_horizon(config.horizon)
    )


def expect_rounds(config: Config, environment: Environment) -> float:
    """Return the expected number of rounds of a run; of an asynchronous one, of exchanges per agent."""
    config = without_theory_values(config)
    if not traits_of(config).communicates:
        return 0.0
    return sum(width / expect_gap(config, environment, t) for t, width in divide_horizon(config.horizon))


def expect_gap(config: Config, environment: Environment, iteration: int) -> int:
    """Return the iterations between two rounds around an iteration, as the trigger expects them."""
    trigger = build("trigger", config.trigger, config)
    dimension = resolve_part("algorithm", config.algorithm).parameter_count(config, environment)
    if count_features(config, environment) is not None:
        dimension *= min(1.0, LEARNED_SHARE * math.sqrt(config.agents * iteration))
    gap = trigger.expect_gap(iteration, dimension)
    traits = traits_of(config)
    if traits.is_asynchronous and traits.has_network and trigger.next_round(iteration) is None:
        gap *= OWN_GAP
    # NaN where a user's trigger sets no level: assume a round in every iteration.
    return max(1, round(min(gap, config.horizon))) if gap > 1 else 1


def without_theory_values(config: Config) -> Config:
    """Return the config with the default in place of each 'theory', whose number takes long to compute."""
    names = [name for name in THEORY_FIELDS if getattr(config, name) == "theory"]
    return config.replace(**{name: getattr(Config, name) for name in names}) if names else config


def traits_of(config: Config) -> Traits:
    """Return the traits of a config's algorithm."""
    traits: Traits = resolve_part("algorithm", config.algorithm).traits
    return traits


def divide_horizon(horizon: int) -> Iterator[tuple[int, int]]:
    """Divide iterations 1 to horizon into parts of lengths proportional to t; yield the middle and length of each."""
    edges = np.unique(np.geomspace(1, horizon + 1, HORIZON_PARTS + 1).round().astype(int)).tolist()
    for first, after in itertools.pairwise(edges):
        yield (first + after) // 2, after - first


def _iteration_seconds(config: Config, environment: Environment, n: int, t: int, rates: Rates) -> float:
    """Return the seconds of an iteration of n agents, with its share of rounds and training."""
    traits = traits_of(config)
    overhead = OVERHEADS[traits.schedule, traits.has_network]
    gap = min(t, expect_gap(config, environment, t)) if traits.communicates else 1
    rounds, steps, exchanges = _calls(config, traits, gap)
    calls = steps * overhead.step + rounds * overhead.round + exchanges * overhead.exchange + n * AGENT
    calls += _calls_of_training(config, environment, t, gap, rounds)
    return OVER_IDEAL * _work(config, environment, n, t, gap).seconds(rates) + calls


def _calls_of_training(config: Config, environment: Environment, t: int, gap: int, rounds: float) -> float:
    """Return the seconds of the calls of an iteration's share of training."""
    traits = traits_of(config)
    if not traits.has_network or not (trains_in_rounds(traits, config) or not traits.communicates):
        return 0.0
    if traits.schedule != "barrier":
        return (rounds if traits.communicates else 1.0) * steps_of_training(config, t, gap) * TRAINING_STEP
    training = expect_training(config, environment.dim, count_features(config, environment), t, gap)
    passes = count_training_passes(config, t, gap) + sum(n for content, n in training.contents if content == "network")
    steps = training.share * training.steps * passes if training.is_local else 0.0
    return rounds * (steps * TRAINING_STEP + training.exchanges * TRAINING_EXCHANGE)


def trains_in_rounds(traits: Traits, config: Config) -> bool:
    """Return True where rounds train networks: FN-UCB without UCB^b has none."""
    return traits.communicates and traits.has_network and (config.use_local or not traits.uses_alpha)


def count_features(config: Config, environment: Environment) -> int | None:
    """Return the number of features of a row of W where they are those of the trained network, else None."""
    traits = traits_of(config)
    if traits.uses_alpha or not (traits.has_network and traits.communicates):
        return None
    count: int = resolve_part("algorithm", config.algorithm).parameter_count(config, environment)
    return count


def _calls(config: Config, traits: Traits, gap: int) -> tuple[float, float, float]:
    """Return the rounds, steps and exchanges of an iteration of all agents."""
    if not traits.communicates:
        return 0.0, 1.0, 0.0
    exchanges = config.agents / gap
    if not traits.is_asynchronous:
        return 1 / gap, 1.0, exchanges
    if build("trigger", config.trigger, config).next_round(0) is not None:
        return 1 / gap, 1.0, exchanges
    rounds = -math.expm1(config.agents * math.log1p(-1 / gap)) if gap > 1 else 1.0
    return rounds, max(1.0, rounds * gap), exchanges


def _work(config: Config, environment: Environment, n: int, t: int, gap: int) -> Work:
    """Return the work of an iteration of n agents, with its share of a round."""
    traits, arms, dim = traits_of(config), environment.arms, environment.dim
    if traits.is_asynchronous:
        return asynchronous_work(config, arms, dim, t, gap)
    features = count_features(config, environment)
    if features is not None:
        return work_on_features(config, arms, dim, features, n, t, gap)
    if traits.has_network and traits.communicates:
        return iteration_work(config, arms, dim, n, t, gap) + round_work(config, dim, n, t, gap) * (1 / gap)
    if traits.has_network:
        return learners_work(config, arms, dim, n, t)
    # Other algorithms read the whole state of each agent once per arm.
    now = config.replace(horizon=t)
    kept = resolve_part("algorithm", config.algorithm).memory(now, environment).per_agent
    return Work(double=2 * n * arms * (kept - Group.memory(now, environment).per_agent) / 8)
