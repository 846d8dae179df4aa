"""Engines execute runs: in this process, or on Ray (`ray_engine.py`)."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self

from fnbandit.algorithms.base import resolve_device
from fnbandit.config import Config
from fnbandit.environments import Environment
from fnbandit.planning.capacity import check_local
from fnbandit.runs import Checkpointing, LocalRun, Run
from workflows.studies.settings import Settings
from workflows.studies.study import RunSpec


class LocalEngine(AbstractContextManager["LocalEngine"]):
    """Runs in this process, one after another. The engine on Ray has the same methods."""

    in_turn = True
    """True if runs take place in the main thread, where Ctrl-C interrupts a user's own function"""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Release nothing: this process has no cluster."""

    def describe(self) -> str:
        """Describe the cluster that was joined; "" for this process or a cluster that it has started."""
        return ""

    def check(self, config: Config, environment: Environment) -> None:
        """Raise on errors that can be found before anything is written or started."""
        resolve_device(config.device)
        check_local(config, environment)

    def room(self, points: list[RunSpec]) -> int:
        """Return how many of these running and waiting runs there is room for now."""
        return 1

    def stop(self) -> None:
        """Let no run wait for resources any longer; none does in this process."""

    def run(self, config: Config, checkpointing: Checkpointing) -> Run:
        """Build a run, which starts from its last checkpoint if there is one."""
        return LocalRun(config, checkpointing, resume=True)


def make_engine(settings: Settings, study: str = "fnbandit") -> LocalEngine:
    """Build the engine that settings name; Ray is imported only if used, because that takes a second."""
    if settings.engine == "local":
        return LocalEngine()
    from workflows.execution.ray_engine import RayEngine

    return RayEngine(settings, study)
