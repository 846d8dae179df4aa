"""Studies: what is written and read back, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers import plain

from workflows.studies.settings import Settings
from workflows.studies.study import RunSpec, StudyPlan, folder_of, load_study, with_seeds


def study(directory, **fields):
    points = with_seeds([RunSpec("agents=2", plain(agents=2, **fields), "two", 3.5), RunSpec("", plain(**fields))], 2)
    return StudyPlan("mine", directory, points, Settings(engine="local", out="elsewhere"), "A title")


def test_a_study_is_read_as_it_was_written(tmp_path):
    first = study(tmp_path)
    first.save()
    second = load_study(tmp_path)
    assert second.points == first.points
    assert (second.name, second.title, second.directory) == ("mine", "A title", tmp_path)
    assert second.settings == Settings(engine="local", out=str(tmp_path)), "records go where the study was found"


def test_damaged_files_are_one_line(tmp_path):
    with pytest.raises(ValueError, match="has no study.json"):
        load_study(tmp_path)
    study(tmp_path).save()
    path = tmp_path / "study.json"
    body = json.loads(path.read_text())
    for change, pattern in (
        ({"version": 1}, "version 1, expected 3"),
        ({"settings": {"engine": "locl"}}, "engine='locl' is unknown"),
        ({"points": [{"path": ".", "config": {"agents": 0}}]}, "agents=0"),
        ({"points": [{"path": "."}]}, "config"),
    ):
        path.write_text(json.dumps(body | change))
        with pytest.raises(ValueError, match=f"study.json: cannot be read .*{pattern}") as error:
            load_study(tmp_path)
        assert "\n" not in str(error.value)
    path.write_text(path.read_text()[:50])
    with pytest.raises(ValueError, match="study.json: is damaged"):
        load_study(tmp_path)


def test_seeds():
    points = with_seeds([RunSpec("a=1", plain(seed=3)), RunSpec("", plain(seed=1)), RunSpec(".", plain(seed=5))], 2)
    assert [point.path for point in points] == ["a=1/seed=3", "a=1/seed=4", "seed=1", "seed=2", "seed=5", "seed=6"]
    assert [point.config.seed for point in points] == [3, 4, 1, 2, 5, 6]
    with pytest.raises(ValueError, match="seed=2: duplicate run"):
        with_seeds([RunSpec("", plain(seed=1)), RunSpec("", plain(seed=2))], 2)


def test_folders():
    assert folder_of({"agents": 2, "threshold": 4.0}) == "agents=2/threshold=4.0"
    assert (
        folder_of({"environment": "a b/c.csv", "algorithm": "mine:Best"})
        == "environment=a%20b%2Fc.csv/algorithm=mine:Best"
    )


def test_settings_say_where_a_run_saves():
    beside = Settings(checkpoint_seconds=5.0).choose_checkpointing(Path("here"), "seed=1")
    assert (beside.location, beside.seconds) == ("here/seed=1", 5.0)
    assert Settings(checkpoint="s3://b/c/").choose_checkpointing(Path("here"), "seed=1").location == "s3://b/c/seed=1"
    assert Settings(checkpoint="s3://b/c/").choose_checkpointing(Path("here"), ".").location == "s3://b/c"
