"""Sums over agents: one order in every distribution of the agents, right numbers, and no more than the tree's parts."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from helpers import LIKE, assert_same, interrupt, make_group, plain, rows, settle
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.transport import to_arrays
from fnbandit import simulate
from fnbandit.algorithms.federated import FederatedGroup
from fnbandit.core import Rows, Triangle
from fnbandit.covariance import full
from fnbandit.covariance.estimate import FullEstimate
from fnbandit.covariance.gram import gram_triangle, sum_of_squares, symmetric
from fnbandit.environments import make_environment
from fnbandit.numerics.tree import LEAF, TreeSum, gather, sum_vectors
from fnbandit.runs import Checkpointing, LocalRun
from fnbandit.simulation.partition import split_at_subtrees, split_evenly
from fnbandit.storage.checkpoints import CheckpointStore


def itself(x: torch.Tensor) -> torch.Tensor:
    return x


class Letters(str):
    """Stands for values [n, ..] of n agents, a letter each; a sum is in brackets."""

    def __getitem__(self, part) -> Letters:
        return Letters(str(self)[part])

    def add_(self, other: str) -> Letters:
        return Letters(f"({self!s} {other!s})")

    def contiguous(self) -> Letters:
        return self


def test_the_order_by_hand(monkeypatch):
    monkeypatch.setattr("fnbandit.numerics.tree.cat", lambda parts: Letters("".join(parts)))
    letters, tree = Letters("abcdefghijk"), TreeSum(11, 2, itself)
    assert tree.parts(range(11), letters) == ["(((ab cd) (ef gh)) (ij k))"]
    # Half a leaf, a leaf, a subtree, half a leaf; the rest; who completes it writes the same.
    ends = {range(1): ["a"], range(1, 9): ["b", "cd", "(ef gh)", "i"], range(9, 11): ["j", "k"]}
    for agents, expected in ends.items():
        assert tree.parts(agents, letters[agents.start : agents.stop]) == expected
    assert tree.total(ends.items()) == "(((ab cd) (ef gh)) (ij k))"
    assert gather(11).parts(range(1, 9), letters[1:9]) == ["bcdefghi"]
    assert gather(11).total([(range(5), ["abcde"]), (range(5, 11), ["fghijk"])]) == "abcdefghijk"


def test_pieces_by_hand():
    tree = sum_vectors(100)
    assert tree.pieces(range(100)) == [range(100)]
    assert tree.pieces(range(5)) == [range(5)]
    assert tree.pieces(range(5, 100)) == [range(5, 16), range(16, 32), range(32, 64), range(64, 100)]
    assert tree.pieces(range(90, 97)) == [range(90, 96), range(96, 97)]
    assert tree.pieces(range(64, 96)) == [range(64, 96)]
    assert tree.pieces(range(96, 100)) == [range(96, 100)]


@settings(max_examples=60, deadline=None)
@given(agents=st.integers(1, 90), cuts=st.sets(st.integers(1, 89), max_size=6), kind=st.sampled_from(["sum", "square"]))
def test_the_same_bits_for_any_distribution(agents, cuts, kind):
    values = rows(agents, 3, 5) if kind == "square" else rows(agents, 5)
    tree = TreeSum(agents, LEAF, gram_triangle) if kind == "square" else sum_vectors(agents)
    bounds = [0, *sorted(cut for cut in cuts if cut < agents), agents]
    parts = [range(a, b) for a, b in itertools.pairwise(bounds)]
    sent = [(part, tree.parts(part, values[part.start : part.stop].clone())) for part in parts]
    total = tree.total(sent)
    assert torch.equal(total, tree.total([(range(agents), tree.parts(range(agents), values))]))
    if kind == "sum":
        np.testing.assert_allclose(total, values.numpy().sum(0), rtol=1e-12, atol=1e-12)
    else:
        g = values.flatten(0, 1).numpy()
        np.testing.assert_allclose(symmetric(total, 5), g.T @ g, rtol=1e-12, atol=1e-12)
    for part, tensors in sent:
        # Two parts of leaves, and at most two subtrees of every size.
        assert len(tensors) <= 2 + 2 * (1 + math.ceil(math.log2(max(1, len(part) / LEAF))))


@pytest.mark.parametrize(
    ("agents", "length", "leaf"),
    [
        (16, 1000, 16),  # one leaf: everybody's rows
        (100, 4, 100),  # 400 rows, fewer than 2 x 241
        (100, 5, 32),  # 32 x 5 rows are more than 121, 16 x 5 are not
        (1000, 1, 128),
        (1000, 7, 32),
        (1000, 8, 16),
        (1000, 500, 16),
    ],
)
def test_where_rows_become_a_triangle(agents, length, leaf):
    assert sum_of_squares(agents, length, 241, itself).leaf == leaf


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_sum_of_w_says_what_rows_say(dtype):
    """Rounds of rows and of sums in turn: V^-1 and V^-1 B against numpy, and the diagonal that triggers look at."""
    agents, p, regularization = 20, 6, 0.3
    estimate = FullEstimate(p, regularization, LIKE.to(dtype), itself, track_diagonal=True)
    account = estimate.account(agents)
    dense, moments = regularization * np.eye(p), np.zeros(p)
    forms = []
    for step, k in enumerate([2, 1, 5, 1]):
        # With 20 agents and p = 6 even one row each is more than 12; every other round comes as rows.
        way = estimate.sum(agents, k) if step % 2 == 0 else gather(agents, Rows)
        new = rows(agents, k, p, seed=step).to(dtype)
        news = account.combine(way.total([(range(agents), way.parts(range(agents), new))]))
        forms.append(type(news))
        moments = moments + step + 1.0
        estimate.apply(news, torch.from_numpy(moments).to(dtype))
        g = new.flatten(0, 1).numpy()
        dense = dense + g.T @ g
        close = {"rtol": 1e-9, "atol": 1e-12} if dtype == torch.float64 else {"rtol": 2e-4, "atol": 2e-6}
        np.testing.assert_allclose(estimate.covariance.inverse[0], np.linalg.inv(dense), **close)
        np.testing.assert_allclose(estimate.solution, np.linalg.solve(dense, moments), **close)
        np.testing.assert_allclose(estimate.diagonal[0], np.diag(dense), rtol=close["rtol"])
        copy, other = FullEstimate(p, regularization, LIKE.to(dtype), itself, track_diagonal=True), estimate.state()
        copy.load({name: tensor.clone() for name, tensor in other.items()})
        accounts = copy.account(agents)
        accounts.load(account.state())
        assert torch.equal(accounts.state()["whole"], account.state()["whole"])
        assert estimate.solution.dtype == estimate.covariance.inverse.dtype == dtype
    assert forms == [Triangle, Rows, Triangle, Rows]


def test_a_leaf_of_agents_needs_no_account():
    estimate = FullEstimate(6, 0.3, LIKE, itself)
    account = estimate.account(LEAF)
    assert account.state() == {}
    news = rows(LEAF, 2, 6)
    assert torch.equal(account.combine(Rows(news)).values, news.flatten(0, 1))


def test_the_mean_inverse_falls_by_the_sum_of_changes():
    agents, p = 40, 5
    mean = full.MeanInverse(agents, p, 0.5, LIKE, itself)
    local = mean.local(range(agents))
    dense = np.stack([0.5 * np.eye(p)] * agents)
    x = rows(2, 3, p, seed=9)
    for seed, everybodys in enumerate([False, True, False]):
        new = rows(agents, 2, p, seed=seed)
        dense += new.mT.numpy() @ new.numpy()
        change = local.absorb(new)
        way = gather(agents, Rows) if everybodys else mean.sum(2)
        total = way.total([(range(agents), way.parts(range(agents), change))])
        assert isinstance(total, Rows if everybodys else Triangle)
        mean.apply(mean.combine(total), own=range(0))
        squares = np.einsum("nkp,apq,nkq->nka", x, np.linalg.inv(dense), x).mean(-1)
        np.testing.assert_allclose(mean.deviation(x), np.sqrt(squares), rtol=1e-9)


VARIANTS = [
    {"trigger": "logdet", "threshold": 4.0},
    {"trigger": "always", "statistics_dtype": "float32"},
    {"trigger": "diagonal", "threshold": 20.0},
    {"trigger": "logdet", "threshold": 4.0, "diagonal": True},
    {"messages": "quantized", "trigger": "period", "period": 5},
    {"aggregation": "trimmed-mean", "server_momentum": 0.5, "trigger": "period"},
    {"algorithm": "fn-ucb", "trigger": "period", "weight": "theory"},
    {"algorithm": "dislinucb", "trigger": "logdet", "threshold": 1.0},
]


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_any_grouping_of_many_agents_gives_the_same_bits(variant):
    config = plain(**({"agents": 37, "horizon": 15, "dim": 3, "width": 4, "ramp": 8} | variant))
    whole = simulate(config)
    assert whole.rounds
    for groups in (3, 37):
        assert_same(whole, simulate(config, groups=groups))


@pytest.mark.parametrize("arms", [4, 3])
def test_how_many_agents_are_worked_on_at_once_does_not_matter(monkeypatch, arms):
    config = plain(agents=21, horizon=9, dim=3, width=4, arms=arms, trigger="period", period=4)
    whole = simulate(config)
    # 8 bytes x arms x 21 parameters: five agents, or seven.
    monkeypatch.setattr("fnbandit.numerics.products.WORKSPACE", 8 * 21 * 21)
    assert_same(whole, simulate(config))


def test_the_servers_account_survives_a_checkpoint(tmp_path):
    config = plain(agents=20, horizon=15, trigger="period", period=3, dim=2, width=4, ramp=6)
    interrupt(config, tmp_path, segments=3)
    assert "account.whole" in CheckpointStore(str(tmp_path)).latest().server
    assert_same(LocalRun(config, Checkpointing(str(tmp_path)), resume=True).result(), simulate(config))


def test_groups_end_where_subtrees_do_if_that_is_nearly_even():
    assert split_at_subtrees(64, 2) == [range(0, 32), range(32, 64)]
    # 63 agents each, or subtrees of 64: a few groups less.
    assert split_at_subtrees(100_000, 1600) == [range(a, min(a + 64, 100_000)) for a in range(0, 100_000, 64)]
    # 112 agents in the largest, 100 if leaves are shared by 99 pairs of groups.
    assert {len(part) for part in split_at_subtrees(10_000, 100)} == {96, 112}
    assert sum(len(part) for part in split_at_subtrees(10_000, 100)) == 10_000
    # One leaf to share is less than four agents more.
    assert split_at_subtrees(1000, 2) == split_evenly(1000, 2)
    assert [len(part) for part in split_at_subtrees(100, 3)] == [32, 32, 36]
    # 32 are far more than 25, and 16 than 1.
    assert split_at_subtrees(100, 4) == split_evenly(100, 4)
    assert split_at_subtrees(6, 6) == split_evenly(6, 6) == [range(i, i + 1) for i in range(6)]


def test_what_a_process_sends_does_not_grow_with_its_agents():
    config = plain(agents=400, horizon=10, dim=4, width=6, trigger="period", period=8)
    sizes = []
    for agents in (range(64), range(128), range(256)):
        group = make_group(config, make_environment(config), agents)
        assert isinstance(group, FederatedGroup)
        group.advance(8)
        sent = vars(to_arrays(settle(group, 8)))
        sizes.append(
            {name: sum(part.nbytes for part in sent[name]) for name in ("covariance", "moments", "theta", "inverse")}
        )
    p = 6 * 5 + 6 + 1
    triangle = p * (p + 1) // 2
    assert sizes[0] == {"covariance": 8 * triangle, "moments": 8 * p, "theta": 4 * p, "inverse": 8 * triangle}
    assert sizes[0] == sizes[1] == sizes[2]
