"""A literal, slow transcription of the paper's Algorithms 1 and 2: what the fast code is judged by.

One agent after another, dense matrices and inverses, autograd for every gradient. It shares no
code with the package; contexts, rewards and theta_0 are handed in. Line numbers are the paper's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch

BLOCK = 32


def network(config, theta, x):
    """f(x; theta) of App. B (ntk), or the standard network with biases; x is one context or rows of them."""
    bias = 0 if config.network == "ntk" else 1
    if config.network == "ntk":
        x = torch.cat([x, x], dim=-1) / math.sqrt(2)
    sizes = [x.shape[-1]] + [config.width] * config.hidden_layers + [1]
    position = 0
    for layer in range(len(sizes) - 1):
        rows, columns = sizes[layer + 1], sizes[layer] + bias
        matrix = theta[position : position + rows * columns].reshape(rows, columns)
        position += rows * columns
        if layer > 0:
            x = torch.relu(x)
        x = x @ matrix[:, :-1].T + matrix[:, -1] if bias else x @ matrix.T
    assert position == len(theta)
    return (math.sqrt(config.width) if config.network == "ntk" else 1.0) * x[..., 0]


def tangent_feature(config, theta, x):
    """g(x; theta)/sqrt(m) (ntk) or g(x; theta) (standard), a vector of length p0."""
    theta = theta.clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(network(config, theta, torch.from_numpy(x)), theta)
    return gradient.numpy() / (math.sqrt(config.width) if config.network == "ntk" else 1.0)


def train(config, start, theta_0, contexts, rewards):
    """Gradient descent on Eq. (1), or on the experiments' loss: mean squared error, weight decay lambda/t."""
    x, y = torch.from_numpy(np.array(contexts)), torch.from_numpy(np.array(rewards))
    theta = start.clone()
    for _ in range(config.training_steps):
        theta = theta.detach().requires_grad_(True)
        error = (network(config, theta, x) - y) ** 2
        if config.training_loss == "paper":
            pull = 0.5 * config.width * config.regularization * ((theta - theta_0) ** 2).sum()
            loss = 0.5 * error.sum() + pull
        else:
            loss = error.mean() + 0.5 * config.regularization / len(y) * (theta**2).sum()
        (gradient,) = torch.autograd.grad(loss, theta)
        theta = (theta - config.training_rate * gradient).detach()
    return theta


def log_determinant(matrix):
    return np.linalg.slogdet(matrix)[1]


@dataclass
class Agent:
    W_new: np.ndarray
    B_new: np.ndarray
    V_local: np.ndarray
    theta: torch.Tensor
    contexts: list = field(default_factory=list)
    rewards: list = field(default_factory=list)


@dataclass
class Outcome:
    arms: np.ndarray
    rewards: np.ndarray
    scores: np.ndarray
    weights: list
    rounds: list
    theta: np.ndarray


