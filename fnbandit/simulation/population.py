"""Agents in lock-step as a batch, and the population of all batches in this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fnbandit.algorithms.base import Group
from fnbandit.algorithms.federated import FederatedGroup
from fnbandit.config import Config
from fnbandit.config.registry import build, resolve_part
from fnbandit.core import NEVER, Advance, Batch, Download, Upload
from fnbandit.environments import Environment
from fnbandit.numerics.state import State, join_states, split_state
from fnbandit.simulation.clock import Clock
from fnbandit.simulation.events import EventBatch
from fnbandit.simulation.partition import split_evenly


class LockstepBatch:
    """Agents of one group, all in the same iteration, which communicate at a barrier or not at all.

    Iterations outside of the group count decisions, inside of it rewards learned, which are `delay` behind.
    """

    def __init__(self, group: Group) -> None:
        self.group, self.agents, self.replica = group, group.agents, group.replica

    def receive(self, downloads: Sequence[Download]) -> None:
        if any(download.is_last for download in downloads):
            self._federated.start_epoch()

    def advance(self, start: int, limit: int) -> Advance:
        """Run to `limit` or to the first trigger."""
        group = self.group
        fired, end = group.advance(limit - group.delay), group.iteration + group.delay
        if not fired:
            return Advance(NEVER, self.group.trace(start, end))
        is_certain = self.replica.trigger.next_round(self.replica.last_round) == group.iteration
        return Advance((end, self.agents.start), is_certain=is_certain)

    def settle(self, start: int, iteration: int) -> Advance:
        """Go back to the iteration of a round, train, and upload partial sums (Alg. 1, lines 14-16)."""
        group = self._federated
        group.rewind(iteration - group.delay)
        group.train()
        upload = group.replica.reduce(group.upload())
        return Advance((iteration, self.agents.start), group.trace(start, iteration), upload)

    def exchange(self, download: Download) -> Upload:
        return self._federated.replica.reduce(self._federated.exchange(download))

    def state(self) -> State:
        return self.group.state()

    def load(self, iteration: int, state: State) -> None:
        self.group.load(iteration - self.group.delay, state)

    @property
    def _federated(self) -> FederatedGroup:
        assert isinstance(self.group, FederatedGroup)
        return self.group


def make_batch(config: Config, environment: Environment, clock: Clock, agents: range, replica: Any = None) -> Any:
    """Make a batch of the algorithm that a config names; batches of one process share one replica."""
    group = build("algorithm", config.algorithm, config, environment, agents, replica)
    if group.traits.is_asynchronous:
        return EventBatch(config, clock, group)
    group.list_state()  # a user's own must name attributes, and should fail now if it does not
    return LockstepBatch(group)


class LocalPopulation:
    """Batches of this process, which share one replica with the server."""

    def __init__(self, config: Config, environment: Environment, clock: Clock, batches: int = 1) -> None:
        kind = resolve_part("algorithm", config.algorithm)
        parts = split_evenly(config.agents, 1 if kind.traits.runs_in_one_group else batches)
        first = make_batch(config, environment, clock, parts[0])
        self.replica = first.replica
        self.batches: list[Any] = [
            first,
            *(make_batch(config, environment, clock, part, self.replica) for part in parts[1:]),
        ]
        self._everyone = range(config.agents)

    def policy_parts(self, agent: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the facts and tensors of an agent's policy, as the agent is now."""
        batch = next(batch for batch in self.batches if agent in batch.agents)
        return batch.group.policy_parts(agent - batch.agents.start)

    def receive(self, downloads: Sequence[Download]) -> None:
        """Deliver downloads to the replica and to the agents."""
        if self.replica is None:
            return
        self.replica.apply(downloads, own=self._everyone)
        deliver(self.replica, self.batches, downloads)

    def advance(self, downloads: Sequence[Download], start: int, limit: int) -> list[Advance]:
        self.receive(downloads)
        advances: list[Advance] = []
        for batch in self.batches:
            # A later batch in lock-step need not run past the trigger of an earlier one.
            advances.append(batch.advance(start, limit))
            limit = int(min(limit, advances[-1].bound[0]))
        return advances

    def settle(self, start: int, iteration: int) -> list[Advance]:
        return [batch.settle(start, iteration) for batch in self.batches]

    def exchange(self, download: Download) -> list[Upload]:
        self.receive([download])
        return [batch.exchange(download) for batch in self.batches]

    def state(self, downloads: Sequence[Download]) -> State:
        self.receive(downloads)
        return join_states([batch.state() for batch in self.batches])

    def load(self, iteration: int, state: State) -> None:
        """Continue from a `state` at an iteration; the server has already loaded the replica."""
        for batch in self.batches:
            batch.load(iteration, split_state(state, batch.agents))


def deliver(replica: Any, batches: Sequence[Batch], downloads: Sequence[Download]) -> None:
    """Deliver downloads, which the replica has already applied, to the agents of some batches."""
    for batch in batches:
        own = [
            one for one in downloads if one.agents.start < batch.agents.stop and one.agents.stop > batch.agents.start
        ]
        batch.receive(own)
    replica.retain(batches)
