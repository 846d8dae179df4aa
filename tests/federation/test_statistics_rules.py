"""Rules for statistics of agents that may lie: honest rows pass, other statistics fail, the same bits anywhere."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.optimize
import torch
from helpers import assert_same, interrupt, plain

from fnbandit import simulate
from fnbandit.config.registry import build
from fnbandit.covariance.own_values import OwnMatrices
from fnbandit.federation.claims import Claims
from fnbandit.runs import Checkpointing, LocalRun
from fnbandit.storage.records import read_run


def claim(agents: int = 9, rows: int = 12, parameters: int = 4, seed: int = 0) -> tuple[Claims, np.ndarray]:
    """Statistics of agents with rewards of one linear model, and that model."""
    draw = np.random.default_rng(seed)
    theta = draw.normal(size=parameters)
    x = draw.normal(size=(agents, rows, parameters))
    y = x @ theta + 0.05 * draw.normal(size=(agents, rows))
    values = (np.full(agents, float(rows)), x.swapaxes(1, 2) @ x, np.einsum("nk,nkp->np", y, x), (y**2).sum(1))
    counts, covariance, moments, squares = map(torch.from_numpy, values)
    return Claims(counts, covariance, moments, squares), theta


def judge(rule: str, claims: Claims, usual: float = 0.0, **settings) -> list[bool]:
    order = torch.from_numpy(np.random.default_rng(3).permutation(len(claims.rows)))
    made = build("aggregation_statistics", rule, plain(regularization=0.1, **settings))
    return made.judge(claims, order, usual).tolist()


def change(claims: Claims, agents: list[int], **fields) -> Claims:
    """The claims with functions of the values of some agents."""
    new = claims.values
    for name, function in fields.items():
        new[name] = new[name].clone()
        for agent in agents:
            new[name][agent] = function(new[name][agent])
    return Claims(**new)


@pytest.mark.parametrize(
    ("rule", "rows", "seed"), [*itertools.product(["certificate", "trimmed"], [1, 3, 30], range(4))]
)
def test_honest_agents_pass(rule, rows, seed):
    claims, _ = claim(agents=12, rows=rows, parameters=6, seed=seed)
    assert all(judge(rule, claims, usual=float((claims.squares / claims.rows).max())))


def test_statistics_that_no_rows_have_fail():
    claims, _ = claim()
    lies = {
        "not positive": {
            "covariance": lambda w: w - 2 * torch.eye(4, dtype=torch.float64) * torch.linalg.eigvalsh(w)[0]
        },
        "too large": {"covariance": lambda w: 40 * w},
        "too small": {"covariance": lambda w: w / 40},
        "outside of the rows": {"covariance": lambda w: 10 * torch.diag(torch.tensor([1.0, 1, 1, 0])).double()},
        "more reward than squares": {"moments": lambda b: 1.5 * b},
        "more squares than others": {"squares": lambda s: 40 * s},
        "negative squares": {"squares": lambda s: -s},
        "not a number": {"moments": lambda b: torch.full_like(b, torch.nan)},
    }
    for words, fields in lies.items():
        assert judge("certificate", change(claims, [2, 7], **fields)) == [i not in (2, 7) for i in range(9)], words
    without = Claims(claims.rows, claims.covariance, claims.moments)
    assert not judge("certificate", change(without, [4], moments=lambda b: 5 * b))[4]


def test_what_passes_is_what_some_rows_have():
    """The converse: W^(1/2) as rows, with the rewards W^(-1/2) B, gives W and B with squares B^T W^-1 B."""
    claims, _ = claim(agents=1, seed=5)
    values, vectors = np.linalg.eigh(claims.covariance[0].numpy())
    rows = np.sqrt(values)[:, None] * vectors.T
    rewards = (vectors.T @ claims.moments[0].numpy()) / np.sqrt(values)
    np.testing.assert_allclose(rows.T @ rows, claims.covariance[0].numpy(), rtol=1e-9)
    np.testing.assert_allclose(rows.T @ rewards, claims.moments[0].numpy(), rtol=1e-9)
    factor = OwnMatrices.factor(claims.covariance, torch.zeros(1, dtype=torch.float64))
    assert float(OwnMatrices.energies(factor, claims.moments)) == pytest.approx(float((rewards**2).sum()), rel=1e-9)
    assert float((rewards**2).sum()) <= float(claims.squares[0])


def test_flipped_rewards_pass_the_certificate_and_are_trimmed():
    claims, _ = claim(agents=10, rows=20)
    flipped = change(claims, [1, 4, 8], moments=lambda b: -b)
    assert all(judge("certificate", flipped))
    assert judge("trimmed", flipped) == [i not in (1, 4, 8) for i in range(10)]
    assert judge("trimmed", change(claims, [1, 4, 7, 8], moments=lambda b: -b)) == [
        i not in (1, 4, 7, 8) for i in range(10)
    ]


def test_nobody_is_dropped_before_rewards_are_explained():
    claims, _ = claim(agents=10, rows=1, parameters=40)
    assert all(judge("trimmed", change(claims, [1, 4], moments=lambda b: -b)))


def test_the_median_of_solutions():
    claims, theta = claim(agents=10, rows=40)
    flipped = change(claims, [0, 5], moments=lambda b: -3 * b)
    rule = build("aggregation_statistics", "geometric-median", plain(regularization=0.1, trim=0.2))
    order = torch.arange(10)
    moments = rule.combine(flipped, order).numpy()
    W, B = flipped.covariance.numpy(), flipped.moments.numpy()
    total = W.sum(0) + 0.1 * np.eye(4)
    # Five groups, of agents i and i + 5: the first has both liars.
    solutions = [np.linalg.solve(W[i] + W[i + 5] + 0.1 / 5 * np.eye(4), B[i] + B[i + 5]) for i in range(5)]
    found = scipy.optimize.minimize(
        lambda z: sum(np.sqrt((z - s) @ total @ (z - s)) for s in solutions), theta, tol=1e-12
    )
    np.testing.assert_allclose(np.linalg.solve(total, moments), found.x, rtol=1e-3)
    np.testing.assert_allclose(found.x, theta, rtol=0.1)


TASK = {"horizon": 40, "dim": 4, "width": 5, "arms": 3, "regularization": 0.5, "training_rate": 0.02, "seed": 3}
ALGORITHMS = [
    {"algorithm": "fn-ucb-less-comm"},
    {"algorithm": "fn-ucb-less-comm", "diagonal": True},
    {"algorithm": "fn-ucb-less-comm", "federation": "exact", "trigger": "period"},
    {"algorithm": "fn-exact", "federation": "exact", "trigger": "logdet", "reward_unit": "rms"},
    {"algorithm": "fn-linear", "federation": "gradients", "trigger": "period"},
    {"algorithm": "dislinucb", "participation": "fraction", "participation_fraction": 0.6, "trigger": "period"},
    {"algorithm": "fedigw", "trigger": "period"},
]


@pytest.mark.parametrize("settings", ALGORITHMS, ids=str)
def test_checks_change_no_choice_of_honest_agents(settings):
    """W_i one by one, V of their sum and inverses derived from W_i are the paper's statistics."""
    config = plain(**TASK | settings, agents=6)
    rule = {} if settings["algorithm"] == "fedigw" else {"aggregation_statistics": "certificate"}
    checked, plainly = simulate(config.replace(**rule)), simulate(config)
    np.testing.assert_array_equal(checked.arms, plainly.arms)
    assert checked.rounds == plainly.rounds
    assert checked.communication.total == plainly.communication.total
    assert not any(record.dropped for record in checked.round_records)


