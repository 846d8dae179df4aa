"""What a tuned agent learns with: Adam, effort that follows need, a weight that is earned, and no end by divergence."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers import plain

from fnbandit import Config, simulate
from fnbandit.environments import make_environment
from fnbandit.federation.alpha import ErrorGatedRamp
from fnbandit.federation.triggers import RoundCounters
from fnbandit.networks.network import Network
from fnbandit.networks.training import rates, steps_due, train, train_debiased
from fnbandit.runs import Checkpointing, LocalRun, precision_warning

ADAM = {"training_optimizer": "adam", "training_rate": 0.01, "network_dtype": "float64"}


def history(config: Config, n: int, t: int, seed: int = 0):
    """A network, inputs as training takes them, contexts and rewards of n agents."""
    random = torch.Generator().manual_seed(seed)
    contexts = torch.randn(n, t, config.dim, dtype=torch.float64, generator=random)
    rewards = torch.randn(n, t, dtype=torch.float64, generator=random)
    network = Network(config, config.dim)
    x = torch.zeros(n, network.padded_dim, t, dtype=torch.float64)
    x[:, : network.inputs_dim] = network.inputs(contexts)
    return network, x, contexts, rewards


@pytest.mark.parametrize("settings", [{}, {"hidden_layers": 3, "initialization": "scaled"}, {"network": "ntk"},
                                      {"training_loss": "paper"}, {"training_schedule": "linear"},
                                      {"training_decay": 3.0}], ids=str)  # fmt: skip
@pytest.mark.parametrize("t", [1, 23])
def test_adam_is_torchs(settings, t):
    config = plain(**ADAM, dim=5, width=6, regularization=0.7, **settings)
    network, x, contexts, rewards = history(config, 3, t)
    theta_0 = network.initial_parameters(0)
    start = theta_0 + 0.1 * torch.randn(3, len(theta_0), generator=torch.Generator().manual_seed(1))
    found = train(config, network, start, theta_0, x, rewards, steps=25)
    for agent in range(3):
        theta = start[agent].clone().requires_grad_(True)
        optimizer = torch.optim.Adam([theta], lr=0.01)
        for rate in rates(config, 25, t):
            optimizer.param_groups[0]["lr"] = rate
            optimizer.zero_grad()
            prediction = network.predict(theta[None], network.inputs(contexts[agent][None]))[0]
            error = (prediction - rewards[agent]).square()
            decay = 0.7 if config.training_decay == "lambda" else 3.0
            if config.training_loss == "paper":
                loss = 0.5 * error.sum() + 0.5 * 6 * decay * (theta - theta_0).square().sum()
            else:
                loss = error.mean() + 0.5 * decay / t * theta.square().sum()
            loss.backward()
            optimizer.step()
        torch.testing.assert_close(found.theta[agent], theta.detach(), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("t", [1, 2, 37])
def test_the_same_bits_however_agents_are_grouped(dtype, t):
    config = plain(**ADAM | {"network_dtype": dtype}, dim=5, width=7)
    network, x, _, rewards = history(config, 13, t)
    x, rewards = x.to(getattr(torch, dtype)), rewards.to(getattr(torch, dtype))
    theta_0 = network.initial_parameters(0).to(x)
    start = theta_0.repeat(13, 1)
    whole = train(config, network, start, theta_0, x, rewards, steps=9)
    for few in (slice(0, 1), slice(1, 4), slice(4, 13)):
        part = train(config, network, start[few], theta_0, x[few], rewards[few], steps=9)
        assert torch.equal(part.theta, whole.theta[few])
        assert torch.equal(part.loss, whole.loss[few])


def test_steps_by_hand():
    config = plain(training_steps="auto", training_effort=1000.0, training_cap=300, training_least=50)
    assert steps_due(config, 0, 1) == 300
    # 1000 log(20 / 10) = 693 is over the cap; 1000 log(100 / 90) = 105; 1000 log(100 / 96) = 40 are saved up.
    assert steps_due(config, 10, 20) == 300
    assert steps_due(config, 90, 100) == 105
    assert steps_due(config, 96, 100) == 0
    assert steps_due(plain(training_steps=7), 96, 100) == 7


def test_rates_by_hand():
    assert rates(plain(training_rate=0.4, training_schedule="linear"), 4, 9) == pytest.approx([0.4, 0.3, 0.2, 0.1])
    assert rates(plain(training_rate=0.4), 2, 9) == [0.4, 0.4]
    # sqrt(1 + 9 / 3) = 2
    assert rates(plain(training_rate=0.4, training_fade=3.0), 1, 9) == pytest.approx([0.2])


def test_rounds_without_training_keep_the_network():
    config = plain(**ADAM, training_steps="auto", agents=3, horizon=120, dim=4, width=6, ramp=20)
    result = simulate(config)
    steps = [r.quantities["steps"] for r in result.round_records]
    trained = [r.iteration for r in result.round_records if r.quantities["steps"] > 0]
    assert len(steps) == 120 and 5 < len(trained) < 100
    # What is due grows with log t, and is never lost: gaps between trainings grow.
    assert np.diff(trained)[-1] > np.diff(trained)[0]
    assert all(50 <= s <= 300 for s in steps if s > 0)
    last = simulate(config.replace(horizon=trained[-1]))
    np.testing.assert_array_equal(result.theta, last.theta)


def test_earned_weight_by_hand():
    weight = ErrorGatedRamp(plain(weight="earned", ramp=10))
    weight.start(None, None, None, 2, torch.zeros(0, dtype=torch.float64))
    zero = torch.zeros(2, dtype=torch.float64)
    weight.observe(zero + 1, zero + 3, zero)
    weight.observe(zero + 1, zero + 2, zero + 2)
    weight.observe(zero + 9, zero + 9, zero)
    weight.rewind(2)
    # e_a = 0.9 * 1 + 1, e_b = 0.9 * 9 + 0
    np.testing.assert_allclose(weight.upload(), [[1.9, 8.1]] * 2)
    np.testing.assert_allclose(weight.upload(), [[1.9, 8.1]] * 2)
    broadcast = weight.combine(weight.upload())
    assert float(broadcast) == pytest.approx(2 * (1.9 / 8.1) ** 2)
    assert float(weight.combine(torch.tensor([[1.0, 2.0], [3.0, 2.0]]))) == 1.0
    assert float(weight.at(6, 5, broadcast)) == pytest.approx(0.5 * 2 * (1.9 / 8.1) ** 2)
    assert weight.at(6, 0, 0.0) == 0.0


@pytest.mark.parametrize(
    ("errors", "iteration", "rounds", "expected"),
    [
        ([1.0, 8.0], 8, 20, 2 / 64),  # a round in every iteration: the errors decide
        ([1.0, 8.0], 9, 20, 0.5),  # after two iterations: at least a half
        ([3.0, 2.0], 9, 1, 0.5),  # the second round: no more than that
        ([3.0, 2.0], 9, 3, 0.8),  # the fourth of five
        ([3.0, 2.0], 9, 4, 1.0),
        ([3.0, 2.0], 8, 2, 1.0),
    ],
)
def test_earned_weight_after_long_epochs(errors, iteration, rounds, expected):
    weight = ErrorGatedRamp(plain(weight="earned"))
    moment = RoundCounters(iteration=iteration, last_round=7, rounds=rounds)
    assert float(weight.combine(torch.tensor([errors, errors]), moment)) == pytest.approx(expected)


def test_a_subsample_takes_away_what_shrinks_with_the_history():
    """Both trainings for themselves, put together; where both agree, as from a perfect start, nothing moves."""
    config = plain(training_rate=0.05, dim=5, width=6, network_dtype="float64", training_subsample=0.5)
    network, x, contexts, rewards = history(config, 2, 7)
    theta_0 = network.initial_parameters(0)
    start, calm = theta_0.repeat(2, 1), torch.ones(2, dtype=torch.float64)
    whole = train(config, network, start, theta_0, x, rewards, 9).theta
    part = train(config, network, start, theta_0, x[:, :, [0, 2, 4]], rewards[:, [0, 2, 4]], 9).theta
    found = train_debiased(config, network, start, theta_0, x, rewards, 9, calm).theta
    torch.testing.assert_close(found, whole + 3 / 4 * (whole - part))
    perfect = config.replace(training_decay=0.0)
    told = network.predict(theta_0, network.inputs(contexts))
    found = train_debiased(perfect, network, start, theta_0, x, told, 9, calm).theta
    torch.testing.assert_close(found, start)


@pytest.mark.parametrize("trigger", ["logdet", "diagonal", "always"])
def test_earned_weight_in_any_grouping_and_after_a_checkpoint(trigger, tmp_path):
    config = plain(**ADAM, weight="earned", trigger=trigger, threshold=3.0, agents=4, horizon=60, dim=4, width=6,
                    ramp=10, training_steps=40)  # fmt: skip
    one = simulate(config)
    assert 0 < one.alpha.max() <= 1 and len(one.rounds) > 2
    assert (one.alpha[: one.rounds[0]] == 0).all()
    for groups in (2, 4):
        other = simulate(config, groups=groups)
        np.testing.assert_array_equal(other.alpha, one.alpha)
        np.testing.assert_array_equal(other.arms, one.arms)
    for segment in LocalRun(config, Checkpointing(str(tmp_path), seconds=0, rounds=2)).segments():
        if segment.end > 40:
            break
    resumed = LocalRun(config, Checkpointing(str(tmp_path)), resume=True).result()
    np.testing.assert_array_equal(resumed.alpha, one.alpha)


@pytest.mark.parametrize("optimizer", ["gd", "adam"])
@pytest.mark.parametrize("algorithm", ["fn-ucb-less-comm", "neural-ucb"])
def test_divergence_ends_no_run(optimizer, algorithm):
    rate = 50.0 if optimizer == "gd" else 1e30
    config = plain(algorithm=algorithm, training_optimizer=optimizer, training_rate=rate, agents=2, horizon=30, dim=4,
                    width=6, training_steps=10)  # fmt: skip
    result = simulate(config)
    assert np.isfinite(result.regret).all()
    if result.rounds:
        assert result.round_records[0].quantities["diverged"] == 1.0
        assert np.isfinite(result.theta).all()
        assert np.isfinite([r.quantities["loss"] for r in result.round_records]).all()


def test_a_diverging_agent_goes_back_and_halves_its_gradients():
    config = plain(training_rate=0.1, dim=5, width=6, network_dtype="float64")
    network, x, _, rewards = history(config, 2, 20)
    theta_0 = network.initial_parameters(0)
    start = theta_0.repeat(2, 1)
    rewards[1] *= 1e200
    trained = train(config, network, start, theta_0, x, rewards, steps=20)
    assert trained.diverged.tolist() == [0.0, 1.0]
    assert torch.equal(trained.theta[1], start[1]) and not torch.equal(trained.theta[0], start[0])
    # With half the gradients, one step goes half as far (without decay).
    free = config.replace(training_decay=0.0)
    whole = train(free, network, start[:1], theta_0, x[:1], rewards[:1], steps=1).theta - start[:1]
    half = train(free, network, start[:1], theta_0, x[:1], rewards[:1], 1, torch.tensor([0.5])).theta - start[:1]
    torch.testing.assert_close(2 * half, whole)


def test_scores_that_are_no_numbers_end_a_run_with_the_cause():
    config = plain(use_local=False, trigger="logdet", statistics_dtype="float32", regularization=1e-6, agents=1)
    expected = r"statistics_dtype='float32': scores became NaN by iteration \d+: regularization=1e-06 is too small"
    with pytest.raises(ValueError, match=expected):
        simulate(config)


def test_single_precision_is_warned_about_where_it_is_not_safe():
    unsafe = plain(statistics_dtype="float32", regularization=1e-6)
    assert "float64 is safe" in precision_warning(unsafe, make_environment(unsafe))
    safe = plain(statistics_dtype="float32", regularization=1.0, horizon=100)
    assert precision_warning(safe, make_environment(safe)) is None
    assert precision_warning(unsafe.replace(statistics_dtype="float64"), make_environment(unsafe)) is None


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_networks_of_any_depth_train(depth):
    settings = {"hidden_layers": depth, "initialization": "scaled", "training_steps": 60, "ramp": 20}
    config = plain(**ADAM, **settings, agents=2, horizon=60)
    result = simulate(config)
    assert result.round_records[-1].quantities["diverged"] == 0
    assert result.round_records[-1].quantities["loss"] < 0.1


@pytest.mark.parametrize("seed", [0, 1])
def test_an_own_table_with_wild_scales_runs_on_the_first_try(tmp_path, seed):
    random = np.random.default_rng(seed)
    labels = random.integers(4, size=400)
    features = random.normal(size=(4, 18))[labels] + 0.7 * random.normal(size=(400, 18))
    features = features * 10.0 ** random.uniform(-6, 6, size=18) + 10.0 ** random.uniform(-3, 5, size=18)
    rows = [",".join([*map(repr, map(float, row)), f"c{label}"]) for row, label in zip(features, labels, strict=True)]
    header = ",".join([*(f"x{i}" for i in range(18)), "kind"])
    path = tmp_path / "wild.csv"
    path.write_text("\n".join([header, *rows]))
    config = Config.preset("tuned", environment=str(path), label="kind", agents=4, horizon=150, seed=seed)
    result = simulate(config)
    chance = 150 * 3 / 4
    assert result.regret.sum(0).mean() < 2 / 3 * chance
    assert all(r.quantities["diverged"] in (0.0,) or np.isnan(r.quantities["diverged"]) for r in result.round_records)


def test_the_unit_of_the_reward_does_not_matter():
    config = Config.preset("tuned", agents=4, horizon=100, noise=0.0, dim=6)
    finals = []
    for unit in (1e-3, 1.0, 1e3):
        result = simulate(config, environment=lambda x, unit=unit: unit * np.cos(3 * x[:, 0]))
        finals.append(result.regret.sum(0).mean() / unit)
    chance = (
        simulate(config.replace(algorithm="random"), environment=lambda x: np.cos(3 * x[:, 0])).regret.sum(0).mean()
    )
    assert max(finals) < 0.5 * chance
    # Rounding grows into other choices, so that regrets are alike, not equal.
    assert max(finals) < 1.5 * min(finals)
