"""Checkpoints: what is kept, what is refused, what happens to damaged ones."""

from __future__ import annotations

import ast
import hashlib
import json
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch
from helpers import EVERY_ROUND, assert_same, folder, interrupt, plain, steps

from fnbandit import simulate
from fnbandit.runs import Checkpointing, LocalRun
from fnbandit.storage.checkpoints import (
    CHECKPOINT_FOLDER,
    CHECKPOINT_VERSION,
    MARK,
    CheckpointError,
    CheckpointStore,
    Due,
)

CONFIG = plain(agents=3, horizon=40, dim=4, width=6, trigger="logdet", threshold=3.0)


def test_the_last_two_are_kept(tmp_path):
    last = interrupt(CONFIG, tmp_path, segments=9)
    rounds = simulate(CONFIG).rounds
    index = rounds.index(last)
    assert index > 2
    assert steps(tmp_path) == rounds[index - 1 : index + 1]
    LocalRun(CONFIG, Checkpointing(str(tmp_path), **EVERY_ROUND), resume=True).result()
    assert steps(tmp_path) == [r for r in rounds if r < CONFIG.horizon][-2:]


def test_a_checkpoint_is_safetensors_and_json(tmp_path):
    last = interrupt(CONFIG, tmp_path, segments=6)
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
    assert plain(**body["config"]) == CONFIG
    assert [r["iteration"] for r in body["rounds"]] == [r for r in result.rounds if r <= last]
    for name, checksum in body["files"].items():
        assert hashlib.sha256((here / name).read_bytes()).hexdigest() == checksum


def test_nothing_here_unpickles():
    """No module imports pickle or calls a load that could run a file's code."""
    top = Path(__file__).parents[2]
    sources = [path for package in ("fnbandit", "actors", "workflows") for path in (top / package).rglob("*.py")]
    assert len(sources) >= 50
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
    last = interrupt(CONFIG, tmp_path, segments=6)
    before = steps(tmp_path)[0]
    damage(folder(tmp_path, last) / name)
    assert CheckpointStore(str(tmp_path)).latest().iteration == before
    resumed = LocalRun(CONFIG, Checkpointing(str(tmp_path), **EVERY_ROUND), resume=True)
    assert_same(resumed.result(), simulate(CONFIG))


@pytest.mark.parametrize("damage", [truncate, alter])
def test_where_none_is_good_nothing_is_overwritten(tmp_path, damage):
    interrupt(CONFIG, tmp_path, segments=6)
    damage(folder(tmp_path, steps(tmp_path)[0]) / "agents.safetensors")
    damage(folder(tmp_path, steps(tmp_path)[1]) / "manifest.json")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(CheckpointError, match="no valid checkpoint.*step-.*step-") as caught:
        LocalRun(CONFIG, Checkpointing(str(tmp_path), **EVERY_ROUND), resume=True)
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert "agents.safetensors is truncated or altered" in str(caught.value)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_version_from_elsewhere_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("fnbandit.storage.checkpoints.CHECKPOINT_VERSION", 7)
    interrupt(CONFIG, tmp_path, segments=6)
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match=f"has version 7, this program reads {CHECKPOINT_VERSION}"):
        CheckpointStore(str(tmp_path)).latest()


def test_an_unfinished_checkpoint_is_ignored_and_cleared_away(tmp_path):
    last = interrupt(CONFIG, tmp_path, segments=6)
    unfinished = folder(tmp_path, last + 1)
    unfinished.mkdir()
    (unfinished / "agents.safetensors.part").write_bytes(b"half a")
    (folder(tmp_path, last) / "server.safetensors.part").write_bytes(b"half a")
    assert CheckpointStore(str(tmp_path)).latest().iteration == last
    resumed = LocalRun(CONFIG, Checkpointing(str(tmp_path), **EVERY_ROUND), resume=True)
    assert_same(resumed.result(), simulate(CONFIG))
    assert not unfinished.exists() or (unfinished / "manifest.json").exists()


