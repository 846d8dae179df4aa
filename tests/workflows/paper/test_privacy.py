"""Figures on privacy: regret against epsilon, and the attack on the times of rounds."""

from __future__ import annotations

import json

import numpy as np
import pytest
from rich.console import Console
from small_records import record

from fnbandit import Config
from fnbandit.environments import make_environment
from fnbandit.storage.records import RunRecord
from workflows.command_line import main
from workflows.paper.trigger_leak import (
    HORIZON,
    SCHEDULES,
    Leak,
    OneInteraction,
    find_round,
    leak_rows,
    measure_leaks,
    read_leaks,
    reproduce_leak,
)
from workflows.reporting.grouping import group
from workflows.reporting.privacy_figure import collect_privacy_lines, describe_break_even, regret_against_epsilon


def test_the_attackers_round_by_hand():
    """D = 2, V = I: one unit context adds log 2 to the log det, two in different directions about 2 log 2.

    After iteration 2 the measure is 2 * 2 log 2 = 2.8 if both contexts are long, else 2 log 2 = 1.4, and a round comes
    with the third; the contexts of the other iterations are of unit length, and cannot be nearly parallel in all seeds.
    """
    logdet = SCHEDULES["log det, D = 2"]
    assert [find_round(logdet, 1, 1.0, seed) for seed in range(5)] == [2] * 5
    assert [find_round(logdet, 1, 0.0, seed) for seed in range(5)] == [3] * 5
    fixed = SCHEDULES["fixed gaps"]
    assert {find_round(fixed, 10, length, seed) for length in (0.0, 1.0) for seed in range(3)} == {15}
    assert find_round({"trigger": "period", "period": 40}, 45, 1.0, 0) == HORIZON + 1


def test_the_histories_differ_in_one_interaction_only():
    inside = make_environment(Config(algorithm="dislinucb", agents=1, horizon=50))
    one, other = (OneInteraction(inside, 33, length) for length in (1.0, 0.0))
    assert np.array_equal(one.block(0, 0).contexts, inside.block(0, 0).contexts)
    changed = one.block(0, 1).contexts != other.block(0, 1).contexts
    assert np.flatnonzero(changed.any((1, 2))).tolist() == [0]
    assert (
        np.allclose(np.linalg.norm(one.block(0, 1).contexts[0], axis=1), 1) and not other.block(0, 1).contexts[0].any()
    )


def test_bounds_of_a_perfect_and_of_a_blind_attack():
    perfect = Leak("x", 1, ((2,) * 100, (3,) * 100))
    assert perfect.epsilon == pytest.approx(np.log(0.025 ** (1 / 50) / (1 - 0.025 ** (1 / 50))))  # 50 of 50, 0 of 50
    (low, high), (least, most) = perfect.rates
    assert high == 1 and least == 0 and low == pytest.approx(0.025 ** (1 / 100)) and most == pytest.approx(1 - low)
    blind = Leak("x", 1, ((7,) * 100, (7,) * 100))
    assert blind.epsilon == 0


def test_the_attack_writes_what_it_reads(tmp_path, capsys):
    schedules = {"log det, D = 2": SCHEDULES["log det, D = 2"]}
    assert [leak.event for leak in measure_leaks(1, schedules)] == [1, 10, 30]
    paths = reproduce_leak(tmp_path / "there", 4, Console(width=200))
    assert "false alarms" in capsys.readouterr().out
    leaks = read_leaks(paths[0])
    assert len(leaks) == 6 and json.loads(paths[0].read_text())[0]["schedule"] == "log det, D = 2"
    assert {row[4] for row in leak_rows(leaks) if row[0] == "fixed gaps"} == {"at least 0.00"}
    assert paths[1].read_bytes().startswith(b"\x89PNG")


def test_reproduce_knows_the_attack(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "trigger-leak", "--dry-run"]) == 0
    assert "two histories, 1000 seeds of each" in " ".join(capsys.readouterr().out.split())
    assert main(["reproduce", "trigger-leak", "--quick", "--seeds", "2", "--out", "mine"]) == 0
    assert (tmp_path / "mine" / "trigger-leak.png").exists()


def private(agents: int, epsilon: float | None, regret: float, algorithm: str = "fedigw") -> RunRecord:
    """A finished run of so many agents, all with the same regret."""
    settings = {} if epsilon is None else {"privacy": "central", "privacy_epsilon": epsilon}
    label = f"{algorithm} {agents} {epsilon}"
    return record(np.full((1, agents), regret), label=label, algorithm=algorithm, **settings)


def test_federation_pays_from_the_smallest_epsilon_that_beats_being_alone():
    runs = [
        *(
            private(10, epsilon, regret)
            for epsilon, regret in ((0.3, 9.0), (1.0, 4.0), (3.0, 6.0), (10.0, 4.5), (None, 2.0))
        ),
        *(private(100, epsilon, regret) for epsilon, regret in ((0.3, 4.9), (1.0, 4.0), (3.0, 3.0), (10.0, 2.5))),
        *(private(5, epsilon, 8.0) for epsilon in (0.3, 1.0)),
        private(1, None, 5.0, "neural-ucb"),
    ]
    groups = group(runs)
    lines, alone = collect_privacy_lines(groups)
    assert list(lines) == [5, 10, 100] and list(alone) == ["Neural UCB"]
    rows = describe_break_even(groups)
    # With N = 10, epsilon 1 is below 5.0 by chance: 3 is not.
    assert [row[4] for row in rows] == ["at none of them", "from 10 on", "from 0.3 on"]
    assert rows[1][2:4] == ["9.0 (0.3), 4.0 (1), 6.0 (3), 4.5 (10)", "2.0"] and rows[2][3] == "–"
    figure = regret_against_epsilon(groups, None, "")
    assert [axis.get_title() for axis in figure.axes[:3]] == ["N = 5", "N = 10", "N = 100"]
    assert regret_against_epsilon(group([private(10, 1.0, 3.0), private(10, None, 3.0)]), None, "") is None
