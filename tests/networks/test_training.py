"""Training against autograd: both losses, all agents at once, in one piece or in several."""

from __future__ import annotations

import numpy as np
import oracle
import pytest
import torch
from helpers import plain, rows

from fnbandit.environments import make_environment
from fnbandit.networks import training
from fnbandit.networks.network import Network
from fnbandit.networks.training import estimate_training_memory, train

DIM = 5


def history(network: Network, contexts: torch.Tensor) -> torch.Tensor:
    """Contexts [n, t, d] as the inputs that training reads."""
    inputs = contexts.new_zeros(len(contexts), network.padded_dim, contexts.shape[1])
    inputs[:, : network.inputs_dim] = network.inputs(contexts)
    return inputs


@pytest.mark.parametrize("loss", ["mean", "paper"])
@pytest.mark.parametrize(("kind", "layers"), [("standard", 1), ("standard", 2), ("ntk", 1), ("ntk", 2)])
@pytest.mark.parametrize("count", [1, 2, 9])
def test_training_is_that_of_autograd(loss, kind, layers, count):
    rate = 0.001 if loss == "paper" else 0.02
    config = plain(network=kind, hidden_layers=layers, width=6, dim=DIM, training_loss=loss, training_steps=7,
                    training_rate=rate, network_dtype="float64")  # fmt: skip
    network = Network(config, DIM)
    initial = network.initial_parameters(0)
    start = initial + rows(3, network.parameter_count) / 10
    contexts, y = rows(3, count, DIM, seed=1), rows(3, count, seed=2)
    theta, error, diverged = train(config, network, start, initial, history(network, contexts), y, steps=7)
    assert not diverged.any()
    for i in range(3):
        expected = oracle.train(config, start[i], initial, contexts[i].numpy(), y[i].numpy())
        np.testing.assert_allclose(theta[i], expected, rtol=1e-10, atol=1e-12)
        # What is reported is the error before the last step.
        before = oracle.train(config.replace(training_steps=6), start[i], initial, contexts[i].numpy(), y[i].numpy())
        residual = oracle.network(config, before, contexts[i]) - y[i]
        assert error[i].item() == pytest.approx(residual.square().mean().item(), rel=1e-9)


def test_in_pieces_it_is_the_same_bits(monkeypatch):
    config = plain(width=6, dim=DIM)
    network = Network(config, DIM)
    initial = network.initial_parameters(0).float()
    start = initial.repeat(7, 1)
    x, y = history(network, rows(7, 20, DIM).float()), rows(7, 20).float()
    whole = train(config, network, start, initial, x, y, 30)
    for cache in (1, 5_000, 11_000):
        monkeypatch.setattr(training, "CACHE", cache)
        for found, expected in zip(train(config, network, start, initial, x, y, 30), whole, strict=True):
            assert torch.equal(found, expected)


def test_a_divergence_takes_its_agent_back_to_the_start():
    config = plain(width=4, dim=DIM, training_rate=50.0)
    network = Network(config, DIM)
    start = torch.stack([torch.zeros(network.parameter_count), rows(network.parameter_count).float()])
    contexts = rows(2, 3, DIM).float()
    theta, error, diverged = train(
        config, network, start, start[0], history(network, contexts), torch.zeros(2, 3), steps=200
    )
    assert diverged.tolist() == [0.0, 1.0]
    assert torch.equal(theta, start)
    # What is reported then is the error at the start.
    residual = oracle.network(config, start[1], contexts[1])
    assert error[1].item() == pytest.approx(residual.square().mean().item(), rel=1e-5)


def test_an_agent_without_a_reward_keeps_its_parameters_under_adam():
    config = plain(width=4, dim=DIM, training_optimizer="adam", training_rate=0.05)
    network = Network(config, DIM)
    start = rows(2, network.parameter_count).float()
    x, y = history(network, rows(2, 3, DIM).float()), torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    theta, _, diverged = train(config, network, start, start[0], x, y, steps=5)
    assert torch.equal(theta[0], start[0]) and not torch.equal(theta[1], start[1])
    assert diverged.tolist() == [0.0, 0.0]
    by_descent = train(plain(width=4, dim=DIM, training_optimizer="gd"), network, start, start[0], x, y, steps=5)
    assert not torch.equal(by_descent.theta[0], start[0])


def test_memory_by_hand():
    config = plain(horizon=100, dim=10, width=20)
    # 10 inputs and the ones, padded to 16; the rewards; six rows of 241 parameters; in single precision.
    needs = estimate_training_memory(config, make_environment(config))
    assert needs.per_agent == 4 * (100 * (16 + 1) + 6 * 241)
    double = estimate_training_memory(config.replace(network_dtype="float64"), make_environment(config))
    assert double.per_agent == 2 * needs.per_agent
    assert double.shared == needs.shared > 0
