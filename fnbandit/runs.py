"""A run: one simulation as a stream of segments, restored from checkpoints and saved to them."""

from __future__ import annotations

import functools
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import torch

from fnbandit.config import Config
from fnbandit.config.presets import THEORY_FIELDS
from fnbandit.config.registry import resolve_part, unknown
from fnbandit.core import Round, Segment
from fnbandit.environments import Environment, as_environment, make_environment
from fnbandit.federation.alpha import make_alpha
from fnbandit.federation.participation import make_participation
from fnbandit.hooks import load_hook
from fnbandit.networks.features import TangentFeatures
from fnbandit.numerics.device import one_thread, read_values, resolve_device
from fnbandit.numerics.state import State, loading, on_host
from fnbandit.planning.capacity import check_local
from fnbandit.policy import Policy
from fnbandit.privacy.promise import check_promise, make_promise
from fnbandit.simulation.clock import make_clock
from fnbandit.simulation.loop import Simulation, make_simulation
from fnbandit.simulation.population import LocalPopulation
from fnbandit.simulation.results import Result, collect
from fnbandit.simulation.timeline import Timeline
from fnbandit.storage.checkpoints import CheckpointError, CheckpointStore, Due, Snapshot
from fnbandit.storage.fingerprints import fingerprint
from fnbandit.theory import resolve
from fnbandit.theory.assumptions import remarks


@dataclass(frozen=True)
class Checkpointing:
    """Location and frequency of checkpoints."""

    location: str | None = None
    """A directory or a URI; None saves nothing"""
    seconds: float = 60.0
    """Seconds between two checkpoints; 0: by rounds only"""
    rounds: int = 0
    """Number of rounds after which a checkpoint is due earlier; 0: by time only"""


log = logging.getLogger("fnbandit")


class Run(ABC):
    """One simulation. `environment` replaces `config.environment` by a user's own environment or reward function."""

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
                f"checkpoint={location!r}: has checkpoints of an earlier run; resume it or use another location"
            )
        self._snapshot = self._store.latest() if self._store and resume else None
        if self._snapshot is not None:
            if self._snapshot.config.replace(device=config.device) != resolve_like(config, self._snapshot.config):
                raise CheckpointError(f"checkpoint={location!r}: belongs to another config")
            self.fingerprint.check(self._snapshot.fingerprint, config)
            self.config = self._snapshot.config.replace(device=config.device)
        else:
            self.config = resolve(config, self.environment)
        self.promise = make_promise(self.config, self.environment)
        check_promise(self.promise, self.config)
        warning = precision_warning(self.config, self.environment)
        if warning:
            log.warning(warning)
        if make_alpha(self.config).covered_by_theorem:
            for line in remarks(self.config, self.environment):
                log.warning("fnbandit: %s", line)
        self.clock = make_clock(self.config)
        has_barrier = not resolve_part("algorithm", self.config.algorithm).traits.is_asynchronous
        participation = make_participation(self.config)
        self._timeline = Timeline(self.clock, participation) if self.clock.shown and has_barrier else None
        self._rounds: list[Round] = []
        self._alpha: list[np.ndarray] = []
        self._held: list[Round] = []
        """Rounds whose iterations have been delivered already"""
        self._delivered = 0

    @abstractmethod
    def segments(self) -> Iterator[Segment]:
        """Yield every segment once, from the first iteration on; a resumed run replays its saved segments first."""

    device: str
    """Device on which the agents compute; final once the run has started"""

    @property
    @abstractmethod
    def layout(self) -> str:
        """Description of the processes that hold the agents."""

    def _replay_snapshot(self) -> Iterator[Segment]:
        if self._snapshot is not None:
            for segment in self._snapshot.segments():
                yield self._deliver(segment)

    def _deliver(self, segment: Segment) -> Segment:
        self._delivered = segment.end
        if self._timeline is not None:
            segment = self._timeline.add_times(segment)
        self._alpha.append(segment.trace.alpha)
        self._rounds += segment.rounds
        return segment

    def _deliver_new(self, segment: Segment) -> Iterator[Segment]:
        """Yield the iterations and rounds of a segment that have not been delivered yet.

        After a fault, agents may run ahead by other amounts: segments may then pair the same rounds with other
        iterations.
        """
        self._held += segment.rounds[max(0, len(self._rounds) + len(self._held) - segment.before) :]
        if segment.end > self._delivered:
            held, self._held = self._held, []
            yield self._deliver(replace(segment.after(self._delivered), rounds=tuple(held)))

    def _save(self, iteration: int, agents: State, server: State) -> None:
        if self._store is None:
            return
        self._snapshot = Snapshot(
            config=self.config,
            fingerprint=self.fingerprint,
            iteration=iteration,
            agents=agents,
            server=server,
            alpha=np.concatenate(self._alpha)[:iteration],
            rounds=(self._rounds + self._held)[: int(server.get("rounds", 0))],
        )
        # An unreachable store does not fail the run: replaced actors continue from the snapshot in this process.
        try:
            self._store.save(self._snapshot)
        except (OSError, pa.ArrowException) as error:
            log.warning("fnbandit: %s; the run continues without this checkpoint", self._store.trouble(error))

    def clear(self) -> None:
        """Delete the checkpoints of a finished run."""
        if self._store is not None:
            try:
                self._store.clear()
            except (OSError, pa.ArrowException) as error:
                log.warning("fnbandit: %s; the run is finished and does not need them", self._store.trouble(error))

    @property
    def _start(self) -> int:
        return 0 if self._snapshot is None else self._snapshot.iteration

    def result(self) -> Result:
        """Run to the end and return all iterations and rounds."""
        return collect(self.config, self.segments())


