"""Names and digits of metrics in MLflow, which shows them as they are, and the picture in a study's description."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

AXIS_SYMBOLS = {"agents": "N", "threshold": "D", "horizon": "T"}
_NUMBER = re.compile(r"\d+")


OVERVIEW = "overview.png"
PICTURE_WIDTH = 680
"""Pixels: MLflow's description shows a picture in its own size, in a column of about this width"""


def choose_overview(files: Sequence[Path]) -> Path | None:
    """Return the figure that shows a study at a glance: regret against N, else the first one; None without figures."""
    figures = [path for path in files if path.suffix == ".png"]
    return next((path for path in figures if path.stem == "regret-against-agents"), figures[0] if figures else None)


def reduce_picture(path: Path) -> Any:
    """Return a picture that is at most PICTURE_WIDTH wide."""
    from PIL import Image

    with Image.open(path) as picture:
        picture.thumbnail((PICTURE_WIDTH, PICTURE_WIDTH), Image.Resampling.LANCZOS)
        return picture.convert("RGB")


def name_by_axis(steps: Sequence[tuple[int, Mapping[str, float]]], axis: str) -> list[tuple[int, dict[str, float]]]:
    """Return a study's totals by names that say what their steps are, in numeric order: "regret by N/D 05"."""
    suffixes = [name.partition("/")[2] for _, values in steps for name in values]
    width = max((len(number[0]) for suffix in suffixes if (number := _NUMBER.search(suffix))), default=0)

    def rename(name: str) -> str:
        kind, slash, others = name.partition("/")
        if kind == "bytes":  # MLflow sorts charts by name, capitals first: regret comes before rounds and bytes
            kind = "sent bytes"
        padded = _NUMBER.sub(lambda number: number[0].rjust(width, "0"), others, count=1)
        return f"{kind} by {AXIS_SYMBOLS.get(axis, axis)}{slash}{padded}"

    return [(step, {rename(name): value for name, value in values.items()}) for step, values in steps]


def shorten(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return metrics that a table shows whole: regret with five digits, bytes in MB."""
    found = {}
    for name, value in metrics.items():
        if name.startswith(("bytes", "sent bytes")):
            found[name.replace("bytes", "MB", 1)] = float(f"{value / 1e6:.5g}")
        else:
            found[name] = float(f"{value:.5g}") if name.startswith("regret") else value
    return found
