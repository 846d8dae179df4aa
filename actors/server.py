"""The server actor: it runs the loop of a simulation and holds the global statistics."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import ray
import torch
from ray.exceptions import RayError

from actors.events import ActorFailure, CheckpointReady, Died, Finished, ServerEvent, Started, describe_exception
from actors.population import RayPopulation
from actors.transport import Arrays, Order
from fnbandit.config.registry import resolve_part
from fnbandit.core import Segment
from fnbandit.environments import Environment
from fnbandit.numerics.state import as_arrays, as_tensors, loading, remove_prefix
from fnbandit.simulation.clock import make_clock
from fnbandit.simulation.loop import Simulation, make_simulation
from fnbandit.simulation.population import LocalPopulation
from fnbandit.storage.checkpoints import Due

HANDED_OVER_EVERY = 0.2
"""Seconds between two deliveries of finished segments to the driver."""


@ray.remote(concurrency_groups={"door": 3})  # type: ignore[call-overload]
class ServerActor:
    """Runs simulations, one after another, over agents in agent actors, or in this actor where there are none."""

    def __init__(self, handles: list[Any]) -> None:
        self._actors = RayPopulation(handles) if handles else None

    @ray.method(concurrency_group="door")
    def here(self, size: int) -> np.ndarray:
        """Return `size` bytes, also while `run` computes: shows that the actor and the transport of answers work."""
        return np.zeros(size, np.uint8)

    @ray.method(num_returns="streaming")
    def run(self, order: Order, states: list[Any] | None, server: Arrays | None) -> Iterator[ServerEvent]:
        """Start, from a checkpoint's state where there is one, and run to the horizon; yield events."""
        torch.set_num_threads(1)
        try:
            yield from self._run(order, states, server)
        except ActorFailure as failure:
            yield failure.event
        except RayError as error:  # a state in the object store of a lost node
            yield Died("an actor", str(error))
        except (Exception, SystemExit) as error:
            yield describe_exception(error)

    def _run(self, order: Order, states: list[Any] | None, state: Arrays | None) -> Iterator[ServerEvent]:
        environment = order.make_environment()
        started, simulation = self._start(order, environment, states, state)
        yield started
        due = Due(order.seconds, order.rounds) if order.seconds or order.rounds else None
        finished: list[Segment] = []
        handed_over = time.monotonic()
        try:
            for segment in simulation.segments():
                finished.append(segment)
                can_save = segment.is_boundary and segment.end < order.config.horizon
                save = can_save and due is not None and due.now()
                if save or time.monotonic() - handed_over > HANDED_OVER_EVERY:
                    yield finished
                    finished, handed_over = [], time.monotonic()
                if save:
                    agents, server = simulation.state()
                    yield CheckpointReady(segment.end, as_arrays(agents), as_arrays(server))
        except ActorFailure:
            yield finished
            raise
        yield finished
        yield Finished(0 if self._actors is None else self._actors.calls)

    def _start(
        self, order: Order, environment: Environment, states: list[Any] | None, state: Arrays | None
    ) -> tuple[Started, Simulation]:
        """Make the population and the simulation of a run, from a checkpoint's state where there is one."""
        config, clock = order.config, make_clock(order.config)
        if self._actors is None:
            local = LocalPopulation(config, environment, clock)
            simulation = make_simulation(config, clock, local)
            if states is not None:
                with loading():
                    simulation.load(order.iteration, as_tensors(state or {}))
                    local.load(order.iteration, as_tensors(ray.get(states[0])))
            return Started(str(local.batches[0].group.device), os.getpid(), []), simulation
        template = torch.empty(0, dtype=getattr(torch, config.statistics_dtype))
        replica = resolve_part("algorithm", config.algorithm).make_replica(config, environment, template)
        self._actors.replica = replica
        simulation = make_simulation(config, clock, self._actors)
        if states is not None:
            with loading():
                simulation.load(order.iteration, as_tensors(state or {}))
                if replica is not None and replica.is_versioned:
                    replica.load(remove_prefix("replica", as_tensors(ray.get(states[0]))))
        pids, devices = zip(*self._actors.start(order, replica, states, state), strict=True)
        return Started(devices[0], os.getpid(), list(pids)), simulation
