"""Runs: a resumed one has the bits of an undisturbed one, and does not mix with another's checkpoints."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from helpers import EVERY_ROUND, assert_same, contiguous, interrupt, plain, steps

from fnbandit import simulate
from fnbandit.config.registry import ALGORITHMS, resolve_part
from fnbandit.runs import Checkpointing, LocalRun, name_of, resolve_like
from fnbandit.simulation.results import collect
from fnbandit.storage.checkpoints import CheckpointError, CheckpointStore

CONFIG = plain(agents=3, horizon=40, dim=4, width=6, trigger="logdet", threshold=3.0)
SUMS = {
    "federation": "exact", "training_steps": "auto", "training_effort": 100.0, "training_cap": 20, "trigger": "logdet",
    "training_least": 12, "training_sample": 90, "training_optimizer": "adam", "newton_steps": 2, "reward_unit": "rms",
}  # fmt: skip
VARIANTS = [
    {"algorithm": "fn-exact", **SUMS},
    {"algorithm": "fn-linear", "participation": "fraction", **SUMS},
    {"algorithm": "fn-ucb", **SUMS},
    {"algorithm": "fn-exact", "diagonal": True, **SUMS, "trigger": "period"},
    {"trigger": "logdet", "threshold": 3.0},
    {"trigger": "diagonal", "threshold": 9.0, "diagonal": True},
    {"trigger": "logdet", "threshold": 3.0, "algorithm": "fn-ucb", "weight": "theory", "domain_sample": 32},
    {"trigger": "always", "algorithm": "fn-ucb", "weight": "theory", "domain_sample": 32, "diagonal": True},
    {"trigger": "period", "period": 7, "training_start": "own", "aggregate": False, "stop_training_after": 30},
    {"trigger": "logdet", "threshold": 3.0, "algorithm": "dislinucb"},
    {"trigger": "budget", "round_budget": 25, "messages": "quantized"},
    {"trigger": "logdet", "threshold": 3.0, "aggregation": "median", "server_momentum": 0.5, "messages": "factored"},
    *({"algorithm": name} for name in ALGORITHMS if not name.startswith(("fn-ucb", "dislinucb"))),
]


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_interrupted_and_resumed_is_undisturbed(tmp_path, variant):
    config = plain(**({"agents": 3, "horizon": 72, "dim": 4, "width": 6, "training_rate": 0.05} | variant))
    rounds = resolve_part("algorithm", config.algorithm).traits.communicates
    if not rounds:
        config = config.replace(horizon=135)  # parts of 64 iterations, and a rest
    last = interrupt(config, tmp_path, segments=6 if rounds else 2)
    assert 0 < last < config.horizon
    resumed = LocalRun(config, Checkpointing(str(tmp_path), **EVERY_ROUND), resume=True)
    segments = contiguous(list(resumed.segments()), config.horizon)
    assert last in [segment.end for segment in segments]
    assert_same(collect(resumed.config, segments), simulate(config))


def test_interrupted_again_and_again(tmp_path):
    for count in (4, 9, 17):
        stream = LocalRun(CONFIG, Checkpointing(str(tmp_path), **EVERY_ROUND), resume=True).segments()
        assert len(list(islice(stream, count))) == count
        stream.close()
    resumed = LocalRun(CONFIG, Checkpointing(str(tmp_path), **EVERY_ROUND), resume=True)
    assert_same(resumed.result(), simulate(CONFIG))


def test_theory_fields_are_taken_from_the_checkpoint(tmp_path):
    config = CONFIG.replace(threshold="theory", regularization="theory")
    interrupt(config, tmp_path, segments=3)
    resumed = LocalRun(config, Checkpointing(str(tmp_path)), resume=True)
    assert resumed.config.threshold != "theory"
    assert_same(resumed.result(), simulate(config))


def test_another_configs_checkpoint_is_refused(tmp_path):
    interrupt(CONFIG, tmp_path, segments=6)
    for change in ({"seed": 1}, {"horizon": 41}, {"threshold": 3.5}, {"algorithm": "fn-ucb"}):
        with pytest.raises(CheckpointError, match="belongs to another config"):
            LocalRun(CONFIG.replace(**change), Checkpointing(str(tmp_path)), resume=True)
    LocalRun(CONFIG.replace(device="cpu"), Checkpointing(str(tmp_path)), resume=True)


def test_a_fresh_run_does_not_mix_with_an_earlier_one(tmp_path):
    interrupt(CONFIG, tmp_path, segments=6)
    before = steps(tmp_path)
    with pytest.raises(CheckpointError, match="has checkpoints of an earlier run; resume it or use another location"):
        LocalRun(CONFIG, Checkpointing(str(tmp_path)))
    assert steps(tmp_path) == before


def test_resume_without_a_checkpoint_starts_at_the_beginning(tmp_path):
    assert_same(LocalRun(CONFIG, Checkpointing(str(tmp_path / "new")), resume=True).result(), simulate(CONFIG))
    assert_same(LocalRun(CONFIG).result(), simulate(CONFIG))


def test_a_finished_run_forgets_its_checkpoints(tmp_path):
    run = LocalRun(CONFIG, Checkpointing(str(tmp_path / "here"), **EVERY_ROUND))
    run.result()
    assert len(steps(tmp_path / "here")) == 2
    run.clear()
    assert list((tmp_path / "here").iterdir()) == []
    LocalRun(CONFIG).clear()


def test_without_a_location_nothing_is_saved(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    LocalRun(CONFIG, Checkpointing(**EVERY_ROUND)).result()
    assert list(tmp_path.iterdir()) == []


class Doubled:
    """A reward function with a state."""

    def __call__(self, x):
        return 2 * x[:, 0]


def test_what_a_config_says_of_an_own_environment():
    assert name_of(Doubled()) == name_of(Doubled) == f"{__name__}:Doubled"
    assert name_of(name_of) == "fnbandit.runs:name_of"


def test_an_own_environment_resumes(tmp_path):
    expected = simulate(CONFIG, environment=Doubled())
    assert expected.config.environment == f"{__name__}:Doubled"
    stream = LocalRun(CONFIG, Checkpointing(str(tmp_path), **EVERY_ROUND), environment=Doubled()).segments()
    list(islice(stream, 6))
    stream.close()
    with pytest.raises(CheckpointError, match="belongs to another config"):
        LocalRun(CONFIG, Checkpointing(str(tmp_path)), resume=True)
    resumed = LocalRun(CONFIG, Checkpointing(str(tmp_path)), resume=True, environment=Doubled())
    assert_same(resumed.result(), expected)
    assert not np.array_equal(expected.arms, simulate(CONFIG).arms)


def test_theory_fields_are_compared_by_their_numbers():
    asked = plain(regularization="theory", threshold=2.0)
    resolved = asked.replace(regularization=1.5, threshold=7.0)
    assert resolve_like(asked, resolved) == asked.replace(regularization=1.5)


def test_segments_without_rounds_come_in_parts():
    config = plain(agents=2, horizon=150, dim=3, algorithm="linear-ucb")
    assert [segment.end for segment in contiguous(list(LocalRun(config).segments()), 150)] == [64, 128, 150]


def test_a_store_that_is_down_for_a_while_costs_no_run(tmp_path, monkeypatch, caplog):
    config = plain(agents=2, horizon=12)
    saved, asked = CheckpointStore.save, []

    def save(self, snapshot):
        asked.append(snapshot.iteration)
        if 3 <= snapshot.iteration <= 6:
            raise OSError("the bucket does not answer\nCurl 7")
        saved(self, snapshot)

    def clear(self):
        raise OSError("the bucket does not answer")

    monkeypatch.setattr(CheckpointStore, "save", save)
    monkeypatch.setattr(CheckpointStore, "clear", clear)
    run = LocalRun(config, Checkpointing(str(tmp_path), seconds=0, rounds=1))
    assert_same(run.result(), simulate(config))
    run.clear()
    assert asked == list(range(1, 12)) and steps(tmp_path) == [10, 11]
    text = f"fnbandit: checkpoint={str(tmp_path)!r}: the bucket does not answer; the run "
    assert [record.getMessage().removeprefix(text) for record in caplog.records] == (
        ["continues without this checkpoint"] * 4 + ["is finished and does not need them"]
    )
