"""An own algorithm beside those that are there."""

# %% A class that holds n agents as tensors and says how they score their arms and what they learn.
from typing import Any

import torch

import fnbandit
from fnbandit import Config, Environment, Group, Scored


class Nearest(Group):
    """Pulls the arm whose context lies nearest to the best one so far; a random one before there is any."""

    def __init__(self, config: Config, environment: Environment, agents: range, shared: Any = None) -> None:
        super().__init__(config, environment, agents, shared)
        self.best = self.like.new_full((len(agents),), -torch.inf)
        self.place = self.like.new_zeros(len(agents), environment.dim)

    def scores(self, iteration: int, contexts: torch.Tensor) -> Scored:
        """contexts [agents, arms, dim] -> scores [agents, arms]: the arm with the largest is pulled."""
        return Scored(-(contexts - self.place[:, None]).square().sum(2))

    def learn(
        self, iteration: int, contexts: torch.Tensor, arms: torch.Tensor, rewards: torch.Tensor, evidence: object
    ) -> None:
        """arms and rewards [agents]."""
        better = rewards > self.best
        self.best = torch.where(better, rewards, self.best)
        self.place = torch.where(better[:, None], contexts[self.index, arms], self.place)

    def saved(self) -> dict[str, int | None]:
        """What checkpoints keep, agents first."""
        return super().saved() | {"best": None, "place": None}


# %% By its name it goes wherever an algorithm's name does: on the command line, in a file, on Ray.
names = {"nearest": "workflows.examples.own_algorithm:Nearest", "FN-UCB": "fn-ucb-less-comm", "random": "random"}

if __name__ == "__main__":
    for name, algorithm in names.items():
        result = fnbandit.simulate(Config.preset("tuned", algorithm=algorithm, agents=3, horizon=100))
        print(f"{name:8}  regret per agent {result.regret.sum(0).mean():6.2f}")
