"""The sections of the page of results on the number of agents: averaging, exact federation and pooled data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from fnbandit.storage.records import RunRecord
from workflows.paper.page_data import PageData
from workflows.paper.scaling_figures import collect_pooled_series, collect_scaling_series, fit_slope
from workflows.reporting.curves import Total
from workflows.reporting.markdown import markdown_table, number, paragraph

RunsByAgents = Mapping[int, list[RunRecord]]
"""N -> runs of all seeds"""
SHOWN_THRESHOLD = 5.0
"""D of the lines and tables that show one"""
SHORT_SIZES = (1, 10, 100, 1000, 10_000)
SHORT_HEADING = f"D = {SHOWN_THRESHOLD:g}: regret per agent (rounds)"
NEAR_POOLED = 1.1
"""Exact federation is as good as pooled data where its regret is at most this factor of theirs"""
SIDE_BY_SIDE = """\
The same tasks, trigger, D and T: averaged networks (tuned) and exact federation. Lines are D = {threshold:g}, bands
reach from the smallest to the largest D that was run.
"""
EXACT_TEXT = """\
Powers of N as below; a curve has the number of seeds that the table says, from the smallest N to the largest. A round
has several exchanges. Seconds are of the fastest seed.
"""
POOLED_TEXT = """\
Pooled is the same learner with a round in every iteration and all observations in every exchange: it sees all that
one sees who has everybody's raw data. The ratio is regret of exact federation over that of pooled data.
"""
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


def write_scaling(data: PageData) -> Iterator[str]:
    """Yield the section: averaging and exact federation side by side, then each of them."""
    yield "## More agents, less regret: one to ten thousand"
    tuned, exact = data.runs["scaling"], data.runs["exact-scaling"]
    if tuned or exact:
        yield "![Regret per agent against N, averaged networks and exact federation](results/agents.png)"
        yield ""
        yield from paragraph(SIDE_BY_SIDE.format(threshold=SHOWN_THRESHOLD))
        yield from _write_sides(tuned, exact)
    yield "### Exact federation"
    yield from write_exact_lines(exact)
    yield from data.not_run("exact-scaling")
    yield "### Averaged networks"
    yield from write_scaling_lines(tuned)
    yield from data.not_run("scaling")


def _write_sides(tuned: Sequence[RunRecord], exact: Sequence[RunRecord]) -> list[str]:
    """Return a table of regret per agent and rounds of both, for N = 1, 10, 100 ..."""
    found = {words: collect_scaling_series(runs) for words, runs in (("averaged", tuned), ("exact", exact))}
    tasks = list(dict.fromkeys(task for series in found.values() for task, _ in series))
    rows = []
    for task in tasks:
        for words, series in found.items():
            one = series.get((task, SHOWN_THRESHOLD), {})
            rows.append([f"{task}, {words}", *_format_sizes(one)])
    return markdown_table([SHORT_HEADING, *(f"N={n:,}" for n in SHORT_SIZES)], rows)


def write_exact_lines(runs: Sequence[RunRecord]) -> Iterator[str]:
    """Yield the lines on exact federation, beside pooled data and the theory; none without results."""
    series = {key: one for key, one in collect_scaling_series(runs).items() if len(one) > 1}
    if not series:
        return
    yield "![Exact federation: regret, rounds, exchanges, bytes and seconds against N](results/exact-scaling.png)"
    yield ""
    yield from paragraph(EXACT_TEXT)
    rows = []
    for (task, threshold), one in series.items():
        seeds = " to ".join(map(str, sorted({len(members) for members in one.values()}, reverse=True)))
        row = [f"{task}, D = {threshold:g}", f"{min(one)} to {max(one):,}", seeds]
        for name in ("regret", "rounds"):
            for part in (lambda n: n <= 100, lambda n: n >= 100):
                row.append(f"{fit_slope(one, [name], part):+.2f}" if sum(map(part, one)) > 1 else "–")
            row.append(f"{number(_mean(one[min(one)], name))} → {number(_mean(one[max(one)], name))}")
        row.append(f"{number(_mean(one[max(one)], 'exchanges'))}")
        rows.append(row)
    parts = ("to N = 100", "from N = 100")
    headings = [word for name in ("regret", "rounds") for word in (*(f"{name}, {part}" for part in parts), name)]
    yield from markdown_table(["", "N", "seeds", *headings, "exchanges at the largest N"], rows)
    ends = [
        f"{task}, D = {threshold:g}: {number(_mean(one[max(one)], 'regret'))} at N = {max(one):,}, "
        f"{number(_mean(one[best], 'regret'))} at N = {best:,}"
        for (task, threshold), one in series.items()
        if (best := min(one, key=lambda n: _mean(one[n], "regret"))) != max(one)
    ]
    if ends:
        yield from paragraph(
            f"Regret per agent is not least at the largest N that was run in these: {'; '.join(ends)}."
        )
    else:
        yield from paragraph("Regret per agent is least at the largest N that was run, for every task and D.")
    yield from _write_ratios(series, collect_pooled_series(runs))


def _write_ratios(
    series: Mapping[tuple[str, float], RunsByAgents], pooled: Mapping[str, RunsByAgents]
) -> Iterator[str]:
    """Yield the table of exact federation's regret over that of the learner with all raw data, and a sentence."""
    sizes = sorted({n for one in pooled.values() for n in one})
    if not sizes:
        return
    rows, near, count = [], 0, 0
    for task, one in pooled.items():
        rows.append([f"{task}, pooled: regret", *(number(_mean(one[n], "regret")) if n in one else "–" for n in sizes)])
        for (name, threshold), exact in series.items():
            if name == task:
                ratios = [_mean(exact[n], "regret") / _mean(one[n], "regret") if n in exact and n in one else None
                          for n in sizes]  # fmt: skip
                rows.append([f"{task}, D = {threshold:g}: ratio", *("–" if r is None else f"{r:.2f}" for r in ratios)])
                count += sum(ratio is not None for ratio in ratios)
                near += sum(ratio is not None and ratio <= NEAR_POOLED for ratio in ratios)
    yield from paragraph(POOLED_TEXT)
    yield from markdown_table(["", *(f"N={n:,}" for n in sizes)], rows)
    yield from paragraph(f"The ratio is at most {NEAR_POOLED:g} in {near} of {count} cases.")


def write_scaling_lines(runs: Sequence[RunRecord]) -> Iterator[str]:
    """Yield the lines on averaged networks beside the theory; none without results."""
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


def _format_sizes(one: RunsByAgents) -> list[str]:
    """Return regret per agent and rounds for each of SHORT_SIZES."""
    totals = [[_mean(one[n], name) for name in ("regret", "rounds")] if n in one else None for n in SHORT_SIZES]
    return [f"{number(t[0])} ({number(t[1])})" if t else "–" for t in totals]


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
