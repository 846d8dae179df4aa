"""States: joined, split, moved between processes; nothing is lost, nothing is shared."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch

from fnbandit.state import as_arrays, as_tensors, joined_states, on_host, part_of_state, prefixed, unprefixed


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
    whole = joined_states([state(part) for part in parts])
    assert_equal(whole, state(range(5)))
    for agents in (range(0, 1), range(2, 5), range(5)):
        assert_equal(part_of_state(whole, agents, total=5), state(agents))


def test_what_one_learner_holds_for_all_stays_whole():
    pooled = {"theta": torch.ones(1, 3), "arms": torch.ones(5, 3)}
    part = part_of_state(pooled, range(2, 4), total=5)
    assert (part["theta"].shape, part["arms"].shape) == ((1, 3), (2, 3))


def test_parts_have_names_of_their_own():
    both = prefixed("one", {"rows": torch.ones(1)}) | prefixed("oneself", {"rows": torch.zeros(2)})
    assert set(both) == {"one.rows", "oneself.rows"}
    assert_equal(unprefixed("one", both), {"rows": torch.ones(1)})
    nested = prefixed("outer", prefixed("inner", {"x": torch.ones(1)}))
    assert_equal(unprefixed("inner", unprefixed("outer", nested)), {"x": torch.ones(1)})


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
