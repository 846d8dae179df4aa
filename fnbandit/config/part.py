"""One choice for a field of Config that names a part."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """One choice for a field of Config in `registry.KINDS`."""

    path: str
    """Import path of its class: "package.module:Class\""""
    title: str
    """Name in figures"""
    summary: str
    """Description in one line"""
    fields: tuple[str, ...] = ()
    """Config fields that this part reads, but not every part of its kind"""