def name_of(environment: Any) -> str:
    """Return the config's name for a user's own environment: "module:name" of its class or function."""
    named = environment if hasattr(environment, "__qualname__") else type(environment)
    return f"{named.__module__}:{named.__qualname__}"


def resolve_like(config: Config, resolved: Config) -> Config:
    """Return the config with its 'theory' fields as in a resolved config, that of a checkpoint."""
    names = [name for name in THEORY_FIELDS if getattr(config, name) == "theory"]
    return config.replace(**{name: getattr(resolved, name) for name in names})


def precision_warning(config: Config, environment: Environment) -> str | None:
    """Return a one-line warning where single precision may lose the small eigenvalues of V_last; else None.

    The eigenvalues lie between lambda and about lambda + N T ||g||^2; beyond a ratio of 1e7 the smallest are less than
    the rounding error of the largest.
    """
    if config.statistics_dtype == "float64":
        return None
    points = torch.from_numpy(environment.domain(64))
    if resolve_part("algorithm", config.algorithm).traits.has_network:
        points = TangentFeatures(config, environment.dim, points)(points[None])[0]
    ratio = config.agents * config.horizon * float(points.square().sum(1).mean()) / config.number("regularization")
    if ratio < 1e7:
        return None
    return (
        f"fnbandit: statistics_dtype=float32: V may span a factor of {ratio:.1g} (N T ||g||^2 / lambda), "
        "more than single precision resolves; float64 is safe"
    )


