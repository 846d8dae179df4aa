"""The section of the page of results on the scaling study: regret and rounds against N, beside the theory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from fnbandit.storage.records import RunRecord
from workflows.paper.page_figures import collect_scaling_series, fit_slope
from workflows.reporting.curves import Total
from workflows.reporting.markdown import markdown_table, number, paragraph

RunsByAgents = Mapping[int, list[RunRecord]]
"""N -> runs of all seeds"""
FITTED = """\
Seconds are wall time on one core of a machine that did other work, too, of the seed that was fastest. Powers of N
that fit (least squares of logarithms). Theory: regret per agent as N^-0.5 (the first term of Theorem 1), rounds as
N^0.5 (Theorem 2). N from 3,000 on has one seed.
"""
PARTING = """\
Over all N, regret per agent changes as N to a power between {low:+.2f} and {high:+.2f}, where theory has -0.5:
{than}. The theory's bound has a second term, d~ sqrt(T) per agent, which does not fall with N. Rounds change as N
to a power between {few:+.2f} and {many:+.2f}, where theory has +0.5: Theorem 2 lets D shrink as T / (N d~), while
here D stays, and then its proof bounds the rounds by sqrt(T d~ / D), up to logarithms, for every N. That they fall
is because the rows of all agents make the common matrix grow, so that one agent's new rows change its determinant
less.
"""
LEAST_REGRET_TEXT = """\
With a D that stays, more agents are not always better: regret per agent is least at {least}. Where that is not the
largest N that was run, rounds have become so few beyond it that agents choose for long by what little has been told.
"""
SHRINKING = """\
As in Theorem 2, let D shrink as N grows: about {many:g} times the agents, D from {high:g} to {low:g}. Regret then
changes as N to a power between {least:+.2f} and {most:+.2f}, rounds between {few:+.2f} and {often:+.2f}.
"""
EQUAL_PRODUCTS = 1.5
"""Products N D within this factor of each other count as equal, because the study has N = 1, 3, 10, 30 ..."""


def write_scaling_lines(runs: Sequence[RunRecord]) -> Iterator[str]:
    """Yield the lines of the section, without its heading; none without results."""
    series = {key: one for key, one in collect_scaling_series(runs).items() if len(one) > 1}
    if not series:
        return
    yield "![Regret, rounds, messages, bytes and seconds against N](results/scaling.png)"
    yield ""
    yield from paragraph(FITTED)
    rows, slopes = [], dict[str, list[float]](regret=[], rounds=[])
    for (task, threshold), one in series.items():
        row = [f"{task}, D = {threshold:g}", f"{min(one)} to {max(one):,}"]
        for name in slopes:
            row.append(f"{fit_slope(one, [name], lambda n: n <= 100):+.2f}")
            far = fit_slope(one, [name], lambda n: n >= 100) if sum(n >= 100 for n in one) > 1 else None
            row.append("–" if far is None else f"{far:+.2f}")
            slopes[name].append(fit_slope(one, [name], lambda n: True))
        row += [f"{number(_mean(one[min(one)], name))} → {number(_mean(one[max(one)], name))}" for name in slopes]
        rows.append(row)
    parts = ("to N = 100", "from N = 100")
    yield from markdown_table(["", "N", *(f"{name}, {part}" for name in slopes for part in parts), *slopes], rows)
    yield from _in_short(series)
    low, high = min(slopes["regret"]), max(slopes["regret"])
    few, many = min(slopes["rounds"]), max(slopes["rounds"])
    than = "slower" if low > -0.5 else "faster" if high < -0.5 else "on both sides of that"
    yield from paragraph(PARTING.format(low=low, high=high, few=few, many=many, than=than))
    best = [
        f"N = {min(one, key=lambda n: _mean(one[n], 'regret')):,} ({task}, D = {threshold:g})"
        for (task, threshold), one in series.items()
    ]
    yield from paragraph(LEAST_REGRET_TEXT.format(least=", ".join(best)))
    yield from _write_shrinking(series)


def _mean(runs: list[RunRecord], name: str) -> float:
    return Total.of(runs, [name]).mean


def _in_short(series: Mapping[tuple[str, float], RunsByAgents]) -> list[str]:
    """Return a table of regret per agent and rounds with D = 5, for N = 1, 10, 100 ..."""
    tasks = {task: one for (task, threshold), one in series.items() if threshold == 5}
    sizes = [n for n in (1, 10, 100, 1000, 10_000) if any(n in one for one in tasks.values())]
    rows = []
    for task, one in tasks.items():
        totals = [[_mean(one[n], name) for name in ("regret", "rounds")] if n in one else None for n in sizes]
        rows.append([task, *(f"{number(t[0])} ({number(t[1])})" if t else "–" for t in totals)])
    return markdown_table(["D = 5: regret per agent (rounds)", *(f"N={n:,}" for n in sizes)], rows)


def _write_shrinking(series: Mapping[tuple[str, float], RunsByAgents]) -> Iterator[str]:
    """Yield the comparison of the largest D with the smallest, for N in inverse proportion to D."""
    low, high = (pick(threshold for _, threshold in series) for pick in (min, max))
    if low == high:
        return
    rows, powers, many = [], dict[str, list[float]](regret=[], rounds=[]), 1.0
    for task in dict.fromkeys(task for task, _ in series):
        one, other = series.get((task, high), {}), series.get((task, low), {})
        for few, more in (
            (a, b) for a in one for b in other if 1 / EQUAL_PRODUCTS < b * low / (a * high) < EQUAL_PRODUCTS
        ):
            many = more / few
            row = [task, f"D = {high:g}, N = {few:,} → D = {low:g}, N = {more:,}"]
            for name, found in powers.items():
                ends = _mean(one[few], name), _mean(other[more], name)
                row.append(f"{number(ends[0])} → {number(ends[1])}")
                found.append(float(np.log(ends[1] / ends[0]) / math.log(many)))
            rows.append(row)
    if rows:
        (least, most), (few_rounds, often) = ((min(found), max(found)) for found in powers.values())
        words = {"many": round(many, -1), "high": high, "low": low, "few": few_rounds, "often": often}
        yield from paragraph(SHRINKING.format(least=least, most=most, **words))
        yield from markdown_table(["", "", "regret", "rounds"], rows)
