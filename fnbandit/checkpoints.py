"""Checkpoints: safetensors and JSON, written aside and moved, the last two kept, never a pickle.

LOCATION/fnbandit-checkpoints/OWNER.txt       the mark of a folder that is this project's own
LOCATION/fnbandit-checkpoints/step-ITERATION  agents.safetensors, server.safetensors, manifest.json

The manifest comes last and carries the other files' checksums and its own: a folder without a good one is no
checkpoint. What is deleted are files of these names, and folders that are empty then; never anything else.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs
import safetensors
import safetensors.torch

from fnbandit.algorithms.base import Trace
from fnbandit.clock import make_clock
from fnbandit.config import Config
from fnbandit.fingerprints import Fingerprint
from fnbandit.places import opened
from fnbandit.results import QUANTITIES, Round, Segment, Times
from fnbandit.rounds.messages import Cost
from fnbandit.state import State

VERSION = 5
KEPT = 2
STEP = re.compile(r"step-(\d{9})$")
FOLDER = "fnbandit-checkpoints"
"""All that a store writes and deletes is in this folder below its location"""
MARK = "OWNER.txt"
MARK_TEXT = b"Checkpoints of fnbandit, which deletes them when their run is finished. Put nothing of your own here.\n"
TENSORS = ("agents.safetensors", "server.safetensors")
FILES = (*TENSORS, "manifest.json")


class CheckpointError(ValueError):
    """No checkpoint of a directory can be used."""


@dataclass(frozen=True)
class Snapshot:
    """A simulation between two epochs: all that is needed to go on with the same bits."""

    config: Config
    fingerprint: Fingerprint
    iteration: int
    agents: State
    """All groups' states, joined"""
    server: State
    """What the server keeps; empty for algorithms without rounds"""
    weight: np.ndarray
    """alpha of the iterations so far"""
    rounds: list[Round]

    def segments(self) -> list[Segment]:
        """What has happened so far, epoch by epoch; where agents have no epochs in common, in one."""
        if "arms" not in self.agents:
            return [self._segment()]
        arrays = {name: self.agents[name].T.contiguous().numpy() for name in ("arms", "rewards", "regret")}
        ends = {r.iteration: r for r in self.rounds} | {self.iteration: None}
        ends[self.iteration] = next((r for r in self.rounds if r.iteration == self.iteration), None)
        segments, start = [], 0
        for end in sorted(ends):
            trace = Trace(**{name: array[start:end] for name, array in arrays.items()}, weight=self.weight[start:end])
            segments.append(Segment(start, end, trace, ends[end], 0.0))
            start = end
        return segments

    def check(self) -> None:
        """Raise where what has happened so far is not all there; what is learned is checked when it is loaded."""
        if not 0 < self.iteration < self.config.horizon or self.weight.shape != (self.iteration,):
            raise ValueError("its iterations do not add up")
        for segment in self.segments():
            shape = (segment.end - segment.start, self.config.agents)
            if any(getattr(segment.trace, name).shape != shape for name in ("arms", "rewards", "regret")):
                raise ValueError("its rows do not add up")

    def _segment(self) -> Segment:
        """What agents have done that do not wait for each other, whose states are each agent's own."""

        def column(name: str) -> np.ndarray:
            agents = range(self.config.agents)
            return np.stack([self.agents[f"{agent}.{name}"][: self.iteration].numpy() for agent in agents], axis=1)

        times = column("times") if make_clock(self.config).shown else None
        trace = Trace(column("arms"), column("rewards"), column("regret"), self.weight, times)
        return Segment(0, self.iteration, trace, None, 0.0, events=tuple(self.rounds))


class Due:
    """Says when the next checkpoint is due: every so many seconds or rounds, whichever comes first."""

    def __init__(self, seconds: float, rounds: int) -> None:
        self._seconds, self._rounds = seconds, rounds
        self._last, self._count = time.monotonic(), 0

    def now(self) -> bool:
        """Whether one is due after this segment, which can be saved."""
        self._count += 1
        late = self._seconds and time.monotonic() - self._last >= self._seconds
        if late or self._count == self._rounds:
            self._last, self._count = time.monotonic(), 0
            return True
        return False