def test_an_unfinished_first_checkpoint_is_no_obstacle(tmp_path):
    CheckpointStore(str(tmp_path))
    unfinished = folder(tmp_path, 5)
    unfinished.mkdir()
    (unfinished / "agents.safetensors").write_bytes(b"the manifest is missing")
    assert CheckpointStore(str(tmp_path)).latest() is None
    run = LocalRun(CONFIG, Checkpointing(str(tmp_path), **EVERY_ROUND))
    assert_same(run.result(), simulate(CONFIG))
    assert len(steps(tmp_path)) == 2 and not unfinished.exists()


def test_damaged_later_ones_do_not_displace_new_ones(tmp_path):
    last = interrupt(CONFIG, tmp_path, segments=8)
    before = steps(tmp_path)[0]
    alter(folder(tmp_path, last) / "manifest.json")
    stale = folder(tmp_path, last + 9)
    folder(tmp_path, last).rename(stale)
    stream = LocalRun(CONFIG, Checkpointing(str(tmp_path), **EVERY_ROUND), resume=True).segments()
    while steps(tmp_path)[-1] != last:
        next(stream)
    stream.close()
    assert steps(tmp_path) == [before, last]
    assert CheckpointStore(str(tmp_path)).latest().iteration == last


def test_a_uri_is_a_directory(tmp_path):
    directory = tmp_path / "sub" / "folder"
    location = directory.as_uri()
    assert location.startswith("file:///")
    stream = LocalRun(CONFIG, Checkpointing(location, **EVERY_ROUND)).segments()
    list(islice(stream, 6))
    stream.close()
    assert len(steps(directory)) == 2
    assert CheckpointStore(str(directory)).latest().iteration == steps(directory)[-1]
    assert_same(LocalRun(CONFIG, Checkpointing(location), resume=True).result(), simulate(CONFIG))


def test_a_relative_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    interrupt(CONFIG, "here", segments=6)
    assert CheckpointStore("here").latest().iteration == steps(tmp_path / "here")[-1]


def test_locations_that_cannot_be_opened(tmp_path):
    (tmp_path / "file").write_text("")
    for location, reason in (("carrier-pigeon://loft/x", "carrier-pigeon"), (str(tmp_path / "file" / "x"), "file")):
        with pytest.raises(CheckpointError, match=f"checkpoint='.*cannot open it.*{reason}") as caught:
            LocalRun(CONFIG, Checkpointing(location))
        assert "\n" not in str(caught.value)


def forged(here, change):
    """Change what a checkpoint holds, with checksums that are right again."""
    tensors = {name: safetensors.torch.load_file(here / f"{name}.safetensors") for name in ("agents", "server")}
    body = json.loads(json.loads((here / "manifest.json").read_text())["body"])
    changed = change(body, tensors)
    body = changed if isinstance(changed, list) else body
    for name, values in tensors.items():
        data = safetensors.torch.save({key: value.contiguous() for key, value in values.items()})
        (here / f"{name}.safetensors").write_bytes(data)
        if isinstance(body, dict) and isinstance(body.get("files"), dict):
            body["files"][f"{name}.safetensors"] = hashlib.sha256(data).hexdigest()
    text = json.dumps(body)
    outer = {"sha256": hashlib.sha256(text.encode()).hexdigest(), "body": text}
    (here / "manifest.json").write_text(json.dumps(outer))


