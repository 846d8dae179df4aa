"""Rounds that train one network by sums over agents, and UCB on its features: literal and slow, on top of `oracle`.

The server asks, and every agent answers with sums over its observations in the sample: of gradients, of outer products,
of squared errors. An agent's messages are the return values of `sums` and of `squares`; nothing else of its history
leaves it. `observations(i, t, round)` says which of its observations agent i uses, and is handed in.
"""

from __future__ import annotations

import math

import numpy as np
import oracle
import torch


def gradient_of(config, theta, x):
    """d f(x; theta) / d theta, by autograd, as a vector."""
    theta = theta.clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(oracle.network(config, theta, torch.from_numpy(x)), theta)
    return gradient.numpy()


def last_layer(config):
    """How many parameters the last layer has."""
    return config.width + (config.network == "standard")


def with_last_layer_times(config, theta, factor):
    """The network whose predictions are `factor` times those of theta."""
    theta = theta.clone()
    theta[-last_layer(config) :] *= factor
    return theta


class Asked:
    """What an agent answers."""

    def squares(self):
        return sum(r * r for r in self.rewards)

    def sums(self, theta, unit, used, feature):
        """Sums over the observations `used` of error * g, g g^T and error^2, at theta."""
        p = len(feature(theta, self.contexts[0]))
        b, A, squares = np.zeros(p), np.zeros((p, p)), 0.0
        for k in used:
            g = feature(theta, self.contexts[k])
            error = self.rewards[k] / unit - float(
                oracle.network(self.config, theta, torch.from_numpy(self.contexts[k]))
            )
            b, A, squares = b + error * g, A + np.outer(g, g), squares + error * error
        return b, A, squares


class Agent(Asked):
    """One agent; `whole` says whether features are those of all parameters or of the last layer."""

    def __init__(self, config, i, world, theta_0, whole):
        self.config, self.i, self.world, self.whole = config, i, world, whole
        self.theta, self.unit, self.trained = theta_0, 1.0, False
        p = len(theta_0) if whole else last_layer(config)
        self.V_last, self.B_last, self.t_last = config.regularization * np.eye(p), np.zeros(p), 0
        self.W_new, self.B_new = np.zeros((p, p)), np.zeros(p)
        self.contexts, self.rewards, self.arms, self.scores = [], [], [], []

    def features(self, theta, x):
        scale = math.sqrt(self.config.width) if self.config.network == "ntk" else 1.0
        gradient = gradient_of(self.config, theta, x) / scale
        return gradient if self.whole else gradient[-last_layer(self.config) :]

    def prediction(self, x):
        return float(oracle.network(self.config, self.theta, torch.from_numpy(x))) if self.trained else 0.0

    def iterate(self, t):
        """Chooses the arm with the largest f + <g, delta> + bonus; says whether the trigger fires."""
        contexts, rewards = self.world(self.i, t)
        V, B = self.V_last + self.W_new, self.B_last + self.B_new
        inverse = np.linalg.inv(V)
        scores = []
        for x in contexts:
            g = self.features(self.theta, x)
            bonus = self.config.exploration_global * math.sqrt(self.config.regularization) * oracle.norm(g, inverse)
            scores.append(self.prediction(x) + g @ inverse @ B + bonus)
        arm = int(np.argmax(scores))
        g, target = self.features(self.theta, contexts[arm]), rewards[arm] / self.unit - self.prediction(contexts[arm])
        self.W_new, self.B_new = self.W_new + np.outer(g, g), self.B_new + target * g
        self.contexts.append(contexts[arm])
        self.rewards.append(rewards[arm])
        self.arms.append(arm)
        self.scores.append(scores)
        if self.config.trigger == "always":
            return True
        if self.config.trigger == "period":
            return t - self.t_last >= self.config.period
        ratio = oracle.log_determinant(self.V_last + self.W_new) - oracle.log_determinant(self.V_last)
        return (t - self.t_last) * ratio > self.config.threshold


