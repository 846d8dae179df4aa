"""Mean reward and dollars of agents that choose language models, beside choices that know the table of rewards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fnbandit.environments.reward_tables import prepare_rewards
from fnbandit.environments.tables import TableData, read_shipped
from fnbandit.simulation.results import standard_error
from fnbandit.storage.records import RunRecord
from workflows.reporting.canvas import Sheet, plain, style
from workflows.reporting.curves import Groups
from workflows.reporting.grouping import curve
from workflows.reporting.markdown import number

WINDOWS = 10
"""Number of equal parts of a run whose mean rewards are drawn"""
ROUTING_COLUMNS = ("choice", "seeds", "regret per agent", "mean reward, second half", "dollars per thousand answers")


@dataclass(frozen=True)
class Choice:
    """A choice of arms that knows the table: the mean over agents of its rewards and costs."""

    name: str
    reward: float
    dollars: float
    """Cost of a thousand answers of a thousand tokens: the price of a million"""


def read_routing() -> TableData:
    """Return the shipped table of questions and language models."""
    name = "routing.parquet"
    return prepare_rewards(read_shipped(name), name, "none", "domain")


def list_choices(data: TableData, agents: int) -> list[Choice]:
    """Return the choices that know a table, for agents that receive questions of their own domain.

    Agents count alike, whatever the number of questions in their domains.
    """
    if data.domains is None or data.costs is None:
        raise ValueError("the table has no domains or no costs; expected both")
    numbers, names = data.domains
    weights = np.bincount(np.arange(agents) % len(names), minlength=len(names)) / agents
    each = weights[numbers] / np.bincount(numbers)[numbers]
    """Share of every question"""
    rewards, costs = each.dot(data.rewards), each.dot(data.costs)
    single = int(rewards.argmax())
    of_domain = np.array([data.rewards[numbers == domain].mean(0).argmax() for domain in range(len(names))])[numbers]
    best = data.rewards.max(1, keepdims=True)
    oracle = np.where(data.rewards == best, data.costs, np.inf).argmin(1)
    rows = np.arange(len(numbers))
    known = {"best single model": np.full(len(rows), single), "best model of every domain": of_domain,
             "best model of every question": oracle}  # fmt: skip
    return [
        Choice("a model at random", float(rewards.mean()), float(costs.mean())),
        *(Choice(name, float(each.dot(data.rewards[rows, arms])), float(each.dot(data.costs[rows, arms])))
          for name, arms in known.items()),
    ]  # fmt: skip


def measure_second_half(run: RunRecord) -> dict[str, Any]:
    """Return the mean reward of the iterations after T/2, and the pulls of every arm in them.

    A run without a trace has no reward (None), one whose trace has only means over agents no pulls.
    """
    if "late_reward" in run.summary:
        return {name: run.summary[name] for name in ("late_reward", "late_pulls")}
    iterations, arms, rewards = (run.trace.column(name) for name in ("iteration", "arm", "reward"))
    if not len(iterations):
        return {"late_reward": None, "late_pulls": None}
    late = iterations.to_numpy() > run.summary["config"]["horizon"] / 2
    return {
        "late_reward": float(rewards.to_numpy()[late].mean()) if late.any() else None,
        "late_pulls": None if arms.null_count else np.bincount(arms.to_numpy()[late]).tolist(),
    }


def count_dollars(pulls: Sequence[int], data: TableData) -> float:
    """Return the dollars of a thousand answers of a thousand tokens, of models that were pulled so often."""
    if data.costs is None:
        raise ValueError("the table has no costs")
    costs = data.costs.mean(0)[: len(pulls)]
    return float(np.dot(pulls, costs) / np.sum(pulls))


def routes_questions(runs: Sequence[RunRecord]) -> bool:
    """Return True where all runs choose language models for domains, at no price."""
    configs = [run.summary["config"] for run in runs]
    return bool(configs) and all(
        config["environment"] == "routing" and config["heterogeneity"] == "domain" and not config["price"]
        for config in configs
    )


def compare_choices(groups: Groups) -> list[list[str]]:
    """Return a row of ROUTING_COLUMNS per group of runs, least regret first, and per choice that knows the table."""
    data, rows = read_routing(), []
    for name, runs in sorted(groups.items(), key=lambda one: np.mean([run.summary["regret"] for run in one[1]])):
        late = [measure_second_half(run) for run in runs]
        rewards = [one["late_reward"] for one in late if one["late_reward"] is not None]
        dollars = [count_dollars(one["late_pulls"], data) for one in late if one["late_pulls"]]
        regret = [run.summary["regret"] for run in runs]
        rows.append([name, str(len(runs)), number(np.mean(regret)), _describe(rewards, 3), _describe(dollars, 2)])
    horizon = max(run.summary["iterations"] for runs in groups.values() for run in runs)
    choices = list_choices(data, max(runs[0].summary["config"]["agents"] for runs in groups.values()))
    for one in choices:
        regret_of = horizon * (choices[-1].reward - one.reward)
        rows.append([f"*{one.name}*", "", number(regret_of), f"{one.reward:.3f}", f"{one.dollars:.2f}"])
    return rows


def _describe(values: Sequence[float], digits: int) -> str:
    if not values:
        return "–"
    error = f" ± {float(standard_error(np.array(values))):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{error}"


def reward_against_choices(groups: Groups, title: str | None, line: str) -> Figure | None:
    """Draw the mean reward in parts of the runs beside choices that know the table; None for other tasks.

    The mean reward is that of the best model of every question minus regret.
    """
    groups = {label: runs for label, runs in groups.items() if all(len(curve(run)[0]) for run in runs)}
    if not groups or not routes_questions([run for runs in groups.values() for run in runs]):
        return None
    agents = {runs[0].summary["config"]["agents"] for runs in groups.values()}
    choices = list_choices(read_routing(), max(agents))
    sheet = Sheet(1, 1, title, line, True)
    (axis,) = sheet.axes
    handles = []
    for place, (label, runs) in enumerate(groups.items()):
        look = style(place)
        parts = [_windows(run, choices[-1].reward) for run in runs]
        axis.plot(parts[0][0], np.mean([rewards for _, rewards in parts], axis=0), **look)
        handles.append(Line2D([], [], **look, label=plain(label)))
    for one in choices:
        axis.axhline(one.reward, color="0.55", linestyle=(0, (1, 1.2)), linewidth=1)
        where: dict[str, Any] = {"xytext": (0, 2), "textcoords": "offset points", "fontsize": 6, "color": "0.4"}
        axis.annotate(one.name, (0, one.reward), **where)
    axis.set_xlim(left=0)
    axis.set_xlabel("iteration")
    axis.set_ylabel("mean reward")
    sheet.legend(handles, None)
    return sheet.figure


def _windows(run: RunRecord, best: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the middles of WINDOWS equal parts of a run, and the mean reward in each."""
    iterations, regret = curve(run)
    ends = np.linspace(0, iterations[-1], WINDOWS + 1)
    there = np.interp(ends, [0, *iterations], [0, *regret])
    return (ends[1:] + ends[:-1]) / 2, best - np.diff(there) / np.diff(ends)
