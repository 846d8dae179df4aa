"""Running a simulation on Ray, with checkpoints, going on after faults and interruptions."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from actors.agents import AgentActor, Failed
from actors.layout import Options, nodes_of, plan
from actors.server import Died, Finished, ServerActor, Started, State, Stuck
from fnbandit.algorithms.base import resolve_device
from fnbandit.config import Config
from fnbandit.errors import SimulationError
from fnbandit.results import Result, Segment
from fnbandit.runs import Checkpointing, Run
from fnbandit.state import as_arrays, as_tensors, joined_states, part_of_state

FAILURES = 3
"""Failures in a row without progress that end a run."""
START_SECONDS = 60.0
"""How long a cluster may take to give the actors their places."""

log = logging.getLogger("fnbandit")


class Lost(Exception):  # noqa: N818
    """Actors are gone; the run can go on from its last checkpoint."""


class RayRun(Run):
    """A simulation in Ray actors. It survives the loss of any of them."""

    def __init__(
        self,
        config: Config,
        options: Options | None = None,
        checkpointing: Checkpointing | None = None,
        resume: bool = False,
        environment: Any = None,
    ) -> None:
        super().__init__(config, checkpointing, resume, environment)
        self.options = options or Options()
        if not self.options.gpus_per_actor and config.device != "auto":
            resolve_device(config.device)
        self.pids: list[int] = []
        """Process ids of the server's actor and the agents' actors"""
        self.calls = 0
        """Calls of agents' actors in the last attempt"""
        self.parts: list[range] = []

    @property
    def layout(self) -> str:
        return f"{len(self.parts)} actors x {max((len(p) for p in self.parts), default=0)} agents"

    def segments(self) -> Iterator[Segment]:
        with cluster(self.options):
            yield from self._restored()
            failures, progress = 0, -1
            while True:
                try:
                    yield from self._attempt()
                    return
                except Lost as error:
                    failures = failures + 1 if self._delivered <= progress else 1
                    progress = self._delivered
                    if failures == FAILURES:
                        raise SimulationError(
                            f"{FAILURES} failures in a row without progress at iteration {progress}: {error}"
                        ) from None
                    first_line = str(error).splitlines()[0]
                    log.warning("%s; going on from iteration %d", first_line, self._start)

    def _attempt(self) -> Iterator[Segment]:
        with self._actors() as server:
            states, statistics = self._states()
            try:
                for ref in server.run.remote(self._start, states, statistics):
                    yield from self._handle(ray.get(ref))
            except RayError as error:
                raise Lost(f"the server's actor is gone: {error}") from None

    def _states(self) -> tuple[list[Any] | None, Any]:
        if self._snapshot is None:
            return None, None
        parts = [part_of_state(self._snapshot.agents, part, self.config.agents) for part in self.parts]
        return [ray.put(as_arrays(part)) for part in parts], as_arrays(self._snapshot.server)

    def _handle(self, event: Any) -> Iterator[Segment]:
        if isinstance(event, list):
            for segment in event:
                if segment.end > self._delivered:
                    yield self._deliver(segment.after(self._delivered))
        elif isinstance(event, State):
            self._save(event.iteration, joined_states([as_tensors(s) for s in event.agents]), as_tensors(event.server))
        elif isinstance(event, Started):
            self.pids = [event.server, *event.agents]
        elif isinstance(event, Finished):
            self.calls = event.calls
        elif isinstance(event, Died):
            raise Lost(f"{event.who} is gone: {event.text}")
        elif isinstance(event, Stuck):
            raise SimulationError(f"{event.who} has not answered for {event.seconds:g} seconds")
        elif isinstance(event, Failed):
            if event.plain:
                raise ValueError(event.message)
            raise SimulationError(f"{event.kind}: {event.message}\n\n{event.text}")

    def _places(self) -> Any:
        """A placement group for all actors; planned anew where nodes come or go while it waits.

        A node that has just been lost counts as living until Ray misses its heartbeats.
        """
        options = self.options
        share = {"CPU": options.cpus_per_actor, "GPU": options.gpus_per_actor}
        deadline = time.monotonic() + START_SECONDS
        while True:
            nodes = nodes_of(ray.nodes())
            self.parts = plan(self.config, self.environment, options, nodes)
            group = placement_group([{k: v for k, v in share.items() if v} for _ in self.parts], strategy="SPREAD")
            try:
                while nodes_of(ray.nodes()) == nodes and time.monotonic() < deadline:
                    if group.wait(1):
                        return group
            except BaseException:
                remove_placement_group(group)
                raise
            remove_placement_group(group)
            if time.monotonic() >= deadline:
                raise SimulationError(
                    f"no place for {len(self.parts)} actors x {options.cpus_per_actor:g} CPU "
                    f"after {START_SECONDS:g} seconds: others are using the cluster"
                )

    @contextmanager
    def _actors(self) -> Iterator[Any]:
        """All actors, placed together or not at all; gone afterwards."""
        options = self.options
        group = self._places()
        handles: list[Any] = []
        try:

            def placed(cls: Any, index: int, cpus: float, gpus: float) -> Any:
                strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)
                return cls.options(num_cpus=cpus, num_gpus=gpus, scheduling_strategy=strategy, max_restarts=0,
                                   max_task_retries=0)  # fmt: skip

            for index, part in enumerate(self.parts):
                actor = placed(AgentActor, index, options.cpus_per_actor, options.gpus_per_actor)
                handles.append(actor.remote(self.config, part, self.own_environment))
            seconds, rounds = (self.checkpointing.seconds, self.checkpointing.rounds) if self._store else (0.0, 0)
            server = placed(ServerActor, 0, 0, 0).remote(
                self.config, self.own_environment, self.parts, list(handles), options.actor_timeout, seconds, rounds
            )
            handles.append(server)
            yield server
        finally:
            for handle in handles:
                with suppress(Exception):
                    ray.kill(handle)
            with suppress(Exception):
                remove_placement_group(group)


