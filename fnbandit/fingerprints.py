"""What a run depends on beside its config: the content of a table, the source of a user's own parts."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import logging
import sys
from typing import Any

from fnbandit.config import Config
from fnbandit.registry import KINDS, is_table

log = logging.getLogger("fnbandit")


@dataclasses.dataclass(frozen=True)
class Fingerprint:
    """Checksums (SHA-256) that tell whether a run would go on with what it was begun with."""

    data: str | None = None
    """Of the content of an own table"""
    sources: dict[str, str] = dataclasses.field(default_factory=dict)
    """Of the modules of a user's own parts, by what the config says: "environment=my_module:reward" """

    def check(self, earlier: Fingerprint, config: Config) -> None:
        """Raise one line where the data of an earlier part of the run was another; warn where the source was."""
        if self.data != earlier.data:
            raise ValueError(
                f"environment={config.environment!r}: the table has changed since the run was begun; "
                "bring the earlier one back, or start anew in another directory"
            )
        for name, digest in self.sources.items():
            if earlier.sources.get(name, digest) != digest:
                log.warning("fnbandit: %s: its module has changed since the run was begun", name)


def fingerprint(config: Config, environment: Any) -> Fingerprint:
    """Of a config and the environment that was made for it."""
    sources = {}
    for kind in KINDS:
        name = getattr(config, kind)
        if name in KINDS[kind] or (kind == "environment" and is_table(name)):
            continue
        digest = _source(sys.modules.get(name.partition(":")[0]))
        if digest is not None:
            sources[f"{kind}={name}"] = digest
    return Fingerprint(getattr(environment, "digest", None), sources)


def _source(module: Any) -> str | None:
    """None where there is none, as in an interactive session."""
    try:
        return hashlib.sha256(inspect.getsource(module).encode()).hexdigest()
    except (OSError, TypeError):
        return None
