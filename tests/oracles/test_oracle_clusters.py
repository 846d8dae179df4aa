"""Clusters, HetoFedBandit and neural-linear UCB: the fast code makes the choices of literal transcriptions."""

from __future__ import annotations

import itertools

import numpy as np
import oracle
import oracle_hetofedbandit
import oracle_personal
import pytest
import torch
from helpers import plain, run_with_scores, theta_0
from scipy import stats

from fnbandit import Config, simulate
from fnbandit.environments import make_environment
from fnbandit.federation.clusters import HomogeneityTest, find_cliques, find_clusters, list_cliques, pack_sums


def assert_same_choices(config, groups, monkeypatch, expected):
    segments, scores = run_with_scores(config, groups, monkeypatch)
    assert [record.iteration for segment in segments for record in segment.rounds] == expected.rounds
    np.testing.assert_array_equal(np.concatenate([segment.trace.arms for segment in segments]), expected.arms)
    np.testing.assert_allclose(scores, expected.scores, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("settings", [{"heterogeneity": "clusters", "groups": 2}, {"cluster_level": 0.3}], ids=str)
def test_hetofedbandit(settings, monkeypatch):
    config = Config(algorithm="hetofedbandit", agents=6, horizon=40, arms=3, dim=3, noise=0.05, threshold=2.0,
                    environment="clusters_task:Uneven", seed=3, **settings)  # fmt: skip
    expected, found = oracle_hetofedbandit.run(config, make_environment(config))
    assert len(expected.rounds) > 3
    assert any(len(cliques) > 1 for cliques in found)
    assert_same_choices(config, 2, monkeypatch, expected)


def test_neural_linear(monkeypatch):
    settings = {"agents": 2, "horizon": 30, "arms": 3, "dim": 3, "width": 4, "noise": 0.1, "regularization": 0.5,
                "exploration_global": 0.3, "training_optimizer": "adam", "training_rate": 0.05, "training_cap": 10,
                "training_steps": "auto", "training_effort": 60.0, "training_least": 8, "training_decay": 0.3,
                "training_schedule": "linear", "network_dtype": "float64"}  # fmt: skip
    config = plain(algorithm="neural-linear", seed=4, **settings)
    environment, start = make_environment(config), torch.from_numpy(theta_0(config))
    world, arms, all_scores = oracle.World(config, environment, start), [], []
    for i in range(config.agents):
        own, seen, rewards_seen = oracle_personal.OwnNetwork(config, start), [], []
        for t in range(1, config.horizon + 1):
            contexts, rewards = world(i, t)
            scale = config.exploration_global * config.regularization**0.5
            found = [own.of(x, seen, rewards_seen) for x in contexts]
            scores = [mean + scale * deviation for mean, deviation in found]
            arms.append(int(np.argmax(scores)))
            all_scores.append(scores)
            seen.append(contexts[arms[-1]])
            rewards_seen.append(rewards[arms[-1]])
            own.train(seen, rewards_seen, t)
    shape = (config.agents, config.horizon)
    segments, fast = run_with_scores(config, 2, monkeypatch)
    np.testing.assert_array_equal(np.concatenate([one.trace.arms for one in segments]).T, np.reshape(arms, shape))
    np.testing.assert_allclose(fast.swapaxes(0, 1), np.reshape(all_scores, (*shape, 3)), rtol=1e-8, atol=1e-8)


def draw_sums(parameters, counts, noise=0.1, seed=0):
    """Sums of agents, agent i with the parameters parameters[i] and counts[i] observations."""
    random, found = np.random.default_rng(seed), []
    for theta, count in zip(parameters, counts, strict=True):
        x = random.standard_normal((count, len(theta)))
        y = x @ theta + noise * random.standard_normal(count)
        found.append((x.T @ x, x.T @ y, count, y @ y))
    return found


def pack(sums):
    rows = [pack_sums(torch.tensor(W)[None], torch.tensor(B)[None], count, torch.tensor([squares]))
            for W, B, count, squares in sums]  # fmt: skip
    return torch.cat(rows).numpy()


def test_p_values_are_uniform_where_the_parameters_are_the_same():
    """Of 300 pairs; by the Kolmogorov-Smirnov test, as chi-square variables have them."""
    values = []
    for seed in range(300):
        sums = draw_sums([[1.0, -2.0, 0.5]] * 12, [30] * 12, seed=seed)
        test = HomogeneityTest(pack(sums), 3)
        values.append(test.compare(test.agents.select([0]), test.agents.select([1]))[0])
    assert stats.kstest(values, "uniform").pvalue > 0.01


def test_p_values_are_those_of_the_definition_also_where_directions_are_missing():
    """With fewer observations than parameters ranks are lower."""
    sums = draw_sums([[1.0, -2.0, 0.5, 0.0]] * 3 + [[1.0, -1.9, 0.5, 0.0]] * 2, [2, 20, 3, 15, 1])
    variance = oracle_personal.noise_variance(sums)
    test = HomogeneityTest(pack(sums), 4)
    assert test.variance == pytest.approx(variance, rel=1e-6)
    assert test.agents.rank.tolist() == [2, 4, 3, 4, 1]
    for i, j in itertools.combinations(range(5), 2):
        value = test.compare(test.agents.select([i]), test.agents.select([j]))[0]
        assert value == pytest.approx(oracle_personal.p_value(sums[i][:2], sums[j][:2], variance), abs=1e-6)


@pytest.mark.parametrize("find", [find_clusters, find_cliques])
def test_agents_with_the_same_parameters_are_found(find):
    true = [0, 1, 2, 0, 1, 2, 0, 0, 1]
    sums = draw_sums(np.eye(3)[true], [25] * 9)
    member, together = find(pack(sums), 3, 1e-4)
    assert [[i for i in range(9) if member[i] == member[j]] for j in range(9)] == [
        [i for i in range(9) if true[i] == true[j]] for j in range(9)
    ]
    for i in range(9):
        expected = sum(sums[j][0] for j in range(9) if true[j] == true[i])
        np.testing.assert_allclose(together[member[i], :6], expected[np.triu_indices(3)], rtol=1e-12)


def test_cliques_are_those_of_all_subsets():
    random = np.random.default_rng(1)
    for size in (1, 4, 7):
        table = np.triu(random.random((size, size)) < 0.6, 1)
        table = table | table.T
        expected = oracle_hetofedbandit.cliques(size, lambda i, j, table=table: table[i, j])
        found = sorted(map(sorted, list_cliques([set(np.flatnonzero(row).tolist()) for row in table])))
        assert found == sorted(expected)


def test_clusters_separate_agents_that_differ_and_federate_those_that_do_not():
    """Linear UCB alone learns nothing from others, and DisLinUCB learns the wrong things from them."""

    def regret(algorithm, **settings):
        config = Config.complete({"algorithm": algorithm, "environment": "clusters_task:reward", "agents": 9,
                                  "horizon": 150, "noise": 0.3, "threshold": 5.0, "seed": 0} | settings)  # fmt: skip
        return float(simulate(config).regret.sum(0).mean())

    differ = {"heterogeneity": "clusters", "groups": 3}
    assert regret("hetofedbandit", **differ) < 0.8 * regret("linear-ucb", **differ) < regret("dislinucb", **differ)
