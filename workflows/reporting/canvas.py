"""The canvas of a figure: size, title, context line, legend, and the styles of curves."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.textpath import TextPath

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's palette, without the yellow, which is hard to see on white"""
LINES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (6, 1.5, 1.2, 1.5)), (0, (1.2, 1.2)), (0, (3, 1, 1, 1, 1, 1)))
MARKERS = "os^Dv<>Phd"
WIDTH = 3.4
"""Inches: one column"""
SCREEN_DPI = 150
"""Pixels per inch in a notebook; the picture itself has twice as many, for sharp screens"""
STYLE: dict[Any, Any] = {
    "font.size": 8, "axes.titlesize": 7.5, "axes.linewidth": 0.6, "axes.spines.top": False, "axes.spines.right": False,
    "xtick.major.width": 0.6, "ytick.major.width": 0.6, "lines.linewidth": 1.2, "lines.markersize": 3.5,
    "legend.fontsize": 7.5, "legend.title_fontsize": 7, "legend.frameon": False, "legend.handlelength": 2.8,
    "legend.columnspacing": 1.4, "legend.labelspacing": 0.35, "legend.borderpad": 0.1, "pdf.fonttype": 42,
    "figure.titlesize": 8,
}  # fmt: skip


def style(number: int) -> dict[str, Any]:
    """Return colour, line style and marker of the curve with a number; ten numbers differ."""
    return {"color": COLOURS[number % 7], "linestyle": LINES[number % 5], "marker": MARKERS[number % 10]}


def plain(label: str, width: float = WIDTH) -> str:
    """Return a label escaped for matplotlib, wrapped to the width in inches, with raised a and b."""
    whole = re.sub(r" ?= ?", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}", label.lstrip("_").replace("$", r"\$"))
    lines = _wrap(whole, int(14 * width))
    return re.sub(r"UCB\^([ab])", r"UCB$^\1$", "\n".join(lines))


def _wrap(text: str, width: int) -> list[str]:
    """Wrap a text into as few lines as fit a width in characters, of about the same length."""
    lines = textwrap.wrap(text, width)
    narrow = next(n for n in range(max(1, width // 2), width + 1) if len(textwrap.wrap(text, n)) <= len(lines))
    return [line.removesuffix(" ·") for line in textwrap.wrap(text, narrow)]


class SheetFigure(Figure):
    """A figure that shows itself in a notebook, whether or not matplotlib's inline backend is in use."""

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=2 * SCREEN_DPI)
        return buffer.getvalue(), {"width": round(SCREEN_DPI * self.get_figwidth())}


class Sheet:
    """The axes of a figure, below its title and the line of its runs' common settings."""

    def __init__(
        self, rows: int, columns: int, title: str | None, line: str, stacked: bool, share: bool = True
    ) -> None:
        """Create the axes. `stacked` axes show different quantities; others `share` one scale."""
        self.width = WIDTH if columns == 1 else 2 * WIDTH + 0.2
        height = 2.2 if rows == 1 else 1.6 * rows + 0.2
        self.figure = SheetFigure(figsize=(self.width, height), layout="constrained", dpi=SCREEN_DPI)
        grid = self.figure.subplots(rows, columns, sharex="col", sharey=share and not stacked, squeeze=False)
        self.axes: list[Axes] = list(grid.ravel())
        for axis in self.axes:
            axis.grid(axis="y", color="0.9", linewidth=0.5)
            axis.set_axisbelow(True)
        words = [plain(text, 1.15 * self.width) for text in (title, line) if text]
        # The title is above, the line in small grey letters; in small multiples every axis has its own title.
        if columns > 1 or (len(self.axes) > 1 and not stacked):
            self.figure.suptitle("\n".join(words))
        else:
            self.axes[0].set_title(plain(line, 1.25 * self.width), fontsize=6.3, color="0.35")
            if title:
                self.figure.suptitle(plain(title))
        self.figure.set_figheight(height + 0.12 * "\n".join(words).count("\n"))

    def legend(self, lines: list[Line2D], remark: str | None, published: bool = False) -> None:
        """Draw the legend below the axes, where it covers no data; the figure grows by its rows. Omit a lone curve."""
        if published:
            hollow = Line2D([], [], linestyle="", marker="o", color="0.3", markerfacecolor="white", label="published")
            lines = [*lines, hollow]
        elif len(lines) == 1:
            lines = []
        if not lines and remark is None:
            return
        widest = max((_width(line) for line in lines), default=0)
        fit = max(1, min(len(lines), int((self.width + 0.05) / (widest + 0.15))))
        columns = -(-len(lines) // -(-len(lines) // fit)) if lines else 1
        rows = sum(str(line.get_label()).count("\n") + 1 for line in lines[::columns]) + (remark is not None)
        self.figure.set_figheight(self.figure.get_figheight() + 0.16 * rows)
        # Matplotlib fills columns; readers read rows.
        lines = [line for column in range(columns) for line in lines[column::columns]]
        self.figure.legend(handles=lines, loc="outside lower center", ncols=columns, title=remark, borderaxespad=0.2)


def equalize(axes: Sequence[Axes]) -> None:
    """Give axes of one quantity the same limits, from 0 on."""
    top = max((axis.get_ylim()[1] for axis in axes), default=1.0)
    for axis in axes:
        axis.set_ylim(0, top)


def _width(line: Line2D) -> float:
    """Return the width of a legend entry in inches."""
    parts = str(line.get_label()).split("\n")
    return 0.38 + max(TextPath((0, 0), part, size=7.5).get_extents().width for part in parts) / 72


def note(drawn: str, over: set[str]) -> str | None:
    """Explain a band or bar; None where there is no error."""
    words = " or ".join(over) if len(over) < 2 else "seeds (one seed: over agents)" if "agents" in over else "seeds"
    words = "agents of one seed" if words == "agents" else words
    return f"{drawn}: standard error over {words}" if over else None
