"""Records of runs whose numbers are checkable by hand."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pyarrow as pa
from helpers import plain

from fnbandit.storage.records import ROUND_SCHEMA, TRACE_SCHEMA, RunRecord


def record(
    regret,
    rounds=(),
    label: str | None = None,
    status="finished",
    weight=0.0,
    mean: bool = False,
    time=None,
    **fields,
) -> RunRecord:
    """A run with this regret [iterations, agents], rounds in these iterations, and these seconds, as regret."""
    regret = np.array(regret, dtype=float)
    iterations, agents = regret.shape
    config = plain(agents=agents, horizon=max(1, iterations), **fields)
    numbers = np.arange(1, iterations + 1, dtype=np.int32)
    weights = np.broadcast_to(weight, iterations)
    if mean:
        columns = [numbers, [None] * iterations, [None] * iterations, regret.mean(1), regret.mean(1), weights]
        seconds = [None] * iterations if time is None else np.array(time, dtype=float).mean(1)
    else:
        each = np.tile(np.arange(agents, dtype=np.int32), iterations)
        regret_rows = regret.ravel()
        columns = [np.repeat(numbers, agents), each, each, regret_rows, regret_rows, np.repeat(weights, agents)]
        seconds = [None] * regret.size if time is None else np.array(time, dtype=float).ravel()
    arrays = [pa.array(column, field.type) for column, field in zip([*columns, seconds], TRACE_SCHEMA, strict=True)]
    lengths = np.diff([0, *rounds])
    rows = [{"iteration": end, "epoch_length": int(length)} for end, length in zip(rounds, lengths, strict=True)]
    summary = {
        "version": "1",
        "status": status,
        "label": label,
        "config": dataclasses.asdict(config),
        "iterations": iterations,
        "regret": float(regret.sum(0).mean()) if iterations else 0.0,
        "rounds": len(rounds),
        "exchanges": len(rounds),
        "bytes_up": 1000 * agents * len(rounds),
        "bytes_down": 2000 * agents * len(rounds),
    }
    return RunRecord(
        Path("nowhere"),
        summary,
        pa.Table.from_arrays(arrays, schema=TRACE_SCHEMA),
        pa.Table.from_pylist(rows, ROUND_SCHEMA),
    )