ATTACKED = [
    {"attack": "noise", "attack_scale": 0.1, "algorithm": "fn-ucb-less-comm", "trigger": "logdet"},
    {"attack": "overconfident", "algorithm": "fn-ucb-less-comm", "diagonal": True, "aggregation": "krum", "trim": 0.3},
    {"attack": "alpha-one", "algorithm": "fn-ucb-less-comm", "weight": "earned", "aggregation_statistics": "trimmed"},
    {"attack": "reward-flip", "algorithm": "fn-exact", "federation": "exact", "aggregation_statistics": "trimmed",
     "newton_steps": 2},
    {"attack": "sign-flip", "algorithm": "fn-linear", "federation": "gradients", "aggregation": "median",
     "training_steps": 3},
    {"attack": "alie", "algorithm": "dislinucb", "participation": "fraction",
     "aggregation_statistics": "geometric-median", "trim": 0.3},
    {"attack": "flood", "algorithm": "dislinucb", "trigger": "logdet", "aggregation_statistics": "certificate"},
    {"attack": "mimic", "algorithm": "fedigw", "aggregation": "neighbour-mixing"},
]  # fmt: skip


@pytest.mark.parametrize("settings", ATTACKED, ids=str)
def test_the_same_bits_in_any_grouping_and_after_a_resume(settings, tmp_path):
    config = plain(**TASK | {"trigger": "period", "period": 4} | settings, agents=7, byzantine_share=0.3)
    whole = simulate(config)
    assert whole.regret.shape == (40, 5)
    assert_same(simulate(config, groups=3), whole)
    interrupt(config, tmp_path, 4)
    assert_same(LocalRun(config, Checkpointing(str(tmp_path)), resume=True).result(), whole)


