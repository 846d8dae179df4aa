"""Attackers: their claims by hand, their rewards, their regret that does not count, and combinations refused."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from helpers import plain

from fnbandit import Config, simulate
from fnbandit.config.registry import build
from fnbandit.covariance.own_values import OwnDiagonals, OwnMatrices
from fnbandit.federation.alpha import make_alpha
from fnbandit.federation.claims import Claims, Scene

W = torch.tensor([[4.0, 2.0], [2.0, 4.0], [6.0, 2.0], [3.0, 3.0]], dtype=torch.float64)
"""Diagonals of the W_i of four agents, of which the last lies"""
B = torch.tensor([[1.0, 0.0], [3.0, 0.0], [2.0, 6.0], [1.0, 1.0]], dtype=torch.float64)
ROWS = torch.tensor([2.0, 2.0, 1.0, 3.0], dtype=torch.float64)


def lie(attack: str, scale: float = 1.0, **fields: torch.Tensor) -> Claims:
    config = plain(attack=attack, attack_scale=scale, agents=4, byzantine_share=0.25, weight="earned")
    numbers = torch.arange(4)
    scene = Scene(0, 5, 1, numbers[3:], numbers[:3], torch.tensor([1.0, 1.0], dtype=torch.float64), OwnDiagonals,
                  make_alpha(config))  # fmt: skip
    claims = Claims(**{"rows": ROWS, "covariance": W, "moments": B} | fields)
    found = build("attack", attack, config).lie(claims, scene)
    for name, value in found.values.items():
        assert torch.equal(value[:3], claims.values[name][:3]), name
    return found


def test_directions_by_hand():
    # The honest B have the mean (2, 2) and the standard deviations (1, sqrt(12)).
    assert lie("sign-flip", 3.0).moments[3].tolist() == [-3.0, -3.0]
    assert lie("ipm").moments[3].tolist() == [-4.0, -4.0]
    assert lie("alie", 2.0).moments[3].tolist() == pytest.approx([5.0, 2 + 3 * 12**0.5])
    assert lie("mimic").moments[3].tolist() == [1.0, 0.0]
    assert lie("zero").moments[3].tolist() == lie("anxious").moments[3].tolist() == [0.0, 0.0]
    for attack in ("sign-flip", "ipm", "alie"):
        assert lie(attack).covariance[3].tolist() == [3.0, 3.0]


def test_networks_by_hand():
    # theta_sync is (1, 1): changes are (1, -1), (3, -1), (2, 5) of the honest, mean (2, 1), and (0, 0) of the liar.
    assert lie("sign-flip", 2.0, theta=B).theta[3].tolist() == [1.0, 1.0]
    assert lie("sign-flip", 2.0, theta=2 * B).theta[3].tolist() == [-1.0, -1.0]
    assert lie("ipm", 0.5, theta=B + 1).theta[3].tolist() == [-1.0, -1.0]
    assert lie("zero", theta=B).theta[3].tolist() == [0.0, 0.0]


def test_matrices_by_hand():
    # Honest traces are 6, 6 and 8 over 5 rows in all: a squared length of 4; the liar has 3 rows.
    assert lie("overconfident", 0.5).covariance[3].tolist() == [6.0, 6.0]
    assert lie("anxious").covariance[3].tolist() == [0.0, 0.0]
    whole = OwnMatrices.identities(torch.tensor([2.0], dtype=torch.float64), 2)
    assert whole.tolist() == [[[2.0, 0.0], [0.0, 2.0]]]


def test_noise_has_the_size_of_the_values_and_is_a_function_of_the_seed():
    values = torch.full((4, 4000), 3.0, dtype=torch.float64)
    noise = lie("noise", 0.5, moments=values, covariance=values).moments[3] - 3
    assert float(noise.std()) == pytest.approx(1.5, rel=0.05)
    assert abs(float(noise.mean())) < 0.1
    assert torch.equal(lie("noise", 0.5, moments=values, covariance=values).moments[3] - 3, noise)


@pytest.mark.parametrize(("attack", "value"), [("alpha-zero", 0.0), ("alpha-one", 1.0)])
@pytest.mark.parametrize("weight", ["earned", "theory"])
def test_uploads_that_argue_for_an_alpha(attack, value, weight):
    rule = make_alpha(plain(weight=weight))
    uploads = torch.full((4, 2), 0.3, dtype=torch.float64) if weight == "earned" else torch.full((4,), 0.3)
    uploads[3] = rule.argue_for(value, uploads[3:])[0]
    honest = 0.3 if weight == "theory" else 1.0
    # Of theory's alphas the server takes the least, so that a liar can make it 0 only.
    expected = min(value, honest) if weight == "theory" else value
    assert float(rule.combine(uploads)) == pytest.approx(expected, abs=1e-6)


def test_rewards_of_attackers():
    config = plain(attack="promote", attack_arm=1, environment="cosine", arms=3)
    means = torch.tensor([[0.5, 0.2, 0.1], [0.0, 0.4, 1.0]])
    rewards, arms = torch.tensor([0.6, 0.4]), torch.tensor([0, 1])
    assert build("attack", "promote", config).poison(rewards, means, arms).tolist() == pytest.approx([0.1, 1.0])
    # 0.5 + 0.1 - 0.6 and 0 + 1 - 0.4
    assert build("attack", "reward-flip", config).poison(rewards, means, arms).tolist() == pytest.approx([0.0, 0.6])


SMALL = {"agents": 5, "horizon": 30, "dim": 3, "width": 4, "byzantine_share": 0.5, "training_steps": 3}


def test_regret_is_that_of_honest_agents():
    config = plain(**SMALL, attack="reward-flip", trigger="period", period=40)
    result, honest = simulate(config), simulate(config.replace(attack="none"))
    assert config.honest_agents == 3
    assert result.regret.shape == (30, 3)
    # Without a round, honest agents never hear of the liars.
    np.testing.assert_array_equal(result.arms, honest.arms[:, :3])
    np.testing.assert_array_equal(result.rewards, honest.rewards[:, :3])
    assert "of the 3 honest agents" in result.summary()


def test_a_flood_asks_in_every_iteration_until_the_server_checks():
    settings = {**SMALL, "attack": "flood", "byzantine_share": 0.2, "algorithm": "dislinucb", "threshold": 50.0}
    flooded = simulate(plain(**settings, trigger="logdet"))
    assert flooded.rounds == list(range(1, 31))
    checked = simulate(plain(**settings, trigger="logdet", aggregation_statistics="certificate"))
    honest = simulate(plain(**settings | {"attack": "none"}, trigger="logdet"))
    assert checked.round_records[0].dropped == (4,)
    assert checked.round_records[0].iteration == 1
    assert len(checked.rounds) <= len(honest.rounds) + 2
    assert all(record.dropped == () for record in checked.round_records[1:])


REFUSED = [
    ({"algorithm": "fn-ucb", "attack": "sign-flip"}, "algorithm=fn-ucb sends every inverse"),
    ({"algorithm": "fn-ucb", "aggregation_statistics": "trimmed"}, "fn-ucb-less-comm sends the server's"),
    ({"attack": "flood", "trigger": "always"}, "trigger=always has no reports"),
    ({"algorithm": "dislinucb", "attack": "alpha-one"}, "no agent sends alpha"),
    ({"attack": "alpha-zero", "weight": "ramp"}, "no agent sends alpha"),
    ({"algorithm": "fedigw", "attack": "anxious"}, "sends no statistics"),
    ({"aggregation_statistics": "certificate", "messages": "quantized"}, "messages=quantized changes honest numbers"),
    ({"attack": "promote", "attack_arm": 4, "arms": 4}, "attack_arm=4: expected a number from 0 to 3"),
    ({"algorithm": "fn-ucb-async", "attack": "zero"}, "attack: has no effect with algorithm=fn-ucb-async"),
    ({"attack": "none", "byzantine_share": 0.2}, "byzantine_share: has no effect with attack=none"),
    ({"attack": "zero", "attack_scale": 2.0}, "attack_scale: has no effect with attack=zero"),
    ({"attack": "zero", "byzantine_share": 1.0}, "byzantine_share=1.0: expected a number"),
    ({"attack": "sign-flips"}, "attack='sign-flips' is unknown"),
]


@pytest.mark.parametrize(("settings", "message"), REFUSED, ids=str)
def test_bad_combinations_are_refused_in_one_line(settings, message):
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        simulate(Config(horizon=2, **settings))
    assert "\n" not in str(error.value)
