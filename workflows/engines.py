"""Where a study's runs take place: in this process, or on Ray (`ray_engine.py`)."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self

from fnbandit.algorithms.base import resolve_device
from fnbandit.capacity import check_local
from fnbandit.config import Config
from fnbandit.environments import Environment
from fnbandit.runs import Checkpointing, LocalRun, Run
from workflows.settings import Settings
from workflows.study import Point


class LocalEngine(AbstractContextManager["LocalEngine"]):
    """Runs in this process, one after another. The engine on Ray has the same methods."""

    in_turn = True
    """Whether runs go on in the main thread, where Ctrl-C ends whatever a user's own function does"""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Nothing to give back."""

    def check(self, config: Config, environment: Environment) -> None:
        """Raise on what can be seen to be wrong before anything is written or started."""
        resolve_device(config.device)
        check_local(config, environment)

    def room(self, points: list[Point]) -> int:
        """How many of these runs, which go on or wait, may go on at the same time, as things are now."""
        return 1

    def stop(self) -> None:
        """Let no run wait for a place any longer; none does in this process."""

    def run(self, config: Config, checkpointing: Checkpointing) -> Run:
        """One run, from its last checkpoint where there is one."""
        return LocalRun(config, checkpointing, resume=True)


def make_engine(settings: Settings) -> LocalEngine:
    """The engine that settings ask for; Ray is imported only where it is used, because that takes a second."""
    if settings.engine == "local":
        return LocalEngine()
    from workflows.ray_engine import RayEngine

    return RayEngine(settings)
