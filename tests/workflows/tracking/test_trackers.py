"""The contract of trackers: every tracker passes the same tests, and a tracker never costs a run."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path

import pytest
from helpers import put_store

from fnbandit import read_run
from fnbandit.config.registry import without_effect
from fnbandit.storage.files import TRACKER_FILES
from fnbandit.storage.totals import RunTotals
from workflows.command_line import main
from workflows.studies.study import load_study
from workflows.studies.tracking_uri import store_uri

pytestmark = pytest.mark.filterwarnings("ignore")  # MLflow's own warnings
RUN = ["run", "--agents", "2", "--horizon", "12", "--width", "4", "--engine", "local", "--out", "here", "--no-figures"]
SWEEP = ["sweep", "--agents", "1,2", *RUN[3:]]

OWN = """
import json
from workflows.tracking.base import TrackedRun, Tracker

class Run(TrackedRun):
    def __init__(self, metadata, folder):
        self.path = folder / "own.json"
        self.body = {"params": dict(metadata.params), "regret": {}, "status": "running"}
    def log(self, step, metrics):
        self.body["regret"][step] = metrics["regret"]
    def finish(self, status, artifacts):
        self.body["regret"] |= {step: metrics["regret"] for step, metrics in artifacts.metrics}
        self.body |= {"status": status, "files": [path.name for path in artifacts.files if path.exists()]}
        self.path.write_text(json.dumps(self.body))

class Own(Tracker):
    def __init__(self, study, folder, settings):
        self.study = study and Run(study, folder)
    def start_run(self, run, folder):
        return Run(run, folder)
    def finish(self, status, artifacts):
        if self.study:
            self.study.finish(status, artifacts)

class Broken(Tracker):
    def start_run(self, run, folder):
        return BrokenRun()
    def finish(self, status, artifacts):
        raise RuntimeError("no study")

class BrokenRun(TrackedRun):
    def log(self, step, metrics):
        raise ConnectionError("no answer")
    def finish(self, status, artifacts):
        raise AssertionError("a run that is not tracked any more is not finished")

def no_tracker():
    pass
