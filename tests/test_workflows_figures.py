"""Figures from small records whose numbers are checkable by hand, and the experiment files."""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from matplotlib.colors import to_hex

import workflows
from fnbandit import Config
from fnbandit.environments import make_environment
from fnbandit.records import ROUNDS, TRACE, RecordWriter, RunRecord, read_run, write_json
from fnbandit.server import Server
from fnbandit.simulation import Communication, LocalCohort, run_epochs
from workflows.figures import COLOURS, Curve, draw, figures, regret_curve
from workflows.grouping import curve, differing, group, standard_error

EXPERIMENTS = sorted((Path(workflows.__file__).parent / "experiments").glob("*.toml"))


def record(
    regret, rounds=(), label: str | None = None, status="finished", weight=0.0, mean: bool = False, **fields
) -> RunRecord:
    """A run with this regret [iterations, agents] and rounds in these iterations."""
    regret = np.array(regret, dtype=float)
    iterations, agents = regret.shape
    config = Config(agents=agents, horizon=max(1, iterations), **fields)
    numbers = np.arange(1, iterations + 1, dtype=np.int32)
    weights = np.broadcast_to(weight, iterations)
    if mean:
        columns = [numbers, [None] * iterations, [None] * iterations, regret.mean(1), regret.mean(1), weights]
    else:
        each = np.tile(np.arange(agents, dtype=np.int32), iterations)
        regret_rows = regret.ravel()
        columns = [np.repeat(numbers, agents), each, each, regret_rows, regret_rows, np.repeat(weights, agents)]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, TRACE, strict=True)]
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
        "bytes_up": 1000 * agents * len(rounds),
        "bytes_down": 2000 * agents * len(rounds),
    }
    return RunRecord(
        Path("nowhere"), summary, pa.Table.from_arrays(arrays, schema=TRACE), pa.Table.from_pylist(rows, ROUNDS)
    )


def lines(figure, panel=0):
    """The drawn lines of a panel by label."""
    return {line.get_label().replace("\N{NO-BREAK SPACE}", " "): line for line in figure.axes[panel].get_lines()}


def legend(figure) -> list[str]:
    return [text.get_text().replace("\N{NO-BREAK SPACE}", " ") for one in figure.legends for text in one.get_texts()]


# Numbers


def test_curve_is_the_mean_over_agents_summed_up():
    run = record([[1, 3], [0, 2], [4, 0]])
    iterations, regret = curve(run)
    assert iterations.tolist() == [1, 2, 3]
    assert regret.tolist() == [2, 3, 5]


def test_curve_of_a_trace_with_means_only():
    _, regret = curve(record([[1, 3], [0, 2], [4, 0]], mean=True))
    assert regret.tolist() == [2, 3, 5]


def test_curve_does_not_depend_on_the_order_of_rows():
    run = record([[1, 3], [0, 2], [4, 0]])
    shuffled = dataclasses.replace(run, trace=run.trace.take([4, 0, 3, 5, 1, 2]))
    assert curve(shuffled)[1].tolist() == [2, 3, 5]


def test_standard_error_by_hand():
    # Deviations -2, 0, 2: variance 8 / 2, error sqrt(4 / 3).
    assert standard_error(np.array([1.0, 3.0, 5.0])) == pytest.approx((4 / 3) ** 0.5)
    assert standard_error(np.array([7.0])) == 0


def test_several_seeds_are_one_curve_with_the_error_over_seeds():
    result = regret_curve([record([[1], [1]], seed=0), record([[3], [1]], seed=1)])
    assert result.mean.tolist() == [2, 3]
    assert result.error == pytest.approx([1, 1])  # sqrt(2) / sqrt(2)
    assert result.over == "2 seeds"


def test_one_seed_has_the_error_over_agents():
    result = regret_curve([record([[1, 3], [1, 1]])])
    assert result.mean.tolist() == [2, 3]
    assert result.error == pytest.approx([1, 1])
    assert result.over == "agents"
    assert not regret_curve([record([[1, 3]], mean=True)]).error.any()


