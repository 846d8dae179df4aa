"""Checkpoints: what is kept, what is refused, and that a resumed run has the bits of an undisturbed one."""

from __future__ import annotations

import ast
import hashlib
import json
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import safetensors
import torch

import actors
from actors import CheckpointError, Checkpointing, LocalRun
from actors.checkpoints import CheckpointStore, Due
from fnbandit import ALGORITHMS, Config, simulate

CONFIG = Config(agents=3, horizon=40, dim=4, width=6, trigger="logdet", threshold=3.0)
EVERY_ROUND = {"seconds": 0.0, "rounds": 1}
VARIANTS = [
    {"trigger": "logdet", "threshold": 3.0},
    {"trigger": "diagonal", "threshold": 9.0, "diagonal": True},
    {"trigger": "logdet", "threshold": 3.0, "algorithm": "fn-ucb", "weight": "theory", "domain_sample": 32},
    {"trigger": "always", "algorithm": "fn-ucb", "weight": "theory", "domain_sample": 32, "diagonal": True},
    {"trigger": "period", "period": 7, "training_start": "own", "aggregate": False, "stop_training_after": 60},
    {"trigger": "logdet", "threshold": 3.0, "algorithm": "dislinucb"},
    *({"algorithm": name} for name in ALGORITHMS if not name.startswith(("fn-ucb", "dislinucb"))),
]


def assert_same(one, other):
    """The same bits in all that a simulation gives."""
    for name in ("arms", "rewards", "regret", "weight"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    assert one.rounds == other.rounds
    # As text, because without training a round's loss is NaN; a float's text has all its bits.
    assert repr(one.round_records) == repr(other.round_records)
    assert one.communication.total == other.communication.total
    assert (one.parameters is None) == (other.parameters is None)
    if one.parameters is not None:
        np.testing.assert_array_equal(one.parameters, other.parameters)


def contiguous(epochs, horizon):
    """The epochs, each iteration from the first to the last once."""
    bounds = [0, *(epoch.end for epoch in epochs)]
    assert [epoch.start for epoch in epochs] == bounds[:-1]
    assert bounds[-1] == horizon
    assert all(len(epoch.trace.arms) == epoch.end - epoch.start > 0 for epoch in epochs)
    return epochs


def interrupt(config, directory, epochs):
    """Run a few epochs with a checkpoint after each that can have one, then stop; where the last checkpoint is."""
    run = LocalRun(config, Checkpointing(str(directory), **EVERY_ROUND))
    stream = run.epochs()
    assert len(list(islice(stream, epochs))) == epochs
    stream.close()
    return steps(directory)[-1]


def steps(directory):
    return sorted(int(path.name.removeprefix("step-")) for path in Path(directory).iterdir())


def folder(directory, step):
    return directory / f"step-{step:09d}"


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_interrupted_and_resumed_is_undisturbed(tmp_path, variant):
    config = Config(**({"agents": 3, "horizon": 150, "dim": 4, "width": 6, "training_rate": 0.05} | variant))
    rounds = config.algorithm in ("fn-ucb", "fn-ucb-less-comm", "dislinucb")
    last = interrupt(config, tmp_path, epochs=9 if rounds else 2)
    assert 0 < last < config.horizon
    resumed = LocalRun(config, Checkpointing(str(tmp_path), **EVERY_ROUND), resume=True)
    epochs = contiguous(list(resumed.epochs()), config.horizon)
    assert last in [epoch.end for epoch in epochs]
    from fnbandit.simulation import collect

    assert_same(collect(resumed.config, epochs), simulate(config))


def test_interrupted_again_and_again(tmp_path):
    for epochs in (4, 9, 17):
        stream = LocalRun(CONFIG, Checkpointing(str(tmp_path), **EVERY_ROUND), resume=True).epochs()
        assert len(list(islice(stream, epochs))) == epochs
        stream.close()
    resumed = LocalRun(CONFIG, Checkpointing(str(tmp_path), **EVERY_ROUND), resume=True)
    assert_same(resumed.result(), simulate(CONFIG))


def test_theory_fields_are_taken_from_the_checkpoint(tmp_path):
    config = CONFIG.replace(threshold="theory", regularization="theory")
    interrupt(config, tmp_path, epochs=3)
    resumed = LocalRun(config, Checkpointing(str(tmp_path)), resume=True)
    assert resumed.config.threshold != "theory"
    assert_same(resumed.result(), simulate(config))


def test_the_last_two_are_kept(tmp_path):
    last = interrupt(CONFIG, tmp_path, epochs=9)
    rounds = simulate(CONFIG).rounds
    index = rounds.index(last)
    assert index > 2
    assert steps(tmp_path) == rounds[index - 1 : index + 1]
    LocalRun(CONFIG, Checkpointing(str(tmp_path), **EVERY_ROUND), resume=True).result()
    assert steps(tmp_path) == [r for r in rounds if r < CONFIG.horizon][-2:]


def test_a_checkpoint_is_safetensors_and_json(tmp_path):
    last = interrupt(CONFIG, tmp_path, epochs=6)
    here = folder(tmp_path, last)
    assert {path.name for path in here.iterdir()} == {"agents.safetensors", "server.safetensors", "manifest.json"}
    result = simulate(CONFIG)
    with safetensors.safe_open(here / "agents.safetensors", "pt") as file:
        np.testing.assert_array_equal(file.get_tensor("arms").numpy().T, result.arms[:last])
        assert file.get_tensor("rewards").dtype == torch.float64
    with safetensors.safe_open(here / "server.safetensors", "pt") as file:
        assert file.get_tensor("last_round") == last
    manifest = json.loads((here / "manifest.json").read_text())
    assert manifest["sha256"] == hashlib.sha256(manifest["body"].encode()).hexdigest()
    body = json.loads(manifest["body"])
    assert body["iteration"] == last
    assert Config(**body["config"]) == CONFIG
    assert [r["iteration"] for r in body["rounds"]] == [r for r in result.rounds if r <= last]
    for name, checksum in body["files"].items():
        assert hashlib.sha256((here / name).read_bytes()).hexdigest() == checksum


def test_nothing_here_unpickles():
    """No module of actors imports pickle or calls a load that could run a file's code."""
    sources = list(Path(actors.__file__).parent.glob("*.py"))
    assert len(sources) >= 6
    calls, imports = set(), set()
    for source in sources:
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.Call):
                calls.add(ast.unparse(node.func))
            elif isinstance(node, ast.Import):
                imports |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imports |= {f"{node.module}.{alias.name}" for alias in node.names}
    assert "safetensors.torch.load" in calls and "json.loads" in calls
    assert not calls & {"torch.load", "np.load", "numpy.load"}
    assert not [name for name in calls | imports if "pickle" in name or name.startswith(("joblib", "shelve", "dill"))]


