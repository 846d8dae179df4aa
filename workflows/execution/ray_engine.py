"""Executes runs on Ray."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import Self

import ray

from actors.cluster import STARTED_HERE, find_dead_process
from actors.layout import actor_bytes, count_requested_actors, nodes_of, reserve_resources
from actors.pool import ActorPool
from actors.run import RayRun, joined_cluster
from fnbandit.algorithms.base import resolve_device
from fnbandit.config import Config
from fnbandit.environments import Environment
from fnbandit.runs import Checkpointing
from workflows.execution.engines import LocalEngine
from workflows.studies.settings import Settings
from workflows.studies.study import RunSpec


class RayEngine(LocalEngine):
    """Runs on one cluster, side by side as far as it has room, in actors that are kept from run to run."""

    in_turn = False

    def __init__(self, settings: Settings, study: str) -> None:
        self._options, self._study = settings.options(), study
        self._stack = ExitStack()
        self._pool: ActorPool
        self._bytes = 0
        """Memory of the largest run in one actor"""

    def __enter__(self) -> Self:
        self._pool = self._stack.enter_context(joined_cluster(self._options, self._study))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    def describe(self) -> str:
        if find_dead_process() or STARTED_HERE.is_set():
            return ""
        nodes, address = nodes_of(ray.nodes()), ray.get_runtime_context().gcs_address
        plural = "s" if len(nodes) > 1 else ""
        return f"cluster  {address}: {len(nodes)} node{plural}, {sum(node.cpus for node in nodes):g} CPU"

    def check(self, config: Config, environment: Environment) -> None:
        if not reserve_resources(config, self._options)[1]:
            resolve_device(config.device)
        self._bytes = max(self._bytes, actor_bytes(config, environment, actors=1))

    def room(self, points: list[RunSpec]) -> int:
        """Return the room on the nodes of this moment; a run without room waits."""
        if find_dead_process():
            return 1  # Ray would not answer; every run ends with this error.
        self._pool.share(len(points))
        nodes = nodes_of(ray.nodes())
        rooms = []
        # Configs with equal agents, device and algorithm need the same actors; there may be thousands of points.
        alike = {(point.config.agents, point.config.device, point.config.algorithm): point.config for point in points}
        for config in alike.values():
            actors = count_requested_actors(config, self._options)
            size = self._bytes if actors is None or actors == 1 else 0
            slots = sum(node.actors(*reserve_resources(config, self._options), size) for node in nodes)
            rooms.append(slots // (actors or 1))
        return max(1, min(rooms))

    def stop(self) -> None:
        self._pool.stop()

    def run(self, config: Config, checkpointing: Checkpointing) -> RayRun:
        return RayRun(config, self._options, checkpointing, resume=True, pool=self._pool)
