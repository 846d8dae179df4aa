"""The section of the page of results on the paper's claims, and the rules by which the page judges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from workflows.paper.claims import (
    ALIKE,
    CLAIMS,
    LEVEL,
    USUAL_SEEDS,
    Claim,
    Comparison,
    Outcome,
    Runs,
    Verdict,
    find_standing,
    judge_claims,
    with_more_seeds,
)
from workflows.paper.page_cells import CELLS, SIZES, find_exact_runs
from workflows.paper.page_data import PRESET_WORDS, PageData
from workflows.reporting.markdown import markdown_table, paragraph

CLOSE = ("close-calls-functions", "close-calls-tables")
ALONE = ("Neural UCB", "Neural TS")
JUDGING_RULES = """\
Every comparison is of the same seeds. It *holds*, or *does not hold*, if a one-sided paired t-test of the logarithms
says so at p < {level}, else it is *undecided*; a line of several comparisons holds if all do, and does not if one of
them does not. ≈ holds if means differ by at most {alike:.0%} of the larger one. p is that of the comparison that
decided. Numbers are means of final regret per agent in the order of what is compared, over {seeds} seeds where no
other number is said: what was close after {seeds} has seeds 0 to 9 (`fnbandit reproduce close-calls-functions
close-calls-tables`). Of so many tests, some near {level} decide by chance: ° marks a verdict that does not stand at a
false discovery rate of {level} (Benjamini-Hochberg over all tests of the table, both sides, times the number of
comparisons where one of several decided). The rules are older than the runs with exact federation; the false
discovery rate was added before these ended, when the results of the other two settings were known.
"""
LATER_CHOICES = """\
Three choices were made after results had been seen: the logarithms, which changed none of the six verdicts that there
were then (Fig. 1a and 1b, tuned), the lines that compare the two ends of a chain alone, added to every chain after
Fig. 1a, and which curves have more seeds: those of comparisons that {seeds} seeds left undecided, mostly with both
settings, but for Fig. 2d with the published ones (below). Exact is judged where a claim is about the number of agents;
it stands beside Neural UCB and Neural TS with the tuned preset, and has rounds by the exact trigger with D = 5.
"""
REMARKS = """\
With the tuned preset Fig. 2d has values of D of its own: 1, 3, 8. With the published settings its agents communicate
in all iterations but two at most until training ends, after 2,000, also with the largest D (three seeds); rounds that
are left out later change no network, and so next to no choice. Linear and kernel methods have the published settings
in both columns. On shuttle decay can shrink a network to nothing in the first iterations, when rewards seen are nearly
all 0, and little or nothing brings it back: learners that are alone then err in most iterations. With the published
settings that is Neural UCB in seed 1, and with diagonal matrices Neural UCB, Neural TS and N=1 in seed 6; tuned, Neural
UCB in seed 4 and for a while in seed 1, and Neural TS with diagonal matrices in seed 3. Their means are mostly of these
seeds; what Fig. 2a and 2c say of two agents against Neural UCB and Neural TS is the same without them.
"""


@dataclass(frozen=True)
class Judged:
    """A comparison of a claim, with the outcome for every setting."""

    claim: Claim
    comparison: Comparison
    outcomes: dict[str, Outcome]
    standing: dict[str, bool]

    def describe(self, preset: str) -> str:
        """Format the outcome for a setting; "–" for exact federation, where the claim is not about it."""
        outcome = self.outcomes[preset]
        if preset == "exact" and outcome.verdict == "not run":
            return "–"
        return outcome.describe(self.standing[preset])


def with_exact(data: PageData) -> Runs:
    """Return the runs of all figures, with those of exact federation as a third setting of the published cells."""
    groups = {name: dict(curves) for name, curves in data.groups.items()}
    for name in CELLS:
        for n in SIZES:
            if runs := find_exact_runs(data, name, n):
                groups[name][f"exact: FN-UCB N={n}"] = runs
        for label in ALONE:
            if runs := groups[name].get(f"tuned: {label}", []):
                groups[name][f"exact: {label}"] = runs
    return groups


def judge_all(data: PageData) -> list[Judged]:
    """Test all comparisons of all claims, for every setting."""
    groups = with_more_seeds(with_exact(data), [run for name in CLOSE for run in data.runs[name]])
    found = [
        (claim, comparison, {preset: judge_claims(comparison, preset, groups) for preset in PRESET_WORDS})
        for claim in CLAIMS
        for comparison in claim.comparisons
    ]
    standing = iter(find_standing([outcome for _, _, outcomes in found for outcome in outcomes.values()]))
    return [
        Judged(claim, comparison, outcomes, {preset: next(standing) for preset in outcomes})
        for claim, comparison, outcomes in found
    ]


def count_verdicts(judged: list[Judged], preset: str) -> dict[Verdict, int]:
    """Return the number of comparisons by verdict, without those that were not run."""
    verdicts: tuple[Verdict, ...] = ("holds", "does not hold", "undecided")
    return {word: sum(one.outcomes[preset].verdict == word for one in judged) for word in verdicts}


def count_fallen(judged: list[Judged], preset: str) -> int:
    """Return the number of verdicts that so many tests revoke."""
    return sum(not one.standing[preset] for one in judged)


def write_rules() -> Iterator[str]:
    """Yield the rules of all comparisons."""
    yield "## How results are judged"
    yield from paragraph(JUDGING_RULES.format(level=LEVEL, alike=ALIKE, seeds=USUAL_SEEDS))
    yield from paragraph(LATER_CHOICES.format(seeds=USUAL_SEEDS))


def write_claims(data: PageData) -> Iterator[str]:
    """Yield the section."""
    yield "## What the paper says, and what holds"
    judged, rows = judge_all(data), []
    for number, one in enumerate(judged):
        text = one.claim.text if number == 0 or judged[number - 1].claim is not one.claim else ""
        where = f"{one.claim.place}; {figure_name(one.comparison.figure)}"
        rows.append([text, where, one.comparison.describe(), *(one.describe(preset) for preset in PRESET_WORDS)])
    yield from markdown_table(["claim", "where", "compared", *PRESET_WORDS.values()], rows)
    for preset, words in PRESET_WORDS.items():
        counts = ", ".join(f"{count} {verdict}" for verdict, count in count_verdicts(judged, preset).items() if count)
        yield f"- {words}: {counts or 'not run'}; {count_fallen(judged, preset)} of them do not stand (°)"
    yield ""
    yield from paragraph(REMARKS)
    for name in CLOSE:
        yield from data.not_run(name)


def figure_name(name: str) -> str:
    """Return a figure's name as the paper writes it."""
    return f"Fig. {name.removeprefix('fig')}"