class Server:
    def __init__(self, config, agents, observations):
        self.config, self.agents, self.observations = config, agents, observations
        self.rounds, self.trained_at = 0, 0

    def steps(self, t):
        """How many steps are due in iteration t."""
        if self.config.federation in ("gradients", "exact") and len(self.agents) * t < 16:
            return 0
        if self.config.training_steps != "auto":
            return self.config.training_steps
        if self.trained_at == 0:
            return self.config.training_cap
        due = math.floor(self.config.training_effort * math.log(t / self.trained_at))
        return 0 if due < self.config.training_least else min(due, self.config.training_cap)

    def ask(self, theta, unit, feature):
        """An exchange: theta goes to all agents, and their sums come back."""
        found = [agent.sums(theta, unit, used, feature) for agent, used in zip(self.agents, self.used, strict=True)]
        return [sum(parts) for parts in zip(*found, strict=True)]

    def train(self, theta, theta_0, unit, t, steps):
        """The network after a round's exchanges."""
        n = len(self.agents) * t
        self.factor = n / sum(map(len, self.used))
        decay = self.config.regularization if self.config.training_decay == "lambda" else self.config.training_decay
        if self.config.training_loss == "paper":
            self.scale, self.decay, self.towards = 1.0, self.config.width * decay, theta_0
        else:
            self.scale, self.decay, self.towards = 2 / n, decay / n, torch.zeros_like(theta_0)
        kind = self.config.federation
        if kind == "exact":
            kind = "gauss-newton"
        return (self.by_gradients if kind == "gradients" else self.by_gauss_newton)(theta, unit, t, steps)

    def by_gradients(self, theta, unit, t, steps):
        """torch's own optimiser, with the gradient that the sums are."""
        theta = theta.clone().requires_grad_(True)
        rate = self.config.training_rate
        if self.config.training_fade > 0:
            rate = rate / math.sqrt(1 + t / self.config.training_fade)
        make = torch.optim.Adam if self.config.training_optimizer == "adam" else torch.optim.SGD
        optimizer = make([theta], lr=rate)
        for step in range(steps):
            if self.config.training_schedule == "linear":
                optimizer.param_groups[0]["lr"] = rate * (1 - step / steps)
            b, _, _ = self.ask(theta.detach(), unit, lambda at, x: gradient_of(self.config, at, x))
            pull = self.decay * (theta.detach() - self.towards)
            theta.grad = pull - self.scale * self.factor * torch.from_numpy(b)
            optimizer.step()
        return theta.detach()

    def by_gauss_newton(self, theta, unit, t, steps):
        """Levenberg and Marquardt, damped as Nielsen (1999) has it: a step that makes the loss worse is taken back."""

        def at(theta):
            b, A, squares = self.ask(theta, unit, lambda at, x: gradient_of(self.config, at, x))
            loss = 0.5 * self.scale * self.factor * squares + 0.5 * self.decay * float(
                ((theta - self.towards) ** 2).sum()
            )
            return self.scale * self.factor * A, self.scale * self.factor * b, loss

        A, b, loss = at(theta)
        mu, nu = 0.003 * self.scale * len(self.agents) * t, 2
        for _ in range(self.config.newton_steps):
            right = b - self.decay * (theta - self.towards).numpy()
            h = np.linalg.solve(A + (self.decay + mu) * np.eye(len(b)), right)
            other = theta + torch.from_numpy(h)
            found = at(other)
            if found[2] < loss:
                gained = loss - found[2] < 1e-3 * loss
                # The quadratic model L(h) = loss - right h + h (A + decay I) h / 2.
                model = right @ h - h @ (A + self.decay * np.eye(len(b))) @ h / 2
                ratio = (loss - found[2]) / model
                theta, (A, b, loss) = other, found
                mu, nu = mu * max(1 / 5, 1 - (2 * ratio - 1) ** 3), 2
                if gained:
                    break
            else:
                mu, nu = mu * nu, 2 * nu
        return theta

    def network_of_round(self, t, theta, theta_0, unit_before):
        """The network after the round of iteration t, and the unit of the rewards that it predicts."""
        self.used = [self.observations(i, t, self.rounds) for i in range(len(self.agents))]
        unit = 1.0
        if self.config.reward_unit == "rms":
            unit = math.sqrt(sum(agent.squares() for agent in self.agents) / (len(self.agents) * t)) or 1.0
        start = with_last_layer_times(self.config, theta, unit_before / unit) if self.trained_at else theta
        has_reward = self.config.reward_unit == "one" or any(any(agent.rewards) for agent in self.agents)
        theta = self.train(start, theta_0, unit, t, self.steps(t)) if has_reward else start
        self.trained_at = t
        return theta, unit

    def round(self, t, theta_0):
        """Either the new sums of the epoch, or a new network and everybody's sums on its features."""
        first = self.agents[0]
        if self.steps(t) == 0:
            V = first.V_last + sum(agent.W_new for agent in self.agents)
            self.broadcast(t, first.theta, first.unit, V, first.B_last + sum(agent.B_new for agent in self.agents))
            return
        theta, unit = self.network_of_round(t, first.theta, theta_0, first.unit)
        b, A, _ = self.ask(theta, unit, first.features)
        for agent in self.agents:
            agent.trained = True
        V = self.config.regularization * np.eye(len(b)) + self.factor * A
        self.broadcast(t, theta, unit, V, self.factor * b)

    def broadcast(self, t, theta, unit, V, B):
        self.rounds += 1
        for agent in self.agents:
            agent.theta, agent.unit, agent.V_last, agent.B_last, agent.t_last = theta, unit, V, B, t
            agent.W_new, agent.B_new = np.zeros_like(V), np.zeros_like(B)


