"""Runs a simulation on Ray, with checkpoints, and resumes it after faults and interruptions."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import ray
from ray.exceptions import RayError

from actors.cluster import cluster
from actors.events import CheckpointReady, Died, Failed, Finished, Started, Stuck
from actors.layout import Layout, reserve_resources
from actors.options import Options
from actors.pool import ActorPool
from actors.transport import Order
from actors.watchdog import Listener, NotStarted
from fnbandit.config import Config
from fnbandit.config.registry import collect_objects, without_effect
from fnbandit.core import Segment
from fnbandit.errors import SimulationError
from fnbandit.numerics.device import resolve_device
from fnbandit.numerics.state import as_arrays, as_tensors, split_state
from fnbandit.runs import Checkpointing, Run

FAILURES = 3
"""Number of consecutive failures without progress that ends a run."""

log = logging.getLogger("fnbandit")


class Lost(Exception):  # noqa: N818
    """An actor is lost; the run can continue from its last checkpoint."""


class RayRun(Run):
    """A simulation in Ray actors. It survives the loss of any of them."""

    def __init__(
        self,
        config: Config,
        options: Options | None = None,
        checkpointing: Checkpointing | None = None,
        resume: bool = False,
        environment: Any = None,
        pool: ActorPool | None = None,
    ) -> None:
        super().__init__(config, checkpointing, resume, environment)
        self.options = options or Options()
        if not reserve_resources(config, self.options)[1] and config.device != "auto":
            resolve_device(config.device)
        self._pool = pool
        self.device = config.device
        self.pids: list[int] = []
        """Process ids of the server actor and the agent actors"""
        self.calls = 0
        """Calls of agent actors in the last attempt"""
        self._layout: Layout | None = None

    @property
    def parts(self) -> list[range]:
        """Agents of every actor."""
        return list(self._layout.parts) if self._layout else []

    @property
    def layout(self) -> str:
        return str(self._layout or "not placed yet")

    def segments(self) -> Iterator[Segment]:
        with ExitStack() as stack:
            pool = self._pool or stack.enter_context(joined_cluster(self.options))
            yield from self._replay_snapshot()
            failures, progress = 0, -1
            while True:
                try:
                    yield from self._attempt(pool)
                    return
                except Lost as error:
                    pool.check()
                    failures = failures + 1 if self._delivered <= progress else 1
                    progress = self._delivered
                    if failures == FAILURES:
                        raise SimulationError(
                            f"{FAILURES} failures in a row without progress at iteration {progress}: {error}"
                        ) from None
                    first_line = str(error).splitlines()[0]
                    log.warning("%s; going on from iteration %d", first_line, self._start)

    def _attempt(self, pool: ActorPool) -> Iterator[Segment]:
        with pool.acquire(self.config, self.environment) as actor_set:
            self._layout = actor_set.layout
            seconds, rounds = (self.checkpointing.seconds, self.checkpointing.rounds) if self._store else (0.0, 0)
            order = Order(self.config, self.own_environment, actor_set.layout.parts, self._start,
                          self.options.actor_timeout, seconds, rounds,
                          collect_objects(dataclasses.asdict(self.config)))  # fmt: skip
            who = "the server's actor" if actor_set.agents else f"actor 0 (agents 0 to {self.config.agents - 1})"
            # The server detects silent agent actors; the driver only watches the server.
            listener = Listener(actor_set.server, who, self.options.actor_timeout, bool(actor_set.agents), pool.check)
            try:
                task = actor_set.server.run.options(name=f"{pool.study} {name_run(self.config)}")
                for event in listener.events(lambda: task.remote(order, *self._states())):
                    yield from self._handle(event)
            except (RayError, NotStarted) as error:
                raise Lost(f"{who} is gone: {error}") from None

    def _states(self) -> tuple[list[Any] | None, Any]:
        if self._snapshot is None:
            return None, None
        states = [as_arrays(split_state(self._snapshot.agents, part)) for part in self.parts]
        return [ray.put(state) for state in states], as_arrays(self._snapshot.server)

    def _handle(self, event: Any) -> Iterator[Segment]:
        if isinstance(event, list):
            for segment in event:
                yield from self._deliver_new(segment)
        elif isinstance(event, CheckpointReady):
            self._save(event.iteration, as_tensors(event.agents), as_tensors(event.server))
        elif isinstance(event, Started):
            self.device = event.device
            self.pids = [event.server, *event.agents]
        elif isinstance(event, Finished):
            self.calls = event.calls
        elif isinstance(event, Died):
            raise Lost(f"{event.who} is gone: {event.text}")
        elif isinstance(event, Stuck):
            raise SimulationError(f"{event.who} has not answered for {event.seconds:g} seconds")
        elif isinstance(event, Failed):
            if event.is_plain:
                raise ValueError(event.message)
            raise SimulationError(event.text)


def name_run(config: Config) -> str:
    """Name a run for Ray's lists of tasks: "N=8 D=5 s0", without D where the trigger has none."""
    threshold = "" if "threshold" in without_effect(vars(config)) else f" D={config.number('threshold'):g}"
    return f"N={config.agents}{threshold} s{config.seed}"


@contextmanager
def joined_cluster(options: Options, study: str = "fnbandit") -> Iterator[ActorPool]:
    """Yield the pool of a driver's actors, on an existing cluster or on a local one, which ends with the pool."""
    with cluster(options) as own:
        pool = ActorPool(options, own, study)
        try:
            yield pool
        finally:
            pool.close()
