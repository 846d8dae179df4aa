"""Rounds in which some agents are absent, and rounds of several averagings: literal and slow, on top of `oracle`.

An absent agent sends nothing, hears the broadcast, and keeps W_new and B_new until its next round. The server keeps
the inverse that it got from every agent last, and averages the networks of those that are there.
"""

from __future__ import annotations

import numpy as np
import oracle
import torch


class Agent(oracle.Agent):
    def receive_absent(self, t, broadcast):
        """Lines 17 and 18 of an agent that has not uploaded."""
        W_new, B_new = self.W_new, self.B_new
        self.receive(t, broadcast)
        self.W_new, self.B_new = W_new, B_new
        self.V_last = self.V_last + W_new

    def train_again(self, theta_sync):
        """One more cycle of local training, from the average."""
        self.theta = oracle.train(self.config, theta_sync, self.theta_0, self.contexts, self.rewards)
        return self.theta


class Server(oracle.Server):
    def __init__(self, config, p0):
        super().__init__(config, p0)
        self.inverses = [np.eye(p0) / config.regularization for _ in range(config.agents)]

    def round_of(self, uploads: dict[int, oracle.Upload]) -> oracle.Broadcast:
        for i, upload in uploads.items():
            self.inverses[i] = upload.V_local_inverse
        broadcast = self.round(list(uploads.values()))
        inverses = [sum(self.inverses) / len(self.inverses)] if self.averages else list(self.inverses)
        return oracle.Broadcast(broadcast.W_sync, broadcast.B_sync, broadcast.theta_sync, broadcast.alpha, inverses)


def run(config, environment, theta_0, draw, averagings=1) -> oracle.Outcome:
    """`draw(number, iteration)` says who takes part in a round, [N] of bool."""
    theta_0 = torch.from_numpy(np.asarray(theta_0))
    world = oracle.World(config, environment, theta_0)
    agents = [Agent(config, i, world, theta_0) for i in range(config.agents)]
    server = Server(config, len(theta_0))
    rounds, alphas = [], []
    for t in range(1, config.horizon + 1):
        signals = [agent.iterate(t) for agent in agents]
        if any(signals):
            present = draw(len(rounds), t)
            uploads = {i: agent.send(t) for i, agent in enumerate(agents) if present[i]}
            broadcast = server.round_of(uploads)
            for _ in range(averagings - 1):
                thetas = [agents[i].train_again(broadcast.theta_sync) for i in uploads]
                broadcast.theta_sync = sum(thetas) / len(thetas)
            for i, agent in enumerate(agents):
                (agent.receive if present[i] else agent.receive_absent)(t, broadcast)
            rounds.append(t)
            alphas.append(broadcast.alpha)
    return oracle.Outcome(
        arms=np.array([agent.arms for agent in agents]).T,
        rewards=np.array([agent.rewards for agent in agents]).T,
        scores=np.array([agent.scores for agent in agents]).swapaxes(0, 1),
        weights=agents[0].weights,
        rounds=rounds,
        alphas=alphas,
        theta=agents[0].theta_sync.numpy(),
    )