def truncate(path):
    path.write_bytes(path.read_bytes()[:-10])


def alter(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [truncate, alter, Path.unlink])
@pytest.mark.parametrize("name", ["agents.safetensors", "server.safetensors", "manifest.json"])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path, damage, name):
    last = interrupt(CONFIG, tmp_path, epochs=6)
    before = steps(tmp_path)[0]
    damage(folder(tmp_path, last) / name)
    assert CheckpointStore(str(tmp_path)).latest().iteration == before
    resumed = LocalRun(CONFIG, Checkpointing(str(tmp_path), **EVERY_ROUND), resume=True)
    assert_same(resumed.result(), simulate(CONFIG))


@pytest.mark.parametrize("damage", [truncate, alter])
def test_where_none_is_good_nothing_is_overwritten(tmp_path, damage):
    interrupt(CONFIG, tmp_path, epochs=6)
    damage(folder(tmp_path, steps(tmp_path)[0]) / "agents.safetensors")
    damage(folder(tmp_path, steps(tmp_path)[1]) / "manifest.json")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(CheckpointError, match="no good checkpoint.*step-.*step-") as caught:
        LocalRun(CONFIG, Checkpointing(str(tmp_path), **EVERY_ROUND), resume=True)
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert "agents.safetensors has been truncated or altered" in str(caught.value)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_version_from_elsewhere_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("actors.checkpoints.VERSION", 7)
    interrupt(CONFIG, tmp_path, epochs=6)
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="is of version 7, this program reads 2"):
        CheckpointStore(str(tmp_path)).latest()


def test_an_unfinished_checkpoint_is_ignored_and_cleared_away(tmp_path):
    last = interrupt(CONFIG, tmp_path, epochs=6)
    unfinished = folder(tmp_path, last + 1)
    unfinished.mkdir()
    (unfinished / "agents.safetensors.part").write_bytes(b"half a")
    (folder(tmp_path, last) / "server.safetensors.part").write_bytes(b"half a")
    assert CheckpointStore(str(tmp_path)).latest().iteration == last
    resumed = LocalRun(CONFIG, Checkpointing(str(tmp_path), **EVERY_ROUND), resume=True)
    assert_same(resumed.result(), simulate(CONFIG))
    assert not unfinished.exists() or (unfinished / "manifest.json").exists()


