"""Counting follows Sec. 3.4: what an agent sends and hears in a round, by hand."""

from __future__ import annotations

import pytest
from helpers import LIKE, plain

from fnbandit.config.registry import resolve_part
from fnbandit.core import Cost
from fnbandit.environments import make_environment
from fnbandit.federation.messages import Size, exchange_cost

P, N = 241, 5
"""10 x 20 + 20 + 20 + 1 parameters"""


def cost_of(signals: int | None = None, **settings) -> Cost:
    """A round of N agents."""
    config = plain(agents=N, **settings)
    replica = resolve_part("algorithm", config.algorithm).make_replica(config, make_environment(config), LIKE)
    (cost,) = replica.costs(3, [None], signals)
    return cost


def test_diagonal_matrices():
    cost = cost_of(diagonal=True)
    assert cost.numbers_up == N * (P + P + P + 1 + P)
    assert cost.numbers_down == N * (P + P + P + 1 + P)
    assert cost.bytes_up == N * (8 * (3 * P + 1) + 4 * P)


def test_fn_ucb_sends_every_inverse_to_everybody():
    one, every = (cost_of(diagonal=True, algorithm=name) for name in ("fn-ucb-less-comm", "fn-ucb"))
    assert every.numbers_up == one.numbers_up
    assert every.numbers_down == N * (P + P + P + 1 + N * P)
    assert every.bytes_down == N * (8 * (P + P + 1 + N * P) + 4 * P)


def test_full_matrices():
    cost = cost_of()
    assert cost.numbers_up == cost.numbers_down == N * (P**2 + P + P + 1 + P**2)
    assert (cost.messages_up, cost.messages_down) == (N, N)


def test_signals_are_messages_without_a_number():
    cost = cost_of(signals=2, trigger="logdet")
    assert (cost.messages_up, cost.messages_down) == (N + 2, 2 * N)
    assert cost.numbers_up == cost_of().numbers_up


@pytest.mark.parametrize(
    ("settings", "p"), [({"algorithm": "dislinucb"}, 10), ({"use_local": False}, P), ({"dim": 3, "width": 4}, None)]
)
def test_without_the_second_bound_it_is_w_and_b_only(settings, p):
    cost = cost_of(**settings)
    if p is None:  # with it: 3 x 4 + 4 + 4 + 1 parameters
        assert cost.numbers_up == N * (2 * 21**2 + 2 * 21 + 1)
    else:
        assert cost.numbers_up == cost.numbers_down == N * (p**2 + p)
        assert cost.bytes_up == cost.bytes_down == N * 8 * (p**2 + p)


def exchanges_of(contents: list, iteration: int = 20, **settings) -> list[Cost]:
    """The exchanges of a round in which N agents train one network of P parameters by sums over 100 observations."""
    config = plain(agents=N, reward_unit="rms", training_sample=100, **settings)
    replica = resolve_part("algorithm", config.algorithm).make_replica(config, make_environment(config), LIKE)
    return replica.costs(iteration, contents, None)


TRIANGLE = P * (P + 1) // 2


def test_gauss_newton_exchanges():
    """Up: the sum of squares, then g g^T, gradient and loss; down: theta and the unit, theta, then V, B and both."""
    costs = exchanges_of([None, "curvature", "curvature"], algorithm="fn-exact", federation="gauss-newton")
    assert [cost.numbers_up for cost in costs] == [N * 1, N * (TRIANGLE + P + 1), N * (TRIANGLE + P + 1)]
    assert [cost.numbers_down for cost in costs] == [N * (P + 1), N * P, N * (TRIANGLE + P + 1 + P)]
    assert costs[1].bytes_up == N * (8 * TRIANGLE + 4 * P + 8)
    assert all(cost.messages_up == cost.messages_down == N for cost in costs)


def test_gradient_exchanges_have_as_many_numbers_as_networks():
    costs = exchanges_of([None, "gradient", "gradient", "statistics"], algorithm="fn-exact", federation="gradients")
    assert [cost.numbers_up for cost in costs] == [N, N * (P + 1), N * (P + 1), N * (TRIANGLE + P + 1)]


def test_statistics_of_the_last_layer_are_a_few_hundred_numbers():
    """21 features, of 20 units and the bias."""
    costs = exchanges_of([None, "statistics"], algorithm="fn-linear", federation="average", training_start="aggregate")
    assert [cost.numbers_up for cost in costs] == [N * (1 + P), N * (21 * 22 // 2 + 21 + 1)]


def test_factored_curvature_is_the_factor_of_the_sample():
    """100 observations of 5 agents: 20 rows each, 20 (2 P - 20 + 1) / 2 numbers."""
    costs = exchanges_of([None, "curvature"], algorithm="fn-exact", federation="gauss-newton", messages="factored")
    assert costs[1].numbers_up == N * (20 * (2 * P - 19) // 2 + P + 1)


def test_single_precision_is_half_the_bytes():
    double, single = (cost_of(use_local=False, statistics_dtype=name) for name in ("float64", "float32"))
    assert double.numbers_up == single.numbers_up
    assert double.bytes_up == 2 * single.bytes_up


def test_a_round_by_hand():
    cost = exchange_cost([(2, Size(7, 50)), (1, Size(5, 40))], (4, Size(9, 70)), signals=None)
    assert cost == Cost(messages_up=3, messages_down=4, numbers_up=19, numbers_down=36, bytes_up=140, bytes_down=280)
