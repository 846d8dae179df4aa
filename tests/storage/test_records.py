"""What a run leaves behind: rows by hand, streams that are cut anywhere, folders that are no run."""

from __future__ import annotations

import json
import math

import numpy as np
import pyarrow as pa
import pytest
from helpers import plain

from fnbandit.algorithms.base import Trace
from fnbandit.federation.messages import Cost
from fnbandit.simulation.results import Round, Segment
from fnbandit.storage.records import (
    ROUND_SCHEMA,
    TRACE_SCHEMA,
    RecordWriter,
    find_runs,
    read_run,
    read_stream,
    write_json,
    write_summary,
)
from fnbandit.storage.studies import read_sweep

COST = Cost(messages_up=4, messages_down=5, numbers_up=6, numbers_down=7, bytes_up=8, bytes_down=9)


def segment(start: int, end: int, round_: bool = True) -> Segment:
    """Two agents; in iteration t they choose arms t and t + 1, get t and 2 t, and miss 0.5 and 1.5."""
    t = np.arange(start + 1, end + 1)[:, None]
    trace = Trace(t + np.arange(2), t * np.array([1.0, 2.0]), np.tile([0.5, 1.5], (end - start, 1)), t[:, 0] / 100)
    record = (
        Round(
            end,
            end - start,
            (1,),
            3.5,
            2.5,
            COST,
            {"loss": 0.25, "steps": 30.0, "diverged": math.nan, "alpha": 0.5, "broadcast_alpha": 0.25},
            participants=2,
            exchanges=3,
        )
        if round_
        else None
    )
    return Segment(start, end, trace, (record,) if record else (), 0.125)


def written(directory, detail="agents", finished=True, **config):
    writer = RecordWriter(directory, detail)
    writer.begin(plain(agents=2, horizon=6))
    for part in (segment(0, 3), segment(3, 4), segment(4, 6, round_=False)):
        writer.segment(part)
    writer.end("finished" if finished else "failed")
    status = "finished" if finished else "running"
    write_summary(directory, {"status": status, "config": config, "iterations": 6, "files": writer.files})
    return read_run(directory)


