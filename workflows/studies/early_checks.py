"""Checks of runs in the first second: without torch and Ray, and before anything is said, written or started."""

from __future__ import annotations

import dataclasses
import importlib.machinery
import importlib.util
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from fnbandit.config import Config
from fnbandit.config.registry import KINDS, is_table, link_names, without_effect


def check_early(configs: Iterable[Config]) -> None:
    """Raise a ValueError of one line on a missing file or module, and on a device's name; each is looked for once."""
    seen: set[tuple[str, str | None]] = set()
    for config in configs:
        for kind in (*KINDS, "device", "clock_table"):
            value = getattr(config, kind)
            if (kind, value) in seen:
                continue
            seen.add((kind, value))
            if kind == "device":
                _check_device(config.device)
            elif kind == "clock_table":
                _check_clock_table(config)
            elif kind == "environment" and is_table(value):
                if not Path(value).is_file():
                    raise ValueError(f"environment={value!r}: no such file; expected a .parquet or .csv table")
            else:
                for name in link_names(value) if kind == "messages" else [value]:
                    if name not in KINDS[kind]:
                        _check_module(kind, name)


def _check_device(name: str) -> None:
    if not re.fullmatch(r"auto|cpu(:0)?|cuda(:\d+)?", name):
        raise ValueError(f"device={name!r}: expected auto, cpu, cuda or cuda:INDEX")


def _check_clock_table(config: Config) -> None:
    path = config.clock_table
    if "clock_table" in without_effect(dataclasses.asdict(config)):
        return
    if path is None:
        raise ValueError("clock_table=None: clock=trace needs the path of a table (.csv or .parquet)")
    if not Path(path).is_file():
        raise ValueError(f"clock_table={path!r}: no such file; expected a .parquet or .csv table")


def _check_module(kind: str, name: str) -> None:
    """Raise where the top-level module of a user's part is not on the path; its import comes later."""
    module, _, attribute = name.partition(":")
    top = module.partition(".")[0]
    expected = "expected package.module:Name"
    if not attribute or not top.isidentifier():
        raise ValueError(f"{kind}={name!r}: cannot import it ({module!r} is not a module name); {expected}")
    if top in sys.modules or importlib.machinery.PathFinder.find_spec(top, [*sys.path, str(Path.cwd())]) is not None:
        return
    if importlib.util.find_spec(top) is None:
        raise ValueError(f"{kind}={name!r}: cannot import it (No module named {top!r}); {expected}")
