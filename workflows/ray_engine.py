"""A study's runs on Ray."""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack
from types import TracebackType
from typing import Self

import ray

from actors.engine import RayRun, cluster
from actors.layout import nodes_of
from fnbandit.algorithms.base import resolve_device
from fnbandit.config import Config
from fnbandit.environments import Environment
from fnbandit.runs import Checkpointing
from workflows.engines import LocalEngine
from workflows.settings import Settings
from workflows.study import Point


class RayEngine(LocalEngine):
    """Runs on one cluster, side by side as far as it has room."""

    def __init__(self, settings: Settings) -> None:
        self._options = settings.options()
        self._stack = ExitStack()
        self._actors: int | None = None
        """Actors for each run, where several share the cluster and nobody has asked for a layout"""

    def __enter__(self) -> Self:
        self._stack.enter_context(cluster(self._options))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    def check(self, config: Config, environment: Environment) -> None:
        if not self._options.gpus_per_actor:
            resolve_device(config.device)

    def side_by_side(self, todo: list[Point]) -> int:
        if len(todo) == 1:
            return 1
        slots = max(1, sum(node.actors(self._options) for node in nodes_of(ray.nodes())))
        together = min(len(todo), slots)
        if self._options.agents_per_actor != "auto":
            most = max(-(-point.config.agents // self._options.agents_per_actor) for point in todo)
            return max(1, min(together, slots // most))
        self._actors = slots // together
        return together

    def run(self, config: Config, checkpointing: Checkpointing) -> RayRun:
        options = self._options
        if self._actors is not None:
            options = dataclasses.replace(options, agents_per_actor=-(-config.agents // self._actors))
        return RayRun(config, options, checkpointing, resume=True)