def run(config, environment, theta_0, observations, whole) -> oracle.Outcome:
    """As `oracle.run`."""
    theta_0 = torch.from_numpy(np.asarray(theta_0))
    world = oracle.World(config, environment, theta_0)
    agents = [Agent(config, i, world, theta_0, whole) for i in range(config.agents)]
    server = Server(config, agents, observations)
    rounds = []
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


class PaperAgent(Asked, oracle.Agent):
    """Algorithm 1, but for line 14: the server trains."""

    def trained(self, t):
        return self.theta


def run_paper(config, environment, theta_0, observations) -> oracle.Outcome:
    """As `oracle.run`: UCB^a, UCB^b and alpha are the paper's, theta_sync is the network that sums have trained."""
    theta_0 = torch.from_numpy(np.asarray(theta_0))
    world = oracle.World(config, environment, theta_0)
    agents = [PaperAgent(config, i, world, theta_0) for i in range(config.agents)]
    paper, server = oracle.Server(config, len(theta_0)), Server(config, agents, observations)
    rounds, alphas, theta = [], [], theta_0
    for t in range(1, config.horizon + 1):
        signals = [agent.iterate(t) for agent in agents]
        if any(signals):
            broadcast = paper.round([agent.send(t) for agent in agents])
            if server.steps(t):
                theta, unit = server.network_of_round(t, theta, theta_0, 1.0)
                theta = with_last_layer_times(config, theta, unit)
            server.rounds += 1
            broadcast.theta_sync = theta
            for agent in agents:
                agent.receive(t, broadcast)
            rounds.append(t)
            alphas.append(broadcast.alpha)
    return oracle.Outcome(
        arms=np.array([agent.arms for agent in agents]).T,
        rewards=np.array([agent.rewards for agent in agents]).T,
        scores=np.array([agent.scores for agent in agents]).swapaxes(0, 1),
        weights=agents[0].weights,
        rounds=rounds,
        alphas=alphas,
        theta=theta.numpy(),
    )
