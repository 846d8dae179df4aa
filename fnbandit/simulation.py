"""The epoch loop: advance, find the first trigger, rewind, communicate, go on."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from fnbandit.agents import AgentGroup
from fnbandit.baselines import make_baseline
from fnbandit.capacity import check_local
from fnbandit.config import FEDERATED, Config
from fnbandit.environments import Environment, make_environment
from fnbandit.groups import Group, Trace
from fnbandit.messages import Broadcast, Cost, Upload, round_cost
from fnbandit.server import GlobalStatistics, Server
from fnbandit.theory import resolve
from fnbandit.training import check_converged

LONGEST_PART = 64
"""Iterations after which an epoch without a round is handed to the caller in parts."""


@dataclass(frozen=True)
class Round:
    """One communication round."""

    iteration: int
    """The iteration in which it took place"""
    length: int
    """Iterations of the epoch that it ended"""
    triggered: tuple[int, ...]
    """The agents whose criterion asked for it"""
    measure: float
    """The largest (t - t_last) * log det ratio, which the trigger compares with D"""
    loss: float
    """Mean over agents of the training's mean squared error; NaN without training"""
    cost: Cost


@dataclass(frozen=True)
class Epoch:
    """Finished iterations start + 1 to end of all agents, and the round that ended them, if one did."""

    start: int
    end: int
    trace: Trace
    round: Round | None
    seconds: float
    parameters: np.ndarray | None = None
    """theta_sync,NN, with the last epoch of a simulation"""


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


