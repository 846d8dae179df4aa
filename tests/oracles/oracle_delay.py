"""Delayed feedback, literally: an agent keeps what it pulled in a queue and observes it `delay` iterations later.

Everything an agent knows is of rewards that have arrived: the number of these, s = t - delay, is the iteration of the
algorithm. Before the first reward agents choose by what they know at the start, and nobody asks for a round.
"""

from __future__ import annotations

import numpy as np
import oracle
import oracle_tuned


class Delayed:
    """Comes before a class of agents."""

    def iterate(self, t):
        s = t - self.config.feedback_delay
        contexts, rewards = self.world(self.i, t)
        features = [oracle.tangent_feature(self.config, self.theta_0, x) for x in contexts]
        alpha = self.weight(max(1, s))
        ucb_a = self.ucb_a(features, *self.estimate())
        ucb_b = self.ucb_b(contexts, features) if alpha != 0 else np.zeros(len(contexts))
        arm = int(np.argmax((1 - alpha) * ucb_a + alpha * ucb_b))
        self.arms.append(arm)
        self.scores.append((1 - alpha) * ucb_a + alpha * ucb_b)
        self.weights.append(alpha)
        self.__dict__.setdefault("queue", []).append((features, contexts[arm], features[arm], rewards[arm]))
        if s < 1:
            return False
        received, *observation = self.queue.pop(0)
        self.received += self.world.looked_at(s, received)
        self.observe(*observation)
        return self.signals(s)

    def send(self, t):
        return super().send(t - self.config.feedback_delay)

    def receive(self, t, broadcast):
        super().receive(t - self.config.feedback_delay, broadcast)


class Agent(Delayed, oracle.Agent):
    pass


class TunedAgent(Delayed, oracle_tuned.Agent):
    pass
