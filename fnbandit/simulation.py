"""The synchronous schedule: advance, find the first trigger, rewind, communicate, go on."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import numpy as np
import torch

from fnbandit.algorithms.base import Group, Trace
from fnbandit.algorithms.federated import FederatedGroup
from fnbandit.config import Config
from fnbandit.environments import Environment
from fnbandit.registry import find, made
from fnbandit.results import QUANTITIES, Round, Segment, joined
from fnbandit.rounds.messages import Broadcast, Upload, round_cost
from fnbandit.rounds.server import Server
from fnbandit.rounds.shared import Shared
from fnbandit.state import State, joined_states, part_of_state
from fnbandit.tree import LEAF, vectors

LONGEST_PART = 64
"""Iterations after which an epoch without a round is handed to the caller in parts."""


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


def split(agents: int, groups: int, unit: int = 1) -> list[range]:
    """`agents` agents in order, in at most `groups` groups that begin at multiples of a unit, as evenly as possible."""
    units = -(-agents // unit)
    groups = min(groups, units)
    bounds = [min(agents, unit * (units * i // groups)) for i in range(groups + 1)]
    return [range(a, b) for a, b in itertools.pairwise(bounds)]


def aligned(agents: int, groups: int) -> list[range]:
    """The same, but groups may end where subtrees do, and the largest one grow by an eighth for that.

    What all wait for is the largest group and the server. A leaf that two groups share takes the server about as
    long as two agents take their process for a round, another subtree that it is sent a tenth.
    """
    most = max(map(len, split(agents, groups))) * 9 / 8
    units = [1, *(LEAF << level for level in range(agents.bit_length()) if LEAF << level <= most)]
    ways = [split(agents, groups, unit) for unit in units]

    def waited_for(parts: list[range]) -> float:
        shared = sum(part.stop % LEAF > 0 for part in parts[:-1])
        return max(map(len, parts)) + 2 * shared + 0.1 * sum(len(vectors(agents).pieces(part)) for part in parts)

    return min((way for way in ways if max(map(len, way)) <= most), key=waited_for)


def make_group(config: Config, environment: Environment, agents: range, shared: Shared | None = None) -> Group:
    """A group of the algorithm that a config names; groups of one process have one `shared`."""
    return made("algorithm", config.algorithm, config, environment, agents, shared)


class Cohort(Protocol):
    """All agents of a simulation, wherever their groups live."""

    def advance(self, start: int, limit: int) -> tuple[int, bool]:
        """Run from iteration `start` to `limit` or to the first trigger of any agent: where, and whether one fired."""
        ...

    def finish(self, start: int, end: int, fired: bool) -> tuple[Trace, list[Upload]]:
        """Bring all groups to iteration `end`: what happened since `start` and, if a round is due, their uploads.

        Uploads are in agent order.
        """
        ...

    def receive(self, broadcast: Broadcast) -> None:
        """Hand the server's broadcast to all agents."""
        ...


class LocalCohort:
    """Groups that live in this process and share one copy of what broadcasts have told."""

    def __init__(self, config: Config, environment: Environment, groups: int = 1) -> None:
        kind = find("algorithm", config.algorithm)
        parts = split(config.agents, 1 if kind.one_group else groups)
        first = make_group(config, environment, parts[0])
        self.shared = first.shared if isinstance(first, FederatedGroup) else None
        self.groups = [first, *(make_group(config, environment, part, self.shared) for part in parts[1:])]
        self._everyone = range(config.agents)

    def advance(self, start: int, limit: int) -> tuple[int, bool]:
        fired = False
        for group in self.groups:
            # A later group need not run past an earlier one's trigger.
            if group.advance(limit):
                limit, fired = group.iteration, True
        return limit, fired

    def finish(self, start: int, end: int, fired: bool) -> tuple[Trace, list[Upload]]:
        uploads = [round_of(group, end) for group in self.groups] if fired else []
        return joined([group.trace(start, end) for group in self.groups]), uploads

    def receive(self, broadcast: Broadcast) -> None:
        assert self.shared is not None
        self.shared.apply(broadcast, own=self._everyone)
        for group in self.groups:
            assert isinstance(group, FederatedGroup)
            group.start_epoch()

    def state(self) -> State:
        """All groups' states, joined in agent order."""
        return joined_states([group.state() for group in self.groups])

    def load(self, iteration: int, state: State) -> None:
        """Take over a `state` at an iteration; what is shared has been loaded already."""
        for group in self.groups:
            group.load(iteration, part_of_state(state, group.agents, len(self._everyone)))


def round_of(group: Group, iteration: int) -> Upload:
    """A group's part in a round: go back to its iteration, train, upload as sums (Alg. 1, lines 14-16)."""
    assert isinstance(group, FederatedGroup)
    group.rewind(iteration)
    group.train()
    return group.shared.summed(iteration, group.agents, group.upload())


def run_segments(config: Config, cohort: Cohort, server: Server | None, start: int = 0) -> Iterator[Segment]:
    """Run a cohort from iteration `start` to the horizon, segment by segment. `config` is resolved.

    An epoch without a round is handed over in parts. After a segment with a round (with an
    algorithm without rounds: after any) the cohort's and the server's state can be saved.
    """
    last_round = start
    length = LONGEST_PART
    while start < config.horizon:
        began = time.perf_counter()
        limit = min(config.horizon, start + length)
        end, fired = cohort.advance(start, limit)
        trace, uploads = cohort.finish(start, end, fired)
        record = None
        length = min(LONGEST_PART, 2 * length)
        if uploads:
            assert server is not None
            broadcast = server.aggregate(end, uploads)
            record = round_record(config, server.shared, end - last_round, uploads, broadcast)
            cohort.receive(broadcast)
            del uploads, broadcast  # as large as all agents' rows of an epoch
            length = next_part(end - last_round)
            last_round = end
        theta = None
        if end == config.horizon and server is not None and server.shared.theta is not None:
            theta = server.shared.theta.cpu().numpy()
        yield Segment(start, end, trace, record, time.perf_counter() - began, theta)
        start = end


def next_part(epoch: int) -> int:
    """How far groups run ahead before they are asked for a trigger: a little more than the last epoch took."""
    return min(LONGEST_PART, max(1, epoch + epoch // 4))


def round_record(config: Config, shared: Shared, length: int, uploads: list[Upload], broadcast: Broadcast) -> Round:
    """What is remembered of a round, before `shared` takes it in."""
    measure = torch.cat([upload.measure for upload in uploads]).cpu().numpy()
    known = shared.trigger.next_round(shared.last_round) is not None
    triggered = range(config.agents) if known else np.flatnonzero(measure > shared.trigger.level).tolist()
    quantities = {quantity.name: mean_of(quantity.name, uploads) for quantity in QUANTITIES}
    if isinstance(broadcast.weight, torch.Tensor):
        quantities["broadcast_alpha"] = float(broadcast.weight)
    return Round(
        iteration=broadcast.iteration,
        length=length,
        triggered=tuple(triggered),
        measure=float(measure.max()),
        level=shared.trigger.level,
        cost=round_cost(config.agents, *shared.sizes(length), None if known else len(triggered)),
        quantities=quantities,
    )


def mean_of(name: str, uploads: list[Upload]) -> float:
    """The mean over agents of what they report under a name; NaN where they do not."""
    reported = [upload.report[name] for upload in uploads if name in upload.report]
    return float(torch.cat(reported).mean()) if reported else math.nan
