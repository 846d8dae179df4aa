"""What the tuned preset does otherwise than the paper, as literal and slow as oracle.py, which is the paper's page.

Adam instead of gradient descent, steps by what is new, a weight that is earned, rewards in an agent's own unit.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import oracle
import torch


class Agent(oracle.Agent):
    def __init__(self, config, i, world, theta_0):
        super().__init__(config, i, world, theta_0)
        self.last_trained, self.rounds, self.unit, self.errors = 0, 0, 1.0, np.zeros(2)

    def observe(self, x, g, y):
        """Before it sees y, an agent notes how well theta-bar and, once trained, the network predict it."""
        if self.last_trained:
            _, theta_bar = self.estimate()
            theta = self.theta_sync if self.config.aggregate else self.theta
            prediction = float(oracle.network(self.config, theta, torch.from_numpy(x)))
            self.errors = 0.9 * self.errors + np.array([(g @ theta_bar - y) ** 2, (prediction - y) ** 2])
        super().observe(x, g, y)

    def ucb_a(self, features, V_bar_inverse, theta_bar):
        """The bonus, and a first term that has been scaled, are multiples of the agent's unit."""
        first = np.array([g @ theta_bar for g in features])
        if self.config.diagonal and first.max() > first.min():
            first = self.unit * (first - first.min()) / (first.max() - first.min())
        elif self.config.diagonal:
            first = np.zeros(len(features))
        scale = self.unit * self.config.exploration_global * math.sqrt(self.config.regularization)
        return first + scale * np.array([oracle.norm(g, V_bar_inverse) for g in features])

    def ucb_b(self, contexts, features):
        theta = self.theta_sync if self.config.aggregate else self.theta
        prediction = np.array([float(oracle.network(self.config, theta, torch.from_numpy(x))) for x in contexts])
        return prediction + self.unit * (super().ucb_b(contexts, features) - prediction)

    def weight(self, t):
        alpha = super().weight(t)
        if self.config.weight == "earned" and self.config.use_global and self.config.use_local:
            return alpha * min(1.0, (t - 1) / self.config.ramp)
        return alpha

    def trained(self, t):
        """Line 14, where steps are due; after an epoch of several iterations with a subsample's part taken away."""
        steps = self.steps(t)
        if not steps:
            return self.theta
        theta, few = self.adam(steps, range(t)), math.floor(self.config.training_subsample * t)
        if few == 0 or t == self.t_last + 1 or self.rounds >= 8:
            return theta
        part = self.adam(steps, [math.floor(k * t / few) for k in range(few)])
        return (theta - few / t * part) / (1 - few / t)

    def ratio(self, V_local_inverse):
        """Line 15: what the server makes alpha of, and the length of the epoch."""
        length = len(self.rewards) - self.t_last
        return np.array([*self.errors, length]) if self.config.weight == "earned" else super().ratio(V_local_inverse)

    def steps(self, t):
        """How many steps are due in iteration t."""
        if self.config.training_steps != "auto":
            return self.config.training_steps
        if self.last_trained == 0:
            return self.config.training_cap
        due = math.floor(self.config.training_effort * math.log(t / self.last_trained))
        return 0 if due < self.config.training_least else min(due, self.config.training_cap)

    def adam(self, steps, used):
        """theta_i after so many steps of Adam, its moments from zero, on the observations that are used."""
        x, y = torch.from_numpy(np.array(self.contexts)), torch.from_numpy(np.array(self.rewards))
        unit = (float((y**2).mean()) ** 0.5 or 1.0) if self.config.reward_unit == "rms" else 1.0
        x, y = x[list(used)], y[list(used)]
        starts = {"initial": self.theta_0, "own": self.theta, "aggregate": self.theta_sync}
        theta = starts[self.config.training_start].clone()
        last_layer = slice(len(theta) - self.config.width - (self.config.network == "standard"), None)
        if self.last_trained and self.config.training_start != "initial":
            theta[last_layer] /= unit
        if not any(y):
            # There is nothing to learn yet, and decay alone would end in a network of zeros.
            theta[last_layer] *= unit
            return theta
        theta.requires_grad_(True)
        rate = self.config.training_rate
        if self.config.training_fade > 0:
            rate = rate / math.sqrt(1 + len(y) / self.config.training_fade)
        optimizer = torch.optim.Adam([theta], lr=rate)
        decay = self.config.regularization if self.config.training_decay == "lambda" else self.config.training_decay
        for step in range(steps):
            if self.config.training_schedule == "linear":
                optimizer.param_groups[0]["lr"] = rate * (1 - step / steps)
            optimizer.zero_grad()
            error = (oracle.network(self.config, theta, x) - y / unit) ** 2
            if self.config.training_loss == "paper":
                loss = 0.5 * error.sum() + 0.5 * self.config.width * decay * ((theta - self.theta_0) ** 2).sum()
            else:
                loss = error.mean() + 0.5 * decay / len(y) * (theta**2).sum()
            loss.backward()
            optimizer.step()
        theta = theta.detach()
        theta[last_layer] *= unit
        return theta

    def receive(self, t, broadcast):
        super().receive(t, broadcast)
        self.rounds += 1
        if self.steps(t):
            self.last_trained = t
        if self.config.reward_unit == "rms":
            self.unit = float(np.mean(np.square(self.rewards))) ** 0.5 or 1.0


class Server(oracle.Server):
    def __init__(self, config, p0):
        super().__init__(config, p0)
        self.earned, self.rounds = config.weight == "earned", 0

    def round(self, uploads):
        if not self.earned:
            return super().round(uploads)
        broadcast = super().round([replace(upload, alpha=0.0) for upload in uploads])
        e_a, e_b, length = np.mean([upload.alpha for upload in uploads], axis=0)
        broadcast.alpha = min(1.0, 2 * (e_a / e_b) ** 2) if e_b > 0 else 0.0
        self.rounds += 1
        if length > 1:
            broadcast.alpha = max(0.5, min(broadcast.alpha, self.rounds / 5))
        return broadcast


def run(config, environment, theta_0):
    """As `oracle.run`, with these agents and this server."""
    return oracle.run(config, environment, theta_0, agent=Agent, server=Server)
