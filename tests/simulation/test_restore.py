"""Every algorithm, preset and part: a simulation that is restored at several iterations is the undisturbed one.

It has the same attributes at the moment of the restore, and goes on to the same bits. The first check finds an
attribute that was forgotten in `list_state` even where it has no effect in a run as short as these.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from own_parts import MeanReward

from fnbandit import Config
from fnbandit.algorithms.base import Group
from fnbandit.config.presets import PRESETS, THEORY_FIELDS
from fnbandit.config.registry import ALGORITHMS, KINDS
from fnbandit.environments import make_environment
from fnbandit.numerics.state import on_host
from fnbandit.simulation import schedule
from fnbandit.simulation.clock import make_clock
from fnbandit.simulation.loop import make_local

SMALL = {"agents": 3, "horizon": 32, "dim": 4, "width": 4}
BRIEF = {"training_effort": 12.0, "training_cap": 6, "training_least": 2}
"""Short training whose number of steps depends on the iteration of the last one"""
NUMBERS = dict.fromkeys(THEORY_FIELDS, 0.1) | {"training_steps": 3, "threshold": 0.5, "regularization": 1.0}
"""Numbers in place of those that the theory would compute for minutes"""
NEEDED: dict[str, dict[str, Any]] = {
    "algorithm": {},
    "environment": {"algorithm": "linear-ucb"},
    "trigger": {"period": 4, "round_budget": 9, "async_gain": 0.5},
    "clock": {"algorithm": "fn-ucb-async", "speed_spread": 0.9, "jitter": 0.3},
    "staleness": {"algorithm": "fn-ucb-async", "server_momentum": 0.0},
    "participation": {"clock": "lognormal", "availability": 0.5, "away_seconds": 1.0, "threshold": 1.0},
    "aggregation": {"server_momentum": 0.5},
    "personalization": {"algorithm": "fn-linear", "federation": "exact", "trigger": "period", "period": 5},
    "forgetting": {"algorithm": "fn-exact", "federation": "exact", "window": 12, "discount": 0.8},
    "privacy": {"algorithm": "dislinucb", "trigger": "period", "period": 4, "privacy_allow_noise": True},
}
"""Settings with which the parts of a kind have an effect"""
OTHERS: list[dict[str, Any]] = [
    {"diagonal": True, "trigger": "diagonal"}, {"averagings": 2}, {"messages": "factored, quantized"},
    {"first_iteration_only": True}, {"stop_training_after": 20}, {"aggregate": False, "training_start": "own"},
    {"use_local": False}, {"use_global": False}, {"statistics_dtype": "float32"}, {"hidden_layers": 2},
    {"algorithm": "fn-ucb", "weight": "theory"}, {"algorithm": "fn-ucb", "diagonal": True, "participation": "fraction"},
    {"algorithm": "neural-ucb", "diagonal": True}, {"algorithm": "fn-ucb-async", "clock": "uniform", "weight": "ramp"},
    {"algorithm": "fn-ucb-async", "messages": "quantized", "weight": "theory"}, {"algorithm": "own_parts:MeanReward"},
    {"algorithm": "fn-linear", "privacy": "local", "reward_unit": "one", "trigger": "geometric",
     "privacy_allow_noise": True, "stop_training_after": 8},
    {"algorithm": "fn-ucb-less-comm", "privacy": "central", "use_global": False, "trigger": "period", "period": 5,
     "privacy_allow_noise": True},
    {"algorithm": "fedigw", "privacy": "central", "federation": "gradients", "reward_unit": "one",
     "trigger": "geometric", "privacy_allow_noise": True},
]  # fmt: skip
TEMPORARY = {
    *(
        "FullEpoch._gains",
        "FullEpoch._z",
        "FullEpoch._coefficients",
        "FullEpoch._carried_rewards",
    ),  # of the epoch that a round has ended
    *(
        "FullEpoch._capacity",
        "Full._buffer",
        "OwnRows._z",
        "OwnRows._coefficients",
        "Network._space",
    ),  # the unused space differs
    *(f"FederatedNetworkGroup.{name}" for name in ("_steps", "_loss", "_diverged", "_has_trained")),  # in a round
    *("BarrierServer._round", "BarrierServer._trained", "BarrierServer._unit", "Replica.training_unit"),  # in a round
    # Of a round.
    *(f"CheckedValues.{name}" for name in ("_participants", "_kept", "_exchanges", "_trainings", "_alphas")),
    "PartialSums._participants",
    *("Experts._errors", "Experts._first", "Experts._sums", "Ridges._steps", "Ridges._first"),  # of the epoch
    *("HetoFedBandit._rows", "HetoFedBandit._gains"),
    *("Stream._index", "Stream._contexts", "Stream._means", "Stream._noise"),  # drawn again from the seed
    *("Normals._index", "Normals._draws", "Privacy._draws"),
    *("RaggedStream._blocks", "RaggedStream._contexts", "RaggedStream._means", "RaggedStream._noise"),
    *("AsynchronousGroup._outlooks", "AsynchronousGroup._outlook_of", "AsynchronousGroup._place_in_outlook"),
    *("AsynchronousGroup.active", "AsynchronousGroup.index", "AsynchronousGroup.places"),  # during one iteration
    *("Group.alpha_history", "BarrierServer._participants", "FirstComeServer._stale"),  # delivered
    *("FirstCome._arrival", "FirstCome._traces", "FirstCome._bound", "FirstCome._answered"),
    *("Barrier._part", "Barrier._last_round"),  # lengths of segments
}
"""Attributes that change during a run and are not saved: what follows is computed without their old values"""


def list_cases() -> Iterator[tuple[str, dict[str, Any]]]:
    for preset in PRESETS:
        # Of other algorithms the theory and the preset exact say nothing.
        names = [name for name in ALGORITHMS if preset in ("tuned", "paper") or name.startswith("fn-")]
        yield from ((preset, {"algorithm": name}) for name in names)
    for kind, parts in KINDS.items():
        yield from (("tuned", NEEDED.get(kind, {}) | {kind: name}) for name in parts if kind != "algorithm")
    yield from (("tuned", other) for other in OTHERS)


def make_config(preset: str, settings: dict[str, Any], table: str) -> Config:
    settings = SMALL | settings
    if preset == "tuned":
        settings |= BRIEF
        own = settings.get("algorithm", "fn-ucb-less-comm")
        triggers = {"fn-ucb-async": "determinant", "fedlinucb": "determinant", "fedigw": "geometric"}
        settings = {"trigger": triggers.get(own, "logdet")} | settings
        settings = {"threshold": 0.5, "clock_table": table if settings.get("clock") == "trace" else None} | settings
    if preset == "theory":
        settings |= NUMBERS
    environment = settings.get("environment", "cosine")
    return Config.build(preset, environment, settings | {"domain_sample": 16, "received_sample": 8})


@functools.cache
def share_environment(name: str, config: Config) -> Any:
    """Return the environment of a config; all cases on a task share one."""
    return make_environment(config)


def find_differences(one: Any, other: Any, path: str, seen: set[int]) -> Iterator[str]:
    """Yield the paths of attributes of two objects that differ, without TEMPORARY ones."""
    if hasattr(one, "__dict__"):
        if id(one) in seen:
            return
        seen.add(id(one))
    if isinstance(one, torch.Tensor | np.ndarray | float) and isinstance(other, torch.Tensor | np.ndarray | float):
        first, second = np.asarray(one), np.asarray(other)
        if first.shape != second.shape or not np.array_equal(first, second, equal_nan=first.dtype.kind == "f"):
            yield path
    elif type(one) is not type(other):
        yield path
    elif isinstance(one, list | tuple):
        if len(one) != len(other):
            yield path
        for first, second in zip(one, other, strict=False):
            yield from find_differences(first, second, path, seen)
    elif isinstance(one, dict):
        if list(one) != list(other):
            yield path
        for key in one.keys() & other.keys():
            yield from find_differences(one[key], other[key], f"{path}[{key}]", seen)
    elif type(one).__module__.split(".")[0] in ("fnbandit", "own_parts", __name__) and hasattr(one, "__dict__"):
        for name in sorted(vars(one) | vars(other)):
            if not any(f"{kind.__name__}.{name}" in TEMPORARY for kind in type(one).__mro__):
                here = f"{path}.{name}"
                yield from find_differences(vars(one).get(name), vars(other).get(name), here, seen)
    elif isinstance(one, int | str | range) and one != other:
        yield path


def join(segments: list[Any], start: int) -> tuple[Any, ...]:
    """Return arms, rewards, regret and alpha after an iteration, and the rounds as text: their NaN are equal."""
    traces = [segment.after(start).trace for segment in segments if segment.end > start]
    values = [np.concatenate([getattr(t, name) for t in traces]) for name in ("arms", "rewards", "regret", "alpha")]
    return (*values, repr([one for segment in segments for one in segment.rounds]))


def check_restores(config: Config, environment: Any) -> None:
    """Run a simulation; restore it after about 5, 12 and 24 iterations; compare it then and at its end."""
    clock = make_clock(config)
    _, simulation = make_local(config, environment, clock)
    restored, after, due = [], [], [5, 12, 24]
    for segment in simulation.segments():
        for _, later in restored:
            later.append(segment)
        if due and segment.is_boundary and due[0] <= segment.end < config.horizon:
            due.pop(0)
            agents, server = (on_host(state) for state in simulation.state())
            population, second = make_local(config, environment, clock)
            second.load(segment.end, server)
            population.load(segment.end, agents)
            assert sorted(set(find_differences(simulation, second, "", set()))) == []
            after.append(segment.end)
            restored.append((second, []))
    assert len(restored) >= 2
    for start, (second, expected) in zip(after, restored, strict=True):
        for one, other in zip(join(list(second.segments()), start), join(expected, start), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("preset", "settings"), list(list_cases()), ids=str)
def test_a_restored_simulation_is_the_undisturbed_one(preset, settings, tmp_path, monkeypatch):
    monkeypatch.setattr(schedule, "LONGEST_PART", 4)
    table = tmp_path / "clock.csv"
    table.write_text("agent,speed,latency,up,down\n0,9,0,1e6,1e6\n1,3,0.1,1e6,1e6\n2,17,0.2,1e6,1e6\n")
    config = make_config(preset, settings, str(table))
    task = config.environment
    common = Config.complete(
        {"environment": task} | {k: v for k, v in SMALL.items() if k in ("dim", "agents", "horizon")}
    )
    check_restores(config, share_environment(task, common))


class Forgetful(MeanReward):
    def list_state(self):
        return {name: axis for name, axis in super().list_state().items() if name != "counts"}


class Harmless(MeanReward):
    """Changes an attribute that its list of the state does not name, and never reads it."""

    last = 0

    def learn(self, iteration, contexts, arms, rewards, evidence):
        super().learn(iteration, contexts, arms, rewards, evidence)
        self.last = iteration


@pytest.mark.parametrize(("kind", "path"), [(Forgetful, "counts"), (Harmless, "last")])
def test_an_attribute_that_is_not_saved_is_found(kind: type[Group], path, monkeypatch):
    monkeypatch.setattr(schedule, "LONGEST_PART", 4)
    monkeypatch.setattr(f"own_parts.{kind.__name__}", kind, raising=False)
    config = Config.complete(SMALL | {"algorithm": f"own_parts:{kind.__name__}"})
    with pytest.raises(AssertionError, match=path):
        check_restores(config, share_environment(config.environment, config))
