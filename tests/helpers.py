"""What several test modules use."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import torch

from fnbandit import Config
from fnbandit.algorithms.fn_ucb import FNUCB
from fnbandit.checkpoints import FOLDER
from fnbandit.environments import make_environment
from fnbandit.network import Network
from fnbandit.rounds.server import Server
from fnbandit.runs import Checkpointing, LocalRun
from fnbandit.simulation import LocalCohort, one_thread, run_segments

LIKE = torch.empty(0, dtype=torch.float64)
EVERY_ROUND = {"seconds": 0.0, "rounds": 1}
"""Checkpoints after every segment that can have one"""


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
    original = FNUCB.scores

    def recording(self, iteration, contexts):
        result = original(self, iteration, contexts)
        seen[iteration, self.agents.start] = result.values.numpy().copy()
        return result

    monkeypatch.setattr(FNUCB, "scores", recording)
    with one_thread():
        cohort = LocalCohort(config, make_environment(config), groups)
        segments = list(run_segments(config, cohort, Server(config, cohort.shared)))
    starts = [group.agents.start for group in cohort.groups]
    scores = np.stack([np.concatenate([seen[t, start] for start in starts]) for t in range(1, config.horizon + 1)])
    return segments, scores


def communicate(group, server):
    """A round of the one group that there is: its upload, and the server's broadcast."""
    group.train()
    upload = group.shared.summed(group.iteration, group.agents, group.upload())
    broadcast = server.aggregate(group.iteration, [upload])
    group.shared.apply(broadcast, own=group.agents)
    group.start_epoch()
    return upload, broadcast


def assert_same(one, other):
    """The same bits in all that a simulation gives."""
    for name in ("arms", "rewards", "regret", "weight"):
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
    return sorted(int(path.name.removeprefix("step-")) for path in (Path(directory) / FOLDER).glob("step-*"))


def folder(directory, step):
    """Where the checkpoint of an iteration is."""
    return directory / FOLDER / f"step-{step:09d}"


def gone(pids):
    """Whether these processes end within some seconds."""
    import psutil

    processes = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    return not psutil.wait_procs(processes, timeout=20)[1]


def assert_records_equal(one, other, count):
    """The same runs in two folders of a study, with the same rows."""
    from fnbandit.records import find_runs, read_run

    runs = [path.relative_to(one) for path in find_runs(one)]
    assert len(runs) == count
    for run in runs:
        assert read_run(Path(one) / run).finished
        assert read_run(Path(one) / run).trace.equals(read_run(Path(other) / run).trace)
