"""On a device nothing is waited for inside an epoch or a round: the loop runs where tensors have no values at all."""

from __future__ import annotations

import pytest
import torch
from helpers import communicate, make_group, plain

from fnbandit.algorithms.federated import FederatedGroup
from fnbandit.environments import make_environment
from fnbandit.federation.server import BarrierServer

TUNED = {
    "training_optimizer": "adam", "training_steps": "auto", "training_cap": 40, "weight": "earned",
    "reward_unit": "rms",
}  # fmt: skip
VARIANTS = [
    {},
    TUNED,
    {**TUNED, "trigger": "logdet", "hidden_layers": 3, "diagonal": True},
    {**TUNED, "training_loss": "paper", "network": "ntk", "aggregation": "geometric-median", "server_momentum": 0.5},
    {"messages": "quantized", "aggregation": "trimmed-mean"},
    {"messages": "factored", "trigger": "budget", "aggregation": "median"},
    {"algorithm": "fn-ucb", "weight": "theory"},
    {"algorithm": "fn-ucb", "weight": "theory", "diagonal": True},
    {"trigger": "logdet"},
    {"trigger": "logdet", "diagonal": True},
    {"trigger": "diagonal"},
    {"weight": "constant", "hidden_layers": 2, "network": "ntk", "training_loss": "paper"},
    {"use_local": False},
    {"algorithm": "dislinucb", "trigger": "logdet"},
    # Two leaves of agents, whose rows are summed.
    {**TUNED, "agents": 20, "trigger": "diagonal"},
    {"agents": 20, "messages": "quantized", "statistics_dtype": "float32"},
    {"agents": 20, "diagonal": True, "server_momentum": 0.5},
]


@pytest.fixture(autouse=True)
def any_device(monkeypatch):
    """Users may name what simulations run on only: the meta device is for tests."""
    monkeypatch.setattr("fnbandit.algorithms.base.resolve_device", torch.device)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_agents_and_server_never_look_at_a_value(variant):
    config = plain(**({"device": "meta", "agents": 3, "horizon": 40, "dim": 4, "width": 4, "ramp": 10} | variant))
    group = make_group(config, make_environment(config), range(config.agents))
    assert isinstance(group, FederatedGroup) and group.rewards.is_meta
    server = BarrierServer(config, group.replica)
    for length in (1, 1, 5, 20, 9):
        for _ in range(length):
            group.step()
            measure = group.measure()
        upload, broadcast = communicate(group, server)
    assert group.iteration > config.ramp
    assert measure.is_meta and upload.measure.is_meta
    assert broadcast.theta is None or broadcast.theta.is_meta
    # What leaves the device does so between rounds, and here it cannot.
    with pytest.raises(RuntimeError, match="meta"):
        group.trace(0, 1)


@pytest.mark.parametrize("algorithm", ["neural-ucb", "neural-ts", "linear-ucb", "pooled-neural-ucb"])
def test_baselines_never_look_at_a_value(algorithm):
    config = plain(device="meta", algorithm=algorithm, agents=3, horizon=40, dim=4, width=4)
    group = make_group(config, make_environment(config), range(3))
    for _ in range(33):
        group.step()
    assert group.rewards.is_meta


def test_a_look_would_be_noticed():
    with pytest.raises(RuntimeError, match="meta"):
        bool(torch.zeros(1, device="meta") > 0)
