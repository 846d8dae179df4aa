"""A user-defined algorithm, compared with built-in ones."""

# %% A class that holds n agents as tensors; it scores their arms and learns from their rewards.
from typing import Any

import torch

import fnbandit
from fnbandit import Config, Environment, Group, Scored


class Nearest(Group):
    """Pulls the arm whose context is nearest to that of the best reward so far; an arbitrary arm at first."""

    def __init__(self, config: Config, environment: Environment, agents: range, shared: Any = None) -> None:
        super().__init__(config, environment, agents, shared)
        self.best = self.like.new_full((len(agents),), -torch.inf)
        self.place = self.like.new_zeros(len(agents), environment.dim)

    def scores(self, iteration: int, contexts: torch.Tensor) -> Scored:
        """Map contexts [agents, arms, dim] to scores [agents, arms]; the arm with the largest score is pulled."""
        return Scored(-(contexts - self.place[:, None]).square().sum(2))

    def learn(
        self, iteration: int, contexts: torch.Tensor, arms: torch.Tensor, rewards: torch.Tensor, evidence: object
    ) -> None:
        """Keep the best reward and its context; arms and rewards are [agents]."""
        better = rewards > self.best
        self.best = torch.where(better, rewards, self.best)
        self.place = torch.where(better[:, None], contexts[self.index, arms], self.place)

    def list_state(self) -> dict[str, int | None]:
        """Return the attributes that checkpoints store; their first dimension is the agents."""
        return super().list_state() | {"best": None, "place": None}


# %% Its name is valid wherever an algorithm's name is: on the command line, in a file, on Ray.
names = {"nearest": "workflows.examples.own_algorithm:Nearest", "FN-UCB": "fn-ucb-less-comm", "random": "random"}

if __name__ == "__main__":
    for name, algorithm in names.items():
        result = fnbandit.simulate(Config.preset("tuned", algorithm=algorithm, agents=3, horizon=100))
        print(f"{name:8}  regret per agent {result.regret.sum(0).mean():6.2f}")
