"""The server actor: it coordinates the synchronous rounds and holds the global statistics."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import ray
import torch
from ray.dag import InputNode, MultiOutputNode
from ray.exceptions import GetTimeoutError, RayActorError, RayChannelTimeoutError, RayError

from actors.agents import Advanced, Failed, News, failed
from actors.exchanges import RayHosts
from actors.listening import RAYLET, START_SECONDS
from actors.messages import Arrays, Order, packed, unpacked
from fnbandit.algorithms.base import Trace
from fnbandit.asynchronous import Exchanges, LocalHosts, local_exchanges
from fnbandit.checkpoints import Due
from fnbandit.clock import make_clock
from fnbandit.config import Config
from fnbandit.environments import Environment, make_environment
from fnbandit.registry import find
from fnbandit.results import Segment, joined
from fnbandit.rounds.exchange import ExchangeServer
from fnbandit.rounds.messages import Broadcast, Upload
from fnbandit.rounds.server import Server
from fnbandit.rounds.shared import Shared
from fnbandit.runs import can_save
from fnbandit.simulation import LocalCohort, run_segments
from fnbandit.state import as_arrays, as_tensors, loading, unprefixed

SLEPT = 0.8
"""The part of a call's shortest time that the server sleeps through."""
HANDED_OVER_EVERY = 0.2
"""Seconds between two hand-overs of finished segments to the driver."""


@dataclass(frozen=True)
class Died:
    """An actor that is gone, and what Ray says of it."""

    who: str
    text: str


@dataclass(frozen=True)
class Stuck:
    """An actor that has not answered in time."""

    who: str
    seconds: float


@dataclass(frozen=True)
class State:
    """What a checkpoint needs, at an iteration; agents' states in actor order."""

    iteration: int
    agents: list[dict[str, np.ndarray]]
    server: dict[str, np.ndarray]


@dataclass(frozen=True)
class Started:
    """All actors are there: the agents' device, the process ids of the server and of the agents' own actors."""

    device: str
    server: int
    agents: list[int]


@dataclass(frozen=True)
class Finished:
    """The horizon is reached; how many calls the agents' actors took."""

    calls: int


Event = Started | list[Segment] | State | Finished | Failed | Died | Stuck


class Trouble(Exception):  # noqa: N818
    """Carries a Failed, Died or Stuck out of the loop."""

    def __init__(self, event: Failed | Died | Stuck) -> None:
        super().__init__(event)
        self.event = event


