"""Python and notebooks: what shows itself, what is completed and described, and runs that come back from disk."""

from __future__ import annotations

import dataclasses
import inspect
import pydoc
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers import plain

import fnbandit
from fnbandit import Config, read_run, simulate
from fnbandit.config import FIELDS
from fnbandit.config.fields import describe_fields
from fnbandit.notebook import html_table

ASYNCHRONOUS = {"algorithm": "fn-ucb-async", "trigger": "determinant", "clock": "lognormal"}


def test_a_figure_shows_itself_before_any_backend_is_in_use():
    code = (
        "import sys\nfrom fnbandit import Config, simulate\n"
        "figure = simulate(Config(agents=2, horizon=8, width=4)).plot('regret')\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
        "data, metadata = figure._repr_png_()\n"
        "width = int.from_bytes(data[16:20], 'big')\n"  # of the PNG's header
        "assert data[1:4] == b'PNG' and width == 2 * metadata['width'] == 1020\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_results_studies_and_configs_show_themselves_as_tables(tmp_path):
    result = simulate(plain(agents=2, horizon=12, width=4))
    assert f'<td style="text-align:left">{result.regret.sum(0).mean():.2f} (' in result._repr_html_()
    shown = result.config._repr_html_()
    assert ">horizon</td>" in shown and ">12</td>" in shown and ">threshold</td>" not in shown
    study = fnbandit.Study(plain(horizon=12, width=4), sweep={"agents": [1, 2]})
    assert study._repr_html_().count("<tr>") == 3 and "<th>agents</th>" in study._repr_html_()
    record = study.run(tmp_path / "study", engine="local", tracking="none")
    assert record._repr_html_().count("<tr>") == 3 and "2 of 2 runs finished" in record._repr_html_()
    assert f">{record.runs[0].summary['regret']:.4g}</td>" in record.runs[0]._repr_html_()
    for text in (repr(record.runs[0]), repr(result.communication)):
        assert len(text) < 400


def test_cells_are_escaped_and_long_tables_end():
    shown = html_table([("<b>", 1.23456)] * 40, ["<name>"])
    assert shown.count("&lt;b&gt;") == 30 and "1.235" in shown and "and 10 more rows" in shown and "<b>" not in shown


def test_the_package_lists_its_names_and_has_types():
    assert {"Config", "simulate", "load", "Study", "BLOCK"} <= set(dir(fnbandit)) == set(fnbandit.__all__)
    assert not {"importlib", "HOMES", "os"} & set(dir(fnbandit))
    for package in ("fnbandit", "actors", "workflows"):
        assert (Path(fnbandit.__file__).parents[1] / package / "py.typed").is_file()


def test_help_describes_every_field_and_changes_are_completed():
    texts, shown = describe_fields(Config), " ".join(pydoc.plain(pydoc.render_doc(Config)).replace("|", "").split())
    assert set(texts) == set(FIELDS)
    for name, text in texts.items():
        assert f"{name} (default: {getattr(Config, name)!r}): {text}" in shown, name
    for method in (Config.replace, Config.preset):
        assert set(FIELDS) <= set(inspect.signature(method).parameters)


@pytest.mark.parametrize("settings", [{"trigger": "logdet"}, ASYNCHRONOUS], ids=["barrier", "alone"])
def test_a_run_read_from_disk_is_what_simulate_returned(tmp_path, settings):
    result = simulate(plain(agents=3, horizon=30, width=4, **settings))
    again = read_run(result.save(tmp_path / "run")).result
    assert again.config == result.config and again.rounds == result.rounds
    for name in ("arms", "rewards", "regret", "alpha", "times"):
        ours, theirs = getattr(again, name), getattr(result, name)
        assert (ours is None) == (theirs is None)
        if ours is not None:
            np.testing.assert_array_equal(ours, theirs)
    assert again.communication.total == result.communication.total
    for ours, theirs in zip(again.round_records, result.round_records, strict=True):
        np.testing.assert_equal(dataclasses.asdict(ours), dataclasses.asdict(theirs))
    # Saved once more, the tables are the same.
    first, second = read_run(tmp_path / "run"), read_run(again.save(tmp_path / "again"))
    assert first.trace.equals(second.trace)
    assert first.rounds.drop_columns("seconds").equals(second.rounds.drop_columns("seconds"))
    assert first.plot("regret")._repr_png_()[0][:4] == b"\x89PNG"


def test_means_are_no_result(tmp_path):
    study = fnbandit.Study(plain(agents=2, horizon=8, width=4))
    record = study.run(tmp_path / "run", engine="local", tracking="none", trace="mean")
    with pytest.raises(ValueError, match=r"has no row per agent and iteration \(--trace agents keeps them\)"):
        _ = record.runs[0].result


def test_results_compare_and_bad_calls_are_one_line():
    result = simulate(plain(agents=2, horizon=8, width=4))
    assert result == result and result != simulate(result.config)
    with pytest.raises(ValueError, match=r"config=\{'agents': 2\}: expected a fnbandit.Config"):
        simulate({"agents": 2})
    with pytest.raises(ValueError, match="there is a round in every iteration, so there is nothing to draw"):
        result.plot("rounds")
