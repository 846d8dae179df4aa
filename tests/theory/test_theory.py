"""The theory's numbers against hand calculation and the paper's formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from helpers import plain
from scipy import linalg

from fnbandit import Block, Config, simulate, theory
from fnbandit.environments import make_environment
from fnbandit.environments.functions import on_sphere
from fnbandit.federation.alpha import stride
from fnbandit.federation.triggers import LogDeterminant
from fnbandit.networks.features import TangentFeatures
from fnbandit.networks.network import Network
from fnbandit.numerics.randomness import BLOCK
from fnbandit.runs import Checkpointing, LocalRun
from fnbandit.theory import assumptions, dimensions
from workflows.command_line import main


@pytest.mark.parametrize(("environment", "low", "high"), [("cosine", 9.0, 13.0), ("square", 22.0, 24.0)])
def test_norm_bound_of_the_papers_functions(environment, low, high):
    # Measured on their own; against the dense solution on the same contexts.
    config = Config.preset("theory", environment, agents=2, horizon=60)
    numbers = theory.describe_theory(config)
    assert low < numbers.norm_bound < high
    given = dimensions.contexts_of(make_environment(config), range(2), 60)
    expected = math.sqrt(2 * given.h @ linalg.solve(dimensions.ntk(given.x, 2)[0], given.h, assume_a="pos"))
    assert numbers.norm_bound == pytest.approx(expected, rel=1e-6)


def test_norm_bound_rises_with_the_contexts_and_says_on_how_many(monkeypatch):
    monkeypatch.setattr(theory, "SAMPLE", 200)
    config = Config.preset("theory", agents=2, horizon=60)
    numbers = theory.describe_theory(config)
    whole, half, count = numbers._norms
    assert count == 200
    assert half < whole == numbers.norm_bound
    assert "on 200 of 480 contexts" in next(row.meaning for row in theory.theory_table(numbers) if row.symbol == "B")


def test_norm_bound_is_refused_where_the_paper_defines_none():
    config = Config.preset("theory", agents=2, horizon=20, network="standard")
    with pytest.raises(ValueError, match=r"norm_bound='theory': .* network=standard.*or use network=ntk"):
        theory.resolve(config)
    assert theory.resolve(config.replace(norm_bound=3.0)).exploration_global > 3
    linear = config.replace(algorithm="dislinucb")
    with pytest.raises(ValueError, match=r"features of algorithm=dislinucb, so B is undefined; give a number$"):
        theory.resolve(linear)


class Silent:
    """An environment that does not say how it is disturbed."""

    arms, dim = 2, 3

    def __init__(self, config):
        pass

    def block(self, agent, index):
        x = on_sphere(np.random.default_rng(index), BLOCK, 2, 3)
        return Block(x, x[..., 0], np.zeros(BLOCK))

    def domain(self, count):
        return on_sphere(np.random.default_rng(0), count, 3)


def test_noise_bound():
    def bound(**settings):
        return theory.describe_theory(plain(noise_bound="theory", **settings)).noise_bound

    assert bound(noise=0.3) == bound(environment="wheel", noise=0.3) == 0.3
    assert bound(environment="magic", noise=0.3) == 0
    assert theory.describe_theory(plain(noise=0.3, noise_bound=0.7)).noise_bound == 0.7
    with pytest.raises(ValueError, match=r"noise_bound='theory': .* has no `noise_bound`; give a number"):
        bound(environment=f"{__name__}:Silent")


def test_formulas_of_the_paper():
    config = Config.preset("theory", agents=3, horizon=50, dim=4, norm_bound=2.0, noise_bound=0.5, delta=0.3, width=20)
    numbers = theory.describe_theory(config)
    lam, d, d_max = 1 + 2 / 50, numbers.effective_dimension, numbers.largest_local_dimension
    assert numbers.regularization == lam
    assert numbers.exact == (True, True)
    assert numbers.exploration_global == pytest.approx(
        2 + 0.5 * math.sqrt(2 * (math.log(3 / 0.3) + 1) + d * math.log(1 + 50 * 4 * 3 / lam))
    )
    assert numbers.exploration_local == pytest.approx(
        2 + 0.5 * math.sqrt(2 * (math.log(9 / 0.3) + 1) + d_max * math.log(1 + 50 * 4 / lam))
    )
    assert numbers.threshold == pytest.approx(50 / (3 * d))
    assert numbers.training_rate == pytest.approx(1 / (20 * lam + 20 * 50 * 2))
    # (1 - eta m lambda)^J sqrt(T L / lambda) T N <= 1/3, the condition that J serves
    remaining = (1 - numbers.training_rate * 20 * lam) ** numbers.training_steps
    assert remaining * math.sqrt(50 * 2 / lam) * 50 * 3 <= 1 / 3
    assert numbers.information == pytest.approx(d * math.log(1 + 600 / lam) + 1)
    first = d * math.sqrt(150)
    assert numbers.first_iteration_regret_bound == pytest.approx(first + d_max * 3 * math.sqrt(50))
    less = theory.describe_theory(config.replace(algorithm="fn-ucb-less-comm"))
    assert less.first_iteration_regret_bound == pytest.approx(first + d_max * 3**1.5 * math.sqrt(50))


def test_regret_bound_by_hand():
    # T = 100, N = 4, d~ = 3, d~_max = 2: 3 * 20 + sqrt(D-bar) * 2 * 4 * 10, times 2 in the second term for Less Comm.
    assert theory.regret_below(100, 4, 3.0, 2.0, 1.0, averaged=False) == 140
    assert theory.regret_below(100, 4, 3.0, 2.0, 9.0, averaged=False) == 300
    assert theory.regret_below(100, 4, 3.0, 2.0, 9.0, averaged=True) == 540


def test_the_general_algorithm_has_the_root_of_the_growth_of_an_epoch():
    config = Config.preset("theory", agents=2, horizon=30, dim=3, trigger="period", period=3)
    numbers = theory.describe_theory(config)
    # Epochs of three iterations, two rows before the last; ||g||^2 = H~ = L = 2 on the unit sphere.
    assert numbers.epoch_growth == pytest.approx((1 + 2 / numbers.regularization) ** 2)
    d, d_max = numbers.effective_dimension, numbers.largest_local_dimension
    second = d_max * 2 * math.sqrt(30)
    assert numbers.regret_bound == pytest.approx(d * math.sqrt(60) + (1 + 2 / numbers.regularization) * second)
    assert theory.describe_theory(config.replace(first_iteration_only=True)).regret_bound == pytest.approx(
        d * math.sqrt(60) + second
    )
    assert theory.describe_theory(config.replace(trigger="always")).regret_bound == numbers.first_iteration_regret_bound
    # However long an epoch is, an agent cannot learn more than in T iterations.
    largest = theory.describe_theory(config.replace(trigger="logdet")).epoch_growth
    assert math.log(largest) == pytest.approx(d_max * math.log(1 + 120 / numbers.regularization) + 1)
    # With one agent the trigger watches V_local.
    one = theory.describe_theory(config.replace(agents=1, trigger="logdet", threshold=2.5))
    assert one.epoch_growth == pytest.approx(math.exp(2.5))
    assert math.isnan(theory.describe_theory(config.replace(use_global=False)).regret_bound)
    assert theory.describe_theory(config.replace(use_local=False)).regret_bound == pytest.approx(d * math.sqrt(60))


def most_rounds(horizon, threshold, information):
    return LogDeterminant(plain(horizon=horizon, threshold=threshold)).most_rounds(information)


def test_rounds_bound_by_hand():
    # R = ceil(7.5) = 8, zeta = sqrt(2 * 400 / 8) = 10: 400 / 10 + 8 * 10 / 2
    assert most_rounds(400, 2.0, 7.5) == 80
    assert most_rounds(60, 2.0, 7.5) == math.ceil(60 / 15**0.5) + math.ceil(4 * 15**0.5)
    # 7 + 7 rounds in 10 iterations are 10 at most.
    assert most_rounds(10, 2.0, 7.5) == 10
    assert most_rounds(20, 0.0, 7.5) == 20
    assert most_rounds(20, 1000.0, math.inf) == 20


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"trigger": "always"}, 40),
        ({"trigger": "period", "period": 7}, 5),
        ({"trigger": "budget", "round_budget": 9}, 9),
        ({"trigger": "budget", "round_budget": 90}, 40),
        ({"trigger": "diagonal", "threshold": 1000.0}, 40),
        ({"trigger": "logdet", "threshold": 1000.0, "diagonal": True}, 40),
        ({"algorithm": "neural-ucb"}, 0),
    ],
)
def test_rounds_bound_of_other_triggers(settings, expected):
    assert theory.describe_theory(plain(horizon=40, **settings)).rounds_bound == expected


def test_rounds_bound_uses_the_configs_threshold():
    config = Config.preset("theory", agents=2, horizon=60, dim=3, threshold=200.0)
    numbers = theory.describe_theory(config)
    assert numbers.rounds_bound == most_rounds(60, 200.0, numbers.information) < 60


@pytest.mark.parametrize("settings", [{"threshold": "theory"}, {"threshold": 60.0}, {"threshold": 200.0}])
@pytest.mark.parametrize("network", [{"network": "ntk", "width": 16}, {"network": "standard", "width": 4}])
def test_rounds_stay_below_their_bound(settings, network):
    small = {"agents": 2, "horizon": 60, "dim": 3, "training_steps": 3, "norm_bound": 1.0}
    config = Config.preset("theory", **small, **network, **settings)
    assert 1 <= len(simulate(config).rounds) <= theory.describe_theory(config).rounds_bound


def test_resolving_replaces_every_theory_by_its_number():
    config = Config.preset("theory", agents=2, horizon=20, dim=3)
    assert config.norm_bound == config.noise_bound == "theory"
    resolved = theory.resolve(config)
    numbers = theory.describe_theory(config)
    for name in theory.THEORY_FIELDS:
        assert getattr(resolved, name) == getattr(numbers, name)
    assert resolved.weight == "theory"
    assert theory.resolve(plain()) == plain()
    assert theory.resolve(plain(regularization="theory", horizon=10)).regularization == 1.2
    with pytest.raises(ValueError, match="not resolved"):
        config.number("threshold")


def test_only_what_is_asked_for_is_computed(monkeypatch):
    monkeypatch.setattr(theory, "effective_dimension", None)
    asked = plain(regularization="theory", training_rate="theory", training_steps="theory", noise_bound="theory")
    assert theory.resolve(asked).noise_bound == asked.noise


def test_the_table_names_sources():
    rows = theory.theory_table(theory.describe_theory(Config.preset("theory", agents=2, horizon=20, dim=3)))
    sources = {row.symbol: row.source for row in rows[:-1]}
    assert sources["B"] == sources["d~"] == "Sec. 2"
    assert sources["nu_TKN"] == "Sec. 3.2"
    assert (sources["rounds"], sources["R_T"], sources["D-bar"]) == ("App. D", "Theorem 1", "App. F")
    assert rows[-1].source == "App. F"
    table = theory.theory_table(theory.describe_theory(plain(environment="magic", horizon=20, noise_bound="theory")))
    assert next(row for row in table if row.symbol == "R").meaning == "rewards have no noise"


# alpha of Sec. 3.3


@pytest.mark.parametrize(
    "settings",
    [
        {"algorithm": "fn-ucb", "trigger": "logdet", "threshold": 3.0},
        {"trigger": "always", "received_sample": 60},
        {"trigger": "period", "period": 7, "diagonal": True, "received_sample": 100},
        {"trigger": "logdet", "threshold": 3.0, "network": "ntk", "width": 16, "received_sample": 0},
    ],
    ids=str,
)
def test_alpha_is_the_ratio_over_the_domain_and_the_contexts_received(settings):
    config = plain(agents=3, horizon=50, dim=3, arms=3, width=4, training_steps=2, weight="theory", domain_sample=20)
    config = config.replace(**settings)
    environment = make_environment(config)
    lift = TangentFeatures(config, 3, torch.empty(0, dtype=torch.float64))

    def features(x):
        return lift(torch.from_numpy(x)[None])[0].numpy()

    result = simulate(config)
    assert len(result.rounds) > 4
    # At most `received_sample` contexts over the horizon: 60 / 3 = 20 iterations of 50, every third.
    every = {2048: 1, 60: 3, 100: 2, 0: 0}[config.received_sample]
    domain = environment.domain(20)
    for record in result.round_records:
        t, ratios = record.iteration, []
        for agent in range(3):
            x = dimensions.contexts_of(environment, range(agent, agent + 1), t).x.reshape(t, 3, 3)
            chosen = features(x[np.arange(t), result.arms[:t, agent]])
            outer = chosen.T @ chosen
            inverse = np.linalg.inv(
                0.1 * np.eye(len(outer)) + (outer * np.eye(len(outer)) if config.diagonal else outer)
            )
            points = features(np.concatenate([domain, x[::every].reshape(-1, 3)]) if every else domain)
            deviations = np.sqrt(np.einsum("ip,pq,iq->i", points, inverse, points))
            ratios.append(deviations.min() / deviations.max())
        assert record.quantities["alpha"] == pytest.approx(np.mean(ratios), rel=1e-6)
        assert record.quantities["broadcast_alpha"] == pytest.approx(min(ratios), rel=1e-6)
        if t < 50:
            assert result.alpha[t] == record.quantities["broadcast_alpha"]
    assert not result.alpha[: result.rounds[0]].any()


def test_received_contexts_lower_alpha():
    config = Config.preset("theory", agents=2, horizon=30, training_steps=2, norm_bound=1.0, domain_sample=2)
    with_them, without = simulate(config), simulate(config.replace(received_sample=0))
    first = with_them.rounds[0]
    assert without.rounds[0] == first
    assert 0 < with_them.alpha[first] < without.alpha[first]


@pytest.mark.parametrize(
    ("horizon", "arms", "sample", "expected"), [(50, 4, 200, 1), (50, 4, 199, 2), (50, 4, 3, 0), (1000, 4, 40, 100)]
)
def test_stride(horizon, arms, sample, expected):
    assert stride(plain(horizon=horizon, received_sample=sample), arms) == expected


@pytest.mark.parametrize("settings", [{"algorithm": "fn-ucb"}, {"diagonal": True}, {"received_sample": 90}], ids=str)
def test_alpha_has_the_same_bits_in_any_grouping_and_after_a_resumption(settings, tmp_path):
    config = plain(agents=5, horizon=60, dim=3, width=8, training_steps=2, weight="theory", trigger="logdet",
                    threshold=3.0, domain_sample=32)  # fmt: skip
    config = config.replace(**settings)
    one = simulate(config)
    assert (one.alpha[1:] > 0).any()
    np.testing.assert_array_equal(simulate(config, groups=3).alpha, one.alpha)
    np.testing.assert_array_equal(simulate(config, groups=5).alpha, one.alpha)
    kept = Checkpointing(str(tmp_path), seconds=0, rounds=3)
    for segment in LocalRun(config, kept).segments():
        if segment.end > 30:
            break
    np.testing.assert_array_equal(LocalRun(config, kept, resume=True).result().alpha, one.alpha)


def test_an_agents_alpha_is_no_quantity_where_it_computes_none():
    record = simulate(plain(agents=2, horizon=3)).round_records[0]
    assert math.isnan(record.quantities["alpha"])
    assert math.isnan(record.quantities["broadcast_alpha"])


# Assumptions


def remarks(environment="cosine", **settings):
    config = Config.preset("theory", environment, **settings)
    return "\n".join(assumptions.remarks(config, make_environment(config)))


def test_width_conditions_by_hand():
    # T = K = N = 1, L = 2, lambda = 3, lambda_0 = 0.5, delta = 0.1, from App. C.1
    config = Config.preset("theory", agents=1, horizon=1)
    found = assumptions.require_width(config, 1, 0.5)
    root = (1 + math.sqrt(1 / 3)) ** 6
    conditions = [
        2 / 3 * 2**11 + 2**18 * 3.0**-8 * 5**6 + 2**21 * 3.0**-7 * root,
        2**18 * 3.0**-4,
        2**24 * 3.0**-10 * root,
    ]
    assert found / math.log(found) ** 3 == pytest.approx(max(conditions), rel=1e-9)
    # With a small lambda_0 condition 2 is the largest.
    tiny = assumptions.require_width(config, 1, 1e-4)
    assert tiny == pytest.approx(64 * math.log(2 / 0.1) * 1e16)


def test_what_is_said_of_assumptions():
    assert "width=64: the conditions on m of App. C.1 require about 1e" in remarks(horizon=50)
    assert remarks(horizon=50).count("\n") == 0
    assert "Assumption 1 (Sec. 2): contexts have lengths from" in remarks("magic", horizon=50)
    assert "|h| <= 1 is assumed, but |h| reaches" in remarks("square", horizon=50)
    assert "network=standard: the theorems assume App. B's network=ntk" in remarks(network="standard", horizon=50)
    assert "weight=ramp: Theorem 1 and App. F bound the regret of weight=theory only" in remarks(weight="ramp")
    assert "reward_unit=rms: bonuses are nu times" in remarks(reward_unit="rms", horizon=50)
    assert not remarks(algorithm="neural-ucb")


def test_remarks_where_there_is_not_one_h():
    for part in ("clusters", "personal"):
        assert f"the same h, but with heterogeneity={part} each has its own" in remarks(heterogeneity=part, horizon=50)
        assert "heterogeneity" in remarks(heterogeneity=part, algorithm="dislinucb")
        assert not remarks(heterogeneity=part, algorithm="neural-ucb")
    for part in ("rotate", "switch"):
        assert f"h is assumed to stay the same, but drift={part}" in remarks(drift=part, horizon=50)
        assert "drift" in remarks(drift=part, algorithm="neural-ucb")
    assert "Alg. 1, line 8: a reward is observed" in remarks(feedback_delay=2, horizon=50)
    # Agents with domains have other contexts and the same h.
    assert "h is" not in remarks("routing", heterogeneity="domain", horizon=50)


class Twice(Silent):
    def block(self, agent, index):
        return super().block(agent, 0)


def test_contexts_that_repeat_leave_no_eigenvalue():
    assert "H has no lambda_0 > 0" in remarks(f"{__name__}:Twice", horizon=64)
    assert "H has no lambda_0 > 0" not in remarks(f"{__name__}:Silent", horizon=64, agents=1)


def test_points_without_an_active_unit_are_told():
    config = Config.preset("theory", width=20, seed=0, horizon=50)
    environment = make_environment(config)
    weights = Network(config, 10).initial_parameters(0)[:400].reshape(20, 20)[:10, :10].numpy()
    points = np.concatenate(
        [environment.domain(512), dimensions.receive_contexts(environment, config, range(8), assumptions.LOOKED_AT).x]
    )
    dead = int(((points @ weights.T) <= 0).all(1).sum())
    line = remarks(width=20, seed=0, horizon=50).splitlines()[-1]
    assert f"alpha is permanently 0 (Sec. 3.3): {dead} of 1,012 points checked ({dead / 1012:.2%})" in line
    # 512 + 8 * 50 * 4 points, each dead with probability 2^-(m/2): 2112 / 2^18 is the first below 1/100.
    assert "width=36 avoids it" in line
    assert not simulate(config.replace(training_steps=1, agents=2, horizon=20)).alpha.any()


def test_a_width_at_which_points_may_be_without_an_active_unit():
    # No domain point of seed 2 is, but 2^-10 of all contexts are.
    assert "alpha may become permanently 0" in remarks(width=20, seed=2, horizon=50)
    assert "alpha" not in remarks(width=36, seed=2, horizon=50)


def test_a_run_warns(caplog):
    config = Config.preset("theory", width=20, agents=2, horizon=4, training_steps=1)
    simulate(config)
    assert "App. C.1" in caplog.text
    assert "alpha is permanently 0" in caplog.text
    caplog.clear()
    simulate(config.replace(weight="ramp"))
    assert not caplog.text


def test_points_on_the_sphere_are_uniform():
    points = on_sphere(np.random.default_rng(0), 4000, 3)
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(points.T @ points / 4000, np.eye(3) / 3, atol=0.03)


def test_the_command_prints_numbers_sources_and_warnings(capsys):
    assert main(["theory", "--preset", "theory", "--environment", "square", "--agents", "2", "--horizon", "20"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "sqrt(2 h^T H^-1 h) on 160 contexts" in printed
    assert "│ App. F │" in printed
    assert "warning: Sec. 2: |h| <= 1 is assumed" in printed
    assert main(["theory", "--preset", "theory", "--network", "standard", "--horizon", "20"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
