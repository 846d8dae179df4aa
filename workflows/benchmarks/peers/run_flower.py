"""The shared training by Flower's simulation on two Ray actors, in the environment of Flower."""

from __future__ import annotations

import sys
from typing import Any

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict  # type: ignore[import-not-found]
from flwr.clientapp import ClientApp  # type: ignore[import-not-found]
from flwr.serverapp import Grid, ServerApp  # type: ignore[import-not-found]
from flwr.serverapp.strategy import FedAvg  # type: ignore[import-not-found]
from flwr.simulation import run_simulation  # type: ignore[import-not-found]

from workflows.benchmarks.peers.shared_task import RoundTimes, count_processor_seconds, draw_clients, draw_network
from workflows.benchmarks.peers.torch_client import ClientNetwork, train_alone


def make_client_app(clients: int) -> Any:
    """Return the app of all clients."""
    app = ClientApp()

    @app.train()
    def train_client(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        x, y = draw_clients(clients)
        client, network = int(context.node_config["partition-id"]), ClientNetwork()
        network.replace(message.content["arrays"].to_numpy_ndarrays())
        train_alone(network, x[client], y[client])
        metrics = MetricRecord({"num-examples": len(y[client])})
        content = RecordDict({"arrays": ArrayRecord(network.arrays()), "metrics": metrics})
        return Message(content=content, reply_to=message)

    return app


def make_server_app(clients: int, rounds: int, times: RoundTimes) -> Any:
    """Return the app of the server, which stamps the start and the end of every round."""
    app = ServerApp()

    @app.main()
    def serve(grid: Grid, context: Context) -> None:
        strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients)
        result = strategy.start(
            grid, ArrayRecord(draw_network()), num_rounds=rounds, evaluate_fn=lambda *_: times.stamp()
        )
        times.report(result.arrays.to_numpy_ndarrays())

    return app


def simulate_flower(clients: int, rounds: int) -> None:
    """Train all clients in every round, without evaluation."""
    times = RoundTimes(clients, count_processor_seconds)
    run_simulation(
        make_server_app(clients, rounds, times),
        make_client_app(clients),
        num_supernodes=clients,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": 2}},
    )


if __name__ == "__main__":
    simulate_flower(*map(int, sys.argv[1:]))
