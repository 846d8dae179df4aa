"""The summary at the top of the page of results: what holds, what does not, what is new, in numbers of the runs."""

from __future__ import annotations

from collections.abc import Iterator

from fnbandit.numerics.memory import readable
from workflows.paper.page_cells import PUBLISHED_SHARES, list_cells
from workflows.paper.page_claims import count_fallen, count_verdicts, judge_all
from workflows.paper.page_communication import EXACT_COMMUNICATION, collect_kinds
from workflows.paper.page_data import PageData
from workflows.paper.page_scaling import SHOWN_THRESHOLD
from workflows.paper.scaling_figures import collect_pooled_series, collect_scaling_series, fit_slope
from workflows.reporting.curves import BYTES, Total
from workflows.reporting.markdown import number, paragraph


def write_short_summary(data: PageData) -> Iterator[str]:
    """Yield the lines, each of the results that it needs."""
    yield "## In short"
    for sentences in (_say_claims, _say_cells, _say_agents, _say_pooled, _say_messages, _say_budget, _say_rest):
        for sentence in sentences(data):
            yield from (f"{'- ' if place == 0 else '  '}{line}" for place, line in enumerate(paragraph(sentence)[:-1]))
    yield ""


def _say_claims(data: PageData) -> Iterator[str]:
    judged = judge_all(data)
    words = {"paper": "With the published settings and really separate networks", "tuned": "With the tuned preset"}
    for preset, start in words.items():
        counts = count_verdicts(judged, preset)
        if sum(counts.values()):
            said = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
            yield (
                f"{start}, of {sum(counts.values())} comparisons that the paper claims: {said}; "
                f"{count_fallen(judged, preset)} of these verdicts may be chance."
            )


def _say_cells(data: PageData) -> Iterator[str]:
    cells = [cell for cell in list_cells(data) if cell.runs["tuned"]]
    if not cells:
        return
    better = sum((cell.mean("tuned") or 0) <= cell.published for cell in cells)
    yield f"Tuned has at most the published regret in {better} of {len(cells)} published cells."
    both = [(cell, one, other) for cell in cells
            if (one := cell.mean("exact")) is not None and (other := cell.mean("tuned")) is not None]  # fmt: skip
    if both:
        worse = [str(cell) for cell, exact, tuned in both if exact > tuned]
        far = [f"at most {words} in {sum(exact <= share * cell.published for cell, exact, _ in both)}"
               for words, share in PUBLISHED_SHARES.items()]  # fmt: skip
        said = f" ({'; '.join(worse)})" if worse else ""
        yield (
            f"New: exact federation has less regret than tuned in {len(both) - len(worse)} of {len(both)} cells, and "
            f"more in {len(worse)}{said}. Of the published value it has {', '.join(far)} cells."
        )


def _say_agents(data: PageData) -> Iterator[str]:
    for words, name in (("averaged networks", "scaling"), ("exact federation", "exact-scaling")):
        found = []
        for (task, threshold), one in collect_scaling_series(data.runs[name]).items():
            if threshold == SHOWN_THRESHOLD and len(one) > 1:
                regret = {n: Total.of(runs, ["regret"]).mean for n, runs in one.items()}
                best = min(regret, key=regret.__getitem__)
                chosen = [n for n in dict.fromkeys((1, 100, best, max(one))) if n in regret]
                found.append(f"{', '.join(f'{number(regret[n])} (N = {n:,})' for n in sorted(chosen))} on {task}")
        if found:
            yield f"Regret per agent of {words} with D = {SHOWN_THRESHOLD:g}, T = 500: {'; '.join(found)}."


def _say_pooled(data: PageData) -> Iterator[str]:
    exact = collect_scaling_series(data.runs["exact-scaling"])
    pooled = collect_pooled_series(data.runs["exact-scaling"])
    for task, one in pooled.items():
        other = exact.get((task, SHOWN_THRESHOLD), {})
        shared = [n for n in one if n in other]
        if len(shared) > 1:
            ratios = [Total.of(other[n], ["regret"]).mean / Total.of(one[n], ["regret"]).mean for n in shared]
            slope = fit_slope(other, ["regret"], lambda n: n <= 100)
            yield (
                f"On {task} this is {min(ratios):.2f} to {max(ratios):.2f} times the regret of a learner with all raw "
                f"data (N = {shared[0]:,} to {shared[-1]:,}); to N = 100 it changes as N to the power {slope:+.2f}, "
                "the theory's first term as N^-0.5."
            )


def _say_messages(data: PageData) -> Iterator[str]:
    if not data.groups[EXACT_COMMUNICATION]:
        return
    said = []
    for kind, groups in collect_kinds(data).items():
        runs = min(groups.values(), key=lambda runs: Total.of(runs, ["regret"]).mean)
        costs = [Total.of(runs, names).mean for names in (["regret"], ["rounds"], BYTES)]
        said.append(f"{kind} {number(costs[0])} with {number(costs[1])} rounds and {readable(costs[2])}")
    yield f"Least regret on cosine with N = 10, T = 2,000, each at its best D: {'; '.join(said)}."


def _say_budget(data: PageData) -> Iterator[str]:
    found = [
        f"{label} {number(Total.of(runs, ['regret']).mean)}" for label, runs in data.groups["exact-budget"].items()
    ]
    if found:
        yield f"With at most 20 rounds in 2,000 iterations: {'; '.join(found)}."


def _say_rest(data: PageData) -> Iterator[str]:
    missing = [f"`{name}`" for name in data.studies if data.list_missing(name)]
    yield f"Not, or not all, run: {', '.join(missing)}." if missing else "All experiments of this page were run."