def test_runs_of_unequal_length_end_with_the_shortest():
    result = regret_curve([record([[1], [1], [1]], seed=0), record([[1]], seed=1, status="running")])
    assert result.iterations.tolist() == [1]


def test_long_curves_are_thinned_to_1000_points_with_both_ends():
    numbers = np.arange(1, 54322)
    thin = Curve.of([(numbers, numbers * 2.0)]).thinned()
    assert len(thin.mean) == 1000
    assert (thin.iterations[0], thin.iterations[-1]) == (1, 54321)
    assert (thin.mean == 2 * thin.iterations).all()


# Groups and labels


def test_runs_that_differ_in_seed_are_one_group():
    groups = group([record([[1]], seed=1), record([[2]], seed=0)])
    assert list(groups) == ["FN-UCB (less comm.)"]
    assert [run.summary["config"]["seed"] for run in groups["FN-UCB (less comm.)"]] == [0, 1]


def test_groups_come_in_the_order_of_their_numbers():
    runs = [record(np.ones((1, n)), seed=s) for s in (0, 1) for n in (10, 2, 1)]
    assert list(group(runs)) == ["N = 1", "N = 2", "N = 10"]
    runs = [record([[1]], trigger="diagonal", threshold=d) for d in (10.0, 2.5, 0.05)]
    assert list(group(runs)) == ["D = 0.05", "D = 2.5", "D = 10"]


def test_labels_name_what_differs():
    runs = [
        record([[1]], environment="square"),
        record([[1]], environment="cosine", algorithm="neural-ts"),
        record([[1]], environment="cosine"),
    ]
    assert list(group(runs)) == ["cosine, FN-UCB (less comm.)", "cosine, Neural TS", "square, FN-UCB (less comm.)"]
    runs = [record([[1]], **{name: False}) for name in ("use_global", "use_local", "aggregate")]
    expected = ["FN-UCB (less comm.)", "without aggregation", "without UCB^a", "without UCB^b"]
    assert list(group([*runs, record([[1]])])) == expected


def test_fields_without_effect_make_no_difference():
    assert list(group([record([[1]], threshold=1.0), record([[1]], threshold=2.0, seed=1)])) == ["FN-UCB (less comm.)"]
    runs = [record([[1]], trigger="diagonal", threshold=1.0), record([[1]], threshold=2.0)]
    assert list(group(runs)) == ["always communicating", "D = 1, diagonal trigger"]


def test_many_differences_are_named_as_far_as_they_tell_runs_apart():
    one, other = Config.preset("paper"), Config.preset("tuned")
    configs = [dataclasses.asdict(config) for config in (one, other)]
    assert differing(configs) == ["agents"]


def test_given_labels_are_kept_and_told_apart():
    runs = [record(np.ones((1, n)), label="mine") for n in (1, 2)]
    assert list(group(runs)) == ["mine, N = 1", "mine, N = 2"]
    assert list(group([record([[1]], label="a"), record([[1]], label="b", seed=1)])) == ["a", "b"]


def test_equal_descriptions_of_different_runs_stay_apart():
    runs = [record([[1]], environment=path) for path in ("here/table.csv", "there/table.csv")]
    assert list(group(runs)) == ["table", "table (2)"]


def test_numbers_that_the_theory_computed_from_the_seed_do_not_split_a_group():
    runs = [record([[1]], trigger="logdet", threshold=d, seed=s) for s, d in enumerate((1.2345678, 1.3456789))]
    assert len(group(runs)) == 1
    runs = [record([[1]], trigger="logdet", threshold=d) for d in (1.2345678, 1.3456789)]
    assert list(group(runs)) == ["D = 1.235", "D = 1.346"]


# Figures


