"""The experiments shipped with the package: the paper's figures, and ours.

A file has fields of Config for all its curves, `[[curve]]`s with fields of their own, and in `[quick]` what a smaller
version changes. A list of values, as `sweep` takes, stands for one curve per value, several lists for their product;
a label says the values in braces: "N={agents}". With several presets labels begin with the preset's name.
"""

from __future__ import annotations

import itertools
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

from fnbandit.config import Config
from fnbandit.config.registry import unknown
from workflows.studies.settings import Settings
from workflows.studies.study import RunSpec, StudyPlan, folder_for, with_seeds

EXPERIMENT_FOLDER = resources.files("workflows") / "experiments"


def experiment_names() -> list[str]:
    """List the shipped experiments."""
    return sorted(
        item.name.removesuffix(".toml") for item in EXPERIMENT_FOLDER.iterdir() if item.name.endswith(".toml")
    )


def experiment(name: str, quick: bool, seeds: int | None, settings: Settings) -> StudyPlan:
    """Build the study of a shipped experiment in runs/NAME, with `seeds` seeds (None: as in its file)."""
    if name not in experiment_names():
        raise ValueError(unknown("figure", name, [*experiment_names(), "all"]))
    file = tomllib.loads((EXPERIMENT_FOLDER / f"{name}.toml").read_text())
    smaller, curves, title, caption = (file.pop(key) for key in ("quick", "curve", "title", "caption"))
    quick_caption = smaller.pop("caption", caption)
    quick_curves = smaller.pop("curve", curves)
    if quick:
        title, caption, curves = f"{title} (quick, T={smaller['horizon']})", quick_caption, quick_curves
    found = [one for curve in curves for one in product(file | curve | (smaller if quick else {}))]
    several = len({fields["preset"] for fields in found}) > 1
    points: list[RunSpec] = []
    for fields in found:
        label, published = fields.pop("label").format(**fields), fields.pop("published", None)
        preset, file_seeds = fields.pop("preset"), fields.pop("seeds")
        label = f"{preset}: {label}" if several else label
        folder = "".join(c if c.isalnum() or c in ".-" else "_" for c in label).strip("_")
        point = RunSpec(f"curve={folder}", Config.build(preset, "cosine", fields), label, None if quick else published)
        points += with_seeds([point], seeds or file_seeds)
    full = f"{name}-quick" if quick else name
    return StudyPlan(full, folder_for(settings.out, Path("runs") / full), points, settings, title, caption)


def product(fields: dict[str, Any]) -> list[dict[str, Any]]:
    """Return all combinations of the values of fields that are lists."""
    axes = {name: value if isinstance(value, list) else [value] for name, value in fields.items()}
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
