"""The paper's claims on its experiments (Sec. 5 and App. E), and their tests on runs.

A claim consists of comparisons of final regret. Every comparison uses the same seeds, hence the same tasks, on both
sides. The spread of regret is proportional to its size, so ratios are tested: a paired t-test of the logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fnbandit.storage.records import RunRecord
from workflows.reporting.grouping import curve

LEVEL = 0.05
"""Level of the one-sided tests: a smaller p decides"""
ALIKE = 0.25
"""Regrets are alike where they differ by at most this share of the larger one"""
EARLY = 100
"""Iteration of comparisons at the beginning of runs"""
USUAL_SEEDS = 3
"""Number of seeds of the figures; the page states other numbers"""
Verdict = Literal["holds", "does not hold", "undecided", "not run"]


@dataclass(frozen=True)
class Comparison:
    """A comparison of curves of a figure, by their labels without the preset."""

    figure: str
    kind: Literal["below", "rising", "alike"]
    """below: the first is less than every other; rising: each is less than the next; alike: the first equals every
    other within ALIKE"""
    labels: tuple[str, ...]
    """Labels of curves; "figure/label" names a curve of another figure"""
    at: int | None = None
    """Iteration after which regret is compared; None: at the end"""

    def describe(self) -> str:
        """Format the comparison in signs: "N=10 < N=5 < N=2"."""
        names = []
        for label in self.labels:
            figure, _, name = label.rpartition("/")
            names.append(name.removeprefix("FN-UCB ") + (f" of Fig. {figure.removeprefix('fig')}" if figure else ""))
        when = f" after {self.at} iterations" if self.at else ""
        if self.kind == "rising":
            return " < ".join(names) + when
        return f"{names[0]} {'<' if self.kind == 'below' else '≈'} {', '.join(names[1:])}{when}"

    def pairs(self) -> list[tuple[str, str]]:
        """Return the pairs of labels to compare."""
        if self.kind == "rising":
            return list(zip(self.labels, self.labels[1:], strict=False))
        return [(self.labels[0], other) for other in self.labels[1:]]


@dataclass(frozen=True)
class Claim:
    """A claim of the paper."""

    text: str
    place: str
    comparisons: tuple[Comparison, ...]


def _of(figures: Sequence[str], kind: Literal["below", "rising", "alike"], *labels: str) -> tuple[Comparison, ...]:
    return tuple(Comparison(figure, kind, labels) for figure in figures)


def _compare_rising(figures: Sequence[str], *labels: str) -> tuple[Comparison, ...]:
    """Compare a chain, and its two ends alone: neighbours may be too close for few seeds."""
    return tuple(one for f in figures for one in _of([f], "rising", *labels) + _of([f], "below", labels[0], labels[-1]))


N1, N2, N5, N10 = (f"FN-UCB N={n}" for n in (1, 2, 5, 10))
NEURAL_BASELINES = ("Neural UCB", "Neural TS")
OTHERS = ("Linear UCB", "Linear TS", "Kernel UCB", "Kernel TS")
FUNCTIONS, TABLES = ("fig1a", "fig1b"), ("fig2a", "fig2b")
CLAIMS = (
    Claim(
        "One agent does about as well as Neural UCB and Neural TS.",
        "Sec. 5.1",
        _of(FUNCTIONS, "alike", N1, *NEURAL_BASELINES),
    ),
    Claim("Two agents do better than who is alone.", "Sec. 5.1", _of(FUNCTIONS, "below", N2, N1, *NEURAL_BASELINES)),
    Claim("The more agents, the less regret.", "Sec. 5.1, App. E", _compare_rising(FUNCTIONS, N10, N5, N2, N1)),
    Claim("UCB^a alone has far more regret.", "Sec. 5.1", _of(["fig1c"], "below", "FN-UCB", "without UCB^b")),
    Claim(
        "UCB^b alone has more regret than UCB^a alone at first, and much less later (why the weight rises).",
        "Sec. 3.3, 5.1",
        (
            Comparison("fig1c", "below", ("without UCB^b", "without UCB^a"), at=EARLY),
            Comparison("fig1c", "below", ("without UCB^a", "without UCB^b")),
        ),
    ),
    Claim("UCB^b alone has more regret than both.", "Sec. 5.1", _of(["fig1c"], "below", "FN-UCB", "without UCB^a")),
    Claim(
        "Averaging the networks is indispensable.", "Sec. 5.1", _of(["fig1c"], "below", "FN-UCB", "without aggregation")
    ),
    Claim(
        "The more communication, the less regret.",
        "Sec. 5.1",
        _compare_rising(["fig1d"], "every iteration", "D=2.5", "D=4", "D=5"),
    ),
    Claim(
        "Two agents do better than Neural UCB and Neural TS.", "Sec. 5.2", _of(TABLES, "below", N2, *NEURAL_BASELINES)
    ),
    Claim("The more agents, the less regret.", "Sec. 5.2", _compare_rising(TABLES, N5, N2, N1)),
    Claim(
        "Both hold with diagonal matrices, too.",
        "Sec. 5.2",
        (*_of(["fig2c"], "below", N2, *NEURAL_BASELINES), *_compare_rising(["fig2c"], N5, N2, N1)),
    ),
    Claim(
        "Wider networks (m = 50) with diagonal matrices have less regret than m = 20 with full ones.",
        "Sec. 5.2, App. E",
        tuple(Comparison("fig2c", "below", (label, f"fig2a/{label}")) for label in (N1, N2, N5)),
    ),
    Claim(
        "The more communication, the less regret, with diagonal matrices.",
        "Sec. 5.2",
        _compare_rising(["fig2d"], "D=0.01", "D=0.03", "D=0.05"),
    ),
    Claim(
        "One averaged inverse is as good as everybody's.",
        "Sec. 5.1, App. E",
        _of(["fig3a", "fig3b"], "alike", "FN-UCB (Less Comm.)", "FN-UCB"),
    ),
    Claim(
        "Linear and kernel methods have more regret than Neural UCB.",
        "Sec. 5.2, App. E",
        _of(["fig4a", "fig4b", "fig4c", "fig4d"], "below", "Neural UCB", *OTHERS),
    ),
    Claim(
        "At the same width diagonal matrices have more regret than full ones.",
        "App. E",
        _of(["fig5"], "below", "full", "diagonal"),
    ),
)
TUNED_LABELS = {"D=0.01": "D=1", "D=0.03": "D=3", "D=0.05": "D=8"}
"""fig2d: the tuned preset has its own values of D"""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a comparison for runs with a preset."""

    verdict: Verdict
    means: list[float]
    chance: float | None
    """p of the deciding test; None without one"""
    seeds: int
    family: float | None = None
    """p of both sides and of all pairs together, for tests of many comparisons; None without a test"""

    def describe(self, stands: bool = True) -> str:
        """Format the verdict with the means, in the order of the labels; ° where it falls with so many tests."""
        if self.verdict == "not run":
            return "not run"
        numbers = ", ".join(f"{mean:.1f}" if mean < 100 else f"{mean:.0f}" for mean in self.means)
        doubts = [] if self.chance is None else [f"p = {self.chance:.2g}" if self.chance >= 1e-4 else "p < 0.0001"]
        doubts += [f"{self.seeds} seeds"] if self.seeds != USUAL_SEEDS else []
        doubt = f" ({', '.join(doubts)})" if doubts else ""
        return f"**{self.verdict}**{'' if stands else '°'}{doubt}: {numbers}"


