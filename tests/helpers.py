"""What several test modules use."""

from __future__ import annotations

import numpy as np

from fnbandit import Config
from fnbandit.agents import AgentGroup
from fnbandit.environments import make_environment
from fnbandit.network import Network
from fnbandit.simulation import make_groups, one_thread, run_epochs, split


def theta_0(config: Config) -> np.ndarray:
    """The initial parameters that a simulation of this config starts from."""
    environment = make_environment(config)
    return Network(config, environment.dim).initial_parameters(config.seed).numpy()


def run_with_scores(config: Config, groups: int = 1, monkeypatch=None):
    """Epochs of a simulation, and the scores of every context in the iterations that counted."""
    scores = np.zeros((config.horizon, config.agents, 0))
    seen: dict[tuple[int, int], np.ndarray] = {}
    original = AgentGroup.scores

    def recording(self, iteration, contexts):
        result = original(self, iteration, contexts)
        seen[iteration, self.agents.start] = result.numpy().copy()
        return result

    monkeypatch.setattr(AgentGroup, "scores", recording)
    with one_thread():
        members = make_groups(config, make_environment(config), split(config.agents, groups))
        epochs = list(run_epochs(config, members))
    starts = [member.agents.start for member in members]
    scores = np.stack([np.concatenate([seen[t, start] for start in starts]) for t in range(1, config.horizon + 1)])
    return epochs, scores, members