def test_an_unfinished_first_checkpoint_is_no_obstacle(tmp_path):
    unfinished = folder(tmp_path, 5)
    unfinished.mkdir()
    (unfinished / "agents.safetensors").write_bytes(b"the manifest is missing")
    assert CheckpointStore(str(tmp_path)).latest() is None
    run = LocalRun(CONFIG, Checkpointing(str(tmp_path), **EVERY_ROUND))
    assert_same(run.result(), simulate(CONFIG))
    assert len(steps(tmp_path)) == 2 and not unfinished.exists()


def test_damaged_later_ones_do_not_displace_new_ones(tmp_path):
    last = interrupt(CONFIG, tmp_path, epochs=8)
    before = steps(tmp_path)[0]
    alter(folder(tmp_path, last) / "manifest.json")
    stale = folder(tmp_path, last + 9)
    folder(tmp_path, last).rename(stale)
    stream = LocalRun(CONFIG, Checkpointing(str(tmp_path), **EVERY_ROUND), resume=True).epochs()
    while steps(tmp_path)[-1] != last:
        next(stream)
    stream.close()
    assert steps(tmp_path) == [before, last]
    assert CheckpointStore(str(tmp_path)).latest().iteration == last


def test_a_uri_is_a_directory(tmp_path):
    directory = tmp_path / "sub" / "folder"
    location = directory.as_uri()
    assert location.startswith("file:///")
    stream = LocalRun(CONFIG, Checkpointing(location, **EVERY_ROUND)).epochs()
    list(islice(stream, 6))
    stream.close()
    assert len(steps(directory)) == 2
    assert CheckpointStore(str(directory)).latest().iteration == steps(directory)[-1]
    assert_same(LocalRun(CONFIG, Checkpointing(location), resume=True).result(), simulate(CONFIG))


def test_a_relative_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    interrupt(CONFIG, "here", epochs=6)
    assert CheckpointStore("here").latest().iteration == steps(tmp_path / "here")[-1]


def test_locations_that_cannot_be_opened(tmp_path):
    (tmp_path / "file").write_text("")
    for location, reason in (("carrier-pigeon://loft/x", "carrier-pigeon"), (str(tmp_path / "file" / "x"), "file")):
        with pytest.raises(CheckpointError, match=f"checkpoint='.*cannot be opened.*{reason}") as caught:
            LocalRun(CONFIG, Checkpointing(location))
        assert "\n" not in str(caught.value)


def test_another_configs_checkpoint_is_refused(tmp_path):
    interrupt(CONFIG, tmp_path, epochs=6)
    for change in ({"seed": 1}, {"horizon": 41}, {"threshold": 3.5}, {"algorithm": "fn-ucb"}):
        with pytest.raises(CheckpointError, match="belongs to another config"):
            LocalRun(CONFIG.replace(**change), Checkpointing(str(tmp_path)), resume=True)
    LocalRun(CONFIG.replace(device="cpu"), Checkpointing(str(tmp_path)), resume=True)


def test_a_fresh_run_does_not_mix_with_an_earlier_one(tmp_path):
    interrupt(CONFIG, tmp_path, epochs=6)
    before = steps(tmp_path)
    with pytest.raises(CheckpointError, match="has checkpoints of an earlier run; resume it or go elsewhere"):
        LocalRun(CONFIG, Checkpointing(str(tmp_path)))
    assert steps(tmp_path) == before


def test_resume_without_a_checkpoint_starts_at_the_beginning(tmp_path):
    assert_same(LocalRun(CONFIG, Checkpointing(str(tmp_path / "new")), resume=True).result(), simulate(CONFIG))
    assert_same(LocalRun(CONFIG).result(), simulate(CONFIG))


def test_due_by_rounds_or_by_seconds(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr("actors.checkpoints.time.monotonic", lambda: clock[0])
    by_rounds = Due(0.0, 3)
    assert [by_rounds.now() for _ in range(7)] == [False, False, True, False, False, True, False]
    by_seconds, either = Due(10.0, 0), Due(10.0, 3)
    found = []
    for clock[0] in (105.0, 110.0, 111.0, 119.9, 120.0, 121.0):
        found.append((by_seconds.now(), either.now()))
    # either: by time at 110, by time at 120 (the third round after 110), then anew
    assert found == [(False, False), (True, True), (False, False), (False, False), (True, True), (False, False)]
