"""Experts of an agent, clusters of agents and forgetting: literal and slow, on top of `oracle_exact`.

Every estimate is computed anew in every iteration from lists of all that the agent has seen, with `numpy.linalg.inv`.
"""

from __future__ import annotations

import math

import numpy as np
import oracle
import oracle_exact
import torch
from scipy import stats

TAUS = (100.0, 10.0, 1.0, 0.1)


FEATURES: dict[tuple[bytes, bytes], np.ndarray] = {}
"""Gradients of the last layer by theta and context, because estimates are computed anew in every iteration"""


def last_features(config, theta, x):
    """The gradient of f(x; theta) by the last layer's parameters."""
    key = theta.numpy().tobytes(), x.tobytes()
    if key not in FEATURES:
        FEATURES[key] = oracle_exact.gradient_of(config, theta, x)[-oracle_exact.last_layer(config) :]
    return FEATURES[key]


def remembered(config, t):
    """Which of the observations 0 to t - 1 count, and the weight of each."""
    if config.forgetting == "window":
        return {k: 1.0 for k in range(t) if k >= t - config.window}
    if config.forgetting == "discount":
        weights = {k: config.discount ** (t - 1 - k) for k in range(t)}
        return {k: weight for k, weight in weights.items() if weight >= 1e-3}
    return dict.fromkeys(range(t), 1.0)


def steps_due(config, last, t):
    """Steps by what is new among what is remembered."""
    if config.training_steps != "auto":
        return config.training_steps
    if last == 0:
        return config.training_cap
    memory = {"none": math.inf, "window": config.window, "discount": 1 / (1 - config.discount)}[config.forgetting]
    known = int(min(last, memory))
    due = math.floor(config.training_effort * math.log((known + t - last) / known))
    return 0 if due < config.training_least else min(due, config.training_cap)


class OwnNetwork:
    """An agent's own network, and all that follows from it."""

    def __init__(self, config, theta_0):
        self.config, self.theta, self.unit, self.trained = config, theta_0.clone(), 1.0, 0
        self.first = 0
        """The oldest observation that counts"""

    def features(self, x):
        return np.concatenate([x, last_features(self.config, self.theta, x)])

    def network(self, x):
        return float(oracle.network(self.config, self.theta, torch.from_numpy(x))) if self.trained else 0.0

    def estimate(self, contexts, rewards):
        seen = list(zip(contexts, rewards, strict=True))[self.first :]
        p = len(contexts[0]) + oracle_exact.last_layer(self.config) if contexts else None
        if p is None:
            return None, None
        S, c = self.config.regularization * np.eye(p), np.zeros(p)
        for x, r in seen:
            z = self.features(x)
            S, c = S + np.outer(z, z), c + (r / self.unit - self.network(x)) * z
        return np.linalg.inv(S), c

    def of(self, x, contexts, rewards):
        """Mean and deviation of a context, in the unit of rewards."""
        inverse, c = self.estimate(contexts, rewards)
        z = self.features(x)
        if inverse is None:
            inverse, c = np.eye(len(z)) / self.config.regularization, np.zeros(len(z))
        mean = self.network(x) + z @ inverse @ c
        return mean * self.unit, math.sqrt(z @ inverse @ z) * self.unit

    def train(self, contexts, rewards, t):
        """Adam from the last parameters, on the observations that are remembered."""
        config = self.config
        used = sorted(remembered(config, t))
        self.first = used[0]
        steps = steps_due(config, self.trained, t)
        if not steps:
            return
        y = torch.tensor([rewards[k] for k in used], dtype=torch.float64)
        x = torch.from_numpy(np.array([contexts[k] for k in used]))
        unit = float((y**2).mean()) ** 0.5 or 1.0
        theta = oracle_exact.with_last_layer_times(config, self.theta, self.unit / unit if self.trained else 1.0)
        theta.requires_grad_(True)
        rate = config.training_rate
        optimizer = torch.optim.Adam([theta], lr=rate)
        for step in range(steps):
            optimizer.param_groups[0]["lr"] = rate * (1 - step / steps)
            optimizer.zero_grad()
            error = (oracle.network(config, theta, x) - y / unit) ** 2
            (error.mean() + 0.5 * config.training_decay / len(used) * (theta**2).sum()).backward()
            optimizer.step()
        self.theta, self.unit, self.trained = theta.detach(), unit, t


