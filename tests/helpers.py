"""What several test modules use."""

from __future__ import annotations

import functools
import tempfile
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from fnbandit import Config
from fnbandit.config.registry import build, resolve_part
from fnbandit.environments import make_environment
from fnbandit.federation.server import BarrierServer
from fnbandit.networks.network import Network
from fnbandit.numerics.device import one_thread
from fnbandit.runs import Checkpointing, LocalRun
from fnbandit.simulation.clock import make_clock
from fnbandit.simulation.loop import make_simulation
from fnbandit.simulation.population import LocalPopulation
from fnbandit.storage.checkpoints import CHECKPOINT_FOLDER

LIKE = torch.empty(0, dtype=torch.float64)
EVERY_ROUND = {"seconds": 0.0, "rounds": 1}
"""Checkpoints after every segment that can have one"""

PLAIN = {
    "agents": 8, "regularization": 0.1, "exploration_global": 0.1, "exploration_local": 0.1, "weight": "ramp",
    "ramp": 100, "trigger": "always", "threshold": 5.0, "training_optimizer": "gd", "training_steps": 30,
    "training_subsample": 0.0, "training_rate": 0.1, "training_schedule": "constant", "training_fade": 0.0,
    "training_decay": "lambda", "training_start": "aggregate", "reward_unit": "one",
}  # fmt: skip
"""Gradient descent and a ramp, without what the tuned defaults add to the paper's algorithm"""


def plain(**settings) -> Config:
    """A config with PLAIN's values where `settings` has none."""
    return Config.complete(PLAIN | settings)


def rows(*shape: int, seed: int = 0) -> torch.Tensor:
    """Standard normal numbers."""
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


def theta_0(config: Config) -> np.ndarray:
    """The initial parameters that a simulation of this config starts from."""
    environment = make_environment(config)
    return Network(config, environment.dim).initial_parameters(config.seed).numpy()


def run_with_scores(config: Config, groups: int = 1, monkeypatch=None):
    """Segments of a simulation, and the scores of every context in the iterations that counted."""
    seen: dict[tuple[int, int], np.ndarray] = {}
    algorithm = resolve_part("algorithm", config.algorithm)
    original = algorithm.scores

    def recording(self, iteration, contexts):
        result = original(self, iteration, contexts)
        seen[iteration, self.agents.start] = result.values.numpy().copy()
        return result

    monkeypatch.setattr(algorithm, "scores", recording)
    with one_thread():
        population = LocalPopulation(config, make_environment(config), make_clock(config), groups)
        segments = list(make_simulation(config, make_clock(config), population).segments())
    starts = [batch.agents.start for batch in population.batches]
    scores = np.stack([np.concatenate([seen[t, start] for start in starts]) for t in range(1, config.horizon + 1)])
    return segments, scores


def make_group(config, environment, agents, replica=None):
    """The agents of a config's algorithm in one group."""
    return build("algorithm", config.algorithm, config, environment, agents, replica)


def settle(group, iteration):
    """Bring a group to the iteration of a round; its upload."""
    group.rewind(iteration)
    group.train()
    return group.replica.reduce(group.upload())


def communicate(group, server=None):
    """A round of the one group that there is: its upload, and the server's download."""
    server = server or BarrierServer(group.config, group.replica)
    upload = settle(group, group.iteration)
    download = server.exchange([upload])
    while not download.is_last:
        group.replica.apply([download], own=group.agents)
        download = server.exchange([group.replica.reduce(group.exchange(download))])
    group.replica.apply([download], own=group.agents)
    group.start_epoch()
    return upload, download


def assert_same(one, other):
    """The same bits in all that a simulation gives."""
    for name in ("arms", "rewards", "regret", "alpha"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    assert one.rounds == other.rounds
    # As text, because without training a round's loss is NaN; a float's text has all its bits.
    assert repr(one.round_records) == repr(other.round_records)
    assert one.communication.total == other.communication.total
    assert (one.theta is None) == (other.theta is None)
    if one.theta is not None:
        np.testing.assert_array_equal(one.theta, other.theta)


def contiguous(segments, horizon):
    """The segments, each iteration from the first to the last once."""
    bounds = [0, *(segment.end for segment in segments)]
    assert [segment.start for segment in segments] == bounds[:-1]
    assert bounds[-1] == horizon
    assert all(len(segment.trace.arms) == segment.end - segment.start > 0 for segment in segments)
    return segments


def interrupt(config, directory, segments):
    """Run a few segments with a checkpoint after each that can have one, then stop; where the last checkpoint is."""
    run = LocalRun(config, Checkpointing(str(directory), **EVERY_ROUND))
    stream = run.segments()
    assert len(list(islice(stream, segments))) == segments
    stream.close()
    return steps(directory)[-1]


def steps(directory):
    """The iterations of a directory's checkpoints."""
    return sorted(int(path.name.removeprefix("step-")) for path in (Path(directory) / CHECKPOINT_FOLDER).glob("step-*"))


def folder(directory, step):
    """Where the checkpoint of an iteration is."""
    return directory / CHECKPOINT_FOLDER / f"step-{step:09d}"


def put_store(path):
    """Put a new MLflow store at a path; a copy, because making one takes a second."""
    Path(path).write_bytes(_new_store())


@functools.cache
def _new_store():
    from workflows.tracking.mlflow_store import make_store

    with tempfile.TemporaryDirectory() as directory:
        make_store(f"sqlite:///{directory}/mlflow.db")
        return (Path(directory) / "mlflow.db").read_bytes()


def gone(pids):
    """Whether these processes end within some seconds."""
    import psutil

    processes = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    return not psutil.wait_procs(processes, timeout=20)[1]


def assert_records_equal(one, other, count):
    """The same runs in two folders of a study, with the same rows."""
    from fnbandit.storage.records import find_runs, read_run

    runs = [path.relative_to(one) for path in find_runs(one)]
    assert len(runs) == count
    for run in runs:
        assert read_run(Path(one) / run).finished
        assert read_run(Path(one) / run).trace.equals(read_run(Path(other) / run).trace)
