"""HetoFedBandit with clusters found anew in every round, literal and slow: all sets of agents are tried as cliques."""

from __future__ import annotations

import itertools
import math

import numpy as np
import oracle
from oracle_personal import noise_variance, p_value


class Agent:
    def __init__(self, config, i, world):
        self.config, self.i, self.world, self.t_last = config, i, world, 0
        self.W_cluster, self.B_cluster = np.zeros((config.dim, config.dim)), np.zeros(config.dim)
        self.sent = 0
        self.contexts, self.rewards, self.arms, self.scores = [], [], [], []

    def sums(self, since=0):
        """W and B of the agent's observations from a number on."""
        seen = list(zip(self.contexts, self.rewards, strict=True))[since:]
        W = sum((np.outer(x, x) for x, _ in seen), np.zeros_like(self.W_cluster))
        return W, sum((r * x for x, r in seen), np.zeros_like(self.B_cluster))

    def whole(self):
        W, B = self.sums(self.sent)
        return self.config.regularization * np.eye(len(B)) + self.W_cluster + W, self.B_cluster + B

    def iterate(self, t):
        contexts, rewards = self.world(self.i, t)
        V, B = self.whole()
        inverse, scale = np.linalg.inv(V), self.config.exploration_global * math.sqrt(self.config.regularization)
        scores = [x @ inverse @ B + scale * oracle.norm(x, inverse) for x in contexts]
        arm = int(np.argmax(scores))
        self.contexts.append(contexts[arm])
        self.rewards.append(rewards[arm])
        self.arms.append(arm)
        self.scores.append(scores)
        start = self.config.regularization * np.eye(len(B)) + self.W_cluster
        ratio = oracle.log_determinant(self.whole()[0]) - oracle.log_determinant(start)
        return (t - self.t_last) * ratio > self.config.threshold


def cliques(agents, is_edge):
    """All maximal sets of agents that are neighbours of each other, the largest first."""
    sets = [set(one) for size in range(1, agents + 1) for one in itertools.combinations(range(agents), size)
            if all(is_edge(i, j) for i, j in itertools.combinations(one, 2))]  # fmt: skip
    maximal = [sorted(one) for one in sets if not any(one < other for other in sets)]
    return sorted(maximal, key=lambda one: (-len(one), one))


def answer(config, agents, t):
    """A round: the clusters of all agents from their sums."""
    sums = [(*agent.sums(), t, sum(r * r for r in agent.rewards)) for agent in agents]
    variance = noise_variance(sums)
    found = cliques(len(agents), lambda i, j: p_value(sums[i][:2], sums[j][:2], variance) >= config.cluster_level)
    for agent in agents:
        cluster = next(one for one in found if agent.i in one)
        agent.W_cluster, agent.B_cluster = sum(sums[j][0] for j in cluster), sum(sums[j][1] for j in cluster)
        agent.sent, agent.t_last = t, t
    return found


def run(config, environment, theta_0=None):
    """As `oracle.run`."""
    world = oracle.World(config, environment, theta_0)
    agents = [Agent(config, i, world) for i in range(config.agents)]
    rounds, found = [], []
    for t in range(1, config.horizon + 1):
        signals = [agent.iterate(t) for agent in agents]
        if any(signals):
            found.append(answer(config, agents, t))
            rounds.append(t)
    outcome = oracle.Outcome(
        arms=np.array([agent.arms for agent in agents]).T,
        rewards=np.array([agent.rewards for agent in agents]).T,
        scores=np.array([agent.scores for agent in agents]).swapaxes(0, 1),
        weights=[0.0] * config.horizon,
        rounds=rounds,
        alphas=[0.0] * len(rounds),
        theta=None,
    )
    return outcome, found