class Agent(oracle_exact.Agent):
    """`experts` are names among global, head, cluster and alone."""

    def __init__(self, config, i, world, theta_0, experts):
        super().__init__(config, i, world, theta_0, whole=False)
        self.experts = [e for name in experts for e in ([("head", tau) for tau in TAUS] if name == "head" else [name])]
        if experts:
            p = oracle_exact.last_layer(config) + config.dim
            self.V_last, self.B_last = config.regularization * np.eye(p), np.zeros(p)
            self.W_new, self.B_new = np.zeros((p, p)), np.zeros(p)
        prior = [1 / len(TAUS) if isinstance(one, tuple) else 1.0 for one in self.experts]
        self.prior, self.errors, self.recent = np.array(prior), np.zeros(len(prior)), 0.0
        self.own = OwnNetwork(config, theta_0)
        self.first, self.weight_of = 0, {}
        self.cluster = None
        """W and B of the agent's cluster after its last training, and the number of own observations then"""

    def features(self, theta, x):
        last = last_features(self.config, theta, x)
        return np.concatenate([x, last]) if self.experts else last

    def own_sums(self, t_from=0, weights=None):
        """Sums of x x^T and y x of the agent's observations from a number on, on the present features."""
        p = len(self.B_last)
        S, c = np.zeros((p, p)), np.zeros(p)
        for k in range(t_from, len(self.contexts)):
            z, weight = self.features(self.theta, self.contexts[k]), (weights or {}).get(k, 1.0)
            target = self.rewards[k] / self.unit - self.prediction(self.contexts[k])
            S, c = S + weight * np.outer(z, z), c + weight * target * z
        return S, c

    def of(self, expert, x, sums, fresh):
        """Mean and deviation of a context by an expert, in the unit of rewards."""
        if expert == "alone":
            return self.own.of(x, self.contexts, self.rewards)
        z, lam = self.features(self.theta, x), self.config.regularization
        if expert == "global":
            V, b = self.V_last + self.W_new, self.B_last + self.B_new
        elif expert == "cluster":
            W, B = (0.0, 0.0) if self.cluster is None else self.cluster
            V, b = lam * np.eye(len(z)) + W + fresh[0], B + fresh[1]
        else:
            tau = expert[1]
            V = sums[0] + tau * np.eye(len(z))
            b = sums[1] + tau * np.linalg.inv(self.V_last) @ self.B_last
        inverse = np.linalg.inv(V)
        mean = self.prediction(x) + z @ inverse @ b
        return mean * self.unit, math.sqrt(z @ inverse @ z) * self.unit

    def weights(self):
        weights = self.prior * np.prod(
            [(self.errors / self.errors.min() if self.recent else 1.0 + self.errors) ** (-1.5 * self.recent)], axis=0
        )
        return weights / weights.sum()

    def iterate(self, t):
        if not self.experts:
            return super().iterate(t)
        config = self.config
        contexts, rewards = self.world(self.i, t)
        sums = self.own_sums(self.first, self.weight_of)
        fresh = self.own_sums(self.trained_count if self.cluster is not None else 0)
        found = [[self.of(expert, x, sums, fresh) for expert in self.experts] for x in contexts]
        scale = config.exploration_global * math.sqrt(config.regularization)
        weights = self.weights()
        scores = [sum(w * (mean + scale * deviation) for w, (mean, deviation) in zip(weights, one, strict=True))
                  for one in found]  # fmt: skip
        arm = int(np.argmax(scores))
        g = self.features(self.theta, contexts[arm])
        target = rewards[arm] / self.unit - self.prediction(contexts[arm])
        self.W_new, self.B_new = self.W_new + np.outer(g, g), self.B_new + target * g
        keep = 1 - 1 / max(10, t / 4)
        self.errors = keep * self.errors + np.array([(rewards[arm] - mean) ** 2 for mean, _ in found[arm]])
        self.recent = keep * self.recent + 1
        self.contexts.append(contexts[arm])
        self.rewards.append(rewards[arm])
        self.arms.append(arm)
        self.scores.append(scores)
        if config.trigger == "always":
            return True
        if config.trigger == "period":
            return t - self.t_last >= config.period
        ratio = oracle.log_determinant(self.V_last + self.W_new) - oracle.log_determinant(self.V_last)
        return (t - self.t_last) * ratio > config.threshold

    def squares(self):
        return sum(self.rewards[k] ** 2 for k in remembered(self.config, len(self.rewards)))

    def sums(self, theta, unit, used, feature):
        """As in `oracle_exact`, with weights."""
        p = len(feature(theta, self.contexts[0]))
        b, A, squares = np.zeros(p), np.zeros((p, p)), 0.0
        weights = remembered(self.config, len(self.contexts))
        for k in used:
            g = feature(theta, self.contexts[k])
            f = float(oracle.network(self.config, theta, torch.from_numpy(self.contexts[k])))
            error = self.rewards[k] / unit - f
            b, A = b + weights[k] * error * g, A + weights[k] * np.outer(g, g)
            squares += weights[k] * error * error
        return b, A, squares


