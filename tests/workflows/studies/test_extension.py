"""A second command for a study's folder: runs are added, and what differs is said."""

from __future__ import annotations

import pytest
from helpers import plain
from matplotlib.figure import Figure

from fnbandit import Config
from fnbandit.storage.records import atomic_write
from workflows.reporting.figures import MAKER
from workflows.studies.extension import clear, extend, name_differences
from workflows.studies.settings import Settings
from workflows.studies.study import RunSpec, StudyPlan, load_study, with_seeds


def study(directory, agents=(1, 2), seeds=2, **fields):
    points = [RunSpec(f"agents={n}", plain(agents=n, **fields)) for n in agents]
    return StudyPlan("mine", directory, with_seeds(points, seeds), Settings(engine="local"))


def test_more_values_and_seeds_are_added(tmp_path):
    first = study(tmp_path)
    assert extend(first, study(tmp_path)).points == first.points
    both = extend(first, study(tmp_path, agents=(2, 5), seeds=3))
    assert [point.path for point in both.points] == [
        *(f"agents={n}/seed={s}" for n in (1, 2) for s in (0, 1)),
        *("agents=2/seed=2", "agents=5/seed=0", "agents=5/seed=1", "agents=5/seed=2"),
    ]
    assert extend(first, study(tmp_path, agents=(1,), seeds=1)).points == first.points, "nothing is forgotten"


def test_what_differs_is_said(tmp_path):
    first = study(tmp_path)
    for agents in ((1, 2), (7,)):
        with pytest.raises(ValueError, match=r"holds runs with width=20 instead of 10; .*--overwrite"):
            extend(first, study(tmp_path, agents=agents, width=10))
    other = StudyPlan("mine", tmp_path, [RunSpec(".", plain())], Settings())
    with pytest.raises(ValueError, match="holds a study over agents, seed, and this would be a single run"):
        extend(first, other)
    assert extend(first, study(tmp_path, threshold=3.0)), "no trigger looks at it"


def test_a_preset_may_say_something_else_of_another_environment(tmp_path):
    def over(*names):
        points = [RunSpec(f"environment={name}", Config.preset("paper", environment=name)) for name in names]
        return StudyPlan("mine", tmp_path, with_seeds(points, 1), Settings())

    assert len(extend(over("cosine"), over("shuttle")).points) == 2


def test_differences():
    assert name_differences(plain(), plain(), set()) == []
    assert name_differences(plain(agents=3), plain(agents=4, width=6), {"agents"}) == ["width=20 instead of 6"]


def test_clearing_leaves_what_is_not_the_studys(tmp_path):
    first = study(tmp_path)
    first.save()
    for point in first.points:
        folder = tmp_path / point.path
        (folder / "figures").mkdir(parents=True)
        for name in ("summary.json", "trace.parquet"):
            (folder / name).write_text("")
        with atomic_write(folder / "figures" / "regret.png") as part:
            Figure().savefig(part, format="png", metadata={"Software": MAKER})
    Figure().savefig(tmp_path / "agents=1" / "seed=0" / "figures" / "mine.png")
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "agents=1" / "seed=0" / "notes.txt").write_text("mine")
    clear(load_study(tmp_path), first.settings)
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert left == ["agents=1/seed=0/figures/mine.png", "agents=1/seed=0/notes.txt", "notes.txt"]
    assert not (tmp_path / "agents=2" / "seed=1").exists()
