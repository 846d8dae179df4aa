"""Sets of actors in one placement group each, which are kept to host one run after another."""

from __future__ import annotations

import dataclasses
import itertools
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

from actors.agent import AgentActor
from actors.cluster import find_dead_process
from actors.layout import Layout, Node, actor_bytes, choose_layout, describe_resources, nodes_of, plan
from actors.options import Options
from actors.server import ServerActor
from actors.watchdog import background
from fnbandit.config import Config
from fnbandit.environments import Environment
from fnbandit.errors import ClusterGone, Interrupted

RELEASE_SECONDS = 3.0
"""Time limit for releasing a placement group."""
FIRST_WORD = 5.0
"""Seconds of waiting for resources before the first line about it."""
WAITING_LINE_SECONDS = 60.0
"""Seconds between two such lines."""

log = logging.getLogger("fnbandit")


@dataclass(frozen=True)
class ActorSet:
    """The actors of a run: the server actor and, where it does not host all agents itself, the agent actors."""

    layout: Layout
    place: PlacementGroup
    server: Any
    agents: list[Any]

    def shutdown(self) -> None:
        """Kill the actors and release their placement group."""
        release(self.place, [self.server, *self.agents])


def release(place: PlacementGroup, handles: Sequence[Any] = ()) -> None:
    """Kill actors and remove their placement group; give up after a while, since Ray blocks on a stopped raylet."""

    def remove() -> None:
        for handle in handles:
            with suppress(Exception):
                ray.kill(handle)
        with suppress(Exception):
            remove_placement_group(place)

    background(remove).join(RELEASE_SECONDS)


class ActorPool:
    """The actors of a driver's runs. A set whose run has succeeded serves the next run of the same layout shape."""

    def __init__(self, options: Options, fixed: bool, study: str = "fnbandit") -> None:
        self._options = options
        self.study = study
        """Name of the study, for `ray list actors` and the dashboard"""
        self._count = itertools.count(1)
        self._fixed = fixed
        """True where this driver started the cluster: there are no other drivers, and no node joins"""
        self._runs = 1
        self._acquired = 0
        self._idle: list[ActorSet] = []
        self._lock = threading.Lock()
        self.stopped = threading.Event()

    @contextmanager
    def acquire(self, config: Config, environment: Environment) -> Iterator[ActorSet]:
        """Yield actors for a run, once the cluster has the resources for them; keep them where the run succeeds."""
        with self._lock:
            self._acquired += 1
        try:
            actor_set = self._place(config, environment)
            try:
                yield actor_set
            except BaseException:
                actor_set.shutdown()
                # The cause, for example a lost node, may have killed idle actors, too.
                self._shutdown_idle()
                raise
            with self._lock:
                self._idle.append(actor_set)
        finally:
            with self._lock:
                self._acquired -= 1

    def share(self, runs: int) -> None:
        """Plan for `runs` active or waiting runs on the cluster; shut down idle actors that none of them can use."""
        self._runs = runs
        self._shutdown_idle(kept=max(0, runs - self._acquired))

    def stop(self) -> None:
        """Interrupt all runs that wait for resources or for their server."""
        self.stopped.set()

    def check(self) -> None:
        """Raise Interrupted after `stop`, ClusterGone where the cluster that this driver started has ended."""
        if self.stopped.is_set():
            raise Interrupted
        if self._fixed and (dead := find_dead_process()):
            raise ClusterGone(f"the Ray cluster that this command started is gone: {dead}")

    def close(self) -> None:
        """Shut down all idle actors."""
        self._shutdown_idle()

    def _shutdown_idle(self, kept: int = 0) -> None:
        with self._lock:
            idle, self._idle = self._idle[kept:], self._idle[:kept]
        for actor_set in idle:
            actor_set.shutdown()

    def _place(self, config: Config, environment: Environment) -> ActorSet:
        """Return an idle set or a new one; plan again where nodes join or leave, or another run ends, during the wait.

        A lost node counts as alive until Ray misses its heartbeats.
        """
        began = time.monotonic()
        next_line = began + FIRST_WORD
        while True:
            self.check()
            nodes = nodes_of(ray.nodes())
            if self._fixed and not nodes:
                raise ClusterGone("the Ray cluster that this command started is gone: its raylet does not answer")
            layout, bundles, problem = self._plan_layout(config, environment, nodes)
            with self._lock:
                fitting = next((actor_set for actor_set in self._idle if actor_set.layout.shape == layout.shape), None)
                if fitting is not None:
                    self._idle.remove(fitting)
                    return dataclasses.replace(fitting, layout=layout)
            # Idle actors of another shape hold resources that this run needs.
            self._shutdown_idle()
            place = placement_group(bundles, strategy="SPREAD")
            try:
                while nodes_of(ray.nodes()) == nodes and not self._idle:
                    if place.wait(1):
                        return start_actors(layout, place, f"{self.study} {next(self._count)}")
                    self.check()
                    if time.monotonic() >= next_line:
                        next_line += WAITING_LINE_SECONDS
                        wanted = f"{len(layout.parts)} actors x {describe_resources(layout.cpus, layout.gpus)}"
                        log.warning("waiting for %s (%.0f seconds so far): %s; Ctrl-C stops", wanted,
                                    time.monotonic() - began, problem or in_use(nodes))  # fmt: skip
            except BaseException:
                release(place)
                raise
            release(place)

    def _plan_layout(
        self, config: Config, environment: Environment, nodes: list[Node]
    ) -> tuple[Layout, list[dict[str, float]], str]:
        """Return a layout, its resource bundles and "".

        Where it does not fit, but nodes may still join: the layout to wait for, its bundles, and the problem.
        """
        size, problem = 0, ""
        try:
            layout = plan(config, environment, self._options, nodes, self._runs)
        except ValueError as error:
            if self._fixed:
                raise
            problem = str(error)
            layout = choose_layout(config, self._options)
            size = actor_bytes(config, environment, len(layout.parts))
        share = {"CPU": layout.cpus, "GPU": layout.gpus, "memory": float(size)}
        return layout, [{unit: count for unit, count in share.items() if count} for _ in layout.parts], problem


def in_use(nodes: list[Node]) -> str:
    """Describe the free CPUs of the cluster."""
    free = ray.available_resources()
    return f"{free.get('CPU', 0.0):g} of {sum(node.cpus for node in nodes):g} CPU are free"


def start_actors(layout: Layout, place: PlacementGroup, name: str) -> ActorSet:
    """Start the actors of a layout in its placement group, named `name`, a number and the kind.

    An actor's name cannot tell N, D or seed, because it serves several runs; that of its task does, see `RayRun`.
    """

    def place_actor(kind: Any, index: int, cpus: float, gpus: float) -> Any:
        strategy = PlacementGroupSchedulingStrategy(place, placement_group_bundle_index=index)
        title = f"{name} server" if kind is ServerActor else f"{name} actor {index}"
        return kind.options(name=title, num_cpus=cpus, num_gpus=gpus, scheduling_strategy=strategy, max_restarts=0,
                            max_task_retries=0)  # fmt: skip

    if len(layout.parts) == 1:
        return ActorSet(layout, place, place_actor(ServerActor, 0, layout.cpus, layout.gpus).remote([]), [])
    agents = [place_actor(AgentActor, index, layout.cpus, layout.gpus).remote() for index in range(len(layout.parts))]
    return ActorSet(layout, place, place_actor(ServerActor, 0, 0, 0).remote(agents), agents)
