"""The shared training by pfl-research, in the environment of pfl, which `make bench-peers` makes."""

from __future__ import annotations

import sys
from typing import Any

import torch
from pfl.aggregate.simulate import SimulatedBackend  # type: ignore[import-not-found]
from pfl.algorithm.base import NNAlgorithmParams  # type: ignore[import-not-found]
from pfl.algorithm.federated_averaging import FederatedAveraging  # type: ignore[import-not-found]
from pfl.callback.base import TrainingProcessCallback  # type: ignore[import-not-found]
from pfl.data.dataset import Dataset  # type: ignore[import-not-found]
from pfl.data.federated_dataset import FederatedDataset  # type: ignore[import-not-found]
from pfl.data.sampling import get_user_sampler  # type: ignore[import-not-found]
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams  # type: ignore[import-not-found]
from pfl.metrics import Metrics, Weighted  # type: ignore[import-not-found]
from pfl.model.pytorch import PyTorchModel  # type: ignore[import-not-found]

from workflows.benchmarks.peers.shared_task import ADAM_RATE, ADAM_STEPS, RoundTimes, draw_clients, draw_network
from workflows.benchmarks.peers.torch_client import ClientNetwork


class PflNetwork(ClientNetwork):
    """The network with the two methods that pfl asks for."""

    def loss(self, x: torch.Tensor, y: torch.Tensor, eval: bool = False) -> torch.Tensor:
        self.train(not eval)
        return torch.nn.functional.mse_loss(self(x), y)

    @torch.no_grad()
    def metrics(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, Any]:
        return {"loss": Weighted(float(self.loss(x, y, eval=True)) * len(y), len(y))}


class StampRounds(TrainingProcessCallback):
    """Stamps the end of every round."""

    def __init__(self, times: RoundTimes) -> None:
        self._times = times

    def after_central_iteration(self, aggregate_metrics: Any, model: Any, *, central_iteration: int) -> Any:
        self._times.stamp()
        return False, Metrics()


def simulate_pfl(clients: int, rounds: int) -> None:
    """Train all clients in every round, without evaluation."""
    torch.set_num_threads(1)
    x, y = draw_clients(clients)
    network, times = PflNetwork(), RoundTimes(clients)
    network.replace(draw_network())
    data = FederatedDataset(
        lambda client: Dataset(raw_data=[x[client], y[client]], user_id=str(client)),
        get_user_sampler("minimize_reuse", list(range(clients))),
    )
    model = PyTorchModel(network, torch.optim.Adam, torch.optim.SGD(network.parameters(), lr=1.0))
    times.stamp()
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=rounds, evaluation_frequency=rounds + 1, train_cohort_size=clients,
            val_cohort_size=None,
        ),
        backend=SimulatedBackend(training_data=data, val_data=data),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_num_epochs=ADAM_STEPS, local_learning_rate=ADAM_RATE, local_batch_size=None
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=None),
        callbacks=[StampRounds(times)],
    )  # fmt: skip
    times.report(network.arrays())


if __name__ == "__main__":
    simulate_pfl(*map(int, sys.argv[1:]))