def test_regret_figure_shows_curves_bands_and_published_values():
    runs = [record(np.full((5, n), 1 / n + 0.1 * s), label=f"N={n}", seed=s) for n in (1, 2, 4) for s in (0, 1)]
    figure = figures(runs, "A title", {"N=2": 3.5, "another": 1.0})["regret"]
    drawn = lines(figure)
    assert drawn["N = 1"].get_ydata()[-1] == pytest.approx(5 * 1.05)
    assert len(figure.axes[0].collections) == 3
    mark = drawn["_published"]
    assert (mark.get_xdata()[0], mark.get_ydata()[0]) == (5, 3.5)
    assert mark.get_markerfacecolor() == "white"
    assert mark.get_color() == drawn["N = 2"].get_color() == COLOURS[1]
    assert legend(figure) == ["N = 1", "N = 2", "N = 4", "published"]
    assert figure.legends[0].get_title().get_text() == "band: standard error over 2 seeds"
    assert figure.axes[0].get_title() == "A title"
    assert (figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()) == ("iteration", "cumulative regret per agent")


def test_ten_curves_have_ten_styles():
    runs = [record([[w], [w]], width=w) for w in range(1, 11)]
    drawn = lines(figures(runs)["regret"]).values()
    assert len({line.get_marker() for line in drawn}) == 10
    assert len({to_hex(line.get_color()) for line in drawn}) == len(COLOURS)


def test_final_regret_and_cost_against_agents():
    runs = [record(np.full((4, n), 8.0 / n + s), rounds=(1, 3), seed=s) for n in (1, 2, 8) for s in (0, 2)]
    runs += [record(np.full((4, 1), 9.0), algorithm="neural-ucb", seed=s) for s in (0, 1)]
    drawn = figures(runs, published={"FN-UCB (less comm.), N = 2": 7.0})
    assert list(drawn) == ["regret", "regret-against-agents", "rounds-against-agents", "rounds"]
    axis = drawn["regret-against-agents"].axes[0]
    bars = axis.containers[0]
    assert bars.lines[0].get_xdata().tolist() == [1, 2, 8]
    assert bars.lines[0].get_ydata() == pytest.approx([36, 20, 8])
    ends = bars.lines[2][0].get_segments()[0][:, 1]
    assert ends == pytest.approx([32, 40])  # 32 and 40: deviation 4 sqrt(2), error 4
    assert (axis.get_xscale(), axis.get_xlabel(), axis.get_ylabel()) == ("log", "agents N", "final regret per agent")
    mark = lines(drawn["regret-against-agents"])["_published"]
    assert (mark.get_xdata()[0], mark.get_ydata()[0]) == (2, 7)
    assert legend(drawn["regret-against-agents"]) == ["FN-UCB (less comm.)", "Neural UCB", "published"]
    rounds, sent = drawn["rounds-against-agents"].axes
    assert rounds.containers[0].lines[0].get_ydata().tolist() == [2, 2, 2]
    assert sent.containers[0].lines[0].get_ydata().tolist() == [6000, 12000, 48000]
    assert (rounds.get_ylabel(), sent.get_ylabel()) == ("communication rounds", "bytes sent")
    assert sent.yaxis.get_major_formatter()(48000).replace("\N{NO-BREAK SPACE}", " ") == "48 kB"
    assert len(rounds.containers) == 1, "who never communicates is left out"


def test_against_threshold_only_where_there_is_one():
    runs = [record([[d]] * 4, rounds=(1, 4), trigger="diagonal", threshold=d) for d in (2.5, 5.0)]
    drawn = figures([*runs, record([[1.0]] * 4, rounds=(1, 2, 3, 4))])
    assert list(drawn) == ["regret", "regret-against-threshold", "rounds-against-threshold", "rounds"]
    bars = drawn["regret-against-threshold"].axes[0].containers
    assert [bar.lines[0].get_xdata().tolist() for bar in bars] == [[2.5, 5.0]]
    assert drawn["regret-against-threshold"].axes[0].get_xlabel() == "threshold D"
    zero = figures([record([[d + 1]], trigger="diagonal", threshold=d) for d in (0.0, 5.0)])
    assert zero["regret-against-threshold"].axes[0].get_xscale() == "linear"


