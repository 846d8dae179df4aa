"""The shared training by fnbandit: `python -m workflows.benchmarks.peers.run_fnbandit CLIENTS ROUNDS`."""

from __future__ import annotations

import sys

import numpy as np
import torch

from fnbandit import Config
from fnbandit.networks.network import Network
from fnbandit.networks.training import train
from fnbandit.numerics.device import one_thread
from fnbandit.numerics.tree import sum_vectors
from workflows.benchmarks.peers.shared_task import (
    ADAM_RATE,
    ADAM_STEPS,
    HIDDEN_UNITS,
    NETWORK_INPUTS,
    RoundTimes,
    draw_clients,
    draw_network,
)


def train_together(clients: int, rounds: int) -> None:
    """Train all clients' networks as one batch, and average them in the tree that all layouts share."""
    config = Config(
        width=HIDDEN_UNITS, dim=NETWORK_INPUTS, training_optimizer="adam", training_rate=ADAM_RATE,
        training_decay=0, training_schedule="constant", training_fade=0, training_loss="mean",
    )  # fmt: skip
    network, (x, y) = Network(config, NETWORK_INPUTS), draw_clients(clients)
    w1, b1, w2, b2 = draw_network()
    rows = [np.column_stack([w1, b1]), np.column_stack([w2, b2])]
    theta = torch.from_numpy(np.concatenate([layer.ravel() for layer in rows]))
    inputs = network.inputs(torch.from_numpy(x))
    inputs = torch.nn.functional.pad(inputs, (0, 0, 0, network.padded_dim - inputs.shape[1]))
    targets, everyone, times = torch.from_numpy(y), range(clients), RoundTimes(clients)
    times.stamp()
    for _ in range(rounds):
        found = train(config, network, theta.expand(clients, -1), theta, inputs, targets, ADAM_STEPS)
        tree = sum_vectors(clients)
        theta = tree.total([(everyone, tree.parts(everyone, found.theta))]) / clients
        times.stamp()
    first, second = (layer[0].numpy() for layer in network.layers(theta, 1))
    times.report([first[:, :-1], first[:, -1], second[:, :-1], second[:, -1]])


if __name__ == "__main__":
    with one_thread():
        train_together(*map(int, sys.argv[1:]))
