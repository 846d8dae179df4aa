"""Whole runs on a stand-in for a GPU: no tensor is on the wrong device, host and device meet in two places alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers import plain

from fnbandit.config.registry import ALGORITHMS
from fnbandit.numerics.device import put_values, read_scalars, read_values
from workflows.benchmarks.stand_in import WrongDeviceError, count_device_work, device_stand_in

SMALL = {"agents": 3, "horizon": 7, "dim": 4, "width": 4, "ramp": 3, "training_steps": 2, "trigger": "period",
         "period": 3}  # fmt: skip
TUNED = {"training_optimizer": "adam", "training_steps": "auto", "training_cap": 2, "weight": "earned",
         "reward_unit": "rms", "training_subsample": 0.5}  # fmt: skip
CLOCK = {"clock": "lognormal", "jitter": 0.5, "availability": 0.8}
EXACT = {"algorithm": "fn-exact", "federation": "exact", "horizon": 13, "period": 6, "newton_steps": 2}
VARIANTS = [
    *({"algorithm": name} for name in ALGORITHMS),
    TUNED,
    {"trigger": "logdet", "hidden_layers": 3, "diagonal": True, "training_optimizer": "adam"},
    {"training_loss": "paper", "network": "ntk", "aggregation": "geometric-median", "server_momentum": 0.5},
    {"messages": "quantized", "aggregation": "trimmed-mean"},
    {"messages": "factored", "trigger": "budget", "aggregation": "median"},
    {"algorithm": "fn-ucb", "weight": "theory"},
    {"algorithm": "fn-ucb", "weight": "theory", "diagonal": True},
    {"trigger": "logdet", "feedback_delay": 2},
    {"trigger": "logdet", "diagonal": True},
    {"trigger": "diagonal"},
    {"trigger": "determinant"},
    {"trigger": "geometric"},
    {"trigger": "always", "horizon": 5},
    {"weight": "constant", "hidden_layers": 2, "aggregate": False, "training_start": "own"},
    {"use_local": False},
    {"use_global": False},
    {"first_iteration_only": True},
    {"participation": "fraction", "participation_fraction": 0.5, "averagings": 2},
    {"participation": "availability", **CLOCK},
    {"participation": "fraction", "participation_fraction": 0.5, "diagonal": True, "messages": "quantized"},
    {"federation": "gauss-newton", "reward_unit": "rms", "training_sample": 8},
    {"federation": "gradients", "participation": "fraction", "participation_fraction": 0.5},
    EXACT,
    {**EXACT, "diagonal": True, "messages": "quantized"},
    {**EXACT, "algorithm": "fn-linear", "participation": "fraction", "reward_unit": "rms"},
    {"algorithm": "dislinucb", "trigger": "logdet"},
    {"algorithm": "fn-ucb-async", "trigger": "logdet", "staleness": "polynomial", **TUNED, **CLOCK},
    {"algorithm": "fn-ucb-async", "weight": "theory", "messages": "quantized"},
    {"algorithm": "fedlinucb", "trigger": "determinant"},
    # Two leaves of agents, whose rows are summed.
    {**TUNED, "agents": 20, "trigger": "diagonal"},
    {"agents": 20, "messages": "quantized", "statistics_dtype": "float32"},
    {"agents": 20, "diagonal": True, "server_momentum": 0.5},
    {"agents": 20, **EXACT},
]
"""Every algorithm, trigger, rule of aggregation, participation, federation and weight, every link and schedule"""


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_a_whole_run_keeps_to_its_device(variant):
    config = plain(**(SMALL | variant))
    _, work, rounds = count_device_work(config, batches=2 if config.trigger == "logdet" else 1)
    assert work.launches > config.horizon
    assert work.reads > 0
    assert rounds > 0 or config.algorithm not in ("fn-ucb", "fn-ucb-less-comm", "fn-exact", "fn-linear")


@pytest.mark.parametrize("algorithm", ["fn-ucb-less-comm", "fn-exact", "neural-ucb", "linear-ts"])
def test_work_of_an_iteration_does_not_depend_on_the_number_of_agents(algorithm):
    few, many = (
        count_device_work(plain(**SMALL | {"algorithm": algorithm, "agents": agents, "period": 20}))[1]
        for agents in (4, 400)
    )
    assert (few.copies, few.reads, few.launches) == (many.copies, many.reads, many.launches)
    assert many.kilobytes == pytest.approx(100 * few.kilobytes)


def test_agents_that_do_not_wait_share_copies():
    few, many = (
        count_device_work(plain(**SMALL | {"algorithm": "fedlinucb", "agents": agents, "trigger": "period"}))
        for agents in (2, 12)
    )
    assert few[1].copies == many[1].copies
    assert many[1].reads / many[2] <= few[1].reads / few[2]  # one for each round, and some for all agents


def test_copies_and_reads_are_counted():
    with device_stand_in() as work:
        x = put_values(np.ones((2, 3)), torch.device("cuda"), torch.float32)
        assert (x.shape, x.dtype, x.device.type) == ((2, 3), torch.float32, "cuda")
        total = (x[:, 0] + 1).sum()
        assert read_values(x[1]).shape == (3,)
        assert len(read_scalars(total, total)) == 2
    assert (work.copies, work.kilobytes, work.reads) == (1, 0.024, 2)
    assert work.launches == 2 + 3  # +, sum; two conversions to float64 and their concatenation


@pytest.mark.parametrize(
    "fault",
    [
        lambda x: x + torch.zeros(3),
        lambda x: x.copy_(torch.zeros(3)),
        lambda x: x.__setitem__(0, torch.zeros(())),
        lambda x: x[torch.arange(2)],
        lambda x: x[np.arange(2)],
        lambda x: torch.zeros(3).to(x),
        lambda x: x + torch.from_numpy(np.zeros(3)),
        lambda x: torch.tensor([1.0], device="cuda"),
        lambda x: bool(x.sum() > 0),
        lambda x: float(x[0]),
        lambda x: x.tolist(),
        lambda x: x[x > 0],
    ],
)  # fmt: skip
def test_faults_that_a_cpu_hides_raise(fault):
    with device_stand_in(), pytest.raises((WrongDeviceError, RuntimeError)):
        fault(torch.empty(3, device="cuda"))


def test_values_are_those_that_tensors_have():
    x = torch.arange(6.0).view(2, 3)
    assert (read_values(x) == x.numpy()).all()
    assert read_scalars(torch.tensor([0.1]), torch.tensor(2.0)) == [float(torch.tensor(0.1)), 2.0]
    assert put_values(np.ones(2), torch.device("cpu"), torch.float32).dtype == torch.float32
