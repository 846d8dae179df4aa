"""Figures from small records whose numbers are checkable by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from matplotlib.colors import to_hex
from small_records import record

from fnbandit import find_runs, read_run
from workflows.command_line import main
from workflows.reporting.canvas import COLOURS
from workflows.reporting.curves import Curve, places, regret_curve
from workflows.reporting.figures import draw, figures
from workflows.reporting.grouping import curve, group


def lines(figure, panel=0):
    """The drawn lines of a panel by label."""
    return {line.get_label().replace("\N{NO-BREAK SPACE}", " "): line for line in figure.axes[panel].get_lines()}


def words(text) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ").replace("\n", " ")


def legend(figure) -> list[str]:
    """The entries as people read them, line after line; matplotlib fills column after column."""
    result = []
    for one in figure.legends:
        texts = iter([words(text.get_text()) for text in one.get_texts()])
        count, columns = len(one.get_texts()), one._ncols
        filled = [[next(texts) for _ in range(count // columns + (c < count % columns))] for c in range(columns)]
        result += [column[row] for row in range(-(-count // columns)) for column in filled if row < len(column)]
    return result


# Numbers


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
    thin = Curve.of([(numbers, numbers * 2.0)]).thin(1000)
    assert len(thin.mean) == 1000
    assert (thin.iterations[0], thin.iterations[-1]) == (1, 54321)
    assert (thin.mean == 2 * thin.iterations).all()


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
    assert figure.get_suptitle() == "A title"
    said = figure.axes[0].get_title().replace("\N{NO-BREAK SPACE}", " ").replace("\n", " ")
    preset = "paper preset, ramp = 100, training rate = 0.1, training start = aggregate, no stop training after"
    assert said == f"cosine · FN-UCB (less comm.) · T = 5 · {preset} · seeds 0 to 1"
    assert (figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()) == ("iteration", "cumulative regret per agent")


def test_ten_curves_have_ten_styles():
    runs = [record([[w], [w]], width=w) for w in range(1, 11)]
    figure = figures(runs)["regret"]
    panels = [list(lines(figure, panel).values()) for panel in (0, 1)]
    assert [len(members) for members in panels] == [5, 5], "at most eight curves in a panel"
    drawn = [line for members in panels for line in members]
    assert len({line.get_marker() for line in drawn}) == 10
    assert len({to_hex(line.get_color()) for line in drawn}) == len(COLOURS)


def test_bands_are_not_cut_in_small_multiples():
    """All panels of a quantity have one scale, which the band of the last one fits, too."""
    runs = [record(np.full((4, n), 8.0 / n + d * s), trigger="logdet", threshold=d, seed=s)
            for n in (1, 2) for d in (1.0, 9.0) for s in (0, 1)]  # fmt: skip
    axes = figures(runs)["regret"].axes
    highest = max(
        float(path.vertices[:, 1].max()) for axis in axes for one in axis.collections for path in one.get_paths()
    )
    assert highest == pytest.approx(4 * (8 + 9))  # of D = 9, N = 1: mean 4 * 12.5, error 4 * 4.5
    assert len({axis.get_ylim() for axis in axes}) == 1 and axes[0].get_ylim()[1] > highest


def test_many_named_curves_of_two_tasks_have_panels_and_a_scale_per_task():
    runs = [
        record(np.full((4, 1), size * (1 + ramp / 10)), label=f"{task} {clock} {ramp}", environment=task, ramp=ramp,
               clock=clock)
        for task, size in (("cosine", 1.0), ("square", 50.0))
        for clock in ("uniform", "lognormal")
        for ramp in (1, 2, 3)
    ]  # fmt: skip
    figure = figures(runs)["regret"]
    shown = [axis for axis in figure.axes if axis.get_visible()]
    titles = [words(axis.get_title()) for axis in shown]
    assert titles == [f"{task}, {clock} speeds" for task in ("cosine", "square") for clock in ("uniform", "lognormal")]
    assert [len(axis.get_lines()) for axis in shown] == [3, 3, 3, 3]
    tops = [axis.get_ylim()[1] for axis in shown]
    assert tops[0] == tops[1] < 10 < tops[2] == tops[3]
    assert legend(figure) == ["ramp = 1", "ramp = 2", "ramp = 3"]


def test_no_text_is_cut(tmp_path):
    """Titles, labels and legends of all figures lie inside of them."""
    same = {"clock": "lognormal", "time": np.ones((4, 2)).cumsum(0), "speed_spread": 1.0, "slow_share": 0.1}
    runs = [record(np.ones((4, 2)), rounds=(1, 3), label=f"{task} a long label, {n}", environment=task, ramp=n, **same)
            for task in ("cosine", "square") for n in range(1, 7)]  # fmt: skip
    for name, figure in figures(runs, "A title that is long enough to need a second line, or even a third one").items():
        figure.savefig(tmp_path / "figure.png")
        box = figure.get_tightbbox()
        assert box.x0 >= -0.02 and box.x1 <= figure.get_figwidth() + 0.02, name
        assert box.y0 >= -0.02 and box.y1 <= figure.get_figheight() + 0.02, name


def test_final_regret_and_cost_against_agents():
    runs = [record(np.full((4, n), 8.0 / n + s), rounds=(1, 3), seed=s) for n in (1, 2, 8) for s in (0, 2)]
    runs += [record(np.full((4, 1), 9.0), algorithm="neural-ucb", seed=s) for s in (0, 1)]
    drawn = figures(runs, published={"FN-UCB (less comm.), N = 2": 7.0})
    names = ["regret", "regret-against-agents", "rounds-against-agents", "regret-against-bytes", "rounds"]
    assert list(drawn) == names
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
    assert (rounds.get_ylabel(), sent.get_ylabel()) == ("rounds", "bytes, up and down")
    assert sent.yaxis.get_major_formatter()(48000).replace("\N{NO-BREAK SPACE}", " ") == "48 kB"
    assert len(rounds.containers) == 1, "who never communicates is left out"


def test_against_threshold_only_where_there_is_one():
    runs = [record([[d]] * 4, rounds=(1, 4), trigger="diagonal", threshold=d) for d in (2.5, 5.0)]
    drawn = figures([*runs, record([[1.0]] * 4, rounds=(1, 2, 3, 4))])
    names = ["regret", "regret-against-threshold", "rounds-against-threshold", "regret-against-bytes", "rounds"]
    assert list(drawn) == names
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
    # Curves that the eye cannot tell apart are one, too.
    close = figures([record(np.ones((3, n)), weight=ramp + n / 1000) for n in (1, 2)])["weight"]
    assert len(lines(close)) == 1


def test_a_group_has_one_colour_in_all_figures():
    runs = [record([[1.0]] * 4, rounds=rounds, width=w) for w, rounds in ((1, (1, 2, 3, 4)), (2, (2,)), (3, (3,)))]
    drawn = figures(runs)
    for label in ("m = 2", "m = 3"):
        assert lines(drawn["rounds"])[label].get_color() == lines(drawn["regret"])[label].get_color()


def two_axes(agents=(10, 2, 1, 5), thresholds=(5.0, 2.5, 10.0)):
    """N x D x 2 seeds, with 2 rounds at D = 2.5 and 1 elsewhere."""
    return [
        record(np.full((4, n), 8 / n + s), rounds=(1, 3) if d == 2.5 else (2,), trigger="diagonal", threshold=d, seed=s)
        for n in agents
        for d in thresholds
        for s in (0, 1)
    ]


def test_two_axes_are_small_multiples_with_their_numbers_in_order():
    drawn = figures(two_axes())
    for name in ("regret", "rounds"):
        shown = [axis for axis in drawn[name].axes if axis.get_visible()]
        assert [words(axis.get_title()) for axis in shown] == ["D = 2.5", "D = 5", "D = 10"]
        for panel in range(3):
            assert list(lines(drawn[name], panel)) == ["N = 1", "N = 2", "N = 5", "N = 10"]
        assert legend(drawn[name]) == ["N = 1", "N = 2", "N = 5", "N = 10"]
        assert len({axis.get_ylim() for axis in shown}) == 1
    assert lines(drawn["regret"], 1)["N = 2"].get_ydata() == pytest.approx([4.5, 9, 13.5, 18])


def test_the_same_thing_has_one_name_and_one_colour_in_all_figures_of_a_study():
    drawn = figures(two_axes())
    seen: dict[str, set[str]] = {}
    for figure in drawn.values():
        for one in figure.legends:
            for handle, text in zip(one.legend_handles, one.get_texts(), strict=True):
                seen.setdefault(words(text.get_text()), set()).add(to_hex(handle.get_color()) + handle.get_marker())
    assert set(seen) == {"N = 1", "N = 2", "N = 5", "N = 10", "D = 2.5", "D = 5", "D = 10"}
    assert all(len(looks) == 1 for looks in seen.values())
    assert len({look for looks in seen.values() for look in looks}) == 7


def test_few_curves_and_named_curves_stay_in_one_panel():
    assert {place.panel for place in places(group(two_axes((1, 2), (5.0,)))).values()} == {""}
    uneven = [*two_axes((1, 2, 5), (2.5,)), record([[1.0]] * 4, algorithm="neural-ucb")]
    assert {place.panel for place in places(group(uneven)).values()} == {""}, "a panel of one curve says nothing"
    named = [record(np.ones((2, n)), label=f"{a} {n}", algorithm=a) for n in (1, 2) for a in ("fn-ucb", "neural-ucb")]
    assert {place.panel for place in places(group(named)).values()} == {""}


def test_a_long_legend_reads_line_after_line():
    runs = [record([[w], [w]], width=w) for w in (100, 3, 20, 1, 7, 50, 9)]
    assert legend(figures(runs)["regret"]) == [f"m = {w}" for w in (1, 3, 7, 9, 20, 50, 100)]


def test_regret_against_bytes_by_hand():
    figure = figures(two_axes())["regret-against-bytes"]
    bars = figure.axes[0].containers
    assert len(bars) == 4
    # N = 1: 3,000 bytes a round; D = 5 and 10 have a round, D = 2.5 has two. Regret 4 * 8 and 4 * 9.
    assert sorted(bars[0].lines[0].get_xdata()) == [3000, 3000, 6000]
    assert bars[0].lines[0].get_ydata() == pytest.approx([34, 34, 34])
    assert bars[0].lines[2][0].get_segments()[0][:, 1] == pytest.approx([32, 36])  # 4 / sqrt(2) * sqrt(2) / sqrt(2)
    assert figure.axes[0].get_xlabel() == "bytes, up and down"
    silent = [record([[1.0]] * 4, rounds=(1,)), record([[2.0]] * 4, algorithm="neural-ucb")]
    (quiet,) = [
        line
        for line in figures(silent)["regret-against-bytes"].axes[0].get_lines()
        if len(set(line.get_ydata())) == 1 and len(line.get_ydata()) == 2
    ]
    assert quiet.get_ydata()[0] == 8
    assert "regret-against-bytes" not in figures(silent[1:])


def test_every_figure_says_what_its_runs_have_in_common():
    drawn = figures(two_axes(), "A title") | figures([record([[1.0, 2.0]] * 6, rounds=(2, 4), weight=0.5, seed=3)])
    assert len(drawn) > 6
    for name, figure in drawn.items():
        said = words(f"{figure.get_suptitle()} {figure.axes[0].get_title()}")
        assert "cosine · FN-UCB (less comm.)" in said and " · T = " in said and "preset" in said, name
        assert "· seed" in said, name


def test_one_seed_has_the_error_over_agents_in_all_figures():
    runs = [record(np.array([[1.0, 3.0]] * 2)[:, :n], rounds=(1,)) for n in (1, 2)]
    runs[1] = dataclasses.replace(runs[1], summary=runs[1].summary | {"regret_standard_error": 2.0})
    for name in ("regret", "regret-against-agents", "regret-against-bytes"):
        (one,) = figures(runs)[name].legends
        assert one.get_title().get_text().endswith(": standard error over agents of one seed"), name
    (bars,) = figures(runs)["regret-against-agents"].axes[0].containers
    assert bars.lines[2][0].get_segments()[1][:, 1] == pytest.approx([2, 6])


def test_other_numbers_have_figures_too():
    drawn = figures([record([[float(w)]] * 3, width=w) for w in (10, 20, 40)])
    bars = drawn["regret-against-width"].axes[0].containers
    assert bars[0].lines[0].get_xdata().tolist() == [10, 20, 40]
    assert drawn["regret-against-width"].axes[0].get_xlabel() == "m"


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


def test_figures_of_simulations(tmp_path):
    argv = [
        "sweep",
        "--agents",
        "1,3",
        "--trigger",
        "diagonal",
        "--threshold",
        "1,4",
        "--horizon",
        "20",
        "--ramp",
        "10",
    ]
    assert main([*argv, "--engine", "local", "--tracking", "none", "--out", str(tmp_path)]) == 0
    runs = [read_run(path) for path in find_runs(tmp_path)]
    assert len(runs) == 4
    for run in runs:
        assert curve(run)[1][-1] == pytest.approx(run.summary["regret"])
    names = ["regret", "regret-against-agents", "regret-against-threshold", "rounds-against-agents"]
    assert list(figures(runs)) == [*names, "rounds-against-threshold", "regret-against-bytes", "rounds", "weight"]


def test_presets_stand_side_by_side_with_scales_of_their_own():
    runs = [
        record(np.full((4, n), value), label=f"{preset}: N={n}", seed=seed, ramp=ramp)
        for preset, ramp, value in (("tuned", 30, 1.0), ("paper", 700, 2.0))
        for n in (1, 2)
        for seed in (0, 1)
    ]
    drawn = figures(runs, "A title", {"paper: N=2": 3.5, "tuned: N=2": 3.5})
    left, right = drawn["regret"].axes
    assert [axis.get_title() for axis in (left, right)] == ["published settings, separate networks", "tuned"]
    assert legend(drawn["regret"]) == ["N = 1", "N = 2", "published"]
    for panel, value in enumerate((8.0, 4.0)):
        assert lines(drawn["regret"], panel)["N = 2"].get_ydata()[-1] == value
        assert lines(drawn["regret"], panel)["_published"].get_ydata()[0] == 3.5
    assert left.get_ylim()[1] > right.get_ylim()[1] and left.get_yscale() == "linear"
    assert "preset" not in drawn["regret"].get_suptitle()
    assert [name for name in drawn if "against" in name] == ["regret-against-agents"]
    against = drawn["regret-against-agents"]
    assert legend(against) == ["published settings, separate networks", "tuned", "published"]
    assert [bar.lines[0].get_ydata().tolist() for bar in against.axes[0].containers] == [[8, 8], [4, 4]]


def test_a_panel_is_logarithmic_where_a_linear_one_would_hide_curves():
    runs = [record(np.full((4, n), 1.0), label=f"tuned: N={n}") for n in (1, 2)]
    axis = figures(runs, "A title", {"tuned: N=1": 100.0})["regret"].axes[0]
    assert axis.get_yscale() == "log"
    assert axis.get_ylim()[0] == pytest.approx(1.0)  # a quarter of the smallest end


def test_of_a_study_of_one_field_at_a_time_only_that_field_is_drawn():
    fields = [{"ramp": ramp} for ramp in (10, 20, 40)] + [{"width": width} for width in range(1, 12)]
    runs = [record([[1.0]], weight=0.5, label=f"a: {one}", **one) for one in fields]
    bars = figures(runs)["regret-against-ramp"].axes[0].containers
    # Those with the usual width, at every ramp; the widths are points of another figure.
    assert [bar.lines[0].get_xdata().tolist() for bar in bars] == [[10, 20, 40]]
