"""The section of the page of results on privacy: regret against epsilon, and what the times of rounds tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from fnbandit.storage.records import RunRecord
from workflows.paper.shipped import RESULTS
from workflows.paper.trigger_leak import LEAK_COLUMNS, PICTURE_FILE, RESULT_FILE, leak_rows, read_leaks
from workflows.reporting.curves import Total
from workflows.reporting.grouping import group
from workflows.reporting.markdown import markdown_table, number, paragraph
from workflows.reporting.privacy_figure import BREAK_EVEN_COLUMNS, collect_privacy_lines, describe_break_even

EPSILON_TEXT = """\
Federation *pays* from the smallest epsilon on, among those run, at and above which regret is below that of agents that
learn alone with Neural UCB ({alone}). delta is 1e-5, T = 200, 7 rounds. FedIGW protects an agent's whole history,
DisLinUCB and FN-linear one interaction. Runs whose noise is larger than their signal are among them
(`privacy_allow_noise`). One seed each: a line through noise.
"""
LEAK_TEXT = """\
Two histories of one agent differ in one interaction: its contexts are one unit vector, or 0. An attacker who sees the
iterations of rounds alone guesses which: rates are over {seeds} seeds, with Clopper-Pearson bounds at 95 %, and epsilon
is the bound that they imply for every protocol with these rounds, however noisy its messages are. A perfect guess on
{seeds} seeds shows an epsilon of no more than {most:.1f}.
"""


def write_privacy_lines(runs: Sequence[RunRecord]) -> Iterator[str]:
    """Yield the lines of the section, without its heading; none without results."""
    if runs:
        groups = group(list(runs))
        _, alone = collect_privacy_lines(groups)
        level = ", ".join(number(Total.of(one, ["regret"]).mean) for one in alone.values())
        yield "![Regret against epsilon](results/privacy.png)"
        yield ""
        yield from paragraph(EPSILON_TEXT.format(alone=level))
        yield from markdown_table(list(BREAK_EVEN_COLUMNS), describe_break_even(groups))
    path = Path(str(RESULTS / RESULT_FILE))
    if path.is_file():
        from fnbandit.privacy.audit import bound_rates

        leaks = read_leaks(path)
        seeds = len(leaks[0].times[0])
        yield f"![What the times of rounds tell](results/{PICTURE_FILE})"
        yield ""
        half = seeds // 2
        yield from paragraph(LEAK_TEXT.format(seeds=f"{seeds:,}", most=bound_rates(half, half, 0, half)))
        yield from markdown_table(list(LEAK_COLUMNS), list(leak_rows(leaks)))