def test_unfinished_runs_have_no_final_regret():
    runs = [record(np.ones((2, n)), status="running") for n in (1, 2)]
    assert list(figures(runs)) == ["regret"]


def test_rounds_figure():
    one = figures([record([[1.0]] * 6, rounds=(1, 3, 6), seed=s) for s in (0, 1)])["rounds"]
    (counts,) = one.axes[0].get_lines()
    assert counts.get_ydata().tolist() == [1, 1, 2, 2, 2, 3]
    assert one.axes[1].get_lines()[0].get_ydata().tolist() == [1, 2, 3]
    assert "rounds" not in figures([record([[1.0]] * 3, rounds=(1, 2, 3))]), "a round in every iteration"
    assert "rounds" not in figures([record([[1.0]] * 3)]), "no round"
    two = figures([record([[1.0]] * 6, rounds=(end,), width=end) for end in (2, 4)])["rounds"]
    assert len(two.axes) == 1 and legend(two) == ["m = 2", "m = 4"]


def test_weight_figure_draws_equal_curves_once():
    ramp, step = np.array([0, 0.1, 0.2]), np.array([0, 1, 1])
    runs = [record(np.ones((3, n)), weight=ramp, seed=s) for n in (1, 3, 7) for s in (0, 1, 2)]
    runs += [record(np.ones((3, 9)), weight=step), record(np.ones((3, 10)), weight=0.0)]
    figure = figures(runs)["weight"]
    assert legend(figure) == ["N = 1; N = 3; N = 7", "N = 9"]
    assert "weight" not in figures([record(np.ones((3, 2)))])


def test_a_group_has_one_colour_in_all_figures():
    runs = [record([[1.0]] * 4, rounds=rounds, width=w) for w, rounds in ((1, (1, 2, 3, 4)), (2, (2,)), (3, (3,)))]
    drawn = figures(runs)
    for label in ("m = 2", "m = 3"):
        assert lines(drawn["rounds"])[label].get_color() == lines(drawn["regret"])[label].get_color()


def test_files_are_written(tmp_path):
    run = record(np.ones((5, 2)), rounds=(2, 4), weight=np.arange(5) / 5, label="_x_$1$")
    paths = draw([run], tmp_path / "new" / "folder", "Costs $5 and UCB^a")
    assert [path.stem for path in paths] == ["regret", "rounds", "weight"]
    for path in paths:
        assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
        assert path.with_suffix(".pdf").read_bytes().startswith(b"%PDF-")


@pytest.mark.parametrize("mean", [False, True])
def test_one_run_is_enough(tmp_path, mean):
    run = record([[1.0, 2.0]], mean=mean)
    (path,) = draw([run], tmp_path)
    assert path.name == "regret.png"
    written = path.with_suffix(".pdf").read_bytes()
    draw([run], tmp_path)
    assert path.with_suffix(".pdf").read_bytes() == written


def test_without_a_trace_the_regret_curve_is_left_out(tmp_path):
    empty = [record(np.ones((0, n))) for n in (1, 2)]
    empty = [dataclasses.replace(run, summary=run.summary | {"iterations": 5, "regret": 1.0}) for run in empty]
    assert [path.stem for path in draw(empty, tmp_path)] == ["regret-against-agents"]
    assert curve(empty[0])[1].tolist() == []
    mixed = figures([empty[0], record(np.ones((2, 3)))])
    assert list(lines(mixed["regret"])) == ["N = 3, T = 2"]
    assert draw([], tmp_path) == []