def p_value(one, other, variance):
    """Of the hypothesis that two groups of (W, B) have the same parameters; 1 where nothing can differ."""

    def explained(W, B):
        return B @ np.linalg.pinv(W, rcond=1e-9, hermitian=True) @ B

    def rank(W):
        return np.linalg.matrix_rank(W, tol=1e-9 * np.linalg.norm(W, 2), hermitian=True)

    both = one[0] + other[0], one[1] + other[1]
    freedom = rank(one[0]) + rank(other[0]) - rank(both[0])
    statistic = explained(*one) + explained(*other) - explained(*both)
    if freedom <= 0 or variance == 0:
        return 1.0
    return stats.chi2.sf(max(statistic, 0) / variance, freedom)


def noise_variance(sums):
    """Mean squared error of every agent's own model, per degree of freedom."""
    errors, freedom = 0.0, 0.0
    for W, B, count, squares in sums:
        errors += max(squares - B @ np.linalg.pinv(W, rcond=1e-9, hermitian=True) @ B, 0)
        freedom += max(count - np.linalg.matrix_rank(W, tol=1e-9 * np.linalg.norm(W, 2), hermitian=True), 0)
    return errors / freedom if freedom > 0 else 0.0


def clusters_of(sums, level):
    """One agent after another joins the cluster that it fits best, or begins one."""
    variance, groups = noise_variance(sums), []
    for i, (W, B, _, _) in enumerate(sums):
        values = [
            p_value((sum(sums[j][0] for j in group), sum(sums[j][1] for j in group)), (W, B), variance)
            for group in groups
        ]
        if values and max(values) >= level:
            groups[int(np.argmax(values))].append(i)
        else:
            groups.append([i])
    return groups


class Server(oracle_exact.Server):
    def steps(self, t):
        if self.config.federation in ("gradients", "exact") and len(self.agents) * t < 16:
            return 0
        return steps_due(self.config, self.trained_at, t)

    def network_of_round(self, t, theta, theta_0, unit_before):
        self.weights = remembered(self.config, t)
        self.used = [sorted(self.weights) for _ in self.agents]
        unit = math.sqrt(sum(agent.squares() for agent in self.agents) / (len(self.agents) * len(self.weights))) or 1.0
        start = oracle_exact.with_last_layer_times(self.config, theta, unit_before / unit) if self.trained_at else theta
        theta = self.train(start, theta_0, unit, t, self.steps(t))
        self.trained_at = t
        return theta, unit

    def train(self, theta, theta_0, unit, t, steps):
        n = round(len(self.agents) * sum(self.weights.values()))
        self.factor = 1.0
        self.scale, self.decay, self.towards = 2 / n, self.config.training_decay / n, torch.zeros_like(theta_0)
        if self.config.federation == "gradients":
            return self.by_gradients(theta, unit, t, steps)
        # by_gauss_newton reads t as observations per agent.
        return self.by_gauss_newton(theta, unit, n / len(self.agents), steps)

    def round(self, t, theta_0):
        is_new = self.steps(t) > 0
        super().round(t, theta_0)
        if not is_new:
            return
        sums = []
        for agent in self.agents:
            agent.first, agent.weight_of, agent.trained_count = min(self.weights), dict(self.weights), t
            S, c = agent.own_sums(agent.first, self.weights)
            squares = sum(
                weight * (agent.rewards[k] / agent.unit - agent.prediction(agent.contexts[k])) ** 2
                for k, weight in self.weights.items()
            )
            sums.append((S, c, sum(self.weights.values()), squares))
            agent.own.train(agent.contexts, agent.rewards, t)
        self.groups = clusters_of(sums, self.config.cluster_level)
        for group in self.groups:
            for i in group:
                self.agents[i].cluster = sum(sums[j][0] for j in group), sum(sums[j][1] for j in group)


EXPERTS = {"none": [], "head": ["global", "head"], "cluster": ["cluster"],
           "auto": ["global", "head", "cluster", "alone"]}  # fmt: skip


def run(config, environment, theta_0) -> oracle.Outcome:
    """As `oracle.run`."""
    FEATURES.clear()
    theta_0 = torch.from_numpy(np.asarray(theta_0))
    world = oracle.World(config, environment, theta_0)
    agents = [Agent(config, i, world, theta_0, EXPERTS[config.personalization]) for i in range(config.agents)]
    server, rounds = Server(config, agents, None), []
    for t in range(1, config.horizon + 1):
        signals = [agent.iterate(t) for agent in agents]
        if any(signals):
            server.round(t, theta_0)
            rounds.append(t)
    return oracle.Outcome(
        arms=np.array([agent.arms for agent in agents]).T,
        rewards=np.array([agent.rewards for agent in agents]).T,
        scores=np.array([agent.scores for agent in agents]).swapaxes(0, 1),
        weights=[0.0] * config.horizon,
        rounds=rounds,
        alphas=[0.0] * len(rounds),
        theta=agents[0].theta.numpy(),
    )
