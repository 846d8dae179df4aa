"""Results and studies in Python: saved, loaded, as tables and as figures."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from helpers import assert_same, plain

import fnbandit
from fnbandit import Config, load, read_run, read_sweep, simulate
from workflows.command_line import main


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """A sweep over N and D, one of whose thresholds is the theory's."""
    folder = tmp_path_factory.mktemp("studies") / "sweep"
    command = "sweep --agents 1,2 --trigger logdet --threshold 2.5,theory --seeds 2 --horizon 12 --width 4 -q"
    flags = ["--engine", "local", "--tracking", "none", "--no-figures", "--out", str(folder)]
    assert main([*command.split(), *flags]) == 0
    return folder


def config(agents, threshold, seed):
    fields = {"agents": agents, "threshold": threshold, "seed": seed, "trigger": "logdet", "horizon": 12, "width": 4}
    return Config.preset("tuned", **fields)


def test_a_frame_has_what_differs_and_the_regret_of_every_iteration(sweep):
    frame = load(sweep).frame()
    assert frame.column_names == ["agents", "seed", "threshold", "iteration", "regret", "cumulative_regret"]
    assert frame.schema.field("agents").type == pa.int64() and frame.schema.field("threshold").type == pa.float64()
    assert frame.num_rows == 8 * 12
    expected = simulate(config(2, 2.5, 1))
    rows = frame.filter((pa.compute.field("agents") == 2) & (pa.compute.field("threshold") == 2.5))
    rows = rows.filter(pa.compute.field("seed") == 1)
    assert rows["iteration"].to_pylist() == list(range(1, 13))
    np.testing.assert_allclose(rows["regret"].to_numpy(), expected.regret.mean(1))
    np.testing.assert_allclose(rows["cumulative_regret"].to_numpy(), expected.regret.mean(1).cumsum())
    assert list(frame.to_pandas().columns) == frame.column_names


def test_finals_have_a_row_per_run(sweep):
    finals = load(sweep).finals()
    assert finals.num_rows == 8
    expected = simulate(config(1, 2.5, 0))
    row = finals.filter((pa.compute.field("agents") == 1) & (pa.compute.field("threshold") == 2.5)).slice(0, 1)
    assert row["regret"][0].as_py() == pytest.approx(expected.regret.sum())
    assert row["rounds"][0].as_py() == len(expected.rounds)
    assert row["bytes_up"][0].as_py() == expected.communication.total.bytes_up


def test_partition_columns_have_the_types_of_the_config(sweep):
    for table in ("trace", "rounds"):
        found = read_sweep(sweep, table).to_table()
        assert found.schema.field("threshold" if table == "rounds" else "agents").type in (pa.float64(), pa.int64())
        assert found.schema.field("seed").type == pa.int64()
    data = read_sweep(sweep)
    assert data.schema.field("threshold").type == pa.float64()
    field = pa.compute.field
    assert data.to_table(filter=(field("threshold") == 2.5) & (field("agents") == 2)).num_rows == 2 * 12 * 2
    rounds = read_sweep(sweep, "rounds").to_table(filter=field("threshold") == 2.5)
    assert set(rounds["threshold"].to_pylist()) == {2.5}


def test_words_among_numbers_make_a_column_of_texts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    argv = "sweep --training-steps 2,auto --agents 1 --horizon 5 --width 4 --engine local --tracking none -q --out here"
    assert main(argv.split()) == 0
    assert load("here").finals()["training_steps"].to_pylist() == ["2", "auto"]
    assert set(read_sweep("here").to_table()["training_steps"].to_pylist()) == {"2", "auto"}


def test_a_study_draws_its_figures(sweep):
    study = load(sweep)
    assert "8 of 8 runs finished; agents = 1, 2" in repr(study)
    assert study.plot("regret").axes[0].get_ylabel().startswith("cumulative regret")
    assert study.plot("regret against N").axes[0].get_xlabel() == "agents N"
    assert "bytes" in study.plot("bytes against regret").axes[-1].get_xlabel()
    with pytest.raises(ValueError, match="figure='beauty' is unknown.*accepted: regret, "):
        study.plot("beauty")
    with pytest.raises(ValueError, match="has no run"):
        load(sweep / "nowhere")


def test_a_result_is_saved_as_a_run_is(sweep, tmp_path):
    result = simulate(config(2, 2.5, 1))
    assert repr(result).startswith("Result: fn-ucb-less-comm on cosine, 2 agents, 12 iterations")
    assert result.save(tmp_path / "mine") == tmp_path / "mine"
    mine, theirs = read_run(tmp_path / "mine"), read_run(sweep / "agents=2" / "threshold=2.5" / "seed=1")
    assert mine.trace.equals(theirs.trace)
    assert mine.rounds.drop_columns(["seconds"]).equals(theirs.rounds.drop_columns(["seconds"]))
    for name in ("regret", "regret_standard_error", "rounds", "bytes_up", "config", "status"):
        assert mine.summary[name] == theirs.summary[name], name
    with pytest.raises(ValueError, match="already contains a run"):
        result.save(tmp_path / "mine")
    assert load(tmp_path).finals().num_rows == 1
    assert result.plot("regret").axes


def test_one_function_for_both_engines(ray_cluster, capfd):
    small = plain(agents=2, horizon=10, width=4, trigger="period", period=4)
    assert_same(simulate(small, engine="ray", progress=True), simulate(small))
    assert "10/10" in capfd.readouterr().err
    with pytest.raises(ValueError, match="engine='rai' is unknown"):
        simulate(small, engine="rai")
    with pytest.raises(ValueError, match="groups=2"):
        simulate(small, engine="ray", groups=2)


def test_the_version():
    assert fnbandit.__version__ == "0.1.0"
