"""Tables: rounds, exchanges and messages beside each other, N by D, JSON of numbers, numeric order."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from small_records import record

from fnbandit import Config, load, simulate
from fnbandit.storage.locations import sort_key
from fnbandit.storage.save import record_of
from fnbandit.storage.totals import RunTotals
from workflows.command_line import main
from workflows.reporting.naming import short_name
from workflows.reporting.tables import columns_of, markdown, pivot, print_table, rows, totals, write_csv
from workflows.studies.study import RunSpec

SMALL = {"horizon": 12, "width": 4, "dim": 3, "agents": 3}


def printed(runs) -> str:
    """The table as on a wide screen."""
    text = io.StringIO()
    print_table(runs, Console(file=text, width=200))
    return text.getvalue()


def test_rounds_exchanges_and_messages_of_agents_that_wait_and_of_agents_that_do_not():
    rounds = simulate(Config(**SMALL, trigger="period", period=3))
    alone = simulate(Config(**SMALL, algorithm="fn-ucb-async", trigger="period", period=3, clock="uniform"))
    waiting, single = rows([record_of(rounds), record_of(alone)])
    # Four rounds of one exchange; in each 3 agents upload, and 3 receive the answer.
    assert (waiting.rounds, waiting.exchanges, waiting.messages) == (4, 4, 24)
    # Each of 3 agents exchanges alone after iterations 3, 6, 9 and 12: a message up, a message down.
    assert (single.rounds, single.exchanges, single.messages) == (None, 12, 24)
    assert waiting.simulated_seconds is None and single.simulated_seconds == alone.times[-1].max()
    assert "rounds             4 (4 exchanges)" in rounds.summary()
    assert "rounds             0 (12 exchanges)" in alone.summary()
    text = printed([record_of(rounds), record_of(alone)])
    for heading in ("rounds", "exchanges", "messages", "simulated seconds", "wall seconds"):
        assert heading in text and heading in markdown([record_of(rounds), record_of(alone)])
    assert "simulated" not in printed([record_of(rounds)])


def test_single_agents_exchanges_are_another_metric_than_rounds():
    config = Config(**SMALL, algorithm="fn-ucb-async", trigger="period", period=3)
    observer = RunTotals()
    observer.begin(config)
    metrics: dict[str, float] = {}
    for segment in simulate(config).segments:
        observer.segment(segment)
        metrics |= observer.due[-1][1]
    assert metrics["exchanges"] == 12 and "rounds" not in metrics
    assert (observer.summary()["rounds"], observer.summary()["exchanges"]) == (0, 12)


def test_several_exchanges_in_a_round_count_each():
    result = simulate(Config(**SMALL, trigger="period", period=6, averagings=3))
    (row,) = rows([record_of(result)])
    assert (row.rounds, row.exchanges) == (2, sum(one.exchanges for one in result.round_records))
    assert row.exchanges > row.rounds


def test_json_rows_are_numbers_by_field(tmp_path):
    runs = [record(np.ones((2, n)), rounds=(1,), trigger="logdet", threshold=d) for n in (1, 2) for d in (1.0, 25.0)]
    found = json.loads(json.dumps(totals(runs)))
    assert [(row["agents"], row["threshold"]) for row in found] == [(1, 1.0), (1, 25.0), (2, 1.0), (2, 25.0)]
    for row in found:
        assert set(row) >= {"regret", "rounds", "exchanges", "messages_up", "messages_down", "bytes_up", "seconds"}
        texts = [name for name, value in row.items() if isinstance(value, str)]
        assert set(texts) <= {"run", "error_over"}
    write_csv(runs, tmp_path / "table.csv")
    with (tmp_path / "table.csv").open() as file:
        (header, *_) = csv.reader(file)
    assert header == list(found[0]), "the columns have the names of JSON's keys"


def test_n_by_d_is_a_table():
    runs = [record(np.ones((2, n)), rounds=(1, 2), trigger="logdet", threshold=d) for n in (10, 2) for d in (25.0, 2.5)]
    runs.append(record(np.ones((2, 2)), rounds=(1, 2)))
    headings, lines = pivot(rows(runs))
    assert headings == ["N", "trigger", "D = 2.5", "D = 25", "no D"]
    assert [line[0] for line in lines] == ["2", "2", "10"]
    assert pivot(rows(runs[:4])) == (["N", "D = 2.5", "D = 25"], [[n, "2.00 (2)", "2.00 (2)"] for n in ("2", "10")])
    assert pivot(rows(runs[:2])) is None, "one field is a column, not a table"
    assert "simulated_seconds" not in columns_of(rows(runs))


def test_an_algorithm_without_a_trigger_has_no_d():
    assert short_name(RunSpec("algorithm=neural-ucb/seed=0", Config(algorithm="neural-ucb"))) == (
        "N=8 s0 algorithm=neural-ucb"
    )
    assert short_name(RunSpec("seed=0", Config())) == "N=8 D=2.0 s0"


def test_paths_are_sorted_by_their_numbers():
    names = [
        "agents=20",
        "agents=5",
        "agents=1",
        "threshold=2.5",
        "threshold=25.0",
        "threshold=2.25",
        "b",
        "seed=1e-05",
    ]
    assert [path.name for path in sorted(map(Path, names), key=sort_key)] == [
        "agents=1", "agents=5", "agents=20", "b", "seed=1e-05", "threshold=2.25", "threshold=2.5", "threshold=25.0",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A sweep over N and D."""
    folder = tmp_path_factory.mktemp("tables") / "nd"
    line = "sweep --agents 1,2,10 --threshold 1,5 --horizon 6 --width 4 --dim 3 --engine local --tracking none -q"
    assert main([*line.split(), "--out", str(folder)]) == 0
    return folder