class RayCohort:
    """All agents, in actors. A broadcast travels with the next call: one call per actor and round, or two.

    Calls go through a compiled graph, whose channels stay open: a fifth of the time of calls that Ray
    schedules one by one, and a message is written once for all actors of a node.
    """

    def __init__(self, handles: list[Any]) -> None:
        self._handles = handles
        self._graph: Any = None
        """Compiled for the first run, and kept for those that follow"""

    def start(self, order: Order, shared: Shared | None, states: list[Any] | None, server: Any) -> Started:
        """Make all groups of a run."""
        self._parts, self._timeout, self._shared = order.parts, order.timeout, shared
        self._news: News = None
        self._answers: list[Advanced] = []
        self._seconds: dict[str, float] = {}
        """What calls of a method take at the least, of late"""
        self.calls = 0
        parts = zip(self._handles, order.parts, states or [None] * len(self._handles), strict=True)
        # Put once: the user's own environment may be large.
        told = ray.put(order)
        refs = [handle.start.remote(told, agents, state, server) for handle, agents, state in parts]
        answers = self._answered(refs, max(self._timeout, START_SECONDS))
        if self._graph is None:
            with InputNode() as message:
                calls = [handle.call.bind(message) for handle in self._handles]
            # One call at a time: by default every channel would have memory for ten.
            self._graph = MultiOutputNode(calls).experimental_compile(_max_inflight_executions=1)
        pids, devices = zip(*answers, strict=True)
        return Started(devices[0], os.getpid(), list(pids))

    def call(self, method: str, *args: Any) -> list[Any]:
        """Call all actors and wait for all answers."""
        self.calls += len(self._handles)
        began = time.monotonic()
        try:
            refs = self._graph.execute((method, args))
        except Exception as error:
            raise Trouble(self._died(error)) from None
        # Ray waits for a channel in a busy loop, which would take a core from the agents.
        expected = self._seconds.get(method, 0.0)
        time.sleep(min(1.0, SLEPT * expected))
        answers = self._answered(refs, self._timeout)
        took = time.monotonic() - began
        self._seconds[method] = min(took, 1.1 * expected) or took
        return answers

    def _answered(self, refs: list[Any], timeout: float) -> list[Any]:
        try:
            try:
                answers = ray.get(refs, timeout=timeout)
            except (GetTimeoutError, RayChannelTimeoutError):
                if who := self._stuck():
                    raise Trouble(Stuck(who, timeout)) from None
                answers = ray.get(refs, timeout=timeout)
        except (GetTimeoutError, RayChannelTimeoutError):
            raise Trouble(Stuck(RAYLET, timeout)) from None
        except Trouble:
            raise
        except Exception as error:  # Ray raises plain ones, too, where it cannot find out in time who is gone.
            raise Trouble(self._died(error)) from None
        for answer in answers:
            if isinstance(answer, Failed):
                raise Trouble(answer)
        # Arrays lie in the channels' memory, which the next call waits for.
        return copy.deepcopy(answers)

    def _stuck(self) -> str | None:
        """Who has not answered; a graph knows no more than that somebody has not. None: all are done by now."""
        for index, word in enumerate(self._words()):
            if word is not False:
                return self._who(index)
        return None

    def _died(self, error: Exception) -> Died:
        """Who is gone; a graph knows no more than that somebody is."""
        for index, word in enumerate(self._words()):
            if isinstance(word, RayActorError):
                return Died(self._who(index), str(word))
        return Died("an actor", str(error))

    def _words(self) -> Iterator[bool | RayError]:
        """Every actor's word on whether it is busy, or why there is none."""
        for handle in self._handles:
            try:
                yield ray.get(handle.busy.remote(), timeout=1)
            except RayError as error:
                yield error

    def _who(self, index: int) -> str:
        part = self._parts[index]
        return f"actor {index} (agents {part.start} to {part.stop - 1})"

    def advance(self, start: int, limit: int) -> tuple[int, bool]:
        news, self._news = self._news, None
        self._answers = self.call("advance", start, limit, news)
        fired = [answer.iteration for answer in self._answers if answer.fired]
        return (min(fired), True) if fired else (limit, False)

    def finish(self, start: int, end: int, fired: bool) -> tuple[Trace, list[Upload]]:
        answers, self._answers = self._answers, []
        if fired and any(answer.upload is None for answer in answers):
            answers = self.call("finish", start, end)
        trace = joined([answer.trace for answer in answers if answer.trace is not None])
        return trace, [unpacked(Upload, answer.upload) for answer in answers if answer.upload is not None]

    def receive(self, broadcast: Broadcast) -> None:
        assert self._shared is not None
        self._shared.apply(broadcast, own=range(0))
        self._news = news_of(broadcast, self._shared)

    def states(self) -> list[dict[str, np.ndarray]]:
        """Every actor's state, after the last broadcast."""
        news, self._news = self._news, None
        return self.call("state", news)


def news_of(broadcast: Broadcast, shared: Shared) -> News:
    """A round's rows, or what they have made of what is shared, whichever is fewer numbers."""

    def numbers(message: dict[str, Any]) -> int:
        return sum(value.size for value in message.values() if isinstance(value, np.ndarray))

    rows, state = packed(broadcast), as_arrays(shared.state())
    return {"rows": rows} if numbers(rows) <= numbers(state) else {"state": state}


