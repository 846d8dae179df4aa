"""Running a simulation on Ray, with checkpoints, going on after faults and interruptions."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import ray
from ray.exceptions import RayError

from actors.agents import Failed
from actors.cluster import cluster
from actors.crews import Crews
from actors.exchanges import part_of_hosts
from actors.layout import Layout, reserved
from actors.listening import Listener
from actors.messages import Order
from actors.options import Options
from actors.server import Died, Finished, Started, State, Stuck
from fnbandit.algorithms.base import resolve_device
from fnbandit.config import Config
from fnbandit.errors import SimulationError
from fnbandit.results import Result, Segment
from fnbandit.runs import Checkpointing, Run
from fnbandit.state import as_arrays, as_tensors, joined_states, part_of_state

FAILURES = 3
"""Failures in a row without progress that end a run."""

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
        crews: Crews | None = None,
    ) -> None:
        super().__init__(config, checkpointing, resume, environment)
        self.options = options or Options()
        if not reserved(config, self.options)[1] and config.device != "auto":
            resolve_device(config.device)
        self._crews = crews
        self.device = config.device
        self.pids: list[int] = []
        """Process ids of the server's actor and the agents' actors"""
        self.calls = 0
        """Calls of agents' actors in the last attempt"""
        self._layout: Layout | None = None

    @property
    def parts(self) -> list[range]:
        """The agents of every actor."""
        return list(self._layout.parts) if self._layout else []

    @property
    def layout(self) -> str:
        return str(self._layout or "not placed yet")

    def segments(self) -> Iterator[Segment]:
        with ExitStack() as stack:
            crews = self._crews or stack.enter_context(joined_cluster(self.options))
            yield from self._restored()
            failures, progress = 0, -1
            while True:
                try:
                    yield from self._attempt(crews)
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

    def _attempt(self, crews: Crews) -> Iterator[Segment]:
        with crews.lease(self.config, self.environment) as crew:
            self._layout = crew.layout
            seconds, rounds = (self.checkpointing.seconds, self.checkpointing.rounds) if self._store else (0.0, 0)
            order = Order(self.config, self.own_environment, crew.layout.parts, self._start,
                          self.options.actor_timeout, seconds, rounds)  # fmt: skip
            who = "the server's actor" if crew.agents else f"actor 0 (agents 0 to {self.config.agents - 1})"
            # Agents' actors that do not answer are the server's to find out, and may take their time; its own are ours.
            listener = Listener(crew.server, who, self.options.actor_timeout, bool(crew.agents), crews.stopped)
            try:
                for event in listener.events(lambda: crew.server.run.remote(order, *self._states())):
                    yield from self._handle(event)
            except RayError as error:
                raise Lost(f"{who} is gone: {error}") from None

    def _states(self) -> tuple[list[Any] | None, Any]:
        if self._snapshot is None:
            return None, None
        agents = self._snapshot.agents
        if self._asynchronous:
            states = [part_of_hosts(agents, part) for part in self.parts]
        else:
            states = [as_arrays(part_of_state(agents, part, self.config.agents)) for part in self.parts]
        return [ray.put(state) for state in states], as_arrays(self._snapshot.server)

    def _handle(self, event: Any) -> Iterator[Segment]:
        if isinstance(event, list):
            for segment in event:
                segment = self._unknown_events(segment)
                if segment.end > self._delivered:
                    yield self._deliver(segment.after(self._delivered))
        elif isinstance(event, State):
            states = [as_tensors(state) for state in event.agents]
            agents = joined_states(states) if len(states) > 1 else states[0]
            self._save(event.iteration, agents, as_tensors(event.server))
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
            if event.plain:
                raise ValueError(event.message)
            raise SimulationError(event.text)


@contextmanager
def joined_cluster(options: Options) -> Iterator[Crews]:
    """The actors of a driver, on the cluster that is there or on one of this machine's own, which ends with them."""
    with cluster(options) as own:
        crews = Crews(options, fixed=own)
        try:
            yield crews
        finally:
            crews.close()


def simulate(
    config: Config,
    options: Options | None = None,
    checkpointing: Checkpointing | None = None,
    resume: bool = False,
    environment: Any = None,
) -> Result:
    """Run a whole simulation on Ray: the same result as `fnbandit.simulate`, in any layout."""
    return RayRun(config, options, checkpointing, resume, environment).result()