def run(config, environment, theta_0, horizon=None, clock=lambda: None) -> Outcome:
    """FN-UCB for every agent (Alg. 1) and the server (Alg. 2); all settings are numbers.

    `clock` is called before the first iteration and after every one.
    """
    horizon = horizon or config.horizon
    N, lam = config.agents, config.regularization
    theta_0 = torch.from_numpy(np.asarray(theta_0))
    p0 = len(theta_0)
    identity = np.eye(p0)
    keep = (lambda matrix: np.diag(np.diag(matrix))) if config.diagonal else (lambda matrix: matrix)

    # Alg. 1, line 1
    W_sync, B_sync, alpha = np.zeros((p0, p0)), np.zeros(p0), 0.0
    V_last, t_last, theta_sync = lam * identity, 0, theta_0
    V_local_inverses = [identity / lam for _ in range(N)]
    agents = [Agent(np.zeros((p0, p0)), np.zeros(p0), lam * identity, theta_0) for _ in range(N)]
    domain = []
    if config.weight == "theory":
        domain = [tangent_feature(config, theta_0, x) for x in environment.domain(config.domain_sample)]

    arms, rewards, scores, weights, rounds = [], [], [], [], []
    blocks = {}
    clock()
    for t in range(1, horizon + 1):
        weight = current_weight(config, t, t_last, alpha)
        weights.append(weight)
        started = False
        for i, agent in enumerate(agents):
            # line 3
            if (i, (t - 1) // BLOCK) not in blocks:
                blocks[i, (t - 1) // BLOCK] = environment.block(i, (t - 1) // BLOCK)
            block = blocks[i, (t - 1) // BLOCK]
            contexts = block.contexts[(t - 1) % BLOCK]
            features = [tangent_feature(config, theta_0, x) for x in contexts]
            # line 4
            V_bar_inverse = np.linalg.inv(lam * identity + W_sync + agent.W_new)
            theta_bar = V_bar_inverse @ (B_sync + agent.B_new)
            # line 5
            first = np.array([g @ theta_bar for g in features])
            if config.diagonal and first.max() > first.min():
                first = (first - first.min()) / (first.max() - first.min())
            nu = config.exploration_global * math.sqrt(lam)
            ucb_a = first + nu * np.array([math.sqrt(max(0.0, g @ V_bar_inverse @ g)) for g in features])
            # line 6
            ucb_b = np.zeros(len(contexts))
            if weight != 0:
                nu = config.exploration_local * math.sqrt(lam)
                theta = theta_sync if config.aggregate else agent.theta
                for k, (x, g) in enumerate(zip(contexts, features, strict=True)):
                    if config.algorithm == "fn-ucb":
                        norm = np.mean([math.sqrt(max(0.0, g @ V @ g)) for V in V_local_inverses])
                    else:
                        norm = math.sqrt(max(0.0, g @ (sum(V_local_inverses) / N) @ g))
                    ucb_b[k] = float(network(config, theta, torch.from_numpy(x))) + nu * norm
            # line 7
            score = (1 - weight) * ucb_a + weight * ucb_b
            arm = int(np.argmax(score))
            # line 8
            y = block.means[(t - 1) % BLOCK][arm] + block.noise[(t - 1) % BLOCK]
            # lines 9 and 10
            g = features[arm]
            agent.W_new = agent.W_new + keep(np.outer(g, g))
            agent.B_new = agent.B_new + y * g
            agent.V_local = agent.V_local + keep(np.outer(g, g))
            agent.contexts.append(contexts[arm])
            agent.rewards.append(y)
            arms.append(arm)
            rewards.append(y)
            scores.append(score)
            # lines 11 and 12
            started = signals(config, t, t_last, lam * identity + W_sync + agent.W_new, V_last) or started
        if started:
            rounds.append(t)
            thetas, alphas = [], []
            for agent in agents:
                # line 14
                if config.stop_training_after is None or t <= config.stop_training_after:
                    start = {"initial": theta_0, "own": agent.theta, "aggregate": theta_sync}[config.training_start]
                    agent.theta = train(config, start, theta_0, agent.contexts, agent.rewards)
                # line 15
                inverse = np.linalg.inv(agent.V_local)
                deviations = [math.sqrt(lam * max(0.0, g @ inverse @ g)) for g in domain] or [1.0]
                alphas.append(min(deviations) / max(deviations))
                thetas.append(agent.theta)
            # Alg. 2, lines 4-6
            theta_sync = sum(thetas) / N
            alpha = min(alphas)
            V_local_inverses = [np.linalg.inv(agent.V_local) for agent in agents]
            W_sync = W_sync + sum(agent.W_new for agent in agents)
            B_sync = B_sync + sum(agent.B_new for agent in agents)
            # Alg. 1, line 18
            V_last, t_last = W_sync + lam * identity, t
            for agent in agents:
                agent.W_new, agent.B_new = np.zeros((p0, p0)), np.zeros(p0)
        clock()
    shape = (horizon, N)
    return Outcome(
        arms=np.array(arms).reshape(shape),
        rewards=np.array(rewards).reshape(shape),
        scores=np.array(scores).reshape(*shape, -1),
        weights=weights,
        rounds=rounds,
        theta=theta_sync.numpy(),
    )


def current_weight(config, t, t_last, alpha):
    """alpha of Sec. 3.3 and its substitutes in Sec. 5."""
    if not config.use_local:
        return 0.0
    if not config.use_global:
        return 1.0
    if config.first_iteration_only and t != t_last + 1:
        return 0.0
    if config.weight == "constant":
        return config.weight_value
    if config.weight == "ramp":
        return min(1.0, (t - 1) / config.ramp)
    return alpha


def signals(config, t, t_last, V, V_last):
    """Whether an agent asks for a round (line 11)."""
    if config.trigger == "always":
        return True
    if config.trigger == "period":
        return t - t_last >= config.period
    if config.trigger == "diagonal":
        V, V_last = np.diag(np.diag(V)), np.diag(np.diag(V_last))
    return (t - t_last) * (log_determinant(V) - log_determinant(V_last)) > config.threshold
