"""The experiment files: the paper's figures with the paper's settings."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import workflows
from fnbandit import Config
from workflows.experiment_files import experiment
from workflows.settings import Settings

EXPERIMENTS = sorted((Path(workflows.__file__).parent / "experiments").glob("*.toml"))


def test_all_figures_of_the_paper_have_a_file():
    names = ["fig1a", "fig1b", "fig1c", "fig1d", "fig2a", "fig2b", "fig2c", "fig2d", "fig3a", "fig3b"]
    names += ["fig4a", "fig4b", "fig4c", "fig4d", "fig5", "fig6a", "fig6b"]
    ours = [
        "scale-cosine",
        "scale-square",
        "stragglers",
        "tune-functions",
        "tune-tables",
        "tuned-cosine",
        "tuned-square",
    ]
    assert [path.stem for path in EXPERIMENTS] == names + ours


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_an_experiment_file_gives_configs(path):
    file = tomllib.loads(path.read_text())
    title, caption, curves, quick = (file.pop(name) for name in ("title", "caption", "curve", "quick"))
    assert title and caption == " ".join(caption.split())
    assert quick["caption"] == " ".join(quick["caption"].split())
    assert "Hollow" not in quick["caption"], "a quick version shows no published values"
    paper = path.stem.startswith("fig")
    seeds = file.pop("seeds")
    assert seeds == 3 or not paper
    # What is searched is searched on other seeds than those that results are shown for.
    assert path.stem.startswith("tune-") == (file.get("seed") == 100)
    seen = []
    for one in curves:
        label, published = one.pop("label"), one.pop("published", None)
        assert published is None or (isinstance(published, float) and "shared one network" in caption)
        fields = {**file, **one}
        preset = fields.pop("preset")
        full = Config.preset(preset, **fields)
        assert full.horizon == 5000 or not paper
        small = {name: value for name, value in quick.items() if name not in ("seeds", "caption", "preset", "curve")}
        assert Config.preset(quick.get("preset", preset), **{**fields, **small}).horizon < 500
        if full.algorithm.startswith(("linear", "kernel")):
            assert (full.regularization, full.exploration_global, full.agents) == (1.0, 0.1, 1)
        if full.algorithm.startswith("neural"):
            assert full.agents == 1
        seen.append((label, full))
    assert len({label for label, _ in seen}) == len({config for _, config in seen}) == len(curves)


def test_experiments_have_the_published_settings():
    def configs(name):
        file = tomllib.loads(next(path for path in EXPERIMENTS if path.stem == name).read_text())
        base = {key: value for key, value in file.items() if key not in ("title", "caption", "seeds", "curve", "quick")}
        curves = [{**base, **one} for one in file["curve"]]
        return {one.pop("label"): Config.preset(**_named(one)) for one in curves}

    def _named(fields):
        fields.pop("published", None)
        return {"name": fields.pop("preset"), **fields}

    cosine = configs("fig1a")["FN-UCB N=10"]
    assert (cosine.regularization, cosine.exploration_global, cosine.exploration_local) == (0.1, 0.1, 0.1)
    assert (cosine.width, cosine.ramp, cosine.trigger, cosine.stop_training_after) == (20, 700, "always", 2000)
    shuttle = configs("fig2c")["FN-UCB N=5"]
    assert (shuttle.regularization, shuttle.exploration_global, shuttle.exploration_local) == (10.0, 0.1, 0.01)
    assert (shuttle.width, shuttle.diagonal) == (50, True)
    assert [c.threshold for c in configs("fig1d").values()][:3] == [5.0, 4.0, 2.5]
    assert [c.threshold for c in configs("fig2d").values()] == [0.05, 0.03, 0.01]
    assert len(configs("fig4a")) == 10


def test_seeds_are_the_files_unless_others_are_asked_for():
    for quick, seeds, count in ((False, None, 3), (True, None, 2), (True, 5, 5)):
        study = experiment("fig1c", quick, seeds, Settings())
        assert [point.config.seed for point in study.points] == [*range(count)] * 4
        assert study.points[0].config.horizon == (300 if quick else 5000)
        assert study.directory == Path("runs", "fig1c-quick" if quick else "fig1c")
        assert study.title == "Fig. 1c: components on cosine" + (" (quick, T=300)" if quick else "")
        assert study.caption and ("without --quick" in study.caption) == quick


def test_published_values_belong_to_the_full_size():
    assert {point.published for point in experiment("fig1a", True, None, Settings()).points} == {None}
    assert experiment("fig1a", False, 1, Settings()).points[0].published == 80.9
