"""The fast asynchronous code makes the choices of the literal transcription, in its order and at its times."""

from __future__ import annotations

import numpy as np
import oracle
import oracle_async
import oracle_tuned
import pytest
import torch
from helpers import plain, theta_0
from oracle_async import Clock

from fnbandit import Config
from fnbandit.algorithms.asynchronous import AsynchronousGroup
from fnbandit.algorithms.fedlinucb import FedLinUCB
from fnbandit.algorithms.fn_ucb_async import FNUCBAsynchronous
from fnbandit.environments import make_environment
from fnbandit.runs import simulate

CLOCKS = {
    "stragglers": Clock([10.0, 7.0, 0.9, 23.0], [0.05, 0.2, 0.0, 0.01], [4e4, 9e4, 2e5, 1e5], [1e5] * 4, 20.0),
    "far": Clock([3.0, 2.9, 3.1, 3.05], [2.0, 0.1, 1.0, 0.0], [1e6] * 4, [1e6] * 4, 50.0),
}
BASE = {
    "dim": 4, "arms": 3, "width": 6, "agents": 3, "horizon": 30, "noise": 0.05, "network_dtype": "float64",
    "exploration_global": 0.3, "exploration_local": 0.2, "trigger": "determinant", "async_gain": 3.0, "ramp": 20,
    "algorithm": "fn-ucb-async", "training_steps": 6, "training_rate": 0.01, "threshold": 4.0, "period": 5,
}  # fmt: skip
TUNED = {
    "training_optimizer": "adam", "training_rate": 0.02, "training_steps": "auto", "training_effort": 60.0,
    "training_cap": 25, "training_least": 4, "training_schedule": "linear", "training_fade": 20.0,
    "training_decay": 0.3, "weight": "earned", "ramp": 10, "reward_unit": "rms",
}  # fmt: skip


def with_clock(config: Config, clock: Clock, tmp_path) -> Config:
    """The config with a table that says what the oracle's clock says."""
    rows = zip(clock.speed, clock.latency, clock.up, clock.down, strict=True)
    lines = [f"{agent},{','.join(map(repr, row))}" for agent, row in enumerate(rows)]
    path = tmp_path / "clock.csv"
    path.write_text("\n".join(["agent,speed,latency,up,down", *lines]) + "\n")
    return config.replace(clock="trace", clock_table=str(path), training_pace=clock.pace)


def with_scores(config: Config, groups: int, kind: type[AsynchronousGroup], monkeypatch):
    """A simulation, and the scores of every context, [iterations, agents, arms]."""
    seen = {}
    original = kind.scores

    def recording(self, iteration, contexts):
        result = original(self, iteration, contexts)
        for t, agent, values in zip(iteration, self.active, result.values.numpy(), strict=True):
            seen[int(t), self.agents[agent]] = values.copy()
        return result

    monkeypatch.setattr(kind, "scores", recording)
    result = simulate(config, groups=groups)
    monkeypatch.setattr(kind, "scores", original)
    assert len(seen) == config.horizon * config.agents
    iterations = range(1, config.horizon + 1)
    return result, np.array([[seen[t, i] for i in range(config.agents)] for t in iterations])


