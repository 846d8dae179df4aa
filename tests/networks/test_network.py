"""Networks: features and gradients against torch.func, App. B's initialisation, the limit of the Gram matrix."""

from __future__ import annotations

import math

import numpy as np
import oracle
import pytest
import torch
from helpers import plain

from fnbandit import Config
from fnbandit.environments.functions import on_sphere
from fnbandit.networks.network import Network
from fnbandit.theory import ntk

KINDS = [("standard", 1), ("standard", 2), ("standard", 3), ("ntk", 1), ("ntk", 2)]


def make(kind: str, layers: int, width: int = 6, dim: int = 5) -> tuple[Config, Network]:
    config = plain(network=kind, hidden_layers=layers, width=width, dim=dim)
    return config, Network(config, dim)


def contexts(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(on_sphere(np.random.default_rng(seed), *shape))


@pytest.mark.parametrize(("kind", "layers"), KINDS)
def test_predictions_and_features_are_those_of_autograd(kind, layers):
    config, network = make(kind, layers)
    theta = torch.randn(3, network.parameter_count, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    x = contexts(3, 4, 5)
    predicted = network.predict(theta, network.inputs(x))
    features = network.tangent_features(theta, network.inputs(x))
    scale = math.sqrt(config.width) if kind == "ntk" else 1.0
    for i in range(3):
        for k in range(4):
            f = lambda parameters, i=i, k=k: oracle.network(config, parameters, x[i, k])  # noqa: E731
            gradient, value = torch.func.grad_and_value(f)(theta[i])
            torch.testing.assert_close(predicted[i, k], value, rtol=1e-12, atol=1e-12)
            torch.testing.assert_close(features[i, k], gradient / scale, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("kind", "layers"), KINDS)
def test_one_theta_shared_by_all_agents_is_that_theta_repeated(kind, layers):
    _, network = make(kind, layers)
    theta = network.initial_parameters(0)
    inputs = network.inputs(contexts(3, 4, 5))
    assert torch.equal(network.predict(theta, inputs), network.predict(theta.repeat(3, 1), inputs))
    assert torch.equal(network.tangent_features(theta, inputs), network.tangent_features(theta.repeat(3, 1), inputs))


@pytest.mark.parametrize(("kind", "layers"), KINDS)
@pytest.mark.parametrize("count", [2, 7])
def test_a_gradient_step_is_that_of_autograd(kind, layers, count):
    config, network = make(kind, layers)
    theta = torch.randn(2, network.parameter_count, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    x, y = contexts(2, count, 5), torch.linspace(-1, 1, 2 * count, dtype=torch.float64).reshape(2, count)
    layers_of_theta = network.unpack(theta)
    assert torch.equal(network.pack(layers_of_theta), theta)
    inputs = torch.zeros(2, network.padded_dim, count, dtype=torch.float64)
    inputs[:, : network.inputs_dim] = network.inputs(x)
    caution = torch.tensor([1.0, 0.5], dtype=torch.float64)
    residual = network.descend(
        layers_of_theta, layers_of_theta, inputs, -y[:, None], caution[:, None, None], keep=0.75, add=-0.125,
        workspace=network.workspace(inputs),
    )  # fmt: skip
    changed = network.pack(layers_of_theta)
    for i in range(2):
        loss = lambda p, i=i: 0.5 * ((oracle.network(config, p, x[i]) - y[i]) ** 2).sum()  # noqa: E731
        gradient = torch.func.grad(loss)(theta[i])
        torch.testing.assert_close(changed[i], 0.75 * theta[i] - 0.125 * caution[i] * gradient, rtol=1e-11, atol=1e-11)
        torch.testing.assert_close(residual[i, 0], oracle.network(config, theta[i], x[i]) - y[i])


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_ntk_network_is_zero_at_theta_0(layers):
    _, network = make("ntk", layers, width=32)
    predicted = network.predict(network.initial_parameters(3), network.inputs(contexts(2, 50, 5)))
    assert predicted.abs().max() < 1e-12


def test_parameter_counts_are_the_papers():
    assert Network(plain(), 10).parameter_count == 10 * 20 + 20 + 20 + 1
    assert Network(plain(), 63).parameter_count == 1301
    assert Network(plain(width=50), 63).parameter_count == 3251
    assert Network(plain(network="ntk", hidden_layers=2), 5).parameter_count == 10 * 20 + 20 * 20 + 20


def test_initial_parameters_have_app_b_blocks_and_variances():
    config, network = make("ntk", 2, width=200, dim=50)
    theta = network.initial_parameters(0)
    first, second, last = (layer[0] for layer in network.layers(theta, 1))
    half = config.width // 2
    for layer, columns in ((first, 50), (second, half)):
        assert torch.equal(layer[:half, :columns], layer[half:, columns:])
        assert layer[:half, columns:].abs().max() == 0 == layer[half:, :columns].abs().max()
        assert layer[:half, :columns].var().item() == pytest.approx(4 / config.width, rel=0.1)
    assert torch.equal(last[0, :half], -last[0, half:])
    assert last.var().item() == pytest.approx(2 / config.width, rel=0.4)
    standard = make("standard", 1, width=200, dim=50)[1].initial_parameters(0)
    assert standard.var().item() == pytest.approx(1, rel=0.05)


@pytest.mark.parametrize("layers", [1, 2])
def test_gram_matrix_of_features_tends_to_the_ntk(layers):
    x = contexts(1, 6, 5, seed=4)
    h, tangent = ntk(x[0].numpy(), layers + 1)
    errors = []
    for width in (64, 1024):
        _, network = make("ntk", layers, width=width)
        grams, halved = [], []
        for seed in range(20):
            features = network.tangent_features(network.initial_parameters(seed), network.inputs(x))[0].numpy()
            last = features[:, -width:]
            grams.append(features @ features.T)
            # H takes half of what the layers below the last contribute.
            halved.append((features @ features.T + last @ last.T) / 2)
        errors.append(np.abs(np.array(grams) - tangent).max(axis=(1, 2)).mean())
        for found, limit in ((grams, tangent), (halved, h)):
            standard_error = np.std(found, axis=0, ddof=1) / np.sqrt(20)
            assert (np.abs(np.mean(found, axis=0) - limit) < 5 * standard_error).all()
    # A draw's error falls as 1 / sqrt(width): four times from 64 to 1024.
    assert errors[1] < errors[0] / 3
    assert np.abs(tangent - h).max() > 0.4