def test_a_row_for_every_iteration_and_agent(tmp_path):
    record = written(tmp_path)
    assert record.finished
    assert record.trace.schema.equals(TRACE_SCHEMA, check_metadata=True)
    assert record.trace.to_pydict() == {
        "iteration": [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6],
        "agent": [0, 1] * 6,
        "arm": [1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7],
        "reward": [1, 2, 2, 4, 3, 6, 4, 8, 5, 10, 6, 12],
        "regret": [0.5, 1.5] * 6,
        "weight": [0.01, 0.01, 0.02, 0.02, 0.03, 0.03, 0.04, 0.04, 0.05, 0.05, 0.06, 0.06],
        "time": [None] * 12,
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rounds.parquet", "summary.json", "trace.parquet"]


def test_a_row_for_every_round(tmp_path):
    rounds = written(tmp_path).rounds
    assert rounds.schema.equals(ROUND_SCHEMA)
    assert rounds.schema.metadata == ROUND_SCHEMA.metadata
    first = {"iteration": 3, "epoch_length": 3, "triggered": [1], "measure": 3.5, "threshold": 2.5, "messages_up": 4,
             "messages_down": 5, "numbers_up": 6, "numbers_down": 7, "bytes_up": 8, "bytes_down": 9, "weight": 0.03,
             "loss": 0.25, "steps": 30.0, "diverged": None, "alpha": 0.5, "broadcast_alpha": 0.25,
             "dropped_share": None, "seconds": 0.125, "agent": None, "staleness": None, "participants": 2,
             "exchanges": 3, "time": None, "computing": None, "waiting": None, "sending": None,
             "away": None, "dropped": None}  # fmt: skip
    assert rounds.to_pylist() == [first, first | {"iteration": 4, "epoch_length": 1, "weight": 0.04}]


def test_thinned_traces(tmp_path):
    mean = written(tmp_path / "mean", "mean").trace.to_pydict()
    assert mean["iteration"] == [1, 2, 3, 4, 5, 6]
    assert mean["agent"] == mean["arm"] == [None] * 6
    assert mean["reward"] == [1.5, 3, 4.5, 6, 7.5, 9]
    assert mean["regret"] == [1.0] * 6
    none = written(tmp_path / "none", "none")
    assert len(none.trace) == 0
    assert len(none.rounds) == 2


def test_an_unfinished_run_is_read_as_far_as_it_goes(tmp_path):
    record = written(tmp_path, finished=False)
    assert not record.finished
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rounds.arrows", "summary.json", "trace.arrows"]
    assert len(record.trace) == 12
    (tmp_path / "trace.arrows").unlink()
    assert len(read_run(tmp_path).trace) == 0


def test_streams_survive_a_cut_anywhere(tmp_path):
    whole = written(tmp_path, finished=False).trace
    stream = tmp_path / "trace.arrows"
    data, lengths = stream.read_bytes(), set()
    for cut in range(0, len(data), 7):
        stream.write_bytes(data[:cut])
        part = read_stream(stream)
        assert part.schema.equals(TRACE_SCHEMA)
        assert part.equals(whole.slice(0, len(part)))
        lengths.add(len(part))
    assert lengths == {0, 6, 8, 12}  # whole segments of 3, 1 and 2 iterations


def test_no_altered_bit_of_a_stream_is_read_as_another_value(tmp_path, caplog):
    whole = {name: getattr(written(tmp_path, finished=False), name) for name in ("trace", "rounds")}
    for name, table in whole.items():
        stream = tmp_path / f"{name}.arrows"
        data = stream.read_bytes()
        for place in range(0, len(data), 7):
            altered = bytearray(data)
            altered[place] ^= 1 << place % 8
            stream.write_bytes(altered)
            caplog.clear()
            part = read_stream(stream)
            assert part.equals(table.slice(0, len(part)))
            assert len(part) == len(table) or "truncated or damaged after" in caplog.text


def test_a_batch_that_is_missing_ends_the_stream(tmp_path):
    whole = written(tmp_path, finished=False).trace
    stream = tmp_path / "trace.arrows"
    data = stream.read_bytes()
    ends = [cut for cut in range(8, len(data), 8) if _rows(stream, data[:cut]) > _rows(stream, data[: cut - 8])]
    first, second, third = ends
    stream.write_bytes(data[:first] + data[second:third])
    assert read_stream(stream).equals(whole.slice(0, 6)), "the second batch is missing"


def _rows(stream, data):
    stream.write_bytes(data)
    return len(read_stream(stream))


def test_an_altered_table_or_summary_of_a_finished_run(tmp_path):
    written(tmp_path)
    for name in ("trace.parquet", "rounds.parquet", "summary.json"):
        path = tmp_path / name
        data = path.read_bytes()
        for place in range(0, len(data), 11):
            altered = bytearray(data)
            altered[place] ^= 1
            path.write_bytes(altered)
            with pytest.raises(ValueError, match=f"{name}: is damaged"):
                read_run(tmp_path)
        path.write_bytes(data)
    read_run(tmp_path)


@pytest.mark.parametrize("text", ["{}", "[]", "3", '"x"', "[" * 100_000, '{"version": 2}', "\xff", ""])
def test_summaries_of_the_wrong_kind(tmp_path, text):
    written(tmp_path)
    (tmp_path / "summary.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match="summary.json: is damaged") as caught:
        read_run(tmp_path)
    assert "\n" not in str(caught.value)


def test_what_is_no_run_and_what_is_damaged(tmp_path):
    with pytest.raises(ValueError, match="not a run: summary.json is missing"):
        read_run(tmp_path)
    written(tmp_path)
    (tmp_path / "trace.parquet").write_bytes(b"no table")
    with pytest.raises(ValueError, match="trace.parquet: is damaged"):
        read_run(tmp_path)
    (tmp_path / "summary.json").write_text("{")
    with pytest.raises(ValueError, match="summary.json: is damaged"):
        read_run(tmp_path)


def test_json_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "summary.json"
    write_json(path, {"status": "running"})
    with pytest.raises(TypeError):
        write_json(path, {"status": object()})
    assert json.loads(path.read_text()) == {"status": "running"}


def test_a_sweep_is_one_data_set(tmp_path):
    with pytest.raises(ValueError, match="has no finished run"):
        read_sweep(tmp_path)
    for seed in (0, 1):
        written(tmp_path / "agents=2" / f"seed={seed}", agents=2, seed=seed)
    written(tmp_path / "agents=3" / "seed=0", finished=False)
    assert find_runs(tmp_path) == [
        tmp_path / part for part in ("agents=2/seed=0", "agents=2/seed=1", "agents=3/seed=0")
    ]
    assert find_runs(tmp_path / "agents=2" / "seed=0") == [tmp_path / "agents=2" / "seed=0"]
    data = read_sweep(tmp_path)
    assert len(data.to_table()) == 24
    assert set(data.to_table()["agents"].to_pylist()) == {2}
    assert len(data.to_table(filter=pa.compute.field("seed") == 1)) == 12
    assert len(read_sweep(tmp_path, "rounds").to_table()) == 4
