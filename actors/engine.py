"""Running a simulation: in this process or on Ray, with checkpoints, going on after faults and interruptions."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from actors.checkpoints import CheckpointError, CheckpointStore, Due, Snapshot, as_arrays, as_tensors, on_host
from actors.layout import Options, nodes_of, plan
from fnbandit.capacity import check_local
from fnbandit.config import THEORY_FIELDS, Config
from fnbandit.environments import make_environment
from fnbandit.groups import Trace, resolve_device
from fnbandit.server import Server
from fnbandit.simulation import (
    Epoch,
    LocalCohort,
    Result,
    Round,
    collect,
    joined_states,
    one_thread,
    part_of,
    run_epochs,
)
from fnbandit.theory import resolve

FAILURES = 3
"""Failures in a row without progress that end a run."""
START_SECONDS = 60.0
"""How long a cluster may take to give the actors their places."""

log = logging.getLogger("fnbandit")


class SimulationError(RuntimeError):
    """A run that cannot go on; the text says why, with the remote traceback where there is one."""


class Lost(Exception):  # noqa: N818
    """Actors are gone; the run can go on from its last checkpoint."""


@dataclass(frozen=True)
class Checkpointing:
    """Where and how often to save; `location` is a directory or a URI."""

    location: str | None = None
    seconds: float = 60.0
    rounds: int = 0
    """Also every so many rounds; 0: by time only"""


class Run(ABC):
    """One simulation as a stream of epochs, restored from and saved to checkpoints."""

    def __init__(self, config: Config, checkpointing: Checkpointing | None = None, resume: bool = False) -> None:
        self.environment = make_environment(config)
        self.checkpointing = checkpointing or Checkpointing()
        location = self.checkpointing.location
        self._store = CheckpointStore(location) if location else None
        if self._store and not resume and not self._store.empty():
            raise CheckpointError(
                f"checkpoint={location!r}: has checkpoints of an earlier run; resume it or go elsewhere"
            )
        self._snapshot = self._store.latest() if self._store and resume else None
        if self._snapshot is not None:
            if self._snapshot.config.replace(device=config.device) != resolved_like(config, self._snapshot.config):
                raise CheckpointError(f"checkpoint={location!r}: belongs to another config")
            self.config = self._snapshot.config.replace(device=config.device)
        else:
            self.config = resolve(config, self.environment)
        self._rounds: list[Round] = []
        self._weight: list[np.ndarray] = []
        self._delivered = 0

    @abstractmethod
    def epochs(self) -> Iterator[Epoch]:
        """Every epoch from the first iteration on, each once; a resumed run's earlier ones come at once."""

    def _restored(self) -> Iterator[Epoch]:
        if self._snapshot is not None:
            for epoch in self._snapshot.epochs():
                yield self._deliver(epoch)

    def _deliver(self, epoch: Epoch) -> Epoch:
        self._delivered = epoch.end
        self._weight.append(epoch.trace.weight)
        if epoch.round is not None:
            self._rounds.append(epoch.round)
        return epoch

    def _save(self, iteration: int, agents: dict[str, Any], server: dict[str, Any]) -> None:
        if self._store is None:
            return
        self._snapshot = Snapshot(
            config=self.config,
            iteration=iteration,
            agents=agents,
            server=server,
            weight=np.concatenate(self._weight)[:iteration],
            rounds=[r for r in self._rounds if r.iteration <= iteration],
        )
        self._store.save(self._snapshot)

    def clear(self) -> None:
        """Forget the checkpoints of a run that is finished."""
        if self._store is not None:
            self._store.clear()

    @property
    def _start(self) -> int:
        return 0 if self._snapshot is None else self._snapshot.iteration

    def result(self) -> Result:
        """Run to the end and collect everything."""
        return collect(self.config, self.epochs())


def resolved_like(config: Config, resolved: Config) -> Config:
    """The config with its 'theory' fields as a checkpoint has resolved them."""
    names = [name for name in THEORY_FIELDS if getattr(config, name) == "theory"]
    return config.replace(**{name: getattr(resolved, name) for name in names})


