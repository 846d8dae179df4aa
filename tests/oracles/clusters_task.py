"""Tasks with a linear reward function, in whose variants agents have other parameters."""

from dataclasses import replace

import numpy as np

from fnbandit.environments.functions import FunctionEnvironment


def reward(x):
    """The first coordinate."""
    return x[:, 0]


class Uneven(FunctionEnvironment):
    """Contexts have different lengths: on the unit sphere all bonuses of the first iteration would be equal."""

    def __init__(self, config):
        super().__init__(config, reward)

    def block(self, agent, index):
        block = super().block(agent, index)
        lengths = np.random.default_rng([agent, index]).uniform(0.5, 1.5, block.means.shape)
        return replace(block, contexts=block.contexts * lengths[:, :, None], means=block.means * lengths)
