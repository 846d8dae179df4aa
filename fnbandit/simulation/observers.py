"""Several observers of a run as one."""

from __future__ import annotations

from collections.abc import Sequence

from fnbandit.config import Config
from fnbandit.core import Observer, Segment, Status


class Observers:
    """Several observers as one; each may read the state of those before it."""

    def __init__(self, members: Sequence[Observer]) -> None:
        self._members = members
        self._begun: list[Observer] = []

    def begin(self, config: Config) -> None:
        for member in self._members:
            member.begin(config)
            self._begun.append(member)

    def segment(self, segment: Segment) -> None:
        for member in self._members:
            member.segment(segment)

    def end(self, status: Status) -> None:
        """End all observers that have begun. Where one raises, those after it receive "failed" or "interrupted"."""
        fault: BaseException | None = None
        for member in self._begun:
            try:
                member.end(status)
            except BaseException as error:
                fault = fault or error
                status = "failed" if isinstance(error, Exception) else "interrupted"
        if fault is not None:
            raise fault
