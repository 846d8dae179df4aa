"""The epoch loop: advance, find the first trigger, rewind, communicate, go on."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from fnbandit.agents import AgentGroup
from fnbandit.baselines import make_baseline
from fnbandit.config import FEDERATED, Config
from fnbandit.environments import Environment, make_environment
from fnbandit.groups import Group, Trace
from fnbandit.messages import Cost, Upload, round_cost
from fnbandit.server import Server
from fnbandit.theory import resolve

LONGEST_EPOCH = 64
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


def make_groups(config: Config, environment: Environment, parts: list[range]) -> list[Group]:
    """The groups of one process; those that communicate share the global statistics."""
    if config.algorithm not in FEDERATED:
        return [make_baseline(config, environment, part) for part in parts]
    groups: list[Group] = []
    statistics = None
    for part in parts:
        group = AgentGroup(config, environment, part, statistics)
        statistics = group.statistics
        groups.append(group)
    return groups


def run_epochs(config: Config, groups: list[Group]) -> Iterator[Epoch]:
    """Run groups of one process to the horizon, epoch by epoch. `config` is resolved."""
    server = Server(config)
    start = 0
    while start < config.horizon:
        began = time.perf_counter()
        limit = min(config.horizon, start + LONGEST_EPOCH)
        fired = False
        for group in groups:
            # A later group need not run past an earlier one's trigger.
            if group.advance(limit):
                limit, fired = group.iteration, True
        record = None
        if fired:
            record = _round(config, server, groups, limit)
        trace = joined([group.trace(start, limit) for group in groups])
        yield Epoch(start, limit, trace, record, time.perf_counter() - began)
        start = limit


def _round(config: Config, server: Server, groups: list[Group], iteration: int) -> Round:
    """One communication round: uploads in, one broadcast out (Alg. 2)."""
    agents = [group for group in groups if isinstance(group, AgentGroup)]
    last = agents[0].last_round
    for group in agents:
        group.rewind(iteration)
    uploads = [group.upload() for group in agents]
    broadcast = server.aggregate(iteration, uploads)
    agents[0].statistics.apply(broadcast, own=range(config.agents))
    for group in agents:
        group.receive()
    return round_record(config, agents[0].parameters, iteration, iteration - last, uploads)


def round_record(config: Config, parameters: int, iteration: int, length: int, uploads: list[Upload]) -> Round:
    """What is remembered of a round."""
    measure = torch.cat([upload.measure for upload in uploads]).cpu().numpy()
    losses = [upload.loss for upload in uploads if upload.loss is not None]
    if config.trigger in ("logdet", "diagonal"):
        triggered = tuple(int(i) for i in np.flatnonzero(measure > config.number("threshold")))
    else:
        triggered = tuple(range(config.agents))
    return Round(
        iteration=iteration,
        length=length,
        triggered=triggered,
        measure=float(measure.max()),
        loss=float(torch.cat(losses).mean()) if losses else float("nan"),
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


def simulate(config: Config, groups: int = 1) -> Result:
    """Run a whole simulation in this process, the agents in `groups` groups (the same result for any)."""
    began = time.perf_counter()
    environment = make_environment(config)
    config = resolve(config, environment)
    with one_thread():
        parts = split(config.agents, 1 if config.algorithm.startswith("pooled") else groups)
        members = make_groups(config, environment, parts)
        epochs = list(run_epochs(config, members))
    first = members[0]
    parameters = first.statistics.parameters if isinstance(first, AgentGroup) else None
    return Result(
        config=config,
        arms=np.concatenate([epoch.trace.arms for epoch in epochs]),
        rewards=np.concatenate([epoch.trace.rewards for epoch in epochs]),
        regret=np.concatenate([epoch.trace.regret for epoch in epochs]),
        weight=np.concatenate([epoch.trace.weight for epoch in epochs]),
        round_records=[epoch.round for epoch in epochs if epoch.round is not None],
        parameters=None if parameters is None else parameters.cpu().numpy(),
        seconds=time.perf_counter() - began,
    )