class CheckpointStore:
    """The checkpoints of one simulation, in a directory or under any URI that pyarrow.fs opens."""

    def __init__(self, location: str) -> None:
        self.location = location
        try:
            self._fs, root = opened(location)
            self._root = f"{root.rstrip('/')}/{FOLDER}"
            self._fs.create_dir(self._root, recursive=True)
            names = self._names(self._root)
            if not names - {f"{MARK}.part"}:
                self._write(f"{self._root}/{MARK}", MARK_TEXT)
            elif MARK not in names:
                raise CheckpointError(
                    f"checkpoint={location!r}: {FOLDER} there has no {MARK}, so it is not fnbandit's; go elsewhere"
                )
        except (pa.ArrowException, OSError) as error:
            raise CheckpointError(f"checkpoint={location!r}: cannot be opened ({error})") from None

    def trouble(self, error: Exception) -> str:
        """What a user is told of a store that does not take or give up what it should."""
        return f"checkpoint={self.location!r}: {(str(error).splitlines() or [type(error).__name__])[0]}"

    def save(self, snapshot: Snapshot) -> None:
        """Write a checkpoint, then forget all but it and the finished one before; none after it was good."""
        folder = f"{self._root}/step-{snapshot.iteration:09d}"
        self._fs.create_dir(folder, recursive=True)
        files = {}
        for name, tensors in (("agents", snapshot.agents), ("server", snapshot.server)):
            data = safetensors.torch.save({key: tensor.contiguous() for key, tensor in tensors.items()})
            files[f"{name}.safetensors"] = hashlib.sha256(data).hexdigest()
            self._write(f"{folder}/{name}.safetensors", data)
        body = {
            "version": VERSION,
            "iteration": snapshot.iteration,
            "config": dataclasses.asdict(snapshot.config),
            "fingerprint": dataclasses.asdict(snapshot.fingerprint),
            "files": files,
            "weight": snapshot.weight.tolist(),
            "rounds": [dataclasses.asdict(r) for r in snapshot.rounds],
        }
        text = json.dumps(body, sort_keys=True)
        checksum = hashlib.sha256(text.encode()).hexdigest()
        self._write(f"{folder}/manifest.json", json.dumps({"sha256": checksum, "body": text}).encode())
        steps = self._steps()
        kept = [step for step in steps if step <= snapshot.iteration and self._finished(step)][-KEPT:]
        for step in steps:
            if step not in kept:
                self._delete(f"{self._root}/step-{step:09d}", FILES)

    def clear(self) -> None:
        """Forget all checkpoints: the run is finished."""
        for step in self._steps():
            self._delete(f"{self._root}/step-{step:09d}", FILES)
        if self._names(self._root) <= {MARK}:
            self._delete(self._root, (MARK,))

    def _delete(self, folder: str, names: Iterable[str]) -> None:
        """Delete files of these names, finished or half written, then the folder if nothing else is in it."""
        ours = {file for name in names for file in (name, f"{name}.part")}
        # The manifest early: without it a folder is no checkpoint, whatever is left when this is interrupted.
        for file in sorted(ours & self._names(folder), key=lambda file: (not file.startswith("manifest"), file)):
            self._fs.delete_file(f"{folder}/{file}")
        if not self._names(folder):
            self._fs.delete_dir(folder)

    def _names(self, folder: str) -> set[str]:
        """What is in a folder."""
        return {info.base_name for info in self._fs.get_file_info(pyarrow.fs.FileSelector(folder))}

    def _write(self, path: str, data: bytes) -> None:
        with self._fs.open_output_stream(f"{path}.part") as stream:
            stream.write(data)
        self._fs.move(f"{path}.part", path)

    def _steps(self) -> list[int]:
        found = self._fs.get_file_info(pyarrow.fs.FileSelector(self._root, allow_not_found=True))
        return sorted(int(match[1]) for info in found if (match := STEP.search(info.path)))

    def empty(self) -> bool:
        """Whether no checkpoint has ever been finished here."""
        return not any(self._finished(step) for step in self._steps())

    def _finished(self, step: int) -> bool:
        """Whether a checkpoint has its manifest, which is written last."""
        info = self._fs.get_file_info(f"{self._root}/step-{step:09d}/manifest.json")
        return info.type != pyarrow.fs.FileType.NotFound

    def latest(self) -> Snapshot | None:
        """The newest good checkpoint, None where none was ever finished; CheckpointError where none is good."""
        problems = []
        for step in reversed(self._steps()):
            if not self._finished(step):
                continue
            try:
                return self._load(step)
            except Exception as error:  # whatever is wrong with a file, the checkpoint before may be good
                reason = (str(error).splitlines() or [""])[0]
                known = isinstance(error, ValueError | OSError | safetensors.SafetensorError)
                problems.append(f"step-{step:09d}: {reason if known else f'{type(error).__name__} {reason}'}")
        if problems:
            raise CheckpointError(f"checkpoint={self.location!r}: no good checkpoint ({'; '.join(problems)})")
        return None

    def _load(self, step: int) -> Snapshot:
        folder = f"{self._root}/step-{step:09d}"
        outer = json.loads(self._read(f"{folder}/manifest.json"))
        if hashlib.sha256(outer["body"].encode()).hexdigest() != outer["sha256"]:
            raise ValueError("manifest.json has been altered")
        body = json.loads(outer["body"])
        if body["version"] != VERSION:
            raise ValueError(f"is of version {body['version']}, this program reads {VERSION}")
        tensors = {}
        if body["iteration"] != step or body["files"].keys() != set(TENSORS):
            raise ValueError("manifest.json is of another checkpoint")
        for name, checksum in body["files"].items():
            data = self._read(f"{folder}/{name}")
            if hashlib.sha256(data).hexdigest() != checksum:
                raise ValueError(f"{name} has been truncated or altered")
            tensors[name] = safetensors.torch.load(data)
        rounds = [_round(record) for record in body["rounds"]]
        snapshot = Snapshot(
            config=Config(**body["config"]),
            fingerprint=Fingerprint(**body["fingerprint"]),
            iteration=body["iteration"],
            agents=tensors["agents.safetensors"],
            server=tensors["server.safetensors"],
            weight=np.array(body["weight"], dtype=np.float64),
            rounds=rounds,
        )
        snapshot.check()
        return snapshot

    def _read(self, path: str) -> bytes:
        with self._fs.open_input_stream(path) as stream:
            return stream.read()


def _round(record: dict[str, Any]) -> Round:
    """A round as a manifest has it."""
    quantities = {quantity.name: record["quantities"][quantity.name] for quantity in QUANTITIES}
    parts: dict[str, Any] = {
        "triggered": tuple(record["triggered"]),
        "cost": Cost(**record["cost"]),
        "quantities": quantities,
    }
    if record["times"] is not None:
        parts["times"] = Times(**record["times"])
    return Round(**record | parts | {"quantities": quantities})
