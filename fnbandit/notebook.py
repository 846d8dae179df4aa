"""HTML by which results, studies and configs show themselves in a notebook."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

LONGEST = 30
"""Largest number of rows of a table; where none is given; the others are counted"""


def html_table(
    rows: Iterable[Sequence[object]], header: Sequence[str] = (), title: str = "", most: int = LONGEST
) -> str:
    """Return a table as HTML, with escaped cells and at most `most` rows; numbers are aligned to the right."""
    rows = list(rows)
    lines = [f"<p>{html.escape(title)}</p>"] if title else []
    lines.append("<table>")
    if header:
        lines.append(f"<tr>{''.join(f'<th>{html.escape(name)}</th>' for name in header)}</tr>")
    lines += [f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows[:most]]
    lines.append("</table>")
    if len(rows) > most:
        lines.append(f"<p>and {len(rows) - most:,} more rows</p>")
    return "\n".join(lines)


def _cell(value: object) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    text = "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
    return f'<td style="text-align:{"right" if is_number else "left"}">{html.escape(text)}</td>'