def knock(address: str) -> None:
    """An error at once where nobody listens at HOST:PORT; Ray would try for many minutes."""
    host, _, port = address.rpartition(":")
    if port.isdigit() and "://" not in address:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
        except OSError as error:
            raise ValueError(f"address={address!r}: no Ray cluster answers there ({error})") from None


@contextmanager
def cluster(options: Options) -> Iterator[None]:
    """Join the cluster that is there, or start one of this machine's own and stop it afterwards."""
    if ray.is_initialized():
        yield
        return
    address = options.address or os.environ.get("RAY_ADDRESS")
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        if address:
            knock(address)
            try:
                ray.init(address=address, **quiet)
            except (OSError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
                # Ray's texts end with the reason, after a traceback.
                reason = str(error).strip().splitlines()[-1]
                if "RAY_AUTH_MODE" not in os.environ:
                    reason += "; one with a token asks for RAY_AUTH_MODE=token"
                raise ValueError(f"address={address!r}: no Ray cluster answers there ({reason})") from None
        else:
            memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
            shared = shutil.disk_usage("/dev/shm").free if os.path.isdir("/dev/shm") else memory
            store = int(min(4e9, 0.2 * memory, 0.8 * shared))
            # "local", because without an address Ray joins any cluster that this machine remembers, dead ones too.
            ray.init(
                address="local",
                num_cpus=os.cpu_count(),
                object_store_memory=max(store, 80_000_000),
                include_dashboard=False,
                **quiet,
            )
        yield
    finally:
        ray.shutdown()


def simulate(
    config: Config,
    options: Options | None = None,
    checkpointing: Checkpointing | None = None,
    resume: bool = False,
    environment: Any = None,
) -> Result:
    """Run a whole simulation on Ray: the same result as `fnbandit.simulate`, in any layout."""
    return RayRun(config, options, checkpointing, resume, environment).result()