def test_a_linear_bandit_with_a_liar_by_hand():
    """Disjoint steps of the server, with numpy: W and B of honest agents, and -2 B of the liar."""
    config = plain(algorithm="dislinucb", trigger="period", period=5, agents=4, horizon=20, dim=3, regularization=0.3,
                   attack="sign-flip", attack_scale=2.0, byzantine_share=0.25, noise=0.1)  # fmt: skip
    from fnbandit.environments import make_environment

    environment = make_environment(config)
    blocks = [environment.block(agent, 0) for agent in range(4)]
    V_last, B_last = 0.3 * np.eye(3), np.zeros(3)
    own = [(np.zeros((3, 3)), np.zeros(3)) for _ in range(4)]
    arms = np.zeros((20, 4), dtype=int)
    for t in range(20):
        for i, block in enumerate(blocks):
            W, B = own[i]
            inverse, x = np.linalg.inv(V_last + W), block.contexts[t]
            bonus = config.exploration_global * np.sqrt(0.3) * np.sqrt(np.einsum("kd,de,ke->k", x, inverse, x))
            arm = int(np.argmax(x @ inverse @ (B_last + B) + bonus))
            reward = block.means[t, arm] + block.noise[t]
            own[i] = W + np.outer(x[arm], x[arm]), B + reward * x[arm]
            arms[t, i] = arm
        if (t + 1) % 5 == 0:
            V_last = V_last + sum(W for W, _ in own)
            B_last = B_last + sum(B for _, B in own[:3]) - 2 * own[3][1]
            own = [(np.zeros((3, 3)), np.zeros(3)) for _ in range(4)]
    np.testing.assert_array_equal(simulate(config).arms, arms[:, :3])


def test_records_name_the_agents_that_were_dropped(tmp_path):
    config = plain(algorithm="dislinucb", trigger="period", agents=5, horizon=30, attack="overconfident",
                   byzantine_share=0.2, attack_scale=50.0, aggregation_statistics="certificate", seed=1)  # fmt: skip
    result = simulate(config)
    folder = result.save(tmp_path / "run")
    record = read_run(folder)
    assert record.rounds.column("dropped").to_pylist() == [[4]] * 3
    assert record.rounds.column("dropped_share").to_pylist() == [0.2] * 3
    assert set(record.trace.column("agent").to_pylist()) == {0, 1, 2, 3}
    assert record.summary["honest_agents"] == 4
    assert record.summary["regret"] == pytest.approx(float(result.regret.sum(0).mean()))
    assert_same(record.result, result) if result.theta is None else None
