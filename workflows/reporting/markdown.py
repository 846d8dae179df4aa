"""Numbers, tables and paragraphs of the page of results, in Markdown."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from workflows.reporting.curves import Total


def number(value: float) -> str:
    """Format a number with at least two significant digits."""
    digits = 0 if value >= 99.95 else 1 if value >= 0.95 else 2
    return f"{value:,.{digits}f}"


def format_measured(total: Total) -> str:
    """Format a mean with its standard error over seeds."""
    return f"{number(total.mean)} ± {number(total.error)}" if total.over.endswith("seeds") else number(total.mean)


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    lines = [headings, ["---"] * len(headings), *rows]
    return ["| " + " | ".join(line) + " |" for line in lines] + [""]


def paragraph(text: str) -> list[str]:
    """Wrap prose at 118 characters."""
    return [*textwrap.wrap(" ".join(text.split()), 118, break_long_words=False, break_on_hyphens=False), ""]