def assert_same(expected, result, scores, clocked=True) -> None:
    np.testing.assert_array_equal(result.arms, expected.arms)
    np.testing.assert_allclose(scores, expected.scores, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(result.rewards, expected.rewards, atol=1e-12)
    records = result.round_records
    found = [(r.agent, r.iteration, r.length, r.staleness) for r in records]
    assert found == [event[1:] for event in expected.events]
    if clocked:
        np.testing.assert_allclose([r.times.time for r in records], [event[0] for event in expected.events])
        np.testing.assert_allclose(result.times, expected.times)
    if expected.theta is not None:
        np.testing.assert_allclose(result.theta, expected.theta, rtol=1e-7, atol=1e-7)


CASES = [
    {},
    {"trigger": "logdet", "staleness": "polynomial", "environment": "square"},
    {"trigger": "period", "weight": "theory", "domain_sample": 20, "training_start": "own"},
    {"trigger": "always", "horizon": 15, "staleness": "polynomial", "staleness_power": 1.0,
     "training_start": "initial"},
    {"weight": "constant", "weight_value": 0.4, "agents": 4, "first_iteration_only": True, "async_gain": 0.5},
    {"weight": "theory", "domain_sample": 20, "received_sample": 30, "staleness": "polynomial", "async_gain": 20.0},
    {"use_local": False}, {"use_global": False}, {"aggregate": False, "training_start": "own"},
    {"network": "ntk", "hidden_layers": 2, "training_loss": "paper", "training_rate": 0.0005},
    {"stop_training_after": 20, "trigger": "logdet"},
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(CASES)))
def test_asynchronous_fn_ucb(number, tmp_path, monkeypatch):
    clock = list(CLOCKS.values())[number % 2]
    config = with_clock(plain(**BASE | CASES[number]), clock, tmp_path)
    expected = oracle_async.run(config, make_environment(config), theta_0(config), clock)
    assert len(expected.events) >= 6 and max(event[4] for event in expected.events) > 2
    assert_same(expected, *with_scores(config, 1 + number % 3, FNUCBAsynchronous, monkeypatch))


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize(
    "case", [{}, {"trigger": "period", "environment": "square"}, {"staleness": "polynomial"}], ids=str
)
def test_with_the_tuned_learner(case, clock, tmp_path, monkeypatch):
    config = with_clock(plain(**BASE | TUNED | case), CLOCKS[clock], tmp_path)
    expected = oracle_async.run(config, make_environment(config), theta_0(config), CLOCKS[clock], oracle_tuned.Agent)
    assert_same(expected, *with_scores(config, 2, FNUCBAsynchronous, monkeypatch))


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize(
    "case", [{}, {"async_gain": 0.2, "agents": 4}, {"environment": "square", "horizon": 60}], ids=str
)
def test_fedlinucb(case, clock, tmp_path, monkeypatch):
    config = plain(**BASE | {"algorithm": "fedlinucb", "async_gain": 1.0, "horizon": 80} | case)
    config = with_clock(config, CLOCKS[clock], tmp_path)
    expected = oracle_async.run_linear(config, make_environment(config), CLOCKS[clock])
    assert max(event[4] for event in expected.events) > 2
    assert_same(expected, *with_scores(config, 2, FedLinUCB, monkeypatch))


def test_without_a_clock_agents_are_equally_fast(monkeypatch):
    config = plain(**BASE)
    clock = Clock([1.0] * 3, [0.0] * 3, [float("inf")] * 3, [float("inf")] * 3)
    expected = oracle_async.run(config, make_environment(config), theta_0(config), clock)
    assert_same(expected, *with_scores(config, 2, FNUCBAsynchronous, monkeypatch), clocked=False)


@pytest.mark.parametrize("trigger", ["determinant", "logdet", "period", "always"])
@pytest.mark.parametrize("learner", [{}, TUNED], ids=["paper", "tuned"])
def test_one_agent_is_synchronous(trigger, learner, monkeypatch):
    config = plain(**BASE | learner | {"agents": 1, "trigger": trigger})
    alone, other = simulate(config), simulate(config.replace(algorithm="fn-ucb-less-comm"))
    np.testing.assert_array_equal(alone.arms, other.arms)
    assert alone.rounds == other.rounds and len(alone.rounds) > 3
    np.testing.assert_allclose(alone.alpha, other.alpha, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(alone.theta, other.theta, rtol=1e-6, atol=1e-7)
    assert alone.communication.total.bytes_up == other.communication.total.bytes_up


def test_period_one_without_latency_is_rounds_in_agent_order(monkeypatch):
    """Equal speeds: in every iteration the agents act, upload and download one after another."""
    config = plain(**BASE | {"trigger": "period", "period": 1, "horizon": 12})
    theta, environment = torch.from_numpy(theta_0(config)), make_environment(config)
    world = oracle.World(config, environment, theta)
    agents = [oracle.Agent(config, i, world, theta) for i in range(3)]
    server = oracle_async.Server(config, len(theta))
    for t in range(1, config.horizon + 1):
        for agent in agents:
            agent.iterate(t)
        for i, agent in enumerate(agents):
            agent.receive(t, server.take(i, agent.send(t), 0, t, t - 1))
    result = simulate(config)
    np.testing.assert_array_equal(result.arms, np.array([agent.arms for agent in agents]).T)
    np.testing.assert_allclose(result.theta, server.theta.numpy(), rtol=1e-7, atol=1e-8)
    assert [(r.iteration, r.agent) for r in result.round_records] == [(t, i) for t in range(1, 13) for i in range(3)]
