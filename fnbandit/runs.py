"""A run: one simulation as a stream of segments, restored from checkpoints and saved to them."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import torch

from fnbandit.algorithms.base import resolve_device
from fnbandit.assumptions import remarks
from fnbandit.asynchronous import local_exchanges
from fnbandit.capacity import check_local
from fnbandit.checkpoints import CheckpointError, CheckpointStore, Due, Snapshot
from fnbandit.clock import make_clock
from fnbandit.config import Config
from fnbandit.environments import Environment, as_environment, make_environment
from fnbandit.fingerprints import fingerprint
from fnbandit.network import TangentFeatures
from fnbandit.presets import THEORY_FIELDS
from fnbandit.registry import find, part_of, service, unknown
from fnbandit.results import Result, Round, Segment, collect
from fnbandit.rounds.server import Server
from fnbandit.rounds.weights import make_weight
from fnbandit.simulation import LocalCohort, one_thread, run_segments
from fnbandit.state import State, loading, on_host
from fnbandit.theory import resolve
from fnbandit.timeline import Timeline


@dataclass(frozen=True)
class Checkpointing:
    """Where and how often to save; `location` is a directory or a URI."""

    location: str | None = None
    seconds: float = 60.0
    rounds: int = 0
    """Also every so many rounds; 0: by time only"""


log = logging.getLogger("fnbandit")


class Run(ABC):
    """One simulation. `environment` takes a user's own environment or reward function instead of a name."""

    def __init__(
        self,
        config: Config,
        checkpointing: Checkpointing | None = None,
        resume: bool = False,
        environment: Any = None,
    ) -> None:
        if environment is not None:
            config = config.replace(environment=name_of(environment))
        self.own_environment = None if environment is None else as_environment(config, environment)
        self.environment = self.own_environment or make_environment(config)
        self.fingerprint = fingerprint(config, self.environment)
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
            self.fingerprint.check(self._snapshot.fingerprint, config)
            self.config = self._snapshot.config.replace(device=config.device)
        else:
            self.config = resolve(config, self.environment)
        warning = precision_warning(self.config, self.environment)
        if warning:
            log.warning(warning)
        if make_weight(self.config).analysed:
            for line in remarks(self.config, self.environment):
                log.warning("fnbandit: %s", line)
        self.clock = make_clock(self.config)
        self._asynchronous = find("algorithm", self.config.algorithm).asynchronous
        self._timeline = Timeline(self.clock) if self.clock.shown and not self._asynchronous else None
        self._rounds: list[Round] = []
        self._weight: list[np.ndarray] = []
        self._held: list[Round] = []
        """Exchanges that came with iterations delivered before"""
        self._delivered = 0

    @abstractmethod
    def segments(self) -> Iterator[Segment]:
        """Every segment from the first iteration on, each once; a resumed run's earlier ones come at once."""

    device: str
    """Where the agents compute; known for sure once a run is under way"""

    @property
    @abstractmethod
    def layout(self) -> str:
        """How the agents sit."""

    def _restored(self) -> Iterator[Segment]:
        if self._snapshot is not None:
            for segment in self._snapshot.segments():
                yield self._deliver(segment)

    def _deliver(self, segment: Segment) -> Segment:
        self._delivered = segment.end
        if self._timeline is not None:
            segment = self._timeline.timed(segment)
        self._weight.append(segment.trace.weight)
        self._rounds += segment.rounds
        return segment

    def _unknown_events(self, segment: Segment) -> Segment:
        """A segment with those exchanges of single agents only that have not been delivered.

        After a fault agents may run ahead otherwise than before: the same exchanges come with other iterations.
        """
        self._held += segment.events[max(0, len(self._rounds) + len(self._held) - segment.before) :]
        if not self._asynchronous or segment.end <= self._delivered:
            return segment
        held, self._held = self._held, []
        return replace(segment, events=tuple(held))

    def _save(self, iteration: int, agents: State, server: State) -> None:
        if self._store is None:
            return
        self._snapshot = Snapshot(
            config=self.config,
            fingerprint=self.fingerprint,
            iteration=iteration,
            agents=agents,
            server=server,
            weight=np.concatenate(self._weight)[:iteration],
            rounds=self._rounds_until(iteration, server),
        )
        # A store that is down for a while costs no run: lost actors go on from what this process has in its memory.
        try:
            self._store.save(self._snapshot)
        except (OSError, pa.ArrowException) as error:
            log.warning("fnbandit: %s; the run goes on without this one", self._store.trouble(error))

    def _rounds_until(self, iteration: int, server: State) -> list[Round]:
        if self._asynchronous:
            return (self._rounds + self._held)[: int(server["exchanges"])]
        return [record for record in self._rounds if record.iteration <= iteration]

    def clear(self) -> None:
        """Forget the checkpoints of a run that is finished."""
        if self._store is not None:
            try:
                self._store.clear()
            except (OSError, pa.ArrowException) as error:
                log.warning("fnbandit: %s; the run is finished and does not need them", self._store.trouble(error))

    @property
    def _start(self) -> int:
        return 0 if self._snapshot is None else self._snapshot.iteration

    def result(self) -> Result:
        """Run to the end and collect everything."""
        return collect(self.config, self.segments())


