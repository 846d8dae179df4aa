"""Policies: an agent taken out of a simulation goes on as the simulated one does, with numpy alone."""

from __future__ import annotations

import itertools
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from helpers import plain

from fnbandit import Config, Policy, simulate
from fnbandit.config.registry import resolve_part
from fnbandit.environments import make_environment
from fnbandit.numerics.randomness import BLOCK
from fnbandit.policy import NumpyNetwork

EPOCHS = {"trigger": "period", "period": 20}


def record_scores(config, monkeypatch, agent):
    """A simulation's result, and the scores of one agent in every iteration that counted."""
    kind = resolve_part("algorithm", config.algorithm)
    seen, original = {}, kind.scores

    def recording(self, iteration, contexts):
        found = original(self, iteration, contexts)
        seen[iteration] = found.values[agent].numpy().copy()
        return found

    with monkeypatch.context() as patch:
        patch.setattr(kind, "scores", recording)
        return simulate(config), seen


@pytest.mark.parametrize(
    "settings",
    [
        EPOCHS,
        EPOCHS | {"period": 30},
        EPOCHS | {"algorithm": "fn-ucb"},
        EPOCHS | {"diagonal": True},
        EPOCHS | {"network": "ntk", "width": 12},
        EPOCHS | {"hidden_layers": 3, "width": 6},
        EPOCHS | {"use_local": False},
        EPOCHS | {"use_global": False},
        EPOCHS | {"aggregate": False},
        EPOCHS | {"weight": "theory"},
        EPOCHS | {"participation": "fraction"},
        EPOCHS | {"messages": "quantized"},
        EPOCHS | {"environment": "magic", "width": 6},
        EPOCHS | {"environment": "routing", "width": 4, "agents": 3},
        {"algorithm": "dislinucb", "trigger": "logdet", "threshold": 1e9},
        {"algorithm": "dislinucb", "diagonal": True, **EPOCHS},
        EPOCHS | {"algorithm": "fn-exact"},
        EPOCHS | {"algorithm": "fn-exact", "diagonal": True},
        EPOCHS | {"algorithm": "fn-linear", "hidden_layers": 2, "width": 6},
        {"algorithm": "linear-ucb"},
        {"algorithm": "neural-ucb", "training_steps": 0},
        {"algorithm": "neural-ucb", "training_steps": 0, "diagonal": True},
        {"algorithm": "pooled-neural-ucb", "training_steps": 0, "agents": 1},
    ],
    ids=lambda settings: " ".join(map(str, settings.values())),
)
def test_a_policy_goes_on_as_its_agent_does(settings, monkeypatch):
    """The last epoch of a longer run, replayed: scores to rounding, and the same choices."""
    config = Config.complete({"agents": 3, "horizon": 40, "training_cap": 20} | settings)
    agent = config.agents - 1
    longer, scores = record_scores(config.replace(horizon=60), monkeypatch, agent)
    short = simulate(config)
    np.testing.assert_array_equal(short.arms, longer.arms[:40])
    policy, environment = short.policy(agent), make_environment(config)
    assert policy.tensors.keys() <= {"solution", "inverse", "features_at", "theta", "local", "alphas", "shift", "scale"}
    for t in range(41, 61):
        contexts = environment.block(agent, (t - 1) // BLOCK).contexts[(t - 1) % BLOCK]
        # Predictions of networks are in single precision in the simulation.
        np.testing.assert_allclose(policy.scores(contexts), scores[t], rtol=2e-5, atol=2e-5, err_msg=str(t))
        arm = policy.act(contexts)
        assert arm == longer.arms[t - 1, agent]
        policy.learn(contexts, arm, longer.rewards[t - 1, agent])


def test_greedy_policy_of_neural_epsilon_greedy():
    config = Config(algorithm="neural-epsilon-greedy", agents=2, horizon=30, epsilon=0.0, training_cap=20)
    policy = simulate(config).policy(1)
    contexts = make_environment(config).block(1, 0).contexts[30]
    assert policy.act(contexts) == simulate(config.replace(horizon=31)).arms[30, 1]


@pytest.mark.parametrize("algorithm", ["kernel-ucb", "linear-ts", "neural-ts", "random", "fn-ucb-async", "fedlinucb"])
def test_algorithms_without_a_policy(algorithm):
    result = simulate(Config.complete({"algorithm": algorithm, "agents": 2, "horizon": 5, "training_steps": 1}))
    with pytest.raises(ValueError, match=f"algorithm='{algorithm}': .*has no policy"):
        result.policy()


def test_a_pickled_result_runs_again_for_its_policy():
    config = Config(agents=2, horizon=20, training_cap=10, **EPOCHS)
    result = simulate(config)
    x = np.random.default_rng(0).standard_normal((6, 4, 10))
    restored = pickle.loads(pickle.dumps(result))
    np.testing.assert_array_equal(restored.policy(1).scores(x), result.policy(1).scores(x))
    np.testing.assert_array_equal(result.policy(1).scores(x), result.policy(1).scores(x))
    assert np.abs(result.policy(0).scores(x) - result.policy(1).scores(x)).max() > 0
    with pytest.raises(ValueError, match="agent=2: expected a number from 0 to 1"):
        result.policy(2)


def test_a_file_needs_neither_torch_nor_ray(tmp_path):
    policy = simulate(Config(agents=2, horizon=20, training_cap=10, environment="magic")).policy(1)
    path = policy.save(tmp_path / "policy.safetensors")
    rows = np.random.default_rng(0).standard_normal((7, 10))
    np.save(tmp_path / "rows.npy", rows)
    script = (
        "import sys, numpy as np\n"
        "from fnbandit import Policy\n"
        f"policy, rows = Policy.load({str(path)!r}), np.load({str(tmp_path / 'rows.npy')!r})\n"
        "policy.learn(rows[0], policy.act(rows[0]), 1.0)\n"
        "assert not {'torch', 'ray', 'pydantic', 'pyarrow'} & set(sys.modules), sys.modules.keys()\n"
        "print(repr(policy.scores(rows).tolist()))\n"
    )
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    policy.learn(rows[0], policy.act(rows[0]), 1.0)
    np.testing.assert_array_equal(eval(printed), policy.scores(rows))


def small_policy(**tensors):
    facts = {
        "agent": 0,
        "algorithm": "a",
        "environment": "e",
        "iterations": 1,
        "arms": 2,
        "dim": 3,
        "global_scale": 0.5,
    }
    return Policy(facts, {"solution": np.zeros(3), "inverse": np.eye(3) / 2.0} | tensors)


@pytest.mark.parametrize("diagonal", [False, True])
def test_learning_is_ridge_regression(diagonal):
    random = np.random.default_rng(1)
    x, rewards = random.standard_normal((9, 3)), random.standard_normal(9)
    policy = small_policy(**({"inverse": np.full(3, 0.5)} if diagonal else {}))
    for row, reward in zip(x, rewards, strict=True):
        policy.learn(row, 1, reward)
    v = 2.0 * np.eye(3) + x.T @ x
    if diagonal:
        v = np.diag(np.diag(v))
    points = random.standard_normal((4, 2, 3))
    expected = points @ np.linalg.solve(v, x.T @ rewards)
    expected += 0.5 * np.sqrt(np.einsum("nki,ij,nkj->nk", points, np.linalg.inv(v), points))
    np.testing.assert_allclose(policy.scores(points), expected, rtol=1e-10)
    assert policy.act(points).tolist() == expected.argmax(1).tolist()
    assert policy.act(points[0]) == expected[0].argmax()


@pytest.mark.parametrize(("network", "layers"), [("standard", 1), ("standard", 3), ("ntk", 1), ("ntk", 3)])
def test_networks_against_autograd(network, layers):
    from fnbandit.networks.network import Network

    config = plain(network=network, hidden_layers=layers, width=6)
    ours = NumpyNetwork(*Network(config, 5).form)
    random = np.random.default_rng(2)
    theta = random.standard_normal(Network(config, 5).parameter_count)
    x = random.standard_normal((4, 5))

    def f(parameters, point):
        """The formulas of `Network`, written out for one context."""
        sizes, offset, a = ([10] if network == "ntk" else [5]) + [6] * layers + [1], 0, point
        if network == "ntk":
            a = torch.cat([point, point]) / 2**0.5
        for index, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
            columns = inputs + (network == "standard")
            layer = parameters[offset : offset + outputs * columns].reshape(outputs, columns)
            offset += outputs * columns
            a = layer[:, :inputs] @ a + (layer[:, inputs] if network == "standard" else 0)
            a = torch.relu(a) if index < layers else a
        return a[0]

    parameters = torch.from_numpy(theta).requires_grad_()
    for place, point in enumerate(torch.from_numpy(x)):
        value = f(parameters, point)
        (gradient,) = torch.autograd.grad(value, parameters)
        scale = 6**0.5 if network == "ntk" else 1.0
        np.testing.assert_allclose(ours.predict(theta, x)[place], scale * value.item(), rtol=1e-10)
        np.testing.assert_allclose(ours.tangent(theta, x)[place], gradient.numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("call", "pattern"),
    [
        (lambda p: p.act(np.zeros((2, 4))), r"contexts: have shape \(2, 4\); expected \[.., 2, 3\]"),
        (lambda p: p.act(np.zeros(3)), r"contexts: have shape \(3,\)"),
        (lambda p: p.act(np.full((2, 3), np.nan)), "contexts: have NaN"),
        (lambda p: p.learn(np.zeros((2, 3)), 2, 1.0), "arm=2: expected a number from 0 to 1"),
        (lambda p: p.learn(np.zeros((2, 3)), 0, float("nan")), "reward=nan"),
        (lambda p: Policy.load("nowhere"), "policy='nowhere': no such file"),
        (lambda p: Policy.load(__file__), "cannot be read"),
    ],
)
def test_bad_input(call, pattern):
    with pytest.raises(ValueError, match=pattern) as caught:
        call(small_policy())
    assert "\n" not in str(caught.value)


def test_another_file_of_tensors(tmp_path):
    from safetensors.numpy import save_file

    save_file({"theta": np.zeros(3)}, str(tmp_path / "other.safetensors"))
    with pytest.raises(ValueError, match="is no policy of fnbandit"):
        Policy.load(tmp_path / "other.safetensors")
