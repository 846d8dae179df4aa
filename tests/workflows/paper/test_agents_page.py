"""The section of the page on agents that differ: tables by hand, and the choices that know a table of rewards."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from small_records import record

from fnbandit.environments.tables import Scaling, TableData
from workflows.paper import shipped
from workflows.paper.page_agents import collect_shares, divide_regret, find_distance
from workflows.reporting.grouping import group
from workflows.reporting.routing_figure import (
    compare_choices,
    count_dollars,
    list_choices,
    measure_second_half,
    read_routing,
    reward_against_choices,
)

LABELS = ("alone", "global", "auto")


def small_table():
    """Two domains, of one question and of three, and two arms at 1 and 9 dollars."""
    rewards = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.4]])
    domains = np.array([0, 1, 1, 1]), ("small", "large")
    scaling = Scaling(False, np.zeros(1), np.ones(1))
    return TableData(np.zeros((4, 1)), rewards, scaling, domains, ("a", "b"), np.tile([1.0, 9.0], (4, 1)))


def test_choices_that_know_a_table_by_hand():
    """Domain means: small 1 and 0, large 1/3 and 0.8; agents count alike. At a tie the cheaper arm answers."""
    random, single, of_domain, oracle = list_choices(small_table(), 2)
    assert random.reward == pytest.approx((1 + 0 + 1 / 3 + 0.8) / 4)
    assert single.reward == pytest.approx((1 + 1 / 3) / 2)
    assert of_domain.reward == pytest.approx((1 + 0.8) / 2)
    assert oracle.reward == pytest.approx((1 + (1 + 1 + 0.4) / 3) / 2)
    dollars = [one.dollars for one in (random, single, of_domain, oracle)]
    assert dollars == pytest.approx([5, 1, (1 + 9) / 2, (1 + (9 + 1 + 9) / 3) / 2])


def test_agents_beyond_the_domains_repeat_the_first():
    """Agents 0 and 2 have the small domain, agent 1 the large one."""
    assert list_choices(small_table(), 3)[1].reward == pytest.approx((1 + 1 / 3 + 1) / 3)


def test_choices_of_the_shipped_table_are_ordered():
    rewards = [one.reward for one in list_choices(read_routing(), 14)]
    assert rewards == sorted(rewards) and rewards[-1] < 1


def test_the_second_half_by_hand():
    """Agent k of a small record pulls arm k, and rewards are its regret: 5 iterations, of which 3, 4, 5 are late."""
    rewards = [[9, 9], [9, 9], [1, 2], [3, 4], [5, 6]]
    assert measure_second_half(record(rewards)) == {"late_reward": 3.5, "late_pulls": [3, 3]}
    assert measure_second_half(record(rewards, mean=True)) == {"late_reward": 3.5, "late_pulls": None}
    assert count_dollars([3, 1], small_table()) == (3 * 1 + 1 * 9) / 4


def test_rows_shipped_before_have_no_second_half(tmp_path, monkeypatch):
    monkeypatch.setattr(shipped, "RESULTS", tmp_path)
    row = {"config": '{"seed": 0}', "versions": "{}", "curve_iterations": [1], "curve": [1.0]}
    table = pa.Table.from_pylist([{**row, "late_reward": 0.5, "late_pulls": [1, 2]}], shipped.SCHEMA)
    for columns, expected in (([], (0.5, [1, 2])), (["late_reward", "late_pulls"], (None, None))):
        pyarrow.parquet.write_table(table.drop_columns(columns), tmp_path / "x.parquet")
        (found,) = shipped.read_kept("x")
        assert tuple(measure_second_half(found).values()) == expected


def personal_runs():
    """Regret per agent: alone 3 and 1, global 1 and 4, auto 1.5 and 2, at the shares 0 and 1."""
    finals = {"alone": (3.0, 1.0), "global": (1.0, 4.0), "auto": (1.5, 2.0)}
    return [
        record([[final]], label=f"{name}, rho={share:g}", personal_share=share, heterogeneity="personal")
        for name, values in finals.items()
        for share, final in zip((0.0, 1.0), values, strict=True)
    ]


def test_distance_of_auto_by_hand():
    methods = collect_shares(group(personal_runs()))
    assert set(methods) == set(LABELS) and [list(one) for one in methods.values()] == [[0.0, 1.0]] * 3
    assert [find_distance(methods, share) for share in (0.0, 1.0)] == [1.5, 2.0]


def test_regret_on_both_sides_of_a_switch_by_hand():
    assert divide_regret(record([[1.0], [2.0], [4.0], [8.0]])) == (3.0, 12.0)


def test_the_figure_is_of_routing_only():
    assert reward_against_choices(group(personal_runs()), None, "") is None
    fields = {"environment": "routing", "heterogeneity": "domain", "price": 0.0}
    runs = [record([[0.2, 0.4]] * 20, label="one", **fields)]
    figure = reward_against_choices(group(runs), "title", "")
    best = list_choices(read_routing(), 2)[-1].reward
    assert figure.axes[0].lines[0].get_ydata() == pytest.approx([best - 0.3] * 10)
    cells = compare_choices(group(runs))
    assert cells[0][:4] == ["one", "1", "6.0", "0.300"] and len(cells) == 5
