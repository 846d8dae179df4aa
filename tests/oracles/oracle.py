"""The paper's Algorithms 1 and 2, line by line and slowly: what the fast code is judged by.

    Algorithm 1: FN-UCB (agent i)                     Algorithm 2: central server
     1     inputs                  Agent.__init__
     2     for t = 1, ..., T       run
     3-12  choose, observe, signal Agent.iterate  ->  1-2   any signal starts a round     run
    13-16  train and send          Agent.send     ->  3-5   receive, average, sum         Server.round
    17-18  receive, begin anew     Agent.receive  <-  6     broadcast                     Server.round

Read `run`, at the end, first: it is the loop over t, with both boxes in it. Then `Agent` and `Server`, whose comments
carry the paper's line numbers. Agents take their turns one after another, with dense matrices, their inverses, and
autograd for every gradient. Nothing of the package is used: contexts, rewards and theta_0 are handed in.
Where the paper has more than one way (Sec. 3.4, Sec. 5, App. E), `config` says which; names are those of its fields.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
import torch

BLOCK = 32
"""Iterations that an environment draws at once"""


# Sec. 2 and App. B: the network and its gradient


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
    """g(x; theta) / sqrt(m) (ntk) or g(x; theta) (standard), a vector of length p_0."""
    theta = theta.clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(network(config, theta, torch.from_numpy(x)), theta)
    return gradient.numpy() / (math.sqrt(config.width) if config.network == "ntk" else 1.0)


# What one agent sends in a round (Alg. 1, line 16), and what it hears (line 17)


@dataclass
class Upload:
    W_new: np.ndarray
    B_new: np.ndarray
    theta: torch.Tensor
    alpha: float
    V_local_inverse: np.ndarray


@dataclass
class Broadcast:
    W_sync: np.ndarray
    B_sync: np.ndarray
    theta_sync: torch.Tensor
    alpha: float
    V_local_inverses: list[np.ndarray]
    """All agents' (FN-UCB), or only their mean (Less Comm., Sec. 3.4)"""