"""


@pytest.fixture(autouse=True)
def in_a_directory_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "own_tracker.py").write_text(OWN)


@pytest.fixture
def store(tmp_path):
    put_store(tmp_path / "mlflow.db")


@dataclass(frozen=True)
class Tracked:
    """A run or a study, read back from its tracker."""

    params: dict
    regret: dict
    """By step"""
    status: str
    files: set


class TrackerContract:
    """The tests; a subclass names a tracker and reads back what it has of a folder."""

    name: str

    def read(self, folder: Path) -> Tracked:
        raise NotImplementedError

    def check_run(self, folder: Path, status: str) -> None:
        tracked, record = self.read(folder), read_run(folder)
        assert tracked.status == status == record.summary["status"]
        config = record.summary["config"]
        params = {key: str(value) for key, value in config.items() if key not in without_effect(config)}
        assert {key: str(value) for key, value in tracked.params.items()} == params
        done = record.summary["iterations"]
        assert sorted(tracked.regret) == list(range(1, done + 1)), "each step once"
        assert tracked.regret[done] == pytest.approx(record.summary["regret"], rel=1e-4)
        assert {"config.toml", "summary.json"} <= tracked.files
        assert ("trace.parquet" in tracked.files) == (status == "finished")

    def check_study(self, folder: Path, status: str) -> None:
        tracked = self.read(folder)
        assert (tracked.status, tracked.params["agents"]) == (status, "1, 2")
        runs = [read_run(folder / f"agents={agents}" / "seed=0") for agents in (1, 2)]
        finished = {run.summary["config"]["agents"]: run.summary["regret"] for run in runs if run.finished}
        if len(finished) == 2:
            assert tracked.regret == pytest.approx(finished, rel=1e-4)
            pages = {name for name in ("report.html", "table.csv") if (folder / name).exists()}
            assert pages <= tracked.files

    def test_a_run(self):
        assert main([*RUN, "--tracking", self.name]) == 0
        self.check_run(Path("here"), "finished")
        assert load_study(Path("here")).settings.tracking == self.name

    def test_a_study_of_several_runs(self):
        assert main([*SWEEP[:-1], "--tracking", self.name]) == 0
        assert Path("here/report.html").exists()
        self.check_study(Path("here"), "finished")
        for agents in (1, 2):
            self.check_run(Path(f"here/agents={agents}/seed=0"), "finished")

    @pytest.mark.parametrize(
        ("error", "code", "status"), [(KeyboardInterrupt, 130, "interrupted"), (ValueError, 1, "failed")]
    )
    def test_a_study_that_ends_early_and_is_resumed(self, monkeypatch, error, code, status):
        segment = RunTotals.segment

        def ending(self, part):
            segment(self, part)
            if self.config.agents == 2 and part.end > 5:
                raise error("early")

        with monkeypatch.context() as patch:
            patch.setattr(RunTotals, "segment", ending)
            assert main([*SWEEP, "--tracking", self.name]) == code
        assert read_run("here/agents=2/seed=0").summary["status"] == status
        self.check_study(Path("here"), status)
        assert main(["resume", "here", *(["--trust"] if ":" in self.name else [])]) == 0
        self.check_study(Path("here"), "finished")
        for agents in (1, 2):
            self.check_run(Path(f"here/agents={agents}/seed=0"), "finished")


@pytest.mark.usefixtures("store")
class TestMlflow(TrackerContract):
    name = "mlflow"

    def read(self, folder):
        from mlflow import MlflowClient

        client = MlflowClient(store_uri())
        run = client.get_run(json.loads((folder / "mlflow.json").read_text())["run_id"])
        by_agents = "regret by N" in run.data.metrics
        history = client.get_metric_history(run.info.run_id, "regret by N" if by_agents else "regret")
        regret = {metric.step: metric.value for metric in history}
        assert len(regret) == len(history)
        status = {"FINISHED": "finished", "KILLED": "interrupted", "FAILED": "failed"}[run.info.status]
        files = {item.path for item in client.list_artifacts(run.info.run_id)}
        return Tracked(run.data.params, regret, status, files)


class TestJsonl(TrackerContract):
    name = "jsonl"

    def read(self, folder):
        start, *steps, end = [json.loads(line) for line in (folder / "tracking.jsonl").read_text().splitlines()]
        assert (start["event"], end["event"]) == ("start", "end")
        regret = {line["step"]: line["regret"] for line in steps}
        assert len(regret) == len(steps)
        return Tracked(start["params"], regret, end["status"], {Path(path).name for path in end["files"]})


class TestOwn(TrackerContract):
    name = "own_tracker:Own"

    def read(self, folder):
        body = json.loads((folder / "own.json").read_text())
        regret = {int(step): value for step, value in body["regret"].items()}
        return Tracked(body["params"], regret, body["status"], set(body["files"]))


class TestNone(TrackerContract):
    name = "none"

    def check_run(self, folder, status):
        assert read_run(folder).summary["status"] == status
        assert not any((folder / name).exists() for name in TRACKER_FILES)

    def check_study(self, folder, status):
        assert not any((folder / name).exists() for name in TRACKER_FILES) and not Path("mlflow.db").exists()


def test_a_tracker_that_raises_costs_no_run(caplog):
    with caplog.at_level(logging.WARNING, logger="fnbandit"):
        assert main([*RUN, "--tracking", "own_tracker:Broken"]) == 0
    assert read_run("here").finished
    messages = [record.getMessage() for record in caplog.records if "not tracked any more" in record.getMessage()]
    assert [message.partition("(")[2] for message in messages] == [
        "ConnectionError: no answer)",
        "RuntimeError: no study)",
    ]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("wandb", "tracking='wandb' is unknown; accepted: mlflow, jsonl, none, package.module:Name"),
        ("nowhere:Mine", "tracking='nowhere:Mine': cannot import it"),
        ("own_tracker:Other", "tracking='own_tracker:Other': cannot import it"),
        ("own_tracker:no_tracker", "tracking='own_tracker:no_tracker': not a tracker"),
    ],
)
def test_a_name_that_is_no_tracker_is_one_line_before_anything_is_written(capsys, name, words):
    assert main([*RUN, "--tracking", name]) == 2
    printed = capsys.readouterr().err
    assert words in printed and printed.count("\n") == 1
    assert not Path("here/study.json").exists()


def test_a_study_of_the_version_before_has_a_switch(tmp_path):
    assert main([*RUN, "--tracking", "none"]) == 0
    path = tmp_path / "here" / "study.json"
    body = json.loads(path.read_text())
    for switch, name in ((True, "mlflow"), (False, "none")):
        path.write_text(json.dumps(body | {"version": 2, "settings": body["settings"] | {"tracking": switch}}))
        assert load_study(tmp_path / "here").settings.tracking == name
