"""FedIGW (Li et al. 2023), literally: agents one after another, probabilities arm by arm, autograd for every gradient.

Contexts, rewards, theta_0 and the uniform numbers of the draws are handed in.
"""

from __future__ import annotations

import numpy as np
import oracle
import torch


def probabilities(predicted, gamma):
    """Inverse gap weighting of K predicted rewards."""
    K, b = len(predicted), int(np.argmax(predicted))
    p = np.zeros(K)
    for a in range(K):
        if a != b:
            p[a] = 1 / (K + gamma * (predicted[b] - predicted[a]))
    p[b] = 1 - sum(p)
    return p


def draw(p, u):
    """The first arm at which the sum of probabilities passes u."""
    total = 0.0
    for a, probability in enumerate(p):
        total += probability
        if u < total:
            return a
    return len(p) - 1


def rounds(growth, largest, horizon):
    """Iterations of the rounds: gaps grow with the iterations, and are bounded."""
    found, t = [], 0
    while True:
        t += min(largest, int(np.ceil((growth - 1) * (t + 1))))
        if t > horizon:
            return found
        found.append(t)


def run(config, environment, theta_0, uniform):
    """Arms [T, N] and the last network."""
    theta_0 = torch.from_numpy(np.asarray(theta_0))
    world = oracle.World(config, environment, theta_0)
    N, times = config.agents, rounds(config.gap_growth, config.largest_gap, config.horizon)
    theta_sync, thetas, trained = theta_0, [theta_0] * N, False
    contexts, rewards, arms = ([[] for _ in range(N)] for _ in range(3))
    for t in range(1, config.horizon + 1):
        for i in range(N):
            x, y = world(i, t)
            p = np.full(len(x), 1 / len(x))
            if trained:
                predicted = [float(oracle.network(config, theta_sync, torch.from_numpy(one))) for one in x]
                p = probabilities(predicted, config.gap_weight)
            arm = draw(p, uniform(i, t))
            contexts[i].append(x[arm])
            rewards[i].append(y[arm])
            arms[i].append(arm)
        if t in times:
            starts = {"own": thetas, "aggregate": [theta_sync] * N, "initial": [theta_0] * N}[config.training_start]
            thetas = [oracle.train(config, starts[i], theta_0, contexts[i], rewards[i]) for i in range(N)]
            theta_sync, trained = sum(thetas) / N, True
    return np.array(arms).T, theta_sync.numpy()
