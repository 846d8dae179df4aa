"""The result of a simulation: all iterations and rounds, collected from its segments."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fnbandit.config import Config
from fnbandit.config.words import count_things
from fnbandit.core import Cost, Round, Segment, Times, Trace
from fnbandit.hooks import load_hook
from fnbandit.notebook import html_table
from fnbandit.policy import Policy

COSTS = tuple(Cost.__dataclass_fields__)


TIMES = tuple(Times.__dataclass_fields__)


@dataclass(frozen=True, eq=False, repr=False)
class Communication:
    """Cost of the rounds; each array has one entry per round."""

    messages_up: np.ndarray
    messages_down: np.ndarray
    numbers_up: np.ndarray
    numbers_down: np.ndarray
    bytes_up: np.ndarray
    bytes_down: np.ndarray

    @classmethod
    def of(cls, rounds: list[Round]) -> Communication:
        return cls(**{name: np.array([getattr(r.cost, name) for r in rounds], dtype=np.int64) for name in COSTS})

    def __repr__(self) -> str:
        total = ", ".join(f"{name} {value:,}" for name, value in vars(self.total).items())
        return f"Communication of {len(self.bytes_up):,} rounds, in total: {total}"

    @property
    def total(self) -> Cost:
        """Sum over all rounds."""
        return Cost(**{name: int(getattr(self, name).sum()) for name in COSTS})


@dataclass(frozen=True, eq=False)
class Result:
    """A finished simulation; arrays are [iterations, agents], of the agents that do not lie."""

    config: Config
    """The config, with every 'theory' replaced by its number"""
    arms: np.ndarray
    """Number of the pulled arm, from 0"""
    rewards: np.ndarray
    """Observed rewards, with noise"""
    regret: np.ndarray
    """h(best) - h(chosen), without noise"""
    alpha: np.ndarray
    """Weight of UCB^b, [iterations]; the mean over agents where each has its own"""
    round_records: list[Round]
    """A record per round: iteration, epoch length, cost, quantities (`fnbandit.core.Round`)"""
    theta: np.ndarray | None
    """theta_sync,NN after the last round; None without networks, and in a run that was read from disk"""
    seconds: float
    """Wall time"""
    times: np.ndarray | None = None
    """Simulated seconds at which agents finished their iterations, with a clock"""
    segments: tuple[Segment, ...] = ()
    """The segments, for `save`; their traces are views of the arrays above"""
    take_policy: Callable[[int], Policy] | None = field(default=None, repr=False, compare=False)
    """Returns an agent's policy from the simulation, while its agents are in memory"""

    def __repr__(self) -> str:
        return f"Result: {self.summary()}"

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for pickle, without the agents."""
        return vars(self) | {"take_policy": None}

    def _repr_html_(self) -> str:
        return html_table(self._describe().items(), title=self._title)

    def policy(self, agent: int = 0) -> Policy:
        """Return an agent as it is at the end of the run, to use: `act`, `scores`, `learn`, `save`.

        The result of a run in actors, and one that was pickled, runs the simulation again for it, in this process.
        """
        done = len(self.regret)
        if done < self.config.horizon:
            raise ValueError(f"policy: the run ended after {done} of {self.config.horizon} iterations; expected all")
        take = self.take_policy or functools.partial(load_hook("repeat_policy"), self.config)
        return take(agent)

    def save(self, folder: str | Path) -> Path:
        """Write the records of a run, as `fnbandit run` does, for `report`, `ls` and `fnbandit.load`."""
        return load_hook("save")(self, folder)

    def plot(self, name: str = "regret") -> Any:
        """Return a matplotlib figure: "regret", "rounds" or "alpha"."""
        return load_hook("plot_result")(self, name)

    @property
    def rounds(self) -> list[int]:
        """Iterations in which a round took place; where agents do not wait for others, one agent's exchange."""
        return [r.iteration for r in self.round_records]

    @property
    def communication(self) -> Communication:
        return Communication.of(self.round_records)

    def summary(self) -> str:
        """Return regret, rounds, exchanges, messages, bytes and seconds as text."""
        return "\n".join([self._title, *(f"  {name:<18} {text}" for name, text in self._describe().items())])

    @property
    def _title(self) -> str:
        config = self.config
        agents = count_things(config.agents, "agent")
        return f"{config.algorithm} on {config.environment}, {agents}, {config.horizon} iterations"

    def _describe(self) -> dict[str, str]:
        total, final = self.communication.total, self.regret.sum(0)
        error = f" (standard error over agents {float(standard_error(final)):.2f})" if len(final) > 1 else ""
        honest = f", of the {len(final)} honest agents" if len(final) < self.config.agents else ""
        rounds = sum(record.agent is None for record in self.round_records)
        exchanges = sum(record.exchanges for record in self.round_records)
        simulated = {} if self.times is None else {"simulated seconds": f"{self.times[-1].max():.1f}"}
        return {
            "regret per agent": f"{final.mean():.2f}{error}{honest}",
            "rounds": f"{rounds} ({exchanges} exchanges)",
            "messages": f"{total.messages_up:,} up, {total.messages_down:,} down",
            "bytes": f"{total.bytes_up:,} up, {total.bytes_down:,} down",
            **simulated,
            "seconds": f"{self.seconds:.1f}",
        }


def standard_error(values: np.ndarray) -> np.ndarray:
    """Return the standard error of the mean over the first axis, by the unbiased variance (n - 1); 0 for one value."""
    return values.std(axis=0, ddof=1) / len(values) ** 0.5 if len(values) > 1 else np.zeros(values.shape[1:])


def collect(config: Config, segments: Iterable[Segment]) -> Result:
    """Return the Result of all segments of a simulation. `config` is the resolved one."""
    began = time.perf_counter()
    segments = list(segments)
    traces = [vars(segment.trace) for segment in segments]
    whole = {name: _concatenate([trace[name] for trace in traces]) for name in traces[0]}
    # Views of the whole, so that memory holds every number once.
    parts: list[dict[str, Any]] = [
        {n: v if v is None else v[s.start : s.end] for n, v in whole.items()} for s in segments
    ]
    return Result(
        config=config,
        arms=whole["arms"],
        rewards=whole["rewards"],
        regret=whole["regret"],
        alpha=whole["alpha"],
        round_records=[record for segment in segments for record in segment.rounds],
        theta=segments[-1].theta,
        seconds=time.perf_counter() - began,
        times=whole["time"],
        segments=tuple(replace(s, trace=Trace(**part)) for s, part in zip(segments, parts, strict=True)),
    )


def _concatenate(values: list[Any]) -> Any:
    return None if values[0] is None else np.concatenate(values)
