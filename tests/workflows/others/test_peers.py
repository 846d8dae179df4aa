"""The training that other simulators are compared on: fnbandit and plain torch end at the same loss."""

from __future__ import annotations

import json

import numpy as np
import pytest

from workflows.benchmarks.peers import __main__ as peers
from workflows.benchmarks.peers.run_fnbandit import train_together
from workflows.benchmarks.peers.shared_task import compute_loss, count_processor_seconds, draw_clients, draw_network
from workflows.benchmarks.peers.torch_client import ClientNetwork, train_in_turn


def test_fnbandit_and_plain_torch_do_the_same_training(capsys):
    losses = []
    for simulate in (train_together, train_in_turn):
        simulate(3, 2)
        found = json.loads(capsys.readouterr().out)
        assert found["cpu"] > 0 and found["wall"] > 0
        losses.append(found["loss"])
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
    assert losses[0] < 0.5 * compute_loss(draw_network(), 3)


def test_the_loss_is_that_of_torch():
    import torch

    (x, y), network = draw_clients(2), ClientNetwork()
    network.replace(draw_network())
    with torch.no_grad():
        predicted = network(torch.from_numpy(x.reshape(-1, x.shape[2])))
        loss = torch.nn.functional.mse_loss(predicted, torch.from_numpy(y.ravel())).item()
    assert compute_loss(draw_network(), 2) == pytest.approx(loss, rel=1e-5)


def test_different_losses_are_refused():
    peers.check_losses({"a": {"loss": 0.1}, "b": {"loss": 0.10009}})
    with pytest.raises(SystemExit, match="did not do the same training: losses {'a': 0.1, 'b': 0.1002}"):
        peers.check_losses({"a": {"loss": 0.1}, "b": {"loss": 0.1002}})


def test_processor_time_of_a_family_contains_its_children():
    import subprocess
    import sys

    code = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ntime.sleep(60)"
    before = count_processor_seconds()
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        spent = count_processor_seconds() - before
        child.kill()
    assert spent >= 0.25
    assert np.isfinite(spent)