def test_legends_stay_inside_the_figure(tmp_path):
    long = "a label that goes on and on, " * 5
    runs = [record([[1.0]] * 3, label=f"{long}{w}", width=w) for w in (1, 2)]
    runs += [record([[1.0]] * 3, label=f"FN-UCB N={w}", width=w) for w in range(3, 10)]
    figure = figures(runs)["regret"]
    figure.savefig(tmp_path / "figure.png")
    box = figure.legends[0].get_window_extent()
    assert box.x0 >= 0 and box.x1 <= figure.bbox.width
    assert box.y1 <= figure.axes[0].get_tightbbox().y0


def test_pyplot_and_settings_are_left_alone(tmp_path):
    import matplotlib

    before = dict(matplotlib.rcParams.items())
    draw([record([[1.0, 2.0]] * 3)], tmp_path)
    assert dict(matplotlib.rcParams.items()) == before


def simulated(config: Config, directory: Path) -> RunRecord:
    """A real run's record, read back from disk."""
    cohort = LocalCohort(config, make_environment(config))
    server = Server(config, cohort.statistics) if cohort.statistics is not None else None
    writer = RecordWriter(directory, config.number("threshold"))
    epochs = []
    for epoch in run_epochs(config, cohort, server):
        writer.write(epoch)
        epochs.append(epoch)
    writer.close(finished=True)
    rounds = [epoch.round for epoch in epochs if epoch.round is not None]
    regret = float(np.concatenate([epoch.trace.regret for epoch in epochs]).sum(0).mean())
    summary = {
        "status": "finished",
        "label": None,
        "config": dataclasses.asdict(config),
        "iterations": config.horizon,
        "regret": regret,
        "rounds": len(rounds),
        **dataclasses.asdict(Communication.of(rounds).total),
    }
    write_json(directory / "summary.json", summary)
    return read_run(directory)


def test_figures_of_simulations(tmp_path):
    config = Config(trigger="diagonal", horizon=20, ramp=10)
    runs = [simulated(config.replace(agents=n, threshold=d), tmp_path / f"{n}-{d}") for n in (1, 3) for d in (1.0, 4.0)]
    for run in runs:
        assert curve(run)[1][-1] == pytest.approx(run.summary["regret"])
    names = ["regret", "regret-against-agents", "regret-against-threshold", "rounds-against-agents"]
    assert list(figures(runs)) == [*names, "rounds-against-threshold", "rounds", "weight"]


# Experiment files


def test_all_figures_of_the_paper_have_a_file():
    names = ["fig1a", "fig1b", "fig1c", "fig1d", "fig2a", "fig2b", "fig2c", "fig2d", "fig3a", "fig3b"]
    names += ["fig4a", "fig4b", "fig4c", "fig4d", "fig5", "fig6a", "fig6b", "tuned-cosine", "tuned-square"]
    assert [path.stem for path in EXPERIMENTS] == names


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_an_experiment_file_gives_configs(path):
    file = tomllib.loads(path.read_text())
    title, caption, curves, quick = (file.pop(name) for name in ("title", "caption", "curve", "quick"))
    assert title and caption == " ".join(caption.split())
    assert file.pop("seeds") == 3
    horizon = 2000 if path.stem.startswith("tuned") else 5000
    seen = []
    for one in curves:
        label, published = one.pop("label"), one.pop("published", None)
        assert published is None or (isinstance(published, float) and "shared one network" in caption)
        fields = {**file, **one}
        preset = fields.pop("preset")
        full = Config.preset(preset, **fields)
        assert full.horizon == horizon
        small = {name: value for name, value in quick.items() if name != "seeds"}
        assert Config.preset(preset, **{**fields, **small}).horizon < 500
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


def test_a_long_trace_of_many_agents_is_read_quickly():
    import time

    run = record(np.random.default_rng(0).random((1000, 1000)))
    began = time.perf_counter()
    curve(run)
    assert time.perf_counter() - began < 1