class Agent:
    """Algorithm 1, for agent i."""

    def __init__(self, config, i, world, theta_0):
        """Line 1."""
        self.config, self.i, self.world, self.theta_0 = config, i, world, theta_0
        self.p0 = len(theta_0)
        self.lambda_I = config.regularization * np.eye(self.p0)
        self.W_sync, self.W_new = np.zeros((self.p0, self.p0)), np.zeros((self.p0, self.p0))
        self.B_sync, self.B_new = np.zeros(self.p0), np.zeros(self.p0)
        self.alpha = 0.0
        self.V_local, self.V_local_inverses = self.lambda_I, [np.eye(self.p0) / config.regularization]
        self.V_last, self.t_last = self.lambda_I, 0
        self.theta_sync = self.theta = theta_0
        self.received = []
        self.contexts, self.arms, self.rewards, self.scores, self.weights = [], [], [], [], []

    def iterate(self, t) -> bool:
        """Lines 3 to 12: whether the agent signals the server."""
        contexts, rewards = self.world(self.i, t)  # line 3
        features = [tangent_feature(self.config, self.theta_0, x) for x in contexts]
        self.received += self.world.looked_at(t, features)
        V_bar_inverse, theta_bar = self.estimate()  # line 4
        ucb_a = self.ucb_a(features, V_bar_inverse, theta_bar)  # line 5
        alpha = self.weight(t)
        ucb_b = self.ucb_b(contexts, features) if alpha != 0 else np.zeros(len(contexts))  # line 6
        score = (1 - alpha) * ucb_a + alpha * ucb_b  # line 7
        arm = int(np.argmax(score))
        self.observe(contexts[arm], features[arm], rewards[arm])  # lines 8, 9 and 10
        self.arms.append(arm)
        self.scores.append(score)
        self.weights.append(alpha)
        return self.signals(t)  # lines 11 and 12

    def estimate(self):
        """Line 4: V-bar^-1 and theta-bar."""
        V_bar_inverse = np.linalg.inv(self.lambda_I + self.W_sync + self.W_new)
        return V_bar_inverse, V_bar_inverse @ (self.B_sync + self.B_new)

    def ucb_a(self, features, V_bar_inverse, theta_bar):
        """Line 5. Where matrices are diagonal, the first term is scaled to [0, 1] (footnote in Sec. 5.2)."""
        first = np.array([g @ theta_bar for g in features])
        if self.config.diagonal and first.max() > first.min():
            first = (first - first.min()) / (first.max() - first.min())
        scale = self.config.exploration_global * math.sqrt(self.config.regularization)
        return first + scale * np.array([norm(g, V_bar_inverse) for g in features])

    def ucb_b(self, contexts, features):
        """Line 6. aggregate=False: with the agent's own network (Fig. 1c)."""
        theta = self.theta_sync if self.config.aggregate else self.theta
        prediction = np.array([float(network(self.config, theta, torch.from_numpy(x))) for x in contexts])
        scale = self.config.exploration_local * math.sqrt(self.config.regularization)
        return prediction + scale * np.array(
            [np.mean([norm(g, inverse) for inverse in self.V_local_inverses]) for g in features]
        )

    def weight(self, t):
        """alpha of line 7: Sec. 3.3's, or what stands for it in Sec. 5; first iterations only: Theorem 1's version."""
        if not self.config.use_local:
            return 0.0
        if not self.config.use_global:
            return 1.0
        if self.config.first_iteration_only and t != self.t_last + 1:
            return 0.0
        if self.config.weight == "constant":
            return self.config.weight_value
        if self.config.weight == "ramp":
            return min(1.0, (t - 1) / self.config.ramp)
        return self.alpha

    def observe(self, x, g, y):
        """Lines 8, 9 and 10. diagonal: only the diagonals are kept (Sec. 3.4)."""
        outer = np.diag(g * g) if self.config.diagonal else np.outer(g, g)
        self.contexts.append(x)
        self.rewards.append(y)
        self.W_new = self.W_new + outer
        self.B_new = self.B_new + y * g
        self.V_local = self.V_local + outer

    def signals(self, t):
        """Line 11, exactly or on diagonals (App. E); always and period ask by the clock."""
        if self.config.trigger == "always":
            return True
        if self.config.trigger == "period":
            return t - self.t_last >= self.config.period
        V, V_last = self.lambda_I + self.W_sync + self.W_new, self.V_last
        if self.config.trigger == "diagonal":
            V, V_last = np.diag(np.diag(V)), np.diag(np.diag(V_last))
        return (t - self.t_last) * (log_determinant(V) - log_determinant(V_last)) > self.config.threshold

    def send(self, t) -> Upload:
        """Lines 14 to 16."""
        self.theta = self.trained(t)  # line 14
        V_local_inverse = np.linalg.inv(self.V_local)
        return Upload(self.W_new, self.B_new, self.theta, self.ratio(V_local_inverse), V_local_inverse)

    def trained(self, t):
        """Line 14. stop_training_after: the network stays as it is from then on (App. E)."""
        if self.config.stop_training_after is not None and t > self.config.stop_training_after:
            return self.theta
        starts = {"initial": self.theta_0, "own": self.theta, "aggregate": self.theta_sync}
        return train(self.config, starts[self.config.training_start], self.theta_0, self.contexts, self.rewards)

    def ratio(self, V_local_inverse):
        """Line 15: the smallest over the largest uncertainty in the domain, received contexts included (Sec. 3.3)."""
        if self.config.weight != "theory":
            return 1.0
        scale = math.sqrt(self.config.regularization)
        points = [*self.world.domain_features, *self.received]
        uncertainties = [scale * norm(g, V_local_inverse) for g in points]
        return min(uncertainties) / max(uncertainties)

    def receive(self, t, broadcast: Broadcast):
        """Lines 17 and 18."""
        self.W_sync, self.B_sync = broadcast.W_sync, broadcast.B_sync
        self.theta_sync, self.alpha = broadcast.theta_sync, broadcast.alpha
        self.V_local_inverses = broadcast.V_local_inverses
        self.V_last, self.t_last = self.W_sync + self.lambda_I, t
        self.W_new, self.B_new = np.zeros((self.p0, self.p0)), np.zeros(self.p0)