COSTS = tuple(Cost.__dataclass_fields__)


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
    parameters: np.ndarray | None
    """theta_sync,NN after the last round"""
    seconds: float

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
        error = final.std() / np.sqrt(len(final))
        return "\n".join(
            (
                f"{config.algorithm} on {config.environment}, {config.agents} agents, {config.horizon} iterations",
                f"  regret per agent   {final.mean():.2f} (standard error over agents {error:.2f})",
                f"  rounds             {len(self.rounds)}",
                f"  bytes              {total.bytes_up:,} up, {total.bytes_down:,} down",
                f"  seconds            {self.seconds:.1f}",
            )
        )


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch on one thread: a matrix product's last bits depend on how many threads share it.

    Parallelism comes from groups of agents side by side, not from threads inside a product.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def split(agents: int, groups: int) -> list[range]:
    """`agents` agents in order, as evenly as possible, in at most `groups` groups."""
    groups = min(groups, agents)
    bounds = [agents * i // groups for i in range(groups + 1)]
    return [range(a, b) for a, b in itertools.pairwise(bounds)]


def make_group(
    config: Config, environment: Environment, agents: range, statistics: GlobalStatistics | None = None
) -> Group:
    """The group of agents that `config.algorithm` names; those that communicate share `statistics`."""
    if config.algorithm in FEDERATED:
        return AgentGroup(config, environment, agents, statistics)
    return make_baseline(config, environment, agents)


class Cohort(Protocol):
    """All agents of a simulation, wherever their groups live."""

    def advance(self, start: int, limit: int) -> tuple[int, bool]:
        """Run from iteration `start` to `limit` or to the first trigger of any agent: where, and whether one fired."""
        ...

    def trace(self, start: int, end: int) -> Trace:
        """What happened in iterations start + 1 to end."""
        ...

    def upload(self, iteration: int) -> list[Upload]:
        """Bring all groups to the iteration of a round; what they upload, in agent order."""
        ...

    def receive(self, broadcast: Broadcast) -> None:
        """Hand the server's broadcast to all agents."""
        ...


class LocalCohort:
    """Groups that live in this process and share one copy of the global statistics."""

    def __init__(self, config: Config, environment: Environment, groups: int = 1) -> None:
        parts = split(config.agents, 1 if config.algorithm.startswith("pooled") else groups)
        first = make_group(config, environment, parts[0])
        self.statistics = first.statistics if isinstance(first, AgentGroup) else None
        self.groups = [first, *(make_group(config, environment, part, self.statistics) for part in parts[1:])]
        self._everyone = range(config.agents)

    def advance(self, start: int, limit: int) -> tuple[int, bool]:
        fired = False
        for group in self.groups:
            # A later group need not run past an earlier one's trigger.
            if group.advance(limit):
                limit, fired = group.iteration, True
        return limit, fired

    def trace(self, start: int, end: int) -> Trace:
        return joined([group.trace(start, end) for group in self.groups])

    def upload(self, iteration: int) -> list[Upload]:
        agents = [group for group in self.groups if isinstance(group, AgentGroup)]
        for group in agents:
            group.rewind(iteration)
        return [group.upload() for group in agents]

    def receive(self, broadcast: Broadcast) -> None:
        assert self.statistics is not None
        self.statistics.apply(broadcast, own=self._everyone)
        for group in self.groups:
            if isinstance(group, AgentGroup):
                group.start_epoch()

    def state(self) -> dict[str, torch.Tensor]:
        """All groups' states, joined in agent order."""
        return joined_states([group.state() for group in self.groups])

    def load(self, iteration: int, state: dict[str, torch.Tensor]) -> None:
        """Take over a `state` at an iteration; the global statistics have theirs already."""
        for group in self.groups:
            group.load(iteration, part_of(state, group.agents, len(self._everyone)))


def joined_states(states: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """States of groups as one, in agent order."""
    return {name: torch.cat([state[name] for state in states]) for name in states[0]}


def part_of(state: dict[str, torch.Tensor], agents: range, total: int) -> dict[str, torch.Tensor]:
    """The part of a joined state that belongs to some agents; what one learner holds for all stays whole."""
    return {
        name: tensor[agents.start : agents.stop] if len(tensor) == total else tensor for name, tensor in state.items()
    }


def run_epochs(config: Config, cohort: Cohort, server: Server | None, start: int = 0) -> Iterator[Epoch]:
    """Run a cohort from iteration `start` to the horizon, epoch by epoch. `config` is resolved.

    An epoch without a round is handed over in parts. After an epoch with a round (with an
    algorithm without rounds: after any) the cohort's and the server's state can be saved.
    """
    last_round = start
    length = LONGEST_PART
    while start < config.horizon:
        began = time.perf_counter()
        limit = min(config.horizon, start + length)
        end, fired = cohort.advance(start, limit)
        uploads = cohort.upload(end) if fired else []
        trace = cohort.trace(start, end)
        record = None
        length = min(LONGEST_PART, 2 * length)
        if uploads:
            assert server is not None
            record = round_record(config, len(server.statistics.moments), end, end - last_round, uploads)
            cohort.receive(server.aggregate(end, uploads))
            del uploads  # as large as all agents' rows of an epoch
            length = next_part(end - last_round)
            last_round = end
        parameters = None
        if end == config.horizon and server is not None and server.statistics.parameters is not None:
            parameters = server.statistics.parameters.cpu().numpy()
        yield Epoch(start, end, trace, record, time.perf_counter() - began, parameters)
        start = end


def next_part(epoch: int) -> int:
    """How far groups run ahead before they are asked for a trigger: a little more than the last epoch took."""
    return min(LONGEST_PART, max(1, epoch + epoch // 4))


def round_record(config: Config, parameters: int, iteration: int, length: int, uploads: list[Upload]) -> Round:
    """What is remembered of a round."""
    measure = torch.cat([upload.measure for upload in uploads]).cpu().numpy()
    losses = [upload.loss for upload in uploads if upload.loss is not None]
    if config.trigger in ("logdet", "diagonal"):
        triggered = tuple(int(i) for i in np.flatnonzero(measure > config.number("threshold")))
    else:
        triggered = tuple(range(config.agents))
    loss = float("nan")
    if losses:
        loss = float(torch.cat(losses).mean())
        check_converged(config, loss, iteration)
    return Round(
        iteration=iteration,
        length=length,
        triggered=triggered,
        measure=float(measure.max()),
        loss=loss,
        cost=round_cost(config, parameters, len(triggered)),
    )


def joined(traces: list[Trace]) -> Trace:
    """The traces of groups side by side, in agent order."""
    return Trace(
        arms=np.concatenate([trace.arms for trace in traces], axis=1),
        rewards=np.concatenate([trace.rewards for trace in traces], axis=1),
        regret=np.concatenate([trace.regret for trace in traces], axis=1),
        weight=traces[0].weight,
    )


def collect(config: Config, epochs: Iterable[Epoch]) -> Result:
    """A Result from all epochs of a simulation. `config` is resolved."""
    began = time.perf_counter()
    epochs = list(epochs)
    return Result(
        config=config,
        arms=np.concatenate([epoch.trace.arms for epoch in epochs]),
        rewards=np.concatenate([epoch.trace.rewards for epoch in epochs]),
        regret=np.concatenate([epoch.trace.regret for epoch in epochs]),
        weight=np.concatenate([epoch.trace.weight for epoch in epochs]),
        round_records=[epoch.round for epoch in epochs if epoch.round is not None],
        parameters=epochs[-1].parameters,
        seconds=time.perf_counter() - began,
    )


def simulate(config: Config, groups: int = 1) -> Result:
    """Run a whole simulation in this process, the agents in `groups` groups (the same result for any)."""
    environment = make_environment(config)
    config = resolve(config, environment)
    check_local(config, environment)
    with one_thread():
        cohort = LocalCohort(config, environment, groups)
        server = Server(config, cohort.statistics) if cohort.statistics is not None else None
        return collect(config, run_epochs(config, cohort, server))
