"""How long runs will take, reckoned before they start: the cost model at rates that are measured in a moment."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from fnbandit.capacity import memory
from fnbandit.config import Config
from fnbandit.costs import Rates, Work, asynchronous_work, iteration_work, round_work, steps_of_training
from fnbandit.environments import Environment, make_environment
from fnbandit.registry import find, part_of
from fnbandit.simulation import one_thread
from workflows.study import Study

OVER_IDEAL = 3.0
"""Time over the ideal; `make bench` finds 2 to 4."""
OVER_IDEAL_ASYNCHRONOUS = 2.0
"""The same where agents do not wait, without what a step takes however little there is to compute"""
OVERHEAD, OVERHEAD_WITHOUT_NETWORK = 2.5e-3, 0.4e-3
"""Seconds that an iteration takes however little there is to compute."""
STEP, EXCHANGE, TRAINING_STEP = 5e-3, 1e-3, 40e-6
"""The same where agents do not wait: seconds of an iteration of all, of one exchange, and of a step of training"""
TOGETHER = 6
"""Trainings of agents that do not wait, each of some of them, while each agent trains once"""
SAMPLED = 12
"""Iterations at which the model is asked."""
BETWEEN_ROUNDS = 20
"""Iterations between two rounds where a trigger decides, which nobody knows before: a guess."""
TYPICAL = Rates(double=3e10, single=6e10, stream=1e10)
"""For comparing runs with each other"""


def measured_rates() -> Rates:
    """What one thread of this machine does, now, within a tenth of a second."""
    with one_thread():
        products = []
        for dtype in (torch.float64, torch.float32):
            a = torch.randn(400, 400, dtype=dtype)
            products.append(2 * 400**3 / min(_timed(functools.partial(torch.mm, a, a)) for _ in range(4)))
        source = torch.randn(3_000_000)
        target = torch.empty_like(source)
        copy = min(_timed(lambda: target.copy_(source)) for _ in range(4))
    return Rates(double=products[0], single=products[1], stream=2 * source.numel() * 4 / copy)


def _timed(action: Callable[[], Any]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


@functools.cache
def _seconds(config: Config, rates: Rates) -> float:
    environment = make_environment(config)
    arms, dim = environment.arms, environment.dim
    places = np.unique(np.linspace(1, config.horizon, SAMPLED).astype(int)).tolist()
    if find("algorithm", config.algorithm).asynchronous:
        k = _between_exchanges(config)
        return config.horizon * float(np.mean([_asynchronous(config, arms, dim, rates, t, k) for t in places]))
    ideal = float(np.mean([_work(config, environment, t).seconds(rates) for t in places]))
    overhead = OVERHEAD if "width" in part_of("algorithm", config.algorithm).fields else OVERHEAD_WITHOUT_NETWORK
    return config.horizon * (OVER_IDEAL * ideal + overhead)


def _asynchronous(config: Config, arms: int, dim: int, rates: Rates, t: int, k: int) -> float:
    """Seconds of an iteration with its share of exchanges."""
    ideal = asynchronous_work(config, arms, dim, t, k).seconds(rates)
    trains = "width" in part_of("algorithm", config.algorithm).fields and config.use_local
    steps = steps_of_training(config, t, k) / k if trains else 0.0
    together = min(config.agents, TOGETHER)
    return OVER_IDEAL_ASYNCHRONOUS * ideal + STEP + EXCHANGE * config.agents / k + TRAINING_STEP * together * steps


def _between_exchanges(config: Config) -> int:
    """Iterations between two exchanges of an agent; a guess where what it has seen decides."""
    # Found with cosine and shuttle: the more others tell, and the later it is, the less is new.
    guess = 1.5 * math.log1p(config.async_gain) * config.agents**0.5 * (config.horizon / 200) ** 0.75
    known = {"always": 1, "period": config.period, "determinant": round(guess)}
    return max(1, min(config.horizon, known.get(config.trigger, BETWEEN_ROUNDS)))


def run_seconds(config: Config, rates: Rates = TYPICAL) -> float:
    """What a run takes on one core; without rates, only in comparison with others.

    Of algorithms that the model does not know, the like of theirs is taken.
    """
    if config.training_steps == "theory":
        config = config.replace(training_steps=Config.training_steps)
    return _seconds(config.replace(seed=0), rates)


def _work(config: Config, environment: Environment, t: int) -> Work:
    """An iteration, with its share of a round."""
    algorithm, arms, dim = find("algorithm", config.algorithm), environment.arms, environment.dim
    if algorithm.communicates and algorithm.learns_on == "tangent features":
        k = min(t, {"always": 1, "period": config.period}.get(config.trigger, BETWEEN_ROUNDS))
        each = round_work(config, dim, config.agents, t, k)
        return iteration_work(config, arms, dim, config.agents, t, k) + _scaled(each, 1 / k)
    if "width" in part_of("algorithm", config.algorithm).fields:
        alone = config.replace(agents=1, algorithm="fn-ucb-less-comm", trigger="always")
        one = iteration_work(alone, arms, dim, 1, t, 1) + round_work(alone, dim, 1, t, 1)
        return _scaled(one, config.agents)
    # Whatever it is, it meets what it keeps by then once for every arm.
    state = memory(config.replace(horizon=t), environment).per_agent
    return Work(double=2 * config.agents * arms * state / 8)


def _scaled(work: Work, factor: float) -> Work:
    return Work(work.double * factor, work.single * factor, work.traffic * factor)


def study_seconds(study: Study, rates: Rates, cores: int) -> float:
    """What a study takes here: on Ray its runs share the cores, in this process they follow each other.

    A run whose agents do not wait for each other gains little from a second core.
    """
    times = [run_seconds(point.config, rates) for point in study.points]
    if study.settings.engine == "local":
        return sum(times)
    kinds = [find("algorithm", point.config.algorithm) for point in study.points]
    alone = [seconds for seconds, kind in zip(times, kinds, strict=True) if kind.asynchronous]
    return max(sum(times) / cores, *alone, 0.0)