def test_show_has_the_n_by_d_table_of_a_study(study, capsys):
    assert main(["show", str(study)]) == 0
    text = capsys.readouterr().out
    assert "6 in " in text and "seed=0" not in text
    lines = [line.split() for line in text.splitlines()]
    at = lines.index(["N", "D", "=", "1", "D", "=", "5"])
    assert [line[0] for line in lines[at + 1 : at + 4]] == ["1", "2", "10"]
    ten = load(study).finals().filter((pyarrow_field("agents") == 10) & (pyarrow_field("threshold") == 5.0))
    assert lines[at + 3][-2:] == [f"{ten['regret'][0].as_py():.2f}", f"({ten['rounds'][0].as_py()})"]


def pyarrow_field(name):
    from pyarrow.compute import field

    return field(name)


def test_show_and_ls_give_numbers_as_json(study, capsys):
    assert main(["show", str(study), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["agents"], found["threshold"], found["seed"]) == ([1, 2, 10], [1.0, 5.0], [0])
    assert len(found["regret"]) == 6 and all(isinstance(value, float) for value in found["regret"])
    assert [row["agents"] for row in found["rows"]] == [1, 1, 2, 2, 10, 10]
    assert main(["show", str(study / "agents=10" / "threshold=5.0" / "seed=0"), "--json"]) == 0
    one = json.loads(capsys.readouterr().out)
    numbers = ("iterations", "horizon", "regret", "rounds", "exchanges", "messages_up", "bytes_down", "seconds")
    assert all(isinstance(one[name], int | float) for name in numbers)
    assert main(["ls", str(study), "--json"]) == 0
    assert [row["agents"] for row in json.loads(capsys.readouterr().out)] == [[1], [1], [2], [2], [10], [10]]


def test_the_runs_of_a_loaded_study_are_in_the_order_of_their_numbers(study):
    finals = load(study).finals()
    assert finals["agents"].to_pylist() == [1, 1, 2, 2, 10, 10]
    assert "simulated_seconds" not in finals.column_names
    assert finals["regret_standard_error"].to_pylist()[:2] == [None, None], "one agent has no error"
    assert None not in finals["regret_standard_error"].to_pylist()[2:]


def test_a_run_without_a_record_has_no_totals_yet(tmp_path, monkeypatch, capsys):
    from fnbandit.storage.records import read_summary, write_summary

    monkeypatch.chdir(tmp_path)
    line = "run --agents 2 --horizon 3 --width 4 --engine local --tracking none -q --out runs/one"
    assert main(line.split()) == 0
    summary = read_summary(Path("runs/one"))
    nothing = {"status": "running", "iterations": 0, "regret": 0.0, "rounds": 0}
    write_summary(Path("runs/one"), summary | nothing)
    assert main(["ls", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["regret"], row["rounds"], row["exchanges"]) == ([], [], [])
    assert main(["show", "runs/one"]) == 0
    text = capsys.readouterr().out
    assert "regret " not in text.partition("config")[0] and "0 of 3" in text