def train(config, start, theta_0, contexts, rewards):
    """Line 14: J steps on Eq. (1), or on App. E's loss, the mean squared error with weight decay lambda / t."""
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


def norm(g, inverse):
    """||g||_{V^-1}"""
    return math.sqrt(max(0.0, g @ inverse @ g))


def log_determinant(matrix):
    return np.linalg.slogdet(matrix)[1]


class Server:
    """Algorithm 2."""

    def __init__(self, config, p0):
        self.averages = config.algorithm == "fn-ucb-less-comm"
        self.W_sync, self.B_sync = np.zeros((p0, p0)), np.zeros(p0)

    def round(self, uploads: list[Upload]) -> Broadcast:
        """Lines 3 to 6. Less Comm. broadcasts one matrix, the mean of all agents' (Sec. 3.4)."""
        N = len(uploads)
        theta_sync = sum(upload.theta for upload in uploads) / N  # line 4
        alpha = min(upload.alpha for upload in uploads)
        inverses = [upload.V_local_inverse for upload in uploads]
        if self.averages:
            inverses = [sum(inverses) / N]
        self.W_sync = self.W_sync + sum(upload.W_new for upload in uploads)  # line 5
        self.B_sync = self.B_sync + sum(upload.B_new for upload in uploads)
        return Broadcast(self.W_sync, self.B_sync, theta_sync, alpha, inverses)  # line 6


class World:
    """What agents meet: their contexts with the rewards that a query would bring, and the domain."""

    def __init__(self, config, environment, theta_0):
        self.config = config
        self._block = functools.cache(environment.block)
        self.domain_features = []
        if config.weight == "theory":
            domain = environment.domain(config.domain_sample)
            self.domain_features = [tangent_feature(config, theta_0, x) for x in domain]

    def looked_at(self, t, features):
        """Features of received contexts that count for alpha: those of some evenly spread iterations."""
        iterations = self.config.received_sample // len(features)
        spread = math.ceil(self.config.horizon / iterations) if iterations else math.inf
        return features if self.config.weight == "theory" and (t - 1) % spread == 0 else []

    def __call__(self, i, t):
        """Contexts [K, d] of agent i in iteration t (Alg. 1, line 3), and y for each of them, [K] (line 8)."""
        block, offset = self._block(i, (t - 1) // BLOCK), (t - 1) % BLOCK
        return block.contexts[offset], block.means[offset] + block.noise[offset]


@dataclass
class Outcome:
    arms: np.ndarray
    rewards: np.ndarray
    scores: np.ndarray
    weights: list
    """alpha of every iteration, as line 7 used it"""
    rounds: list
    alphas: list
    """alpha of every round, as the server broadcast it"""
    theta: np.ndarray


def run(config, environment, theta_0, horizon=None, clock=lambda: None, agent=Agent, server=Server) -> Outcome:
    """N agents and a server for T iterations; all settings are numbers.

    `clock` is called before the first iteration and after every one.
    """
    theta_0 = torch.from_numpy(np.asarray(theta_0))
    world = World(config, environment, theta_0)
    agents = [agent(config, i, world, theta_0) for i in range(config.agents)]
    coordinator = server(config, len(theta_0))
    rounds, alphas = [], []
    clock()
    for t in range(1, (horizon or config.horizon) + 1):  # Alg. 1, line 2
        signals = [agent.iterate(t) for agent in agents]  # Alg. 1, lines 3-12
        if any(signals):  # Alg. 2, lines 1 and 2; Alg. 1, line 13
            uploads = [agent.send(t) for agent in agents]  # Alg. 1, lines 14-16
            broadcast = coordinator.round(uploads)  # Alg. 2, lines 3-6
            for agent in agents:
                agent.receive(t, broadcast)  # Alg. 1, lines 17 and 18
            rounds.append(t)
            alphas.append(broadcast.alpha)
        clock()
    return Outcome(
        arms=np.array([agent.arms for agent in agents]).T,
        rewards=np.array([agent.rewards for agent in agents]).T,
        scores=np.array([agent.scores for agent in agents]).swapaxes(0, 1),
        weights=agents[0].weights,
        rounds=rounds,
        alphas=alphas,
        theta=agents[0].theta_sync.numpy(),
    )
