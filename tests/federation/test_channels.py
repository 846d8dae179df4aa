"""Forms in which messages travel: what arrives, and what it costs."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from helpers import assert_same, interrupt, plain

from fnbandit import simulate
from fnbandit.core import Upload
from fnbandit.covariance.full import triangular_factor
from fnbandit.federation.channels import Chain
from fnbandit.federation.messages import Contents
from fnbandit.runs import Checkpointing, LocalRun

SMALL = {"agents": 4, "horizon": 70, "dim": 5, "width": 8, "ramp": 25, "training_rate": 0.02}
UP = Contents(covariances=1, vectors=1, inverses=1, networks=1, scalars=1)


def channel(name: str, parameters: int = 10, **settings):
    return Chain(plain(messages=name, agents=4, **settings), parameters, lambda x: x)


def test_exact_counts_as_the_paper_does():
    # W_new and V_local^-1 are 100 numbers each, B_new 10 and alpha 1 in double precision, theta 10 in single.
    size = channel("exact").size_upload(UP, rows=3)
    assert (size.numbers, size.bytes) == (221, 8 * 211 + 4 * 10)
    down = Contents(covariances=1, vectors=1, inverses=4, networks=1, scalars=1)
    assert channel("exact").size_download(down, rows=3).numbers == 100 + 10 + 4 * 100 + 10 + 1
    assert channel("exact", diagonal=True).size_upload(UP, rows=3).numbers == 10 + 10 + 10 + 10 + 1


def test_factored_counts_triangles():
    # The factor of 3 rows: 10 + 9 + 8 numbers; V_local^-1 follows from it.
    assert channel("factored").size_upload(UP, rows=3).numbers == 27 + 10 + 10 + 1
    assert channel("factored").size_upload(UP, rows=50).numbers == 55 + 10 + 10 + 1
    # Down: the factor of 4 agents' 2 rows, 10 + 9 + ... + 3, and a mean inverse's triangle.
    assert channel("factored").size_download(UP, rows=2).numbers == 52 + 55 + 10 + 10 + 1
    every = Contents(covariances=1, vectors=1, inverses=4, networks=1, scalars=1)
    assert channel("factored").size_download(every, rows=2).numbers == 52 + 4 * 19 + 10 + 10 + 1


def test_quantized_counts_bits():
    # 27 + 10 + 10 numbers of 5 bits, three scales of 32, one alpha of 64: 395 bits.
    size = channel("quantized", message_bits=5).size_upload(UP, rows=3)
    assert size.bytes == math.ceil((47 * 5 + 3 * 32 + 64) / 8) == 50
    assert channel("quantized").size_download(UP, rows=3) == channel("factored").size_download(UP, rows=3)


def test_the_factor_says_what_the_rows_say():
    rows = torch.randn(3, 4, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    factor = triangular_factor(rows, lambda x: x)
    torch.testing.assert_close(factor.mT @ factor, rows.mT @ rows)
    assert torch.equal(factor, factor.triu())


@pytest.mark.parametrize("settings", [{}, {"algorithm": "fn-ucb"}, {"trigger": "logdet"}, {"diagonal": True},
                                      {"algorithm": "dislinucb", "trigger": "logdet"}], ids=str)  # fmt: skip
def test_factored_makes_the_same_choices_with_fewer_bytes(settings):
    config = plain(**SMALL | settings)
    exact, factored = simulate(config), simulate(config.replace(messages="factored"))
    np.testing.assert_array_equal(exact.arms, factored.arms)
    assert exact.rounds == factored.rounds
    assert factored.communication.total.bytes_up <= exact.communication.total.bytes_up
    if not config.diagonal:
        assert factored.communication.total.bytes_up < exact.communication.total.bytes_up


def test_rounding_is_right_on_average_and_stays_on_the_grid():
    values = torch.tensor([[0.3, -1.0, 0.017, 0.0], [5.0, 2.5, -4.9, 1e-9]], dtype=torch.float64)
    quantized = channel("quantized", message_bits=4)
    sent = [Upload(range(2), t, 0, values[:, 0], values, values) for t in range(4000)]
    draws = torch.stack([quantized.links[-1].send_statistics(upload).moments for upload in sent])
    steps = torch.tensor([[1 / 7], [5 / 7]], dtype=torch.float64)
    whole = draws / steps
    torch.testing.assert_close(whole, whole.round(), atol=1e-9, rtol=0)
    assert (draws.abs() <= values.abs().amax(1, keepdim=True) + 1e-12).all()
    # Four standard deviations of the mean of 4000 draws, each off by at most half a step in deviation.
    assert ((draws.mean(0) - values).abs() < 4 * 0.5 * steps / 4000**0.5).all()
    assert not torch.equal(draws[0], draws[1])


@pytest.mark.parametrize("diagonal", [False, True])
def test_quantized_runs_are_the_same_bits_in_any_grouping(diagonal):
    config = plain(**SMALL, messages="quantized", message_bits=6, diagonal=diagonal)
    one, two = simulate(config), simulate(config, groups=2)
    np.testing.assert_array_equal(one.arms, two.arms)
    np.testing.assert_array_equal(one.theta, two.theta)
    exact = simulate(config.replace(messages="exact"))
    assert not np.array_equal(one.theta, exact.theta)
    assert one.communication.total.bytes_up < exact.communication.total.bytes_up / 4
    # Sixteen bits are nearly exact: the networks agree to about the rounding of single parameters.
    fine = simulate(config.replace(message_bits=16, horizon=5))
    np.testing.assert_allclose(fine.theta, simulate(config.replace(messages="exact", horizon=5)).theta, atol=1e-3)


def test_a_chain_passes_its_links_in_order():
    config = plain(**SMALL, messages="quantized")
    one, other = simulate(config), simulate(config.replace(messages="factored, quantized"))
    np.testing.assert_array_equal(one.arms, other.arms)
    np.testing.assert_array_equal(one.theta, other.theta)
    assert one.communication.total == other.communication.total
    assert channel("factored+quantized").size_upload(UP, rows=3) == channel("quantized").size_upload(UP, rows=3)


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ("quantized, factored", "messages='quantized, factored': factored must precede quantized"),
        ("factored, factored", "messages='factored, factored': factored is given twice"),
        ("factored, quantised", "messages='quantised'.*did you mean 'quantized'"),
    ],
)
def test_a_chain_that_does_not_compose_is_refused(messages, problem):
    with pytest.raises(ValueError, match=problem):
        plain(messages=messages)


@pytest.mark.parametrize("algorithm", ["fn-ucb-less-comm", "fn-ucb-async"])
def test_the_state_of_a_link_is_in_the_checkpoint(algorithm, tmp_path):
    config = plain(**SMALL, messages="factored, own_parts:Feedback", algorithm=algorithm, trigger="period", period=4)
    whole = simulate(config)
    assert not np.array_equal(whole.theta, simulate(config.replace(messages="factored")).theta)
    assert_same(simulate(config, groups=3), whole)
    interrupt(config, tmp_path, segments=6)
    resumed = LocalRun(config, Checkpointing(str(tmp_path)), resume=True).result()
    np.testing.assert_array_equal(resumed.arms, whole.arms)
    np.testing.assert_array_equal(resumed.theta, whole.theta)
