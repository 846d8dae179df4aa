"""Checksums of the inputs of a run beside its config: the content of a table, the source of a user's parts."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import logging
import sys
from typing import Any

from fnbandit.config import Config
from fnbandit.config.registry import KINDS, is_table

log = logging.getLogger("fnbandit")


@dataclasses.dataclass(frozen=True)
class Fingerprint:
    """Checksums (SHA-256) by which a resumed run detects changed inputs."""

    data: str | None = None
    """Checksum of the content of a user's table"""
    sources: dict[str, str] = dataclasses.field(default_factory=dict)
    """Checksums of the modules of a user's parts, by field and value: "environment=my_module:reward" """

    def check(self, earlier: Fingerprint, config: Config) -> None:
        """Raise a one-line ValueError where the data differ from an earlier session's; warn where sources differ."""
        if self.data != earlier.data:
            raise ValueError(
                f"environment={config.environment!r}: the table has changed since the run began; "
                "restore the earlier table, or start again in another directory"
            )
        for name, digest in self.sources.items():
            if earlier.sources.get(name, digest) != digest:
                log.warning("fnbandit: %s: its module has changed since the run began", name)


def fingerprint(config: Config, environment: Any) -> Fingerprint:
    """Return the fingerprint of a config and its environment."""
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
    """Return the checksum of a module's source; None where it has none, as in an interactive session."""
    try:
        return hashlib.sha256(inspect.getsource(module).encode()).hexdigest()
    except (OSError, TypeError):
        return None
