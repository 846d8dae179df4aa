"""The experiment files: the paper's figures with the published settings and with ours, and our own."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import workflows
from fnbandit import Config
from fnbandit.config.presets import tune
from workflows.studies.experiments import experiment, product
from workflows.studies.settings import Settings

EXPERIMENTS = sorted((Path(workflows.__file__).parent / "experiments").glob("*.toml"))
PAPER = ["fig1a", "fig1b", "fig1c", "fig1d", "fig2a", "fig2b", "fig2c", "fig2d", "fig3a", "fig3b"]
PAPER += ["fig4a", "fig4b", "fig4c", "fig4d", "fig5", "fig6a", "fig6b"]
CLOSE = ["close-calls-functions", "close-calls-tables"]
OURS = [*CLOSE, "communication-cosine", "communication-shuttle", "scaling", "sensitivity", "stragglers"]
OURS += ["communication-exact", "exact-budget", "exact-cells", "exact-scaling", "participation", "privacy"]
OURS += ["drift", "liars", "personal", "routing", "tune-exact", "tune-functions", "tune-tables"]


def configs(name, quick=False):
    """The configs of an experiment by label, of the first seed."""
    points = experiment(name, quick, 1, Settings()).points
    found = {point.label: point.config for point in points}
    assert len(found) == len(points), "labels are unique"
    return found


def test_all_figures_of_the_paper_have_a_file():
    assert [path.stem for path in EXPERIMENTS] == sorted(PAPER + OURS)


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_an_experiment_file_gives_configs(path):
    file, name = tomllib.loads(path.read_text()), path.stem
    title, caption, quick = (file[key] for key in ("title", "caption", "quick"))
    assert title and caption == " ".join(caption.split())
    quick_caption = quick.get("caption", caption)
    assert quick_caption == " ".join(quick_caption.split())
    assert "Hollow" not in quick_caption, "a quick version shows no published values"
    full = configs(name)
    assert len(set(full.values())) == len(full)
    # What is searched is searched on other seeds than those that results are shown for.
    first = 3 if name in CLOSE else 100 if name.startswith("tune-") else 0
    assert {config.seed for config in full.values()} == {first}
    for label, config in full.items():
        if name in PAPER:
            assert config.horizon == 5000
            assert label.startswith(("paper: ", "tuned: "))
        if config.algorithm.startswith(("linear", "kernel")):
            assert (config.regularization, config.exploration_global, config.agents) == (1.0, 0.1, 1)
            assert label.startswith("paper: ")
        if config.algorithm.startswith("neural") and name not in (
            "personal",
            "privacy",
        ):  # several agents that learn alone
            assert config.agents == 1
    assert all(config.horizon < 500 for config in configs(name, quick=True).values())
    points = experiment(name, False, None, Settings()).points
    assert not any(point.published for point in points) or "shared one network" in caption


@pytest.mark.parametrize("name", PAPER + OURS)
def test_experiments_do_not_rest_on_the_default_trigger(name, monkeypatch):
    """Results are shipped with the triggers that the files name, whatever `fnbandit run` starts with."""
    before = [{label: config.trigger for label, config in configs(name, quick).items()} for quick in (False, True)]
    monkeypatch.setattr("fnbandit.config.tune", lambda *known: {"trigger": "period"} | tune(*known))
    assert Config().trigger == "period"
    after = [{label: config.trigger for label, config in configs(name, quick).items()} for quick in (False, True)]
    assert before == after


def test_close_calls_are_further_seeds_of_the_papers_curves():
    known = {config for name in PAPER for config in configs(name).values()}
    points = [point for name in CLOSE for point in experiment(name, False, None, Settings()).points]
    assert {point.config.replace(seed=0) for point in points} <= known
    assert {point.config.seed for point in points} == set(range(3, 10))


def test_experiments_have_the_published_settings():
    cosine = configs("fig1a")["paper: FN-UCB N=10"]
    assert (cosine.regularization, cosine.exploration_global, cosine.exploration_local) == (0.1, 0.1, 0.1)
    assert (cosine.width, cosine.ramp, cosine.trigger, cosine.stop_training_after) == (20, 700, "always", 2000)
    shuttle = configs("fig2c")["paper: FN-UCB N=5"]
    assert (shuttle.regularization, shuttle.exploration_global, shuttle.exploration_local) == (10.0, 0.1, 0.01)
    assert (shuttle.width, shuttle.diagonal) == (50, True)
    assert [configs("fig1d")[f"paper: D={d}"].threshold for d in ("5", "4", "2.5")] == [5.0, 4.0, 2.5]
    assert [c.threshold for label, c in configs("fig2d").items() if label.startswith("paper")] == [0.05, 0.03, 0.01]
    assert len(configs("fig4a")) == 10 + 6


def test_every_curve_of_the_paper_is_there_with_both_presets():
    for name in PAPER:
        found = configs(name)
        for label, config in found.items():
            preset, _, words = label.partition(": ")
            alone = config.algorithm.startswith(("linear", "kernel")) or name == "fig2d"
            other = {"paper": "tuned", "tuned": "paper"}[preset]
            assert (f"{other}: {words}" in found) != alone
    one = configs("fig1a")["tuned: FN-UCB N=2"]
    assert one == Config.preset("tuned", environment="cosine", agents=2, horizon=5000, trigger="always")


def test_lists_stand_for_their_product():
    fields = {"preset": ["paper", "tuned"], "agents": 2, "threshold": [1.0, 5.0]}
    assert [tuple(one.values()) for one in product(fields)] == [
        ("paper", 2, 1.0),
        ("paper", 2, 5.0),
        ("tuned", 2, 1.0),
        ("tuned", 2, 5.0),
    ]
    scaling = configs("scaling")
    assert len(scaling) == 2 * 3 * 9
    large = scaling["square D=25: N=10000"]
    assert (large.environment, large.threshold, large.agents, large.trigger) == ("square", 25.0, 10_000, "logdet")


def test_a_curve_has_seeds_of_its_own():
    points = experiment("scaling", False, None, Settings()).points
    seeds = {n: sum(p.config.agents == n and p.label.startswith("cosine D=5") for p in points) for n in (1000, 3000)}
    assert seeds == {1000: 3, 3000: 1}


def test_seeds_are_the_files_unless_others_are_asked_for():
    for quick, seeds, count, presets in ((False, None, 3, 2), (True, None, 2, 1), (True, 5, 5, 1)):
        study = experiment("fig1c", quick, seeds, Settings())
        assert [point.config.seed for point in study.points] == [*range(count)] * 4 * presets
        assert study.points[0].config.horizon == (300 if quick else 5000)
        assert study.directory == Path("runs", "fig1c-quick" if quick else "fig1c")
        assert study.title == "Fig. 1c: components on cosine" + (" (quick, T=300)" if quick else "")
        assert study.caption and ("without --quick" in study.caption) == quick


def test_published_values_belong_to_the_full_size():
    assert {point.published for point in experiment("fig1a", True, None, Settings()).points} == {None}
    full = {point.label: point.published for point in experiment("fig1a", False, 1, Settings()).points}
    assert full["paper: FN-UCB N=1"] == full["tuned: FN-UCB N=1"] == 80.9
