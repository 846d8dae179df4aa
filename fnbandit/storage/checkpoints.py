"""Checkpoints: safetensors and JSON, never a pickle; written to a temporary name and moved; the last two are kept.

LOCATION/fnbandit-checkpoints/OWNER.txt       marks a folder that fnbandit has created
LOCATION/fnbandit-checkpoints/step-ITERATION  agents.safetensors, server.safetensors, manifest.json

The manifest is written last and contains the checksums of the other files and its own: a folder without a valid
manifest is not a checkpoint. Only files of these names, and folders that are empty afterwards, are deleted.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs
import safetensors
import safetensors.torch

from fnbandit.config import Config
from fnbandit.core import Cost, Round, Segment, Times, Trace
from fnbandit.federation.quantities import QUANTITIES
from fnbandit.numerics.state import State
from fnbandit.simulation.clock import make_clock
from fnbandit.storage.files import check_inside
from fnbandit.storage.fingerprints import Fingerprint
from fnbandit.storage.locations import open_location

CHECKPOINT_VERSION = 6
KEPT = 2
STEP = re.compile(r"step-(\d{9})$")
CHECKPOINT_FOLDER = "fnbandit-checkpoints"
"""Folder below its location in which a store writes and deletes; it changes nothing outside"""
MARK = "OWNER.txt"
MARK_TEXT = b"Checkpoints of fnbandit, which deletes them when their run is finished. Put nothing of your own here.\n"
TENSORS = ("agents.safetensors", "server.safetensors")
FILES = (*TENSORS, "manifest.json")


class CheckpointError(ValueError):
    """Raised where no checkpoint of a directory can be used."""


@dataclass(frozen=True)
class Snapshot:
    """State of a simulation between two epochs, sufficient to continue with the same bits."""

    config: Config
    fingerprint: Fingerprint
    iteration: int
    agents: State
    """States of all agents"""
    server: State
    """State of the server; empty for algorithms without rounds"""
    alpha: np.ndarray
    """alpha in the iterations so far"""
    rounds: list[Round]

    def segments(self) -> list[Segment]:
        """Return the iterations so far, divided after every round at a barrier."""
        names = ("arms", "rewards", "regret", "time")
        history = {name: self.agents[name][:, : self.iteration].T.numpy() for name in names if name in self.agents}
        if not make_clock(self.config).shown:
            history.pop("time", None)
        history = {name: values[:, : self.config.honest_agents] for name, values in history.items()}
        whole = Trace(**{name: np.ascontiguousarray(values) for name, values in history.items()}, alpha=self.alpha)
        if self.rounds and self.rounds[0].agent is not None:
            return [Segment(0, self.iteration, whole, tuple(self.rounds), 0.0)]
        ends: dict[int, tuple[Round, ...]] = {self.iteration: ()} | {
            record.iteration: (record,) for record in self.rounds
        }
        segments: list[Segment] = []
        start = 0
        for end in sorted(ends):
            segments.append(Segment(start, end, whole.part(start, end), ends[end], 0.0, before=len(segments)))
            start = end
        return segments

    def check(self) -> None:
        """Raise ValueError where the history is incomplete. `load` checks the learned state."""
        if not 0 < self.iteration < self.config.horizon or self.alpha.shape != (self.iteration,):
            raise ValueError("the number of iterations is inconsistent")
        ends = [record.iteration for record in self.rounds if record.agent is None]
        is_barrier = len(ends) == len(self.rounds)
        if len(self.rounds) != int(self.server.get("rounds", 0)) or (
            is_barrier and ends and (ends != sorted(set(ends)) or ends[-1] != self.iteration)
        ):
            raise ValueError("the number of rounds is inconsistent")
        for segment in self.segments():
            shape = (segment.end - segment.start, self.config.honest_agents)
            if any(getattr(segment.trace, name).shape != shape for name in ("arms", "rewards", "regret")):
                raise ValueError("the number of rows is inconsistent")


class Due:
    """Decides when a checkpoint is due: after `seconds` or `rounds`, whichever comes first; 0 disables either."""

    def __init__(self, seconds: float, rounds: int) -> None:
        self._seconds, self._rounds = seconds, rounds
        self._last, self._count = time.monotonic(), 0

    def now(self) -> bool:
        """Return True where one is due. Call once after every segment at which the state can be saved."""
        self._count += 1
        late = self._seconds and time.monotonic() - self._last >= self._seconds
        if late or self._count == self._rounds:
            self._last, self._count = time.monotonic(), 0
            return True
        return False


class CheckpointStore:
    """Checkpoints of one simulation, in a directory or at any URI that pyarrow.fs opens."""

    def __init__(self, location: str) -> None:
        self.location = location
        try:
            self._fs, root = open_location(location)
            self._root = f"{root.rstrip('/')}/{CHECKPOINT_FOLDER}"
            self._is_local = isinstance(self._fs, pyarrow.fs.LocalFileSystem)
            if self._is_local:
                check_inside(Path(self._root) / MARK)
            self._fs.create_dir(self._root, recursive=True)
            names = self._names(self._root)
            if not names - {f"{MARK}.part"}:
                self._write(f"{self._root}/{MARK}", MARK_TEXT)
            elif MARK not in names:
                raise CheckpointError(
                    f"checkpoint={location!r}: its {CHECKPOINT_FOLDER} has no {MARK}, so fnbandit did not create it; "
                    "choose another location"
                )
        except (pa.ArrowException, OSError) as error:
            raise CheckpointError(f"checkpoint={location!r}: cannot open it ({error})") from None

    def trouble(self, error: Exception) -> str:
        """Return the one-line message for an error while reading or writing the store."""
        return f"checkpoint={self.location!r}: {(str(error).splitlines() or [type(error).__name__])[0]}"

    def save(self, snapshot: Snapshot) -> None:
        """Write a checkpoint; keep it and its complete predecessor, and delete the rest.

        Later checkpoints belong to an abandoned attempt and are deleted, too.
        """
        folder = f"{self._root}/step-{snapshot.iteration:09d}"
        self._fs.create_dir(folder, recursive=True)
        files = {}
        for name, tensors in (("agents", snapshot.agents), ("server", snapshot.server)):
            data = safetensors.torch.save({key: tensor.contiguous() for key, tensor in tensors.items()})
            files[f"{name}.safetensors"] = hashlib.sha256(data).hexdigest()
            self._write(f"{folder}/{name}.safetensors", data)
        body = {
            "version": CHECKPOINT_VERSION,
            "iteration": snapshot.iteration,
            "config": dataclasses.asdict(snapshot.config),
            "fingerprint": dataclasses.asdict(snapshot.fingerprint),
            "files": files,
            "alpha": snapshot.alpha.tolist(),
            "rounds": [dataclasses.asdict(r) for r in snapshot.rounds],
        }
        text = json.dumps(body, sort_keys=True)
        checksum = hashlib.sha256(text.encode()).hexdigest()
        self._write(f"{folder}/manifest.json", json.dumps({"sha256": checksum, "body": text}).encode())
        steps = self._steps()
        kept = [step for step in steps if step <= snapshot.iteration and self._has_manifest(step)][-KEPT:]
        for step in steps:
            if step not in kept:
                self._delete(f"{self._root}/step-{step:09d}", FILES)

    def clear(self) -> None:
        """Delete all checkpoints. Called when the run is finished."""
        for step in self._steps():
            self._delete(f"{self._root}/step-{step:09d}", FILES)
        if self._names(self._root) <= {MARK}:
            self._delete(self._root, (MARK,))

    def _delete(self, folder: str, names: Iterable[str]) -> None:
        """Delete files of these names, complete or partly written, then the folder if it is empty."""
        ours = {file for name in names for file in (name, f"{name}.part")}
        # The manifest first: after an interruption, a folder without it is not a checkpoint.
        for file in sorted(ours & self._names(folder), key=lambda file: (not file.startswith("manifest"), file)):
            self._fs.delete_file(f"{folder}/{file}")
        if not self._names(folder):
            self._fs.delete_dir(folder)

    def _names(self, folder: str) -> set[str]:
        """Return the names of the files in a folder."""
        return {info.base_name for info in self._fs.get_file_info(pyarrow.fs.FileSelector(folder))}

    def _write(self, path: str, data: bytes) -> None:
        if self._is_local:
            check_inside(Path(path))
            Path(f"{path}.part").unlink(missing_ok=True)  # it may be a link
        with self._fs.open_output_stream(f"{path}.part") as stream:
            stream.write(data)
        self._fs.move(f"{path}.part", path)

    def _steps(self) -> list[int]:
        found = self._fs.get_file_info(pyarrow.fs.FileSelector(self._root, allow_not_found=True))
        return sorted(int(match[1]) for info in found if (match := STEP.search(info.path)))

    def empty(self) -> bool:
        """Return True where the store has no complete checkpoint."""
        return not any(self._has_manifest(step) for step in self._steps())

    def _has_manifest(self, step: int) -> bool:
        """Return True where a checkpoint has its manifest, which is written last."""
        info = self._fs.get_file_info(f"{self._root}/step-{step:09d}/manifest.json")
        return info.type != pyarrow.fs.FileType.NotFound

    def latest(self) -> Snapshot | None:
        """Return the newest valid checkpoint; None if none is complete. Raise CheckpointError if none is valid."""
        problems = []
        for step in reversed(self._steps()):
            if not self._has_manifest(step):
                continue
            try:
                return self._load(step)
            except Exception as error:  # the checkpoint before may be valid, whatever the error
                reason = (str(error).splitlines() or [""])[0]
                known = isinstance(error, ValueError | OSError | safetensors.SafetensorError)
                problems.append(f"step-{step:09d}: {reason if known else f'{type(error).__name__} {reason}'}")
        if problems:
            raise CheckpointError(f"checkpoint={self.location!r}: no valid checkpoint ({'; '.join(problems)})")
        return None

    def _load(self, step: int) -> Snapshot:
        folder = f"{self._root}/step-{step:09d}"
        outer = json.loads(self._read(f"{folder}/manifest.json"))
        if hashlib.sha256(outer["body"].encode()).hexdigest() != outer["sha256"]:
            raise ValueError("manifest.json is altered")
        body = json.loads(outer["body"])
        if body["version"] != CHECKPOINT_VERSION:
            raise ValueError(f"has version {body['version']}, this program reads {CHECKPOINT_VERSION}")
        tensors = {}
        if body["iteration"] != step or body["files"].keys() != set(TENSORS):
            raise ValueError("manifest.json belongs to another checkpoint")
        for name, checksum in body["files"].items():
            data = self._read(f"{folder}/{name}")
            if hashlib.sha256(data).hexdigest() != checksum:
                raise ValueError(f"{name} is truncated or altered")
            tensors[name] = safetensors.torch.load(data)
        rounds = [_round(record) for record in body["rounds"]]
        snapshot = Snapshot(
            config=Config.from_record(body["config"]),
            fingerprint=Fingerprint(**body["fingerprint"]),
            iteration=body["iteration"],
            agents=tensors["agents.safetensors"],
            server=tensors["server.safetensors"],
            alpha=np.array(body["alpha"], dtype=np.float64),
            rounds=rounds,
        )
        snapshot.check()
        return snapshot

    def _read(self, path: str) -> bytes:
        with self._fs.open_input_stream(path) as stream:
            return stream.read()


def _round(record: dict[str, Any]) -> Round:
    """Build a round from its record in a manifest."""
    quantities = {quantity.name: record["quantities"].get(quantity.name, math.nan) for quantity in QUANTITIES}
    parts: dict[str, Any] = {
        "triggered": tuple(record["triggered"]),
        "cost": Cost(**record["cost"]),
        "costs": tuple((count, Cost(**cost)) for count, cost in record["costs"]),
        "quantities": quantities,
    }
    if record.get("dropped") is not None:
        parts["dropped"] = tuple(record["dropped"])
    if record["times"] is not None:
        parts["times"] = Times(**record["times"])
    return Round(**record | parts | {"quantities": quantities})