@ray.remote(concurrency_groups={"door": 3})  # type: ignore[call-overload]
class ServerActor:
    """The loops of simulations, one after another, over agents in actors; without such actors over agents in here."""

    def __init__(self, handles: list[Any]) -> None:
        self._actors = RayCohort(handles) if handles else None

    @ray.method(concurrency_group="door")
    def here(self, size: int) -> np.ndarray:
        """So many bytes, while `run` computes: the actor is there, and so is what carries its answers."""
        return np.zeros(size, np.uint8)

    @ray.method(num_returns="streaming")
    def run(self, order: Order, states: list[Any] | None, server: Arrays | None) -> Iterator[Event]:
        """Start (from a checkpoint's state, where there is one) and run to the horizon, event by event."""
        torch.set_num_threads(1)
        try:
            yield from self._run(order, states, server)
        except Trouble as trouble:
            yield trouble.event
        except (Exception, SystemExit) as error:
            yield failed(error)

    def _run(self, order: Order, states: list[Any] | None, state: Arrays | None) -> Iterator[Event]:
        environment = order.environment or make_environment(order.config)
        asynchronous = find("algorithm", order.config.algorithm).asynchronous
        play = (self._exchanges if asynchronous else self._rounds)(order, environment, states, state)
        yield play.started
        due = Due(order.seconds, order.rounds) if order.seconds or order.rounds else None
        finished: list[Segment] = []
        handed_over = time.monotonic()
        try:
            for segment in play.segments:
                finished.append(segment)
                save = play.can_save(segment) and due is not None and due.now()
                if save or time.monotonic() - handed_over > HANDED_OVER_EVERY:
                    yield finished
                    finished, handed_over = [], time.monotonic()
                if save:
                    agents, server = play.states()
                    yield State(segment.end, agents, server)
        except Trouble:
            yield finished
            raise
        yield finished
        yield Finished(0 if self._actors is None else self._actors.calls)

    def _rounds(self, order: Order, environment: Environment, states: list[Any] | None, state: Arrays | None) -> Play:
        """A run with rounds of all agents, or none."""
        config = order.config
        cohort: LocalCohort | RayCohort
        if self._actors is None:
            cohort = LocalCohort(config, environment)
            server = loaded(config, cohort.shared, state)
            if states is not None:
                with loading():
                    cohort.load(order.iteration, as_tensors(ray.get(states[0])))
            started = Started(str(cohort.groups[0].device), os.getpid(), [])
        else:
            shared = find("algorithm", config.algorithm).make_shared(config, environment, like(config))
            server = loaded(config, shared, state)
            cohort = self._actors
            started = cohort.start(order, shared, states, state)
        return Play(
            started,
            run_segments(config, cohort, server, order.iteration),
            lambda segment: can_save(segment, config, server),
            lambda: (states_of(cohort), as_arrays(server.state()) if server else {}),
        )

    def _exchanges(
        self, order: Order, environment: Environment, states: list[Any] | None, state: Arrays | None
    ) -> Play:
        """A run whose agents do not wait for each other."""
        config, clock = order.config, make_clock(order.config)
        agents = None if states is None else as_tensors(ray.get(states[0]))
        hosts: LocalHosts | RayHosts
        if self._actors is None:
            hosts, exchanges = local_exchanges(config, environment, clock)
            if agents is not None:
                with loading():
                    hosts.hosts[0].load(order.iteration, agents)
            started = Started(str(hosts.hosts[0].group.device), os.getpid(), [])
        else:
            statistics = find("algorithm", config.algorithm).make_statistics(config, environment, like(config))
            if agents is not None:
                with loading():
                    statistics.load(unprefixed("statistics", agents))
            exchanges = Exchanges(config, clock, ExchangeServer(config, statistics))
            hosts = RayHosts(self._actors, statistics)
            started = self._actors.start(order, None, states, state)
        if state is not None:
            with loading():
                exchanges.load(order.iteration, as_tensors(state))

        def saved() -> tuple[list[Arrays], Arrays]:
            agents, server = exchanges.states(hosts)
            return [as_arrays(agents)], as_arrays(server)

        return Play(started, exchanges.segments(hosts), lambda segment: segment.end < config.horizon, saved)


@dataclass(frozen=True)
class Play:
    """A run that can begin."""

    started: Started
    segments: Iterator[Segment]
    can_save: Callable[[Segment], bool]
    """Whether states can be saved after a segment"""
    states: Callable[[], tuple[list[Arrays], Arrays]]
    """The agents', in agent order, and the server's"""


def like(config: Config) -> torch.Tensor:
    """An empty tensor of the statistics' precision in the host's memory."""
    return torch.empty(0, dtype=getattr(torch, config.statistics_dtype))


def loaded(config: Config, shared: Shared | None, state: Arrays | None) -> Server | None:
    """The server of an algorithm whose agents communicate, from a checkpoint's state where there is one."""
    if shared is None:
        return None
    server = Server(config, shared)
    if state:
        with loading():
            server.load(as_tensors(state))
    return server


def states_of(cohort: LocalCohort | RayCohort) -> list[Arrays]:
    """The states of the agents' groups, in agent order."""
    return [as_arrays(cohort.state())] if isinstance(cohort, LocalCohort) else cohort.states()