class LocalRun(Run):
    """A simulation in this process."""

    def epochs(self) -> Iterator[Epoch]:
        check_local(self.config, self.environment)
        with one_thread():
            cohort = LocalCohort(self.config, self.environment)
            statistics = cohort.statistics
            server = None if statistics is None else Server(self.config, statistics)
            if self._snapshot is not None:
                if statistics is not None:
                    statistics.load(self._snapshot.server)
                cohort.load(self._snapshot.iteration, self._snapshot.agents)
            yield from self._restored()
            due = Due(self.checkpointing.seconds, self.checkpointing.rounds)
            for epoch in run_epochs(self.config, cohort, server, self._start):
                yield self._deliver(epoch)
                can_save = (epoch.round is not None or server is None) and epoch.end < self.config.horizon
                if self._store and can_save and due.now():
                    self._save(epoch.end, on_host(cohort.state()), on_host(statistics.state()) if statistics else {})


class RayRun(Run):
    """A simulation in Ray actors. It survives the loss of any of them."""

    def __init__(
        self,
        config: Config,
        options: Options | None = None,
        checkpointing: Checkpointing | None = None,
        resume: bool = False,
    ) -> None:
        super().__init__(config, checkpointing, resume)
        self.options = options or Options()
        if not self.options.gpus_per_actor and config.device != "auto":
            resolve_device(config.device)
        self.pids: list[int] = []
        """Process ids of the server's actor and the agents' actors"""
        self.calls = 0
        """Calls of agents' actors in the last attempt"""
        self.parts: list[range] = []

    def epochs(self) -> Iterator[Epoch]:
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

    def _attempt(self) -> Iterator[Epoch]:
        import ray
        from ray.exceptions import RayError

        with self._actors() as server:
            states, statistics = self._states()
            try:
                for ref in server.run.remote(self._start, states, statistics):
                    yield from self._handle(ray.get(ref))
            except RayError as error:
                raise Lost(f"the server's actor is gone: {error}") from None

    def _states(self) -> tuple[list[Any] | None, Any]:
        import ray

        if self._snapshot is None:
            return None, None
        parts = [part_of(self._snapshot.agents, part, self.config.agents) for part in self.parts]
        return [ray.put(as_arrays(part)) for part in parts], as_arrays(self._snapshot.server)

    def _handle(self, event: Any) -> Iterator[Epoch]:
        from actors.agents import Failed
        from actors.server import Died, Finished, Started, State, Stuck

        if isinstance(event, list):
            for epoch in event:
                if epoch.end > self._delivered:
                    yield self._deliver(after(epoch, self._delivered))
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
        import ray
        from ray.util.placement_group import placement_group, remove_placement_group

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
        import ray
        from ray.util.placement_group import remove_placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        from actors.agents import AgentActor
        from actors.server import ServerActor

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
                handles.append(actor.remote(self.config, part))
            seconds, rounds = (self.checkpointing.seconds, self.checkpointing.rounds) if self._store else (0.0, 0)
            server = placed(ServerActor, 0, 0, 0).remote(
                self.config, self.parts, list(handles), options.actor_timeout, seconds, rounds
            )
            handles.append(server)
            yield server
        finally:
            for handle in handles:
                with suppress(Exception):
                    ray.kill(handle)
            with suppress(Exception):
                remove_placement_group(group)


def after(epoch: Epoch, iteration: int) -> Epoch:
    """What of an epoch lies after an iteration."""
    if epoch.start >= iteration:
        return epoch
    skip = iteration - epoch.start
    trace = epoch.trace
    rest = Trace(trace.arms[skip:], trace.rewards[skip:], trace.regret[skip:], trace.weight[skip:])
    return replace(epoch, start=iteration, trace=rest)


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
    import ray

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
) -> Result:
    """Run a whole simulation on Ray: the same result as `fnbandit.simulate`, in any layout."""
    return RayRun(config, options, checkpointing, resume).result()