class LocalRun(Run):
    """A simulation in this process, with the agents in `groups` groups; their number does not change the bits."""

    layout = "in one process"

    def __init__(self, config: Config, *args: Any, groups: int = 1, **more: Any) -> None:
        super().__init__(config, *args, **more)
        self._groups = groups
        self.device = str(resolve_device(config.device))
        self._finished: tuple[Simulation, LocalPopulation] | None = None

    def policy(self, agent: int = 0) -> Policy:
        """Return the policy of an agent at the end of the run; run to the end first unless that is done."""
        if agent not in range(self.config.agents):
            raise ValueError(f"agent={agent}: expected a number from 0 to {self.config.agents - 1}")
        if self._finished is None:
            for _ in self.segments():
                pass
        assert self._finished is not None
        simulation, population = self._finished
        with one_thread():
            simulation.deliver()
            facts, tensors = population.policy_parts(agent)
        facts |= {
            "algorithm": self.config.algorithm,
            "environment": self.config.environment,
            "agent": agent,
            "iterations": self.config.horizon,
            "arms": self.environment.arms,
            "dim": self.environment.dim,
        }
        arrays = {name: read_values(values) for name, values in tensors.items()}
        table: Any = getattr(self.environment, "task", self.environment)
        coding = getattr(table, "row_coding", None)
        if coding is not None:
            facts |= {"arm_names": list(table.arm_names), "coding": [coding.coding, bool(coding.is_unit)]}
            arrays |= {"shift": coding.shift, "scale": coding.scale}
        return Policy(facts, arrays)

    def segments(self) -> Iterator[Segment]:
        check_local(self.config, self.environment)
        with one_thread():
            population = LocalPopulation(self.config, self.environment, self.clock, self._groups)
            simulation = make_simulation(self.config, self.clock, population)
            if self._snapshot is not None:
                with loading():
                    simulation.load(self._snapshot.iteration, self._snapshot.server)
                    population.load(self._snapshot.iteration, self._snapshot.agents)
            yield from self._replay_snapshot()
            due = Due(self.checkpointing.seconds, self.checkpointing.rounds)
            for segment in simulation.segments():
                yield self._deliver(segment)
                if self._store and segment.is_boundary and segment.end < self.config.horizon and due.now():
                    agents, server = simulation.state()
                    self._save(segment.end, on_host(agents), on_host(server))
            self._finished = simulation, population


def simulate(
    config: Config,
    environment: Any = None,
    groups: int = 1,
    engine: Literal["local", "ray"] = "local",
    progress: bool = False,
    on_segment: Callable[[Segment], object] | None = None,
) -> Result:
    """Run a whole simulation and return all its iterations and rounds; both engines give the same bits.

        simulate(Config(agents=4, horizon=100), environment=lambda x: x[:, 0] ** 2)

    Args:
        environment: replaces `config.environment` by your own task: an object with arms, dim, block and domain
            (`fnbandit.Environment`), or a reward function h(x) of rows x on the unit sphere; x is a NumPy array
            [rows, dim], h(x) is [rows]. (An algorithm of your own receives torch tensors.)
        groups: splits the agents of engine="local" into groups that are computed one after the other, which saves
            memory and changes no bit.
        engine: local: in this process; ray: in actors, on a cluster or on this machine.
        progress: shows a progress line on standard error.
        on_segment: is called with every `fnbandit.core.Segment` (finished iterations and rounds) as it comes: for live
            plots, pruning, early stop. Where it returns True the simulation ends, and the result has the iterations
            so far; an exception ends it, too. Segments are those of a round, or of at most 64 iterations.
    """
    if not isinstance(config, Config):
        raise ValueError(f"config={config!r}: expected a fnbandit.Config, as Config(agents=4, horizon=100)")
    run: Run
    if engine == "local":
        run = LocalRun(config, environment=environment, groups=groups)
    elif engine != "ray":
        raise ValueError(unknown("engine", engine, ("local", "ray")))
    elif groups != 1:
        raise ValueError(f"groups={groups}: only engine='local' accepts it; on Ray the layout sets the groups")
    else:
        run = load_hook("run_on_ray")(config, environment=environment)
    segments = load_hook("watch")(run.config, run.segments()) if progress else run.segments()
    watched = segments if on_segment is None else _watch(segments, on_segment)
    repeat = functools.partial(repeat_policy, run.config, environment=environment)
    return replace(collect(run.config, watched), take_policy=run.policy if isinstance(run, LocalRun) else repeat)


def _watch(segments: Iterator[Segment], on_segment: Callable[[Segment], object]) -> Iterator[Segment]:
    """Yield segments up to the first for which the callback returns True."""
    with closing(segments):  # type: ignore[type-var]
        for segment in segments:
            yield segment
            if on_segment(segment) is True:
                return


def repeat_policy(config: Config, agent: int, environment: Any = None) -> Policy:
    """Return the policy of an agent at the end of a simulation, which is run for that."""
    return LocalRun(config, environment=environment).policy(agent)
