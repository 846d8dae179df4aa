"""Products whose bits depend neither on how many agents share a process nor on their place in it."""

from __future__ import annotations

import pytest
import torch
from helpers import LIKE, rows

from fnbandit.numerics import products
from fnbandit.numerics.battery import DTYPES, EVERY, OPERATIONS, QUICK, Inputs, Operation, find_breaks, processor

LARGE = [(p, k) for p in (861, 1301) for k in (1, 2, 8)]
"""Shapes for which Intel's library changes kernels, in the normal suite"""
IN_TILES = [operation for operation in OPERATIONS if "tiles" in operation.name]


def lines(breaks):
    return "\n".join(map(str, breaks))


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_a_part_of_a_batch_has_the_bits_of_the_whole(operation):
    assert not (found := lines(find_breaks([operation]))), found


@pytest.mark.parametrize("operation", IN_TILES, ids=lambda operation: operation.name)
def test_a_part_of_the_rows_has_the_bits_of_all_with_a_large_matrix(operation):
    assert not (found := lines(find_breaks([operation], LARGE))), found


@pytest.mark.long
@pytest.mark.parametrize("p", sorted({p for p, _ in EVERY}))
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_a_part_of_a_batch_has_the_bits_of_the_whole_for_many_shapes(operation, p):
    assert not (found := lines(find_breaks([operation], [shape for shape in EVERY if shape[0] == p]))), found


@pytest.mark.long
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("p", [241, 861, 1301])
@pytest.mark.parametrize("transposed", [True, False])
def test_any_number_of_whole_tiles_has_the_bits_of_512_rows(p, transposed, dtype):
    x, matrix = rows(512, p).to(dtype), rows(p, p, seed=1).to(dtype)
    matrix = matrix.mT if transposed else matrix
    every = products.multiply_tiles(x, matrix)
    for count in range(1, 512):
        some = products.multiply_rows(x[None, :count], matrix)[0]
        assert torch.equal(some, every[:count]), f"{count} rows of 512, p = {p}, {dtype}, on {processor()}"


def test_the_battery_has_the_shapes_that_broke_on_intel():
    named = {(p, k) for p in (5, 17, 25, 41, 61, 241) for k in (1, 2, 3, 4, 8, 12, 33, 100)}
    assert named <= set(EVERY)
    assert {(25, 1), (241, 1), (241, 8)} <= set(QUICK)


def test_the_battery_sees_an_operation_that_depends_on_the_batch():
    """A sum that starts at the other end where an agent is alone, and one that looks at who stands beside it."""

    def draw(draw, n, p, k):
        return Inputs((draw(n, k, p),))

    def turned(x):
        return (x if len(x) > 1 else x.flip(2)).cumsum(2)[:, :, -1]

    def beside(x):
        return x + 1e-12 * x.roll(1, 0)

    (found,) = find_breaks([Operation("turned", draw, turned)], [(25, 3)], [torch.float64])
    assert found[:5] == ("turned", "float64", 25, 3, 1) and found.processor == processor()
    assert str(found).startswith("turned: float64, p = 25, k = 3, 1 agents of a batch as copies, on ")
    both = list(find_breaks([Operation("beside", draw, beside)], [(5, 1), (17, 2)], [torch.float64]))
    assert [(broken.p, broken.k) for broken in both] == [(5, 1), (17, 2)]


def test_the_battery_sees_rows_in_unfinished_tiles():
    """Without `fill_tiles` the library's product depends on the number of rows: on every processor seen so far."""
    bare = Operation(
        "bare",
        lambda draw, n, p, k: Inputs((draw(n, k, p),), (draw(p, p),)),
        lambda x, matrix: (x.flatten(0, 1) @ matrix.mT).unflatten(0, x.shape[:2]),
    )
    assert list(find_breaks([bare]))


@pytest.mark.parametrize("columns", [1, 2, 5])
@pytest.mark.parametrize("inner", [1, 2, 30])
def test_products_by_hand(inner, columns):
    left, right, base = rows(4, 3, inner), rows(4, inner, columns, seed=1), rows(4, 3, columns, seed=2)
    expected = torch.einsum("nkp,npq->nkq", left, right)
    out = torch.empty_like(expected)
    torch.testing.assert_close(products.multiply(left, right), expected)
    assert products.multiply(left, right, out=out) is out
    torch.testing.assert_close(out, expected)
    total = 0.5 * base - 2 * expected
    torch.testing.assert_close(products.add_product(base, left, right, scale=-2, keep=0.5), total)
    products.add_product(base, left, right, scale=-2, keep=0.5, out=base)
    torch.testing.assert_close(base, total)


@pytest.mark.parametrize("p", [1, 30, 600, 1100])
@pytest.mark.parametrize("k", [1, 3])
def test_downdates_by_hand(p, k):
    matrix, z = rows(3, p, p), rows(3, k, p, seed=1)
    expected = matrix - torch.einsum("nkp,nkq->npq", z, z)
    products.downdate(matrix, z)
    torch.testing.assert_close(matrix, expected)


@pytest.mark.parametrize(("p", "q"), [(1, 5), (30, 1), (30, 720), (1100, 600), (600, 1100)])
def test_rows_times_a_shared_matrix_by_hand(p, q):
    matrix = rows(p, q)
    for n, k in ((1, 1), (3, 4), (9, 7)):
        x = rows(n, k, p, seed=k)
        expected = torch.einsum("nkp,pq->nkq", x, matrix)
        torch.testing.assert_close(products.multiply_rows(x, matrix), expected)
        torch.testing.assert_close(products.multiply_rows(x, matrix.mT.contiguous().mT), expected)


def test_unfinished_tiles_are_refused():
    for count in (8, 20):
        with pytest.raises(AssertionError, match=f"{count} rows are not whole tiles"):
            products.multiply_tiles(rows(count, 5), rows(5, 5))


def test_solutions_and_sums_by_hand():
    g, right = rows(2, 4, 6), rows(2, 4, 3, seed=1)
    positive = torch.einsum("nkp,nlp->nkl", g, g) + torch.eye(4)
    factor = products.factorize(positive)
    torch.testing.assert_close(torch.einsum("nkl,nml->nkm", factor, factor), positive)
    torch.testing.assert_close(torch.einsum("nkl,nlm->nkm", factor, products.solve_lower(factor, right)), right)
    total = torch.eye(6, dtype=torch.float64)
    assert products.add_gram(total, g[0], -0.5) is total
    torch.testing.assert_close(total, torch.eye(6) - 0.5 * torch.einsum("kp,kq->pq", g[0], g[0]), check_dtype=False)


def test_chunks_cover_all_and_fit_the_work_space():
    numbers = products.WORKSPACE // 8 // 3  # three agents' numbers fit in double precision
    assert list(products.chunks(7, numbers, LIKE)) == [slice(0, 3), slice(3, 6), slice(6, 7)]
    assert list(products.chunks(2, 10 * products.WORKSPACE, LIKE)) == [slice(0, 1), slice(1, 2)]
    assert products.fits_workspace(products.WORKSPACE // 8, LIKE)
    assert not products.fits_workspace(products.WORKSPACE // 8 + 1, LIKE)