FORGERIES = {
    "no iteration": lambda body, tensors: body.pop("iteration"),
    "iteration 0": lambda body, tensors: body.update(iteration=0),
    "iteration in words": lambda body, tensors: body.update(iteration="ten"),
    "alpha is short": lambda body, tensors: body.update(alpha=body["alpha"][:-1]),
    "alpha in words": lambda body, tensors: body.update(alpha=["a"]),
    "no rounds": lambda body, tensors: body.update(rounds=None),
    "a round in words": lambda body, tensors: body.update(rounds=["x"]),
    "a config of another kind": lambda body, tensors: body.update(config={"agents": -1}),
    "files elsewhere": lambda body, tensors: body["files"].update({"../../secret": ""}),
    "a list": lambda body, tensors: [1, 2],
    "no arms": lambda body, tensors: tensors["agents"].pop("arms"),
    "fewer agents": lambda body, tensors: tensors["agents"].update(arms=tensors["agents"]["arms"][:1]),
    "rewards of one agent": lambda body, tensors: tensors["agents"].update(rewards=tensors["agents"]["rewards"][:, :1]),
    "no server": lambda body, tensors: tensors["server"].clear(),
    "agents of another width": lambda body, tensors: tensors["agents"].update(
        {name: value[..., :1] for name, value in tensors["agents"].items() if name not in ("arms", "rewards", "regret")}
    ),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_what_does_not_fit_is_one_line_whatever_its_checksums_say(tmp_path, name):
    interrupt(CONFIG, tmp_path, segments=6)
    for step in steps(tmp_path):
        forged(folder(tmp_path, step), FORGERIES[name])
    with pytest.raises(ValueError, match="no valid checkpoint|does not fit its config") as caught:
        LocalRun(CONFIG, Checkpointing(str(tmp_path), **EVERY_ROUND), resume=True).result()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("change", [lambda rounds: [], lambda rounds: rounds[:-1], lambda rounds: rounds[::-1]])
def test_rounds_that_do_not_fit_the_iteration_are_refused(tmp_path, change):
    here = folder(tmp_path, interrupt(CONFIG, tmp_path, segments=6)) / "manifest.json"
    body = json.loads(json.loads(here.read_text())["body"])
    body["rounds"] = change(body["rounds"])
    text = json.dumps(body)
    here.write_text(json.dumps({"sha256": hashlib.sha256(text.encode()).hexdigest(), "body": text}))
    assert CheckpointStore(str(tmp_path)).latest().iteration == steps(tmp_path)[0], "the one before"
    folder(tmp_path, steps(tmp_path)[0]).joinpath("manifest.json").unlink()
    with pytest.raises(CheckpointError, match="the number of rounds is inconsistent"):
        CheckpointStore(str(tmp_path)).latest()


def test_only_what_the_store_wrote_is_ever_deleted(tmp_path):
    """Strangers' files stay, beside the checkpoints and among them."""
    mine = [tmp_path / "thesis.tex", tmp_path / "step-000000003" / "manifest.json"]
    for path in mine:
        path.parent.mkdir(exist_ok=True)
        path.write_text("years of work")
    last = interrupt(CONFIG, tmp_path, segments=6)
    among = [
        folder(tmp_path, last) / "notes.txt",
        tmp_path / CHECKPOINT_FOLDER / "notes.txt",
        tmp_path / CHECKPOINT_FOLDER / "sub" / "x",
    ]
    for path in among:
        path.parent.mkdir(exist_ok=True)
        path.write_text("years of work")
    run = LocalRun(CONFIG, Checkpointing(str(tmp_path), **EVERY_ROUND), resume=True)
    run.result()
    run.clear()
    for path in mine + among:
        assert path.read_text() == "years of work"
    left = {path for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {*mine, *among, tmp_path / CHECKPOINT_FOLDER / MARK}


def test_a_folder_of_somebody_else_is_refused(tmp_path):
    (tmp_path / CHECKPOINT_FOLDER / "step-000000001").mkdir(parents=True)
    with pytest.raises(CheckpointError, match=f"{CHECKPOINT_FOLDER} has no {MARK}.*choose another location"):
        LocalRun(CONFIG, Checkpointing(str(tmp_path)))
    assert [path.name for path in (tmp_path / CHECKPOINT_FOLDER).iterdir()] == ["step-000000001"]


def test_due_by_rounds_or_by_seconds(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr("fnbandit.storage.checkpoints.time.monotonic", lambda: clock[0])
    by_rounds = Due(0.0, 3)
    assert [by_rounds.now() for _ in range(7)] == [False, False, True, False, False, True, False]
    by_seconds, either = Due(10.0, 0), Due(10.0, 3)
    found = []
    for clock[0] in (105.0, 110.0, 111.0, 119.9, 120.0, 121.0):
        found.append((by_seconds.now(), either.now()))
    # either: by time at 110, by time at 120 (the third round after 110), then anew
    assert found == [(False, False), (True, True), (False, False), (False, False), (True, True), (False, False)]
