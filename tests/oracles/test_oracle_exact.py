"""One network trained by sums over agents: the fast code makes the choices of the literal transcription."""

from __future__ import annotations

import functools

import numpy as np
import oracle_exact
import pytest
import torch
from helpers import plain
from test_oracle import assert_same

from fnbandit.federation.sampling import Sample, sample_limit

SETTINGS = {
    "agents": 3, "horizon": 40, "arms": 3, "dim": 4, "width": 5, "noise": 0.05, "regularization": 0.5,
    "exploration_global": 0.3, "exploration_local": 0.2, "ramp": 20, "threshold": 2.0, "period": 4, "weight": "ramp",
    "training_optimizer": "adam", "training_rate": 0.05, "training_steps": "auto", "training_effort": 60.0,
    "training_cap": 20, "training_least": 8, "training_schedule": "linear", "training_decay": 0.3, "reward_unit": "rms",
    "newton_steps": 3, "training_sample": 0, "network_dtype": "float64", "federation": "exact", "trigger": "logdet",
}  # fmt: skip
LEARNED = [
    {"federation": "gradients"},
    {"federation": "gauss-newton", "environment": "square"},
    {"federation": "exact", "agents": 2, "horizon": 60},
    {"federation": "exact", "trigger": "always", "training_optimizer": "gd", "reward_unit": "one"},
    {"federation": "exact", "training_sample": 17, "agents": 4},
    {"federation": "gauss-newton", "training_sample": 2, "agents": 5, "trigger": "period"},
    {"federation": "gradients", "network": "ntk", "width": 6, "training_loss": "paper", "training_rate": 0.01},
    {"federation": "gauss-newton", "hidden_layers": 2, "network": "ntk", "width": 4},
    {"federation": "gradients", "training_steps": 5, "training_fade": 30.0, "training_schedule": "constant"},
]


def observations_of(config, parameters):
    """The sample that the fast code draws, as lists of an agent's observations."""

    def observations(agent, iteration, number):
        everyone = np.ones(config.agents, dtype=bool)
        sample = Sample(config, everyone, number, iteration, sample_limit(config, parameters))
        index, mask = sample.select(range(agent, agent + 1), torch.device("cpu"))
        index = torch.arange(iteration)[None] if index is None else index
        return index[0].tolist() if mask is None else index[0][mask[0]].tolist()

    return observations


@pytest.mark.parametrize("algorithm", ["fn-exact", "fn-linear"])
@pytest.mark.parametrize("settings", LEARNED, ids=str)
def test_learned_features(settings, algorithm, monkeypatch):
    config = plain(**SETTINGS | settings | {"algorithm": algorithm, "seed": len(str(settings))})
    literal = functools.partial(
        oracle_exact.run, observations=observations_of(config, 10**6), whole=algorithm == "fn-exact"
    )
    assert_same(config, 1 + config.seed % 3, monkeypatch, literal)


@pytest.mark.parametrize("federation", ["gradients", "exact"])
def test_a_network_keeps_its_parameters_until_there_is_a_reward(federation, monkeypatch):
    settings = {name: value for name, value in SETTINGS.items() if name not in ("arms", "dim", "noise")}
    settings |= {"environment": "shuttle", "agents": 2, "horizon": 30, "trigger": "period", "period": 2, "width": 3}
    config = plain(**settings | {"algorithm": "fn-exact", "federation": federation, "seed": 6})
    literal = functools.partial(oracle_exact.run, observations=observations_of(config, 10**6), whole=True)
    assert_same(config, 1, monkeypatch, literal)


@pytest.mark.parametrize("algorithm", ["fn-ucb", "fn-ucb-less-comm"])
@pytest.mark.parametrize(
    "settings",
    [
        {"federation": "exact", "reward_unit": "one"},
        {"federation": "gradients", "trigger": "always", "reward_unit": "one", "training_sample": 20},
        {"federation": "gauss-newton", "diagonal": False, "environment": "square", "reward_unit": "one"},
    ],
    ids=str,
)
def test_the_bounds_of_the_paper(settings, algorithm, monkeypatch):
    config = plain(**SETTINGS | settings | {"algorithm": algorithm, "seed": 5})
    literal = functools.partial(oracle_exact.run_paper, observations=observations_of(config, 10**6))
    assert_same(config, 2, monkeypatch, literal)


def test_a_sample_is_drawn_without_replacement_and_the_same_in_any_grouping():
    config = plain(agents=7, horizon=50, seed=3)
    present = np.array([True, True, False, True, True, True, True])
    sample = Sample(config, present, rounds=4, iteration=30, limit=45)
    assert (sample.observations, sample.size, sample.slots, sample.factor) == (180, 45, 8, 4.0)
    assert sorted(sample.counts().tolist()) == [0, 7, 7, 7, 8, 8, 8]
    index, mask = sample.select(range(7), torch.device("cpu"))
    assert mask.sum(1).tolist() == sample.counts().tolist()
    assert all(len(set(row.tolist())) == 8 for row in index[present])
    assert (index[present] < 30).all() and (index[present] >= 0).all()
    parts = [sample.select(part, torch.device("cpu")) for part in (range(3), range(3, 7))]
    assert torch.equal(torch.cat([part[0] for part in parts]), index)
    assert torch.equal(torch.cat([part[1] for part in parts]), mask)
    later = Sample(config, present, rounds=5, iteration=30, limit=45).select(range(7), torch.device("cpu"))
    assert not torch.equal(later[0], index)


def test_a_sample_of_few_of_many_agents():
    config = plain(agents=50, horizon=50)
    sample = Sample(config, np.ones(50, dtype=bool), rounds=0, iteration=10, limit=20)
    assert (sample.slots, sample.counts().sum(), sample.counts().max()) == (1, 20, 1)


def test_all_observations_up_to_the_limit():
    config = plain(agents=3, horizon=50)
    sample = Sample(config, np.ones(3, dtype=bool), rounds=0, iteration=15, limit=45)
    assert sample.select(range(3), torch.device("cpu")) == (None, None)
    assert (sample.size, sample.slots, sample.factor) == (45, 15, 1.0)
