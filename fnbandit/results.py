"""What a simulation hands over: segments of finished iterations, rounds, and everything together at the end."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fnbandit.algorithms.base import Trace
from fnbandit.config import Config
from fnbandit.registry import service
from fnbandit.rounds.messages import Cost

COSTS = tuple(Cost.__dataclass_fields__)


@dataclass(frozen=True)
class Quantity:
    """Something that agents report with their uploads; a round records its mean over agents."""

    name: str
    """Its key in `Upload.report`, and its column in rounds.parquet"""
    metric: str | None = None
    """Its name in MLflow; None: in the records only"""


QUANTITIES = (
    Quantity("loss", "loss"),
    Quantity("steps", "steps"),
    Quantity("diverged"),
    Quantity("alpha"),
    Quantity("broadcast_alpha"),
)
"""loss: mean squared error of the training; steps of it; diverged: the share of agents that went back to their start;
alpha: alpha_i, where agents compute it (Alg. 1, line 15); broadcast_alpha: what the server made of it (Alg. 2, line 4)
"""


@dataclass(frozen=True)
class Times:
    """Where simulated time stands when the server has answered, and where it went since the answer before.

    Means over the agents that took part.
    """

    time: float
    """Seconds since the start"""
    computing: float
    """Seconds of iterations and training"""
    waiting: float
    """Seconds for others"""
    sending: float
    """Seconds of messages, both ways"""
    away: float
    """Seconds in which agents were not there"""


TIMES = tuple(Times.__dataclass_fields__)


@dataclass(frozen=True)
class Round:
    """One communication round, or one agent's exchange with the server where agents do not wait for each other."""

    iteration: int
    """The iteration in which it took place"""
    length: int
    """Iterations of the epoch that it ended"""
    triggered: tuple[int, ...]
    """The agents that asked for it; all of them where its iteration was known before"""
    measure: float
    """The largest of what the trigger measured"""
    level: float
    """What the trigger compared it with (D); NaN where it compared nothing"""
    cost: Cost
    quantities: dict[str, float]
    """Means over agents of what they reported; NaN for what nobody did"""
    times: Times | None = None
    """With a clock"""
    staleness: int | None = None
    """Of a single agent's exchange: those of others since its last one"""

    @property
    def agent(self) -> int | None:
        """Whose exchange it is; None for a round of all."""
        return None if self.staleness is None else self.triggered[0]


@dataclass(frozen=True)
class Segment:
    """Finished iterations start + 1 to end of all agents: an epoch with the round that ended it, or a part of one."""

    start: int
    end: int
    trace: Trace
    round: Round | None
    seconds: float
    theta: np.ndarray | None = None
    """theta_sync,NN, with the last segment of a simulation"""
    events: tuple[Round, ...] = ()
    """Exchanges of single agents, in the server's order, where agents do not wait for each other"""
    before: int = 0
    """How many there were before them"""

    @property
    def rounds(self) -> tuple[Round, ...]:
        """Everything that was communicated."""
        return self.events if self.round is None else (self.round,)

    def after(self, iteration: int) -> Segment:
        """What of it lies after an iteration."""
        skip = max(0, iteration - self.start)
        left: dict[str, Any] = {k: None if v is None else v[skip:] for k, v in vars(self.trace).items()}
        return replace(self, start=self.start + skip, trace=Trace(**left))


@dataclass(frozen=True)
class Communication:
    """What the rounds cost; each array has one entry per round."""

    messages_up: np.ndarray
    messages_down: np.ndarray
    numbers_up: np.ndarray
    numbers_down: np.ndarray
    bytes_up: np.ndarray
    bytes_down: np.ndarray

    @classmethod
    def of(cls, rounds: list[Round]) -> Communication:
        return cls(**{name: np.array([getattr(r.cost, name) for r in rounds], dtype=np.int64) for name in COSTS})

    @property
    def total(self) -> Cost:
        """All rounds together."""
        return Cost(**{name: int(getattr(self, name).sum()) for name in COSTS})


@dataclass(frozen=True)
class Result:
    """A finished simulation; arrays are [iterations, agents]."""

    config: Config
    """With every 'theory' replaced by its number"""
    arms: np.ndarray
    rewards: np.ndarray
    regret: np.ndarray
    """h(best) - h(chosen), without noise"""
    weight: np.ndarray
    """alpha, [iterations]"""
    round_records: list[Round]
    theta: np.ndarray | None
    """theta_sync,NN after the last round"""
    seconds: float
    times: np.ndarray | None = None
    """With a clock: the simulated seconds at which agents finished their iterations"""
    segments: tuple[Segment, ...] = ()
    """As they came, their traces views of the arrays above: what `save` writes"""

    def __repr__(self) -> str:
        return f"Result: {self.summary()}"

    def save(self, folder: str | Path) -> Path:
        """Write the records of a run, as `fnbandit run` leaves them: for `report`, `ls` and `fnbandit.load`."""
        return service("save")(self, folder)

    def plot(self, name: str = "regret") -> Any:
        """A figure, matplotlib's: "regret", "rounds" or "weight"."""
        return service("plot_result")(self, name)

    @property
    def rounds(self) -> list[int]:
        """Iterations in which a communication round took place."""
        return [r.iteration for r in self.round_records]

    @property
    def communication(self) -> Communication:
        return Communication.of(self.round_records)

    def summary(self) -> str:
        """How good, how many rounds, how many bytes, how long."""
        config, total = self.config, self.communication.total
        final = self.regret.sum(0)
        error = float(standard_error(final))
        return "\n".join(
            (
                f"{config.algorithm} on {config.environment}, {config.agents} agents, {config.horizon} iterations",
                f"  regret per agent   {final.mean():.2f} (standard error over agents {error:.2f})",
                f"  rounds             {len(self.rounds)}",
                f"  bytes              {total.bytes_up:,} up, {total.bytes_down:,} down",
                f"  seconds            {self.seconds:.1f}",
            )
        )


def standard_error(values: np.ndarray) -> np.ndarray:
    """Of the mean over the first axis, from the unbiased variance (n - 1); zero for a single value."""
    return values.std(axis=0, ddof=1) / len(values) ** 0.5 if len(values) > 1 else np.zeros(values.shape[1:])


def joined(traces: list[Trace]) -> Trace:
    """The traces of groups side by side, in agent order."""
    return Trace(
        arms=np.concatenate([trace.arms for trace in traces], axis=1),
        rewards=np.concatenate([trace.rewards for trace in traces], axis=1),
        regret=np.concatenate([trace.regret for trace in traces], axis=1),
        weight=traces[0].weight,
    )


def collect(config: Config, segments: Iterable[Segment]) -> Result:
    """A Result from all segments of a simulation. `config` is resolved."""
    began = time.perf_counter()
    segments = list(segments)
    traces = [vars(segment.trace) for segment in segments]
    whole = {name: _concatenated([trace[name] for trace in traces]) for name in traces[0]}
    # Views of the whole, so that every number is in memory once.
    parts: list[dict[str, Any]] = [
        {n: v if v is None else v[s.start : s.end] for n, v in whole.items()} for s in segments
    ]
    return Result(
        config=config,
        arms=whole["arms"],
        rewards=whole["rewards"],
        regret=whole["regret"],
        weight=whole["weight"],
        round_records=[record for segment in segments for record in segment.rounds],
        theta=segments[-1].theta,
        seconds=time.perf_counter() - began,
        times=whole["time"],
        segments=tuple(replace(s, trace=Trace(**part)) for s, part in zip(segments, parts, strict=True)),
    )


def _concatenated(values: list[Any]) -> Any:
    return None if values[0] is None else np.concatenate(values)
