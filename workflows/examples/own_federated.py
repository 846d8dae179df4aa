"""A user-defined federated algorithm: agents share statistics of features of your own choice."""

# %% A FederatedGroup keeps W and B of its features, and exchanges them in rounds; you choose features and score.
import math
from typing import Any

import torch

import fnbandit
from fnbandit import Config, Environment, FederatedGroup, Scored
from fnbandit.numerics.products import multiply_rows

FEATURES = 200


class FourierUCB(FederatedGroup):
    """UCB on random Fourier features of the contexts, a kernel method that is cheap to federate."""

    @classmethod
    def parameter_count(cls, config: Config, environment: Environment) -> int:
        """Return p, the length of a feature row."""
        return FEATURES

    @classmethod
    def make_lift(cls, config: Config, environment: Environment, like: torch.Tensor) -> Any:
        """Draw the features from the seed, so that agents and server have the same; return contexts -> features."""
        draw = torch.Generator().manual_seed(config.seed)
        frequencies = 2 * torch.randn(environment.dim, FEATURES, generator=draw, dtype=torch.float64).to(like)
        phases = 2 * math.pi * torch.rand(FEATURES, generator=draw, dtype=torch.float64).to(like)

        def lift(x: torch.Tensor) -> torch.Tensor:
            """Map contexts [agents, arms, dim] to [agents, arms, FEATURES]."""
            is_lifted = x.shape[-1] == FEATURES
            return x if is_lifted else math.sqrt(2 / FEATURES) * (multiply_rows(x, frequencies) + phases).cos()

        return lift

    def scores(self, iteration: int, contexts: torch.Tensor) -> Scored:
        """Return mean + exploration times deviation, by everybody's statistics up to the last round plus own rows."""
        evaluation = self.look(iteration, contexts)
        assert evaluation.found is not None
        mean, variance = evaluation.found.mean, evaluation.found.variance
        return Scored(mean + self.config.number("exploration_global") * variance.sqrt(), evaluation)


# %% Triggers, participation, messages and actors work with it as with FN-UCB: engine="ray" gives the same bits.
linear = Config(
    algorithm="workflows.examples.own_federated:FourierUCB", dim=4, horizon=200, trigger="logdet", threshold=2
)

if __name__ == "__main__":
    for agents in (1, 2, 8):
        result = fnbandit.simulate(linear.replace(agents=agents))
        print(f"N = {agents}  regret per agent {result.regret.sum(0).mean():5.2f}  rounds {len(result.rounds)}")
    print(fnbandit.simulate(linear.replace(algorithm="random")))