def name_of(environment: Any) -> str:
    """What a config says of a user's own environment: "module:name" of its class or function."""
    named = environment if hasattr(environment, "__qualname__") else type(environment)
    return f"{named.__module__}:{named.__qualname__}"


def resolved_like(config: Config, resolved: Config) -> Config:
    """The config with its 'theory' fields as a checkpoint has resolved them."""
    names = [name for name in THEORY_FIELDS if getattr(config, name) == "theory"]
    return config.replace(**{name: getattr(resolved, name) for name in names})


def precision_warning(config: Config, environment: Environment) -> str | None:
    """One line where single precision may not tell small eigenvalues of V_last from none.

    V_last's eigenvalues lie between lambda and about lambda + N T ||g||^2; beyond a ratio of 1e7 the smallest drown in
    the rounding of the largest.
    """
    if config.statistics_dtype == "float64":
        return None
    points = torch.from_numpy(environment.domain(64))
    if "width" in part_of("algorithm", config.algorithm).fields:
        points = TangentFeatures(config, environment.dim, points)(points[None])[0]
    ratio = config.agents * config.horizon * float(points.square().sum(1).mean()) / config.number("regularization")
    if ratio < 1e7:
        return None
    return (
        f"fnbandit: statistics_dtype=float32: V may span a factor of {ratio:.1g} (N T ||g||^2 / lambda), "
        "more than single precision tells apart; float64 is safe"
    )


def can_save(segment: Segment, config: Config, server: Server | None) -> bool:
    """Whether a simulation's state can be saved after a segment."""
    return (segment.round is not None or server is None) and segment.end < config.horizon


class LocalRun(Run):
    """A simulation in this process, the agents in `groups` groups (the same bits for any number)."""

    layout = "in one process"

    def __init__(self, config: Config, *args: Any, groups: int = 1, **more: Any) -> None:
        super().__init__(config, *args, **more)
        self._groups = groups
        self.device = str(resolve_device(config.device))

    def segments(self) -> Iterator[Segment]:
        check_local(self.config, self.environment)
        with one_thread():
            if self._asynchronous:
                yield from self._exchanges()
                return
            cohort = LocalCohort(self.config, self.environment, self._groups)
            server = None if cohort.shared is None else Server(self.config, cohort.shared)
            if self._snapshot is not None:
                with loading():
                    if server is not None:
                        server.load(self._snapshot.server)
                    cohort.load(self._snapshot.iteration, self._snapshot.agents)
            yield from self._restored()
            due = Due(self.checkpointing.seconds, self.checkpointing.rounds)
            for segment in run_segments(self.config, cohort, server, self._start):
                yield self._deliver(segment)
                if self._store and can_save(segment, self.config, server) and due.now():
                    self._save(segment.end, on_host(cohort.state()), on_host(server.state()) if server else {})

    def _exchanges(self) -> Iterator[Segment]:
        hosts, exchanges = local_exchanges(self.config, self.environment, self.clock, self._groups)
        if self._snapshot is not None:
            with loading():
                exchanges.load(self._snapshot.iteration, self._snapshot.server)
                for host in hosts.hosts:
                    host.load(self._snapshot.iteration, self._snapshot.agents)
        yield from self._restored()
        due = Due(self.checkpointing.seconds, self.checkpointing.rounds)
        for segment in exchanges.segments(hosts):
            yield self._deliver(segment)
            if self._store and segment.end < self.config.horizon and due.now():
                agents, server = exchanges.states(hosts)
                self._save(segment.end, on_host(agents), on_host(server))


def simulate(
    config: Config,
    environment: Any = None,
    groups: int = 1,
    engine: Literal["local", "ray"] = "local",
    progress: bool = False,
) -> Result:
    """Run a whole simulation: in this process, or with engine="ray" in actors, with the same bits.

    `environment` takes an own task in place of `config.environment`: an object with arms, dim, block and
    domain (`fnbandit.environments.Environment`), or a reward function h(x) for rows x on the unit sphere:

        simulate(Config(agents=4, horizon=100), environment=lambda x: x[:, 0] ** 2)

    With `progress` a line on standard error says how far it is.
    """
    run: Run
    if engine == "local":
        run = LocalRun(config, environment=environment, groups=groups)
    elif engine != "ray":
        raise ValueError(unknown("engine", engine, ("local", "ray")))
    elif groups != 1:
        raise ValueError(f"groups={groups}: is for engine='local'; on Ray the layout decides")
    else:
        run = service("ray")(config, environment=environment)
    segments = service("watched")(run.config, run.segments()) if progress else run.segments()
    return collect(run.config, segments)
