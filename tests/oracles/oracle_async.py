"""Asynchronous FN-UCB and FedLinUCB with a clock, line by line and slowly: a heap of events and one agent at a time.

An agent that has downloaded runs by itself to its next upload; the server takes the uploads in the order of
(arrival, agent). Agents are oracle.py's (or oracle_tuned.py's): what was broadcast to all is now what an agent has
downloaded. Nothing of the package is used.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field

import numpy as np
import oracle
import torch


@dataclass
class Clock:
    """Per agent: iterations per second, seconds per message, bytes per second up and down; steps per iteration."""

    speed: list
    latency: list
    up: list
    down: list
    pace: float = math.inf


@dataclass
class Outcome:
    arms: np.ndarray
    rewards: np.ndarray
    scores: np.ndarray
    times: np.ndarray
    """Seconds at the end of every iteration, [iterations, agents]"""
    events: list = field(default_factory=list)
    """(arrival, agent, iteration, rows, staleness), in the server's order"""
    theta: np.ndarray | None = None


def drive(config, clock, agents, server, bytes_up, bytes_down, steps):
    """The simulation of agents with iterate(t), send(t) and receive(t, download), and a server with take(i, upload)."""
    heap, events = [], []
    times = np.zeros((config.horizon, config.agents))
    last = [0] * config.agents
    heard = [0] * config.agents

    def run_to_upload(i, t, now):
        while t < config.horizon:
            t += 1
            now += 1 / clock.speed[i]
            times[t - 1, i] = now
            if agents[i].iterate(t):
                training = steps(agents[i], t) / (clock.speed[i] * clock.pace)
                arrival = now + training + (clock.latency[i] + bytes_up / clock.up[i])
                heapq.heappush(heap, (arrival, i, t))
                return

    for i in range(config.agents):
        run_to_upload(i, 0, 0.0)
    while heap:
        arrival, i, t = heapq.heappop(heap)
        staleness = len(events) - heard[i]
        download = server.take(i, agents[i].send(t), staleness, t, last[i])
        events.append((arrival, i, t, t - last[i], staleness))
        last[i], heard[i] = t, len(events)
        agents[i].receive(t, download)
        run_to_upload(i, t, arrival + clock.latency[i] + bytes_down / clock.down[i])
    return times, events


# FN-UCB


def signals(agent, t):
    """When an agent uploads; det(V + new rows) > (1 + gamma) det V is He et al.'s rule on tangent features."""
    if agent.config.trigger == "determinant":
        V = agent.lambda_I + agent.W_sync
        return np.linalg.det(V + agent.W_new) > (1 + agent.config.async_gain) * np.linalg.det(V)
    return oracle.Agent.signals(agent, t)


class Server:
    """Adds W and B; replaces an agent's network in a weighted mean; lets its inverse lose a weighted part."""

    def __init__(self, config, p0):
        self.config = config
        self.W, self.B = np.zeros((p0, p0)), np.zeros(p0)
        self.thetas, self.shares, self.alphas = {}, {}, {}
        self.sent = [np.eye(p0) / config.regularization for _ in range(config.agents)]
        self.inverses = [np.eye(p0) / config.regularization for _ in range(config.agents)]
        self.theta = None
        self.counts = [0] * config.agents

    def take(self, i, upload, staleness, t, last):
        weight = (1 + staleness) ** -self.config.staleness_power if self.config.staleness == "polynomial" else 1.0
        self.W, self.B = self.W + upload.W_new, self.B + upload.B_new
        self.thetas[i], self.shares[i], self.alphas[i] = upload.theta, weight, upload.alpha
        self.inverses[i] = self.inverses[i] - weight * (self.sent[i] - upload.V_local_inverse)
        self.sent[i] = upload.V_local_inverse
        self.theta = sum(self.shares[j] * self.thetas[j] for j in self.thetas) / sum(self.shares.values())
        inverse = sum(self.inverses[j] for j in self.thetas) / len(self.thetas)
        return oracle.Broadcast(self.W, self.B, self.theta, self.alpha(i, t, last), [inverse])

    def alpha(self, i, t, last):
        """The least; or earned, after several iterations within the bounds of a network that is young."""
        self.counts[i] += 1
        if self.config.weight != "earned":
            return min(self.alphas.values())
        errors = np.mean(list(self.alphas.values()), axis=0)
        earned = 2 * (errors[0] / errors[1]) ** 2 if errors[1] > 0 else 0.0
        low, high = (0.5, min(1.0, max(0.5, self.counts[i] / 5))) if t > last + 1 else (0.0, 1.0)
        return min(high, max(low, earned))


