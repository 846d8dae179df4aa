"""States: joined, split, moved between processes; nothing is lost, nothing is shared."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch

from fnbandit.numerics.state import add_prefix, as_arrays, as_tensors, join_states, on_host, remove_prefix, split_state


def state(agents: range) -> dict[str, torch.Tensor]:
    """Numbers that say whose they are."""
    who = torch.tensor(list(agents))
    return {"arms": who[:, None] * 10 + torch.arange(4), "theta": who[:, None].double()}


def assert_equal(one, other):
    assert one.keys() == other.keys()
    for name in one:
        assert one[name].dtype == other[name].dtype
        assert torch.equal(one[name], other[name]), name


@pytest.mark.parametrize("bounds", [(0, 5), (0, 2, 5), (0, 1, 2, 3, 4, 5)])
def test_joined_and_split_again(bounds):
    parts = [range(a, b) for a, b in pairwise(bounds)]
    whole = join_states([state(part) for part in parts])
    assert_equal(whole, state(range(5)))
    for agents in (range(0, 1), range(2, 5), range(5)):
        assert_equal(split_state(whole, agents), state(agents))


def test_what_one_learner_holds_for_all_stays_whole():
    pooled = {"theta": torch.ones(1, 3), "arms": torch.ones(5, 3)}
    assert_equal(split_state(pooled, range(5)), pooled)


def test_what_agents_hold_by_number_is_joined_and_split_by_number():
    one = {"arms": torch.zeros(1, 2), "agent.0.rows": torch.ones(3), "replica.rows": torch.ones(2)}
    other = {"arms": torch.ones(1, 2), "agent.1.rows": torch.ones(5), "replica.rows": torch.ones(2)}
    whole = join_states([one, other])
    assert whole["arms"].shape == (2, 2)
    assert_equal(split_state(whole, range(1)), one)
    assert_equal(split_state(whole, range(1, 2)), other)


def test_parts_have_names_of_their_own():
    both = add_prefix("one", {"rows": torch.ones(1)}) | add_prefix("oneself", {"rows": torch.zeros(2)})
    assert set(both) == {"one.rows", "oneself.rows"}
    assert_equal(remove_prefix("one", both), {"rows": torch.ones(1)})
    nested = add_prefix("outer", add_prefix("inner", {"x": torch.ones(1)}))
    assert_equal(remove_prefix("inner", remove_prefix("outer", nested)), {"x": torch.ones(1)})


def test_copies_share_no_memory():
    base = torch.arange(6.0)
    views = {"left": base[:3], "right": base[3:]}
    copies = on_host(views)
    assert_equal(copies, views)
    assert len({copy.untyped_storage().data_ptr() for copy in (*copies.values(), base)}) == 3


def test_arrays_and_back():
    original = {**state(range(3)), "last_round": torch.tensor(7), "empty": torch.zeros(2, 0)}
    arrays = as_arrays(original)
    assert all(isinstance(array, np.ndarray) for array in arrays.values())
    for array in arrays.values():
        array.setflags(write=False)
    back = as_tensors(arrays)
    assert_equal(back, original)
    back["theta"].add_(1)
    assert original["theta"][0] == 0