Runs = Mapping[str, Mapping[str, list[RunRecord]]]
"""Figure -> label -> runs of all seeds"""


def with_more_seeds(runs: Runs, more: Sequence[RunRecord]) -> Runs:
    """Add to every curve those of further runs that differ from it in seed alone."""
    found: dict[str, list[RunRecord]] = {}
    for run in more:
        found.setdefault(_but_seed(run), []).append(run)
    return {
        figure: {label: [*members, *found.get(_but_seed(members[0]), [])] for label, members in curves.items()}
        for figure, curves in runs.items()
    }


def _but_seed(run: RunRecord) -> str:
    return repr({name: value for name, value in run.summary["config"].items() if name != "seed"})


def judge_claims(comparison: Comparison, preset: str, runs: Runs) -> Outcome:
    """Test a comparison on runs with a preset; linear and kernel baselines have the published settings only."""
    found = {label: _finals(comparison, label, preset, runs) for label in comparison.labels}
    if not all(found.values()):
        return Outcome("not run", [], None, 0)
    seeds = sorted(set.intersection(*(set(values) for values in found.values())))
    values = {label: np.array([finals[seed] for seed in seeds]) for label, finals in found.items()}
    verdicts: list[Verdict] = []
    chances: list[float | None] = []
    for lower, higher in comparison.pairs():
        verdict, chance = _is_decided(values[lower], values[higher], comparison.kind == "alike")
        verdicts.append(verdict)
        chances.append(chance)
    # One failed pair decides; otherwise the least certain pair does.
    order: tuple[Verdict, ...] = ("does not hold", "undecided", "holds")
    whole = next(one for one in order if one in verdicts)
    relevant = [c for v, c in zip(verdicts, chances, strict=True) if v == whole and c is not None]
    chance = (min if whole == "does not hold" else max)(relevant, default=None)
    family = None
    if chance is not None:
        # One pair of several that fails decides, so its p counts for each; where all have to hold, the largest does.
        sides = 1 if comparison.kind == "alike" else 2
        family = min(1.0, chance * sides * (len(chances) if whole == "does not hold" else 1))
    return Outcome(whole, [float(one.mean()) for one in values.values()], chance, len(seeds), family)


