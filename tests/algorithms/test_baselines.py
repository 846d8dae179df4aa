"""Baselines against references of a few lines."""

from __future__ import annotations

import numpy as np
import oracle
import pytest
import torch
from helpers import LIKE, make_group, plain, theta_0
from scipy import linalg
from scipy.spatial import distance

from fnbandit import Config, simulate
from fnbandit.algorithms import kernel
from fnbandit.algorithms.sampling import Normals, joint_sample
from fnbandit.environments import make_environment

SMALL = {"agents": 2, "horizon": 40, "dim": 4, "arms": 3, "noise": 0.05, "width": 5, "network_dtype": "float64"}


def play(config: Config, score, agent: int) -> list[int]:
    """Arms of one learner that scores with `score(t, contexts, X, y)` from what it has chosen and seen."""
    environment = make_environment(config)
    chosen, seen, arms = [], [], []
    for t in range(1, config.horizon + 1):
        block = environment.block(agent, (t - 1) // 32)
        contexts, means = block.contexts[(t - 1) % 32], block.means[(t - 1) % 32]
        scores = score(t, contexts, np.array(chosen).reshape(-1, config.dim), np.array(seen))
        arm = int(np.argmax(scores))
        chosen.append(contexts[arm])
        seen.append(means[arm] + block.noise[(t - 1) % 32])
        arms.append(arm)
    return arms


def draws(config: Config, agent: int, t: int) -> np.ndarray:
    return Normals(config.seed, range(agent, agent + 1), config.arms, LIKE).at(t)[0].numpy()


@pytest.mark.parametrize("algorithm", ["linear-ucb", "linear-ts"])
def test_linear(algorithm):
    config = plain(algorithm=algorithm, regularization=0.7, exploration_global=0.4, **SMALL)
    arms = simulate(config).arms
    for agent in range(2):

        def score(t, x, X, y, agent=agent):
            covariance = linalg.inv(0.7 * np.eye(config.dim) + X.T @ X)
            mean = x @ covariance @ (X.T @ y)
            if algorithm == "linear-ucb":
                return mean + 0.4 * np.sqrt(0.7) * np.sqrt(np.diag(x @ covariance @ x.T))
            return mean + 0.4 * np.sqrt(0.7) * linalg.sqrtm(x @ covariance @ x.T).real @ draws(config, agent, t)

        assert list(arms[:, agent]) == play(config, score, agent)


@pytest.mark.parametrize("block", [kernel.FACTOR_BLOCK, 16])
@pytest.mark.parametrize("algorithm", ["kernel-ucb", "kernel-ts"])
def test_kernel(algorithm, block, monkeypatch):
    monkeypatch.setattr(kernel, "FACTOR_BLOCK", block)
    config = plain(algorithm=algorithm, regularization=1.0, exploration_global=0.4, **(SMALL | {"horizon": 80}))
    arms = simulate(config).arms
    for agent in range(2):

        def score(t, x, X, y, agent=agent):
            def k(a, b):
                return np.exp(-distance.cdist(a, b))

            solved = (
                linalg.solve(k(X, X) + np.eye(len(X)), np.column_stack([y, k(X, x)])) if len(X) else np.zeros((0, 4))
            )
            mean = k(x, X) @ solved[:, 0]
            covariance = k(x, x) - k(x, X) @ solved[:, 1:]
            if algorithm == "kernel-ucb":
                return mean + 0.4 * np.sqrt(np.diag(covariance))
            return mean + 0.4 * linalg.sqrtm(covariance).real @ draws(config, agent, t)

        assert list(arms[:, agent]) == play(config, score, agent)


@pytest.mark.parametrize("end", [10, 32, 40])
def test_a_kernel_method_goes_on_with_the_same_bits(end, monkeypatch):
    monkeypatch.setattr(kernel, "FACTOR_BLOCK", 16)
    config = plain(algorithm="kernel-ucb", **(SMALL | {"horizon": 60}))
    groups = [make_group(config, make_environment(config), range(2)) for _ in range(2)]
    groups[0].advance(end)
    groups[1].load(end, groups[0].state())
    for group in groups:
        group.advance(60)
    assert torch.equal(groups[0].rewards, groups[1].rewards)
    assert torch.equal(groups[0].state()["_factor"], groups[1].state()["_factor"])


@pytest.mark.parametrize("algorithm", ["neural-ucb", "neural-ts"])
@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("start", ["initial", "own"])
def test_neural(algorithm, diagonal, start):
    config = plain(algorithm=algorithm, diagonal=diagonal, training_start=start, training_steps=4,
                    training_rate=0.02, exploration_local=0.3, **SMALL)  # fmt: skip
    arms = simulate(config).arms
    initial = torch.from_numpy(theta_0(config))
    for agent in range(2):
        state = {"theta": initial, "V": config.regularization * np.eye(len(initial)), "features": None, "x": None}

        def score(t, x, X, y, agent=agent, state=state):
            if len(X):  # what the last choice taught
                g = next(f for f, c in zip(state["features"], state["x"], strict=True) if (c == X[-1]).all())
                state["V"] += np.diag(g * g) if diagonal else np.outer(g, g)
                begin = initial if start == "initial" else state["theta"]
                state["theta"] = oracle.train(config, begin, initial, X, y)
            theta, inverse = state["theta"], linalg.inv(state["V"])
            state["x"], state["features"] = x, [oracle.tangent_feature(config, theta, c) for c in x]
            bonus = 0.3 * np.sqrt([config.regularization * g @ inverse @ g for g in state["features"]])
            noise = draws(config, agent, t) if algorithm == "neural-ts" else 1.0
            return oracle.network(config, theta, torch.from_numpy(x)).numpy() + bonus * noise

        assert list(arms[:, agent]) == play(config, score, agent)


def test_pooled_with_one_agent_is_neural_ucb():
    config = plain(algorithm="pooled-neural-ucb", **(SMALL | {"agents": 1}))
    expected = simulate(config.replace(algorithm="neural-ucb"))
    np.testing.assert_array_equal(simulate(config).arms, expected.arms)


def test_pooled_is_one_learner_that_sees_all():
    config = plain(algorithm="pooled-neural-ucb", training_steps=4, training_rate=0.02, exploration_local=0.3, **SMALL)
    result, environment = simulate(config), make_environment(config)
    theta = initial = torch.from_numpy(theta_0(config))
    V, X, y = config.regularization * np.eye(len(initial)), [], []
    for t in range(config.horizon):
        inverse, rows = linalg.inv(V), []
        for agent in range(2):
            block = environment.block(agent, t // 32)
            x = block.contexts[t % 32]
            features = [oracle.tangent_feature(config, theta, c) for c in x]
            bonus = 0.3 * np.sqrt([config.regularization * g @ inverse @ g for g in features])
            arm = int(np.argmax(oracle.network(config, theta, torch.from_numpy(x)).numpy() + bonus))
            assert arm == result.arms[t, agent]
            rows.append(features[arm])
            X.append(x[arm])
            y.append(block.means[t % 32][arm] + block.noise[t % 32])
        V = V + sum(np.outer(g, g) for g in rows)
        theta = oracle.train(config, theta, initial, X, y)


def test_dislinucb_alone_without_rounds_is_linear_ucb():
    config = plain(algorithm="dislinucb", trigger="logdet", threshold=1e9, **(SMALL | {"agents": 1}))
    distributed, linear = simulate(config), simulate(config.replace(algorithm="linear-ucb"))
    assert distributed.rounds == []
    np.testing.assert_array_equal(distributed.arms, linear.arms)


def test_dislinucb_that_always_talks_is_linear_ucb_on_pooled_data():
    config = plain(algorithm="dislinucb", trigger="always", **(SMALL | {"agents": 3}))
    result = simulate(config)
    environment = make_environment(config)
    V, b = config.regularization * np.eye(4), np.zeros(4)
    for t in range(config.horizon):
        inverse, rows = linalg.inv(V), []
        for agent in range(3):
            block = environment.block(agent, t // 32)
            x = block.contexts[t % 32]
            bonus = 0.1 * np.sqrt(config.regularization) * np.sqrt(np.diag(x @ inverse @ x.T))
            arm = int(np.argmax(x @ inverse @ b + bonus))
            assert arm == result.arms[t, agent]
            rows.append((x[arm], block.means[t % 32][arm] + block.noise[t % 32]))
        V = V + sum(np.outer(x, x) for x, _ in rows)
        b = b + sum(y * x for x, y in rows)


def test_joint_sample_has_the_covariance():
    covariance = torch.tensor([[[2.0, 0.6], [0.6, 1.0]]], dtype=torch.float64)
    normals = torch.from_numpy(np.random.default_rng(0).standard_normal((20_000, 2)))
    sample = joint_sample(covariance.expand(20_000, -1, -1), normals).numpy()
    np.testing.assert_allclose(np.cov(sample.T), covariance[0], atol=0.06)
