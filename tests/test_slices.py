"""Products whose bits depend neither on how many agents share a process nor on their place in it."""

from __future__ import annotations

import pytest
import torch
from helpers import LIKE, rows

from fnbandit.slices import WORKSPACE, few_at_once, product, small, whole_tiles


@pytest.mark.parametrize("p", [30, 720])
@pytest.mark.parametrize("q", [1, 5, 64, None], ids=["1 row", "5 rows", "64 rows", "a matrix"])
def test_one_matrix_for_all_gives_each_agent_the_same_bits(p, q):
    matrix = rows(p, p) if q is None else rows(q, p).mT
    for k in (1, 2, 3, 4, 7, 10):
        x = rows(9, k, p, seed=k)
        together = whole_tiles(x) @ matrix
        torch.testing.assert_close(together[: 9 * k], x.flatten(0, 1) @ matrix)
        for i in range(9):
            for j in (1, 2):
                alone = whole_tiles(x[i : i + j].clone()) @ matrix
                assert torch.equal(alone[: j * k], together[i * k : (i + j) * k])


@pytest.mark.parametrize("columns", [1, 2, 5])
def test_a_product_of_one_agent_is_its_part_of_all(columns):
    left, right = rows(4, 3, 30), rows(4, 30, columns, seed=1)
    together = product(left, right)
    torch.testing.assert_close(together, torch.einsum("nkp,npq->nkq", left, right))
    for i in range(4):
        assert torch.equal(product(left[i : i + 1], right[i : i + 1]), together[i : i + 1])


def test_few_at_once_covers_all_and_fits_the_work_space():
    numbers = WORKSPACE // 8 // 3  # three agents' numbers fit in double precision
    assert list(few_at_once(7, numbers, LIKE)) == [slice(0, 3), slice(3, 6), slice(6, 7)]
    assert list(few_at_once(2, 10 * WORKSPACE, LIKE)) == [slice(0, 1), slice(1, 2)]
    assert small(torch.empty(WORKSPACE // 8, dtype=torch.float64))
    assert not small(torch.empty(WORKSPACE // 8 + 1, dtype=torch.float64))