def find_standing(outcomes: Sequence[Outcome]) -> list[bool]:
    """Return False for verdicts that a false discovery rate of LEVEL over all tests (Benjamini-Hochberg) revokes."""
    from scipy.stats import false_discovery_control

    tested = [place for place, one in enumerate(outcomes) if one.family is not None]
    standing = [True] * len(outcomes)
    if tested:
        adjusted = false_discovery_control([float(outcomes[place].family or 0.0) for place in tested])
        for place, chance in zip(tested, adjusted, strict=True):
            standing[place] = outcomes[place].verdict == "undecided" or chance < LEVEL
    return standing


def _finals(comparison: Comparison, label: str, preset: str, runs: Runs) -> dict[int, float]:
    """Return the regret by seed."""
    figure, _, name = label.rpartition("/")
    curves = runs.get(figure or comparison.figure, {})
    name = TUNED_LABELS.get(name, name) if preset == "tuned" else name
    members = curves.get(f"{preset}: {name}") or (curves.get(f"paper: {name}") if name in OTHERS else None) or []
    return {run.summary["seed"]: _regret(run, comparison.at) for run in members}


def _regret(run: RunRecord, at: int | None) -> float:
    if at is None:
        return float(run.summary["regret"])
    iterations, regret = curve(run)
    return float(np.interp(at, iterations, regret))


def _is_decided(lower: np.ndarray, higher: np.ndarray, alike: bool) -> tuple[Verdict, float | None]:
    """Return the verdict on a pair, and the p of its test."""
    means = lower.mean(), higher.mean()
    ratios = np.log(higher) - np.log(lower)
    close = abs(means[0] - means[1]) <= ALIKE * max(means)
    if len(lower) < 2:
        return "undecided", None
    if alike:
        chance = 2 * min(p_value(ratios), p_value(-ratios))
        return ("holds", None) if close else ("undecided" if chance >= LEVEL else "does not hold", chance)
    chance, against = p_value(ratios), p_value(-ratios)
    verdict: Verdict = "holds" if chance < LEVEL else "does not hold" if against < LEVEL else "undecided"
    return verdict, min(chance, against)


def p_value(differences: np.ndarray) -> float:
    """Return the probability of a mean at least this large if the true mean is 0: a one-sided paired t-test."""
    from scipy.stats import t

    count = len(differences)
    error = differences.std(ddof=1) / math.sqrt(count)
    if error == 0:
        return 0.0 if differences.mean() > 0 else 1.0
    return float(t.sf(differences.mean() / error, count - 1))
