"""One client's training in plain torch, and the same for one client after the other. Needs torch and numpy alone."""

from __future__ import annotations

import sys

import numpy as np
import torch

from workflows.benchmarks.peers.shared_task import (
    ADAM_RATE,
    ADAM_STEPS,
    HIDDEN_UNITS,
    NETWORK_INPUTS,
    RoundTimes,
    draw_clients,
    draw_network,
)


class ClientNetwork(torch.nn.Module):
    """A network with one hidden layer."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = torch.nn.Linear(NETWORK_INPUTS, HIDDEN_UNITS)
        self.output = torch.nn.Linear(HIDDEN_UNITS, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.output(torch.relu(self.hidden(x)))[:, 0]

    def replace(self, layers: list[np.ndarray]) -> None:
        """Replace all weights and biases."""
        with torch.no_grad():
            for parameter, values in zip(self.parameters(), layers, strict=True):
                parameter.copy_(torch.from_numpy(values))

    def arrays(self) -> list[np.ndarray]:
        """Return copies of all weights and biases."""
        return [parameter.detach().numpy().copy() for parameter in self.parameters()]


def train_alone(network: ClientNetwork, x: np.ndarray, y: np.ndarray) -> None:
    """Make ADAM_STEPS steps of Adam on all rows of one client."""
    optimizer = torch.optim.Adam(network.parameters(), lr=ADAM_RATE)
    inputs, targets = torch.from_numpy(x), torch.from_numpy(y)
    for _ in range(ADAM_STEPS):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(network(inputs), targets).backward()
        optimizer.step()


def train_in_turn(clients: int, rounds: int) -> None:
    """Train one client after the other, and average."""
    torch.set_num_threads(1)
    (x, y), layers, network, times = draw_clients(clients), draw_network(), ClientNetwork(), RoundTimes(clients)
    times.stamp()
    for _ in range(rounds):
        total = [np.zeros_like(layer) for layer in layers]
        for inputs, targets in zip(x, y, strict=True):
            network.replace(layers)
            train_alone(network, inputs, targets)
            for sums, values in zip(total, network.arrays(), strict=True):
                sums += values
        layers = [sums / clients for sums in total]
        times.stamp()
    times.report(layers)


if __name__ == "__main__":
    train_in_turn(*map(int, sys.argv[1:]))
