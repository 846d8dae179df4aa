"""A user-defined algorithm, compared with built-in ones."""

# %% A class that holds n agents as tensors; it scores their arms and learns from their rewards.
from typing import Any

import torch

import fnbandit
from fnbandit import Config, Environment, Group, Scored


class NearestUCB(Group):
    """Scores a context by the reward of the nearest context that its agent has pulled, plus their distance."""

    def __init__(self, config: Config, environment: Environment, agents: range, shared: Any = None) -> None:
        super().__init__(config, environment, agents, shared)
        self.places = self.like.new_zeros(len(agents), config.horizon, environment.dim)

    def scores(self, iteration: int, contexts: torch.Tensor) -> Scored:
        """Map contexts [agents, arms, dim] to scores [agents, arms]; the arm with the largest score is pulled."""
        past = max(1, iteration - 1)
        distances = (contexts[:, :, None] - self.places[:, None, :past]).norm(dim=3)
        nearest = distances.min(dim=2)
        return Scored(self.rewards[:, :past].gather(1, nearest.indices) + nearest.values)

    def learn(
        self, iteration: int, contexts: torch.Tensor, arms: torch.Tensor, rewards: torch.Tensor, evidence: object
    ) -> None:
        """Keep the context of the pulled arm; arms and rewards are [agents], and the base class keeps them."""
        self.places[:, iteration - 1] = self.select_pulled(contexts, arms)

    def list_state(self) -> dict[str, int | None]:
        """Return the attributes that checkpoints store, agents first, with the axis that grows with iterations."""
        return super().list_state() | {"places": 1}


# %% Its name is valid wherever an algorithm's name is: on the command line, in a file, on Ray.
names = {"nearest": "workflows.examples.own_algorithm:NearestUCB", "FN-UCB": "fn-ucb-less-comm", "random": "random"}

if __name__ == "__main__":
    for name, algorithm in names.items():
        result = fnbandit.simulate(Config.preset("tuned", algorithm=algorithm, agents=3, horizon=100, dim=3))
        print(f"{name:8}  regret per agent {result.regret.sum(0).mean():6.2f}")
