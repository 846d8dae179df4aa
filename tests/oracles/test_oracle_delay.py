"""Delayed feedback: the choices of the literal transcription, in every grouping, after going back and a checkpoint."""

from __future__ import annotations

import numpy as np
import oracle
import oracle_delay
import oracle_tuned
import pytest
from helpers import EVERY_ROUND, LIKE, assert_same, interrupt, plain, theta_0

from fnbandit import Config, simulate
from fnbandit.algorithms.sampling import Normals
from fnbandit.config.registry import ALGORITHMS, resolve_part
from fnbandit.environments import make_environment
from fnbandit.runs import Checkpointing, LocalRun

SMALL = {
    "agents": 3, "horizon": 50, "dim": 4, "arms": 3, "width": 6, "noise": 0.05, "training_steps": 6,
    "training_rate": 0.01, "network_dtype": "float64", "ramp": 30, "exploration_global": 0.3, "exploration_local": 0.2,
}  # fmt: skip


def compare(config, result, known):
    np.testing.assert_array_equal(result.arms, known.arms)
    assert result.rounds == known.rounds
    np.testing.assert_allclose(result.alpha, np.array(known.weights, dtype=float), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(result.theta, known.theta, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(result.rewards[: config.horizon - config.feedback_delay], known.rewards, rtol=1e-12)


@pytest.mark.parametrize("delay", [1, 5, 40])
@pytest.mark.parametrize(
    "settings",
    [
        {"trigger": "always"},
        {"trigger": "logdet", "threshold": 4.0},
        {"trigger": "diagonal", "threshold": 4.0, "diagonal": True},
        {"trigger": "period", "period": 7, "algorithm": "fn-ucb"},
        {"trigger": "logdet", "threshold": 4.0, "weight": "theory", "domain_sample": 20, "received_sample": 30},
        {"trigger": "period", "period": 7, "first_iteration_only": True, "weight": "constant"},
    ],
    ids=str,
)
def test_choices_of_the_literal_algorithm(delay, settings):
    config = plain(**SMALL | {"algorithm": "fn-ucb-less-comm", "feedback_delay": delay} | settings)
    known = oracle.run(config, make_environment(config), theta_0(config), agent=oracle_delay.Agent)
    compare(config, simulate(config), known)
    assert known.rounds and known.rounds[0] > delay


@pytest.mark.parametrize("trigger", [{"trigger": "always"}, {"trigger": "logdet", "threshold": 4.0}], ids=str)
def test_choices_of_the_tuned_algorithm(trigger):
    config = Config(**SMALL | {"training_steps": "auto", "training_cap": 20, "feedback_delay": 4} | trigger)
    known = oracle.run(
        config, make_environment(config), theta_0(config), agent=oracle_delay.TunedAgent,
        server=lambda *arguments: oracle_tuned.Server(*arguments),
    )  # fmt: skip
    compare(config, simulate(config), known)


@pytest.mark.parametrize("algorithm", ["linear-ucb", "linear-ts"])
def test_independent_learners(algorithm):
    config = plain(algorithm=algorithm, regularization=0.7, exploration_global=0.4, feedback_delay=6,
                   agents=2, horizon=70, dim=4, arms=3)  # fmt: skip
    result, environment = simulate(config), make_environment(config)
    for agent in range(2):
        normals = Normals(config.seed, range(agent, agent + 1), 3, LIKE)
        X, y = [], []
        for t in range(1, 71):
            block, place = environment.block(agent, (t - 1) // 32), (t - 1) % 32
            x, known = block.contexts[place], max(0, t - 1 - 6)
            seen, rewards = np.array(X[:known]).reshape(-1, 4), np.array(y[:known])
            inverse = np.linalg.inv(0.7 * np.eye(4) + seen.T @ seen)
            mean, covariance = x @ inverse @ (seen.T @ rewards), x @ inverse @ x.T
            spread = np.sqrt(np.diag(covariance))
            if algorithm == "linear-ts":
                values, vectors = np.linalg.eigh(covariance)
                spread = vectors @ np.diag(np.sqrt(values.clip(0))) @ vectors.T @ normals.at(t)[0].numpy()
            scores, arm = mean + 0.4 * 0.7**0.5 * spread, result.arms[t - 1, agent]
            # Before the first reward all contexts, which have one length, have the same upper bound.
            assert scores[arm] > scores.max() - 1e-12, t
            X.append(x[arm])
            y.append(block.means[place, arm] + block.noise[place])


@pytest.mark.parametrize("name", [n for n in ALGORITHMS if not resolve_part("algorithm", n).traits.is_asynchronous])
def test_any_grouping_and_a_checkpoint(name, tmp_path):
    config = Config.complete(
        {"algorithm": name, "agents": 4, "horizon": 150, "training_cap": 5, "dim": 4, "width": 6, "feedback_delay": 70}
    )
    result = simulate(config)
    if not resolve_part("algorithm", name).traits.runs_in_one_group:
        assert_same(result, simulate(config, groups=3))
    # Without rounds the first checkpoint is at 64, before the first reward.
    stop = interrupt(config, tmp_path, 10 if result.rounds else 2)
    assert 70 < stop < 150 if result.rounds else stop == 64
    assert_same(result, LocalRun(config, Checkpointing(str(tmp_path), **EVERY_ROUND), resume=True).result())


@pytest.mark.parametrize(
    "settings",
    [{"participation": "fraction"}, {"averagings": 2}, {"messages": "quantized"}, {"environment": "magic"}],
    ids=str,
)
def test_with_other_parts(settings):
    config = Config(**{"agents": 4, "horizon": 40, "training_cap": 5, "width": 6, "feedback_delay": 5,
                       "trigger": "logdet", "threshold": 4.0} | settings)  # fmt: skip
    result = simulate(config)
    assert_same(result, simulate(config, groups=3))
    assert len(result.rounds) > 1 and result.rounds[0] > 5


def test_a_delay_as_long_as_the_run_learns_nothing():
    config = Config(agents=2, horizon=20, feedback_delay=20, training_cap=5)
    result = simulate(config)
    assert result.rounds == []
    # Decisions of an agent that knows nothing but theta_0: UCB^a's bonus alone.
    assert not result.alpha.any()


@pytest.mark.parametrize(
    ("settings", "pattern"),
    [
        ({"algorithm": "fn-ucb-async"}, "feedback_delay=3: algorithm=fn-ucb-async accepts 0"),
        ({"clock": "uniform"}, "feedback_delay=3: clock='uniform' accepts 0"),
    ],
)
def test_what_accepts_no_delay(settings, pattern):
    with pytest.raises(ValueError, match=pattern):
        Config(feedback_delay=3, **settings)
