"""What several test modules use."""

from __future__ import annotations

import numpy as np

from fnbandit import Config
from fnbandit.agents import AgentGroup
from fnbandit.environments import make_environment
from fnbandit.network import Network
from fnbandit.server import Server
from fnbandit.simulation import LocalCohort, one_thread, run_epochs


def theta_0(config: Config) -> np.ndarray:
    """The initial parameters that a simulation of this config starts from."""
    environment = make_environment(config)
    return Network(config, environment.dim).initial_parameters(config.seed).numpy()


def run_with_scores(config: Config, groups: int = 1, monkeypatch=None):
    """Epochs of a simulation, and the scores of every context in the iterations that counted."""
    seen: dict[tuple[int, int], np.ndarray] = {}
    original = AgentGroup.scores

    def recording(self, iteration, contexts):
        result = original(self, iteration, contexts)
        seen[iteration, self.agents.start] = result.numpy().copy()
        return result

    monkeypatch.setattr(AgentGroup, "scores", recording)
    with one_thread():
        cohort = LocalCohort(config, make_environment(config), groups)
        epochs = list(run_epochs(config, cohort, Server(config, cohort.statistics)))
    starts = [group.agents.start for group in cohort.groups]
    scores = np.stack([np.concatenate([seen[t, start] for start in starts]) for t in range(1, config.horizon + 1)])
    return epochs, scores
