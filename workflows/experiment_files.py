"""The experiments shipped with the package: the paper's figures, and ours."""

from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path

from fnbandit.config import Config
from fnbandit.registry import unknown
from workflows.settings import Settings
from workflows.study import Point, Study, folder_for, with_seeds

FOLDER = resources.files("workflows") / "experiments"


def experiment_names() -> list[str]:
    """The experiments that there are."""
    return sorted(item.name.removesuffix(".toml") for item in FOLDER.iterdir() if item.name.endswith(".toml"))


def experiment(name: str, quick: bool, seeds: int | None, settings: Settings) -> Study:
    """One of the shipped experiments as a study in runs/NAME, with `seeds` seeds (None: as its file says)."""
    if name not in experiment_names():
        raise ValueError(unknown("figure", name, [*experiment_names(), "all"]))
    file = tomllib.loads((FOLDER / f"{name}.toml").read_text())
    smaller, curves, title, caption = (file.pop(key) for key in ("quick", "curve", "title", "caption"))
    quick_caption = smaller.pop("caption")
    quick_curves = smaller.pop("curve", curves)
    if quick:
        title, caption, curves = f"{title} (quick, T={smaller['horizon']})", quick_caption, quick_curves
    points: list[Point] = []
    for curve in curves:
        fields = file | curve | (smaller if quick else {})
        label, published = fields.pop("label"), fields.pop("published", None)
        preset, file_seeds = fields.pop("preset"), fields.pop("seeds")
        folder = "".join(c if c.isalnum() or c in ".-" else "_" for c in label).strip("_")
        point = Point(f"curve={folder}", Config.preset(preset, **fields), label, None if quick else published)
        points += with_seeds([point], seeds or file_seeds)
    full = f"{name}-quick" if quick else name
    return Study(full, folder_for(settings.out, Path("runs") / full), points, settings, title, caption)
