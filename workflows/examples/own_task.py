"""A user-defined task: a reward function, then a task with its own contexts."""

# %% A function of the contexts, which are rows on the unit sphere, defines a task.
import numpy as np

import fnbandit
from fnbandit import BLOCK, Block, Config


def reward(x: np.ndarray) -> np.ndarray:
    """Return the reward of each row; it depends on the first two coordinates only."""
    return np.sin(4 * x[:, 0]) * x[:, 1]


config = Config.preset("tuned", agents=4, horizon=80, dim=5, arms=6)
result = fnbandit.simulate(config, environment=reward)
print(result)

# %% Draw its figure, and save its records for `fnbandit report`, `ls` and `show`.
result.plot("regret").savefig("own_task.png")
result.save("runs/own-task")


# %% A task with its own contexts is an object with arms, dim, block and domain.
class Thermostats:
    """Agents choose one of three settings for rooms that differ in size and sun."""

    arms, dim = 3, 3

    def block(self, agent: int, index: int) -> Block:
        """Return the index-th BLOCK iterations of an agent, drawn from (agent, index) alone: equal in every layout."""
        draw = np.random.default_rng([agent, index])
        rooms = np.repeat(draw.random((BLOCK, 1, 2)), self.arms, axis=1)
        settings = np.broadcast_to(np.linspace(0, 1, self.arms)[:, None], (BLOCK, self.arms, 1))
        contexts = np.concatenate([rooms, settings], axis=2)
        return Block(contexts, means=self.comfort(contexts), noise=0.01 * draw.standard_normal(BLOCK))

    def comfort(self, x: np.ndarray) -> np.ndarray:
        """Return the mean reward: largest where the setting equals size times (1 - sun)."""
        return 1 - (x[..., 2] - x[..., 0] * (1 - x[..., 1])) ** 2

    def domain(self, count: int) -> np.ndarray:
        """Return points like the contexts, for computations over the whole domain."""
        return np.random.default_rng(0).random((count, self.dim))


warm = fnbandit.simulate(config, environment=Thermostats())
print(warm)