def run(config, environment, theta_0, clock, kind=oracle.Agent):
    """N agents of asynchronous FN-UCB for T iterations each."""
    theta_0 = torch.from_numpy(np.asarray(theta_0))
    agent = type("Asynchronous", (kind,), {"signals": signals})
    world = oracle.World(config, environment, theta_0)
    agents = [agent(config, i, world, theta_0) for i in range(config.agents)]
    server = Server(config, len(theta_0))

    def steps(agent, t):
        if not config.use_local or (config.stop_training_after is not None and t > config.stop_training_after):
            return 0
        return agent.steps(t) if hasattr(agent, "steps") else config.training_steps

    p = len(theta_0)
    scalars = 2 if config.weight == "earned" else 1
    up = 8 * (p * p + p + p * p + p + scalars) if config.use_local else 8 * (p * p + p)
    down = 8 * (p * p + p + p * p + p + 1) if config.use_local else up
    times, events = drive(config, clock, agents, server, up, down, steps)
    return Outcome(
        arms=np.array([agent.arms for agent in agents]).T,
        rewards=np.array([agent.rewards for agent in agents]).T,
        scores=np.array([agent.scores for agent in agents]).swapaxes(0, 1),
        times=times,
        events=events,
        theta=server.theta.numpy() if config.use_local and server.theta is not None else None,
    )


# FedLinUCB (He et al. 2022, Alg. 1)


class LinearAgent:
    def __init__(self, config, i, world):
        self.config, self.i, self.world = config, i, world
        self.Sigma = None
        self.arms, self.rewards, self.scores = [], [], []

    def start(self, d):
        self.Sigma, self.theta = self.config.regularization * np.eye(d), np.zeros(d)
        self.Sigma_loc, self.b_loc = np.zeros((d, d)), np.zeros(d)

    def iterate(self, t):
        contexts, rewards = self.world(self.i, t)
        if self.Sigma is None:
            self.start(contexts.shape[1])
        beta = self.config.exploration_global * math.sqrt(self.config.regularization)
        inverse = np.linalg.inv(self.Sigma)
        score = np.array([x @ self.theta + beta * math.sqrt(x @ inverse @ x) for x in contexts])
        arm = int(np.argmax(score))
        self.Sigma_loc = self.Sigma_loc + np.outer(contexts[arm], contexts[arm])
        self.b_loc = self.b_loc + rewards[arm] * contexts[arm]
        self.arms.append(arm)
        self.rewards.append(rewards[arm])
        self.scores.append(score)
        grown = np.linalg.det(self.Sigma + self.Sigma_loc)
        return grown > (1 + self.config.async_gain) * np.linalg.det(self.Sigma)

    def send(self, t):
        return self.Sigma_loc, self.b_loc

    def receive(self, t, download):
        self.Sigma, b = download
        self.theta = np.linalg.solve(self.Sigma, b)
        self.Sigma_loc, self.b_loc = np.zeros_like(self.Sigma_loc), np.zeros_like(self.b_loc)


class LinearServer:
    def __init__(self, config, d):
        self.Sigma, self.b = config.regularization * np.eye(d), np.zeros(d)

    def take(self, i, upload, staleness, t, last):
        self.Sigma, self.b = self.Sigma + upload[0], self.b + upload[1]
        return self.Sigma, self.b


def run_linear(config, environment, clock):
    """N agents of FedLinUCB for T iterations each."""
    world = oracle.World(config, environment, None)
    agents = [LinearAgent(config, i, world) for i in range(config.agents)]
    d = environment.dim
    size = 8 * (d * d + d)
    times, events = drive(config, clock, agents, LinearServer(config, d), size, size, lambda agent, t: 0)
    return Outcome(
        arms=np.array([agent.arms for agent in agents]).T,
        rewards=np.array([agent.rewards for agent in agents]).T,
        scores=np.array([agent.scores for agent in agents]).swapaxes(0, 1),
        times=times,
        events=events,
    )
