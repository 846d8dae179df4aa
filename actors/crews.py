"""Actors that are placed together and kept warm: they host one run after another."""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from actors.agents import AgentActor
from actors.layout import Layout, Node, actor_bytes, asked, nodes_of, plan, wanted
from actors.listening import background
from actors.options import Options
from actors.server import ServerActor
from fnbandit.config import Config
from fnbandit.environments import Environment
from fnbandit.errors import Interrupted

GIVE_BACK_SECONDS = 3.0
FIRST_WORD = 5.0
"""Seconds of waiting for a place after which the user is told."""
LINE_EVERY = 60.0
"""Seconds between two lines on it."""

log = logging.getLogger("fnbandit")


@dataclass(frozen=True)
class Crew:
    """The actors of a run: the server's and, where the server does not host all agents itself, the agents'."""

    layout: Layout
    place: PlacementGroup
    server: Any
    agents: list[Any]

    def dismiss(self) -> None:
        """End its processes and give its place back."""
        give_back(self.place, [self.server, *self.agents])


def give_back(place: PlacementGroup, handles: Sequence[Any] = ()) -> None:
    """End the processes in a place and free it; Ray waits without end for a raylet that has stopped, we do not."""

    def remove() -> None:
        for handle in handles:
            with suppress(Exception):
                ray.kill(handle)
        with suppress(Exception):
            remove_placement_group(place)

    background(remove).join(GIVE_BACK_SECONDS)


class Crews:
    """The actors of a driver's runs. A crew whose run has ended well serves the next run that has its shape."""

    def __init__(self, options: Options, fixed: bool) -> None:
        self._options = options
        self._fixed = fixed
        """Whether the cluster is this driver's own: nobody else uses it, and no node will join"""
        self._runs = 1
        self._leased = 0
        self._idle: list[Crew] = []
        self._lock = threading.Lock()
        self.stopped = threading.Event()

    @contextmanager
    def lease(self, config: Config, environment: Environment) -> Iterator[Crew]:
        """Actors for a run, as soon as the cluster has a place for them."""
        with self._lock:
            self._leased += 1
        try:
            crew = self._placed(config, environment)
            try:
                yield crew
            except BaseException:
                crew.dismiss()
                # What has taken one of them, a lost node say, may have taken others.
                self._dismiss_idle()
                raise
            with self._lock:
                self._idle.append(crew)
        finally:
            with self._lock:
                self._leased -= 1

    def share(self, runs: int) -> None:
        """So many runs, going on or waiting, share the cluster: idle actors that none of them will need go."""
        self._runs = runs
        self._dismiss_idle(kept=max(0, runs - self._leased))

    def stop(self) -> None:
        """Whoever waits for a place waits no longer."""
        self.stopped.set()

    def close(self) -> None:
        """End all actors that are not leased."""
        self._dismiss_idle()

    def _dismiss_idle(self, kept: int = 0) -> None:
        with self._lock:
            idle, self._idle = self._idle[kept:], self._idle[:kept]
        for crew in idle:
            crew.dismiss()

    def _placed(self, config: Config, environment: Environment) -> Crew:
        """An idle crew or a new one; planned anew where nodes come or go, or another run ends, while it waits.

        A node that has just been lost counts as living until Ray misses its heartbeats.
        """
        began = time.monotonic()
        next_line = began + FIRST_WORD
        while True:
            nodes = nodes_of(ray.nodes())
            layout, bundles, problem = self._planned(config, environment, nodes)
            with self._lock:
                fitting = next((crew for crew in self._idle if crew.layout.shape == layout.shape), None)
                if fitting is not None:
                    self._idle.remove(fitting)
                    return dataclasses.replace(fitting, layout=layout)
            # Idle actors of another shape hold what this run needs.
            self._dismiss_idle()
            place = placement_group(bundles, strategy="SPREAD")
            try:
                while nodes_of(ray.nodes()) == nodes and not self._idle:
                    if place.wait(1):
                        return started(layout, place)
                    if self.stopped.is_set():
                        raise Interrupted
                    if time.monotonic() >= next_line:
                        next_line += LINE_EVERY
                        wanted = f"{len(layout.parts)} actors x {asked(layout.cpus, layout.gpus)}"
                        log.warning("waiting for a place for %s since %.0f seconds: %s; Ctrl-C ends it", wanted,
                                    time.monotonic() - began, problem or in_use(nodes))  # fmt: skip
            except BaseException:
                give_back(place)
                raise
            give_back(place)

    def _planned(
        self, config: Config, environment: Environment, nodes: list[Node]
    ) -> tuple[Layout, list[dict[str, float]], str]:
        """A layout with what to reserve for it; where others' nodes may still join, one that needs them, and why."""
        size, problem = 0, ""
        try:
            layout = plan(config, environment, self._options, nodes, self._runs)
        except ValueError as error:
            if self._fixed:
                raise
            problem = str(error)
            layout = wanted(config, self._options)
            size = actor_bytes(config, environment, len(layout.parts))
        share = {"CPU": layout.cpus, "GPU": layout.gpus, "memory": float(size)}
        return layout, [{unit: count for unit, count in share.items() if count} for _ in layout.parts], problem


def in_use(nodes: list[Node]) -> str:
    """How much of the cluster others use."""
    free = ray.available_resources()
    return f"of {sum(node.cpus for node in nodes):g} CPU {free.get('CPU', 0.0):g} are free"


def started(layout: Layout, place: PlacementGroup) -> Crew:
    """Actors in their places."""

    def placed(kind: Any, index: int, cpus: float, gpus: float) -> Any:
        strategy = PlacementGroupSchedulingStrategy(place, placement_group_bundle_index=index)
        return kind.options(num_cpus=cpus, num_gpus=gpus, scheduling_strategy=strategy, max_restarts=0,
                            max_task_retries=0)  # fmt: skip

    if len(layout.parts) == 1:
        return Crew(layout, place, placed(ServerActor, 0, layout.cpus, layout.gpus).remote([]), [])
    agents = [placed(AgentActor, index, layout.cpus, layout.gpus).remote() for index in range(len(layout.parts))]
    return Crew(layout, place, placed(ServerActor, 0, 0, 0).remote(agents), agents)
