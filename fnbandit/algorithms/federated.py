"""The part of Algorithm 1 that all algorithms with rounds at a barrier share: UCB^a, the trigger, the statistics."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fnbandit.algorithms.base import Group, Scored
from fnbandit.algorithms.bounds import global_bound
from fnbandit.algorithms.traits import Traits
from fnbandit.config import Config
from fnbandit.config.registry import resolve_part
from fnbandit.core import Download, Upload
from fnbandit.covariance import Evaluation, Lift, matrices
from fnbandit.environments import Environment
from fnbandit.federation.channels import Chain
from fnbandit.federation.messages import Contents
from fnbandit.federation.replica import Replica, needs_claims
from fnbandit.numerics.device import put_values, read_values
from fnbandit.numerics.memory import Memory, precisions
from fnbandit.numerics.products import multiply
from fnbandit.numerics.state import State
from fnbandit.numerics.tree import LEAF

LOOKS_ON_ACCELERATOR = 8
"""Iterations between two tests of the trigger on an accelerator, where each test waits for the device"""


class ContextEvaluation(NamedTuple):
    """Values that agents compute for the contexts of an iteration before they choose."""

    features: Tensor
    """[n, arms, p]"""
    found: Evaluation | None
    """Mean and variance by V-bar; None where UCB^a has no effect"""
    prediction: Tensor | None = None
    """Predictions of the network, [n, arms]; None where they are not needed"""


class FederatedGroup(Group):
    """n agents that run UCB^a on shared features and communicate: advance, rewind, upload, start the next epoch.

    Inside an epoch agents change only their own rows, so that they can run ahead of other groups and go back.
    A subclass may choose other features (`make_lift`, `parameter_count`) and other scores; triggers, participation,
    messages and diagonal matrices then work as they do for FN-UCB (`workflows/examples/own_federated.py`).
    """

    traits = Traits(schedule="barrier", releases=("statistics",))

    def __init__(self, config: Config, environment: Environment, agents: range, replica: Replica | None = None) -> None:
        super().__init__(config, environment, agents, replica)
        made = self.replica = replica or self.make_replica(config, environment, self.like)
        network = None if made.network is None else made.network.parameter_count
        self.chain = Chain(config, made.parameters, made.lift, network)
        self._global_scale = config.number("exploration_global") * config.number("regularization") ** 0.5
        self.epoch = self.replica.estimate.epoch(len(agents))
        self._looks = 1 if self.device.type == "cpu" else LOOKS_ON_ACCELERATOR

    @classmethod
    def make_lift(cls, config: Config, environment: Environment, like: Tensor) -> Lift:
        """Return the function from contexts [n, k, dim] to features [n, k, p]; the same one in every process.

        It returns rows that are features already unchanged. Its bits must not depend on n: see `multiply_rows`.
        """
        return lambda contexts: contexts

    @classmethod
    def make_replica(cls, config: Config, environment: Environment, like: Tensor) -> Replica:
        """Make the statistics of a process; messages both ways hold W and B."""
        both_ways, p = Contents(covariances=1, vectors=1), cls.parameter_count(config, environment)
        return Replica(config, cls.make_lift(config, environment, like), p, like, both_ways, both_ways)

    @classmethod
    def memory(cls, config: Config, environment: Environment) -> Memory:
        kind, p, real = matrices(config), cls.parameter_count(config, environment), precisions(config)[0]
        # With more agents than a leaf has, the server keeps whole matrices from the start.
        shared = kind.shared(p, config.agents * config.horizon if config.agents <= LEAF else p)
        noise = resolve_part("privacy", config.privacy).count_draws(config, p) * 8
        own = Memory(kind.epoch_numbers(p, config.horizon) * real + noise, shared * real)
        # W_i of all agents, of the present exchange, the best one before and its factors: at the server alone.
        claims = Memory(0, 4 * config.agents * kind.numbers(p) * 8 if needs_claims(config) else 0)
        return super().memory(config, environment) + own + claims

    def load(self, iteration: int, state: State) -> None:
        super().load(iteration, state)
        self.start_epoch()

    @property
    def targets(self) -> Tensor:
        """Values [n, T] that the linear estimate predicts: the rewards."""
        return self.rewards

    def needs_global(self, iteration: int) -> bool:
        """Return True where V_last and UCB^a have an effect in an iteration or after it; else they are not updated."""
        return True

    # Alg. 1, lines 4-7

    def scores(self, iteration: int, contexts: Tensor) -> Scored:
        evaluation = self.look(iteration, contexts)
        assert evaluation.found is not None
        return Scored(self.global_bound(evaluation.found), evaluation)

    def look(self, iteration: int, contexts: Tensor) -> ContextEvaluation:
        """Return features of contexts [n, arms, dim] and, where UCB^a has an effect, mean and variance by V-bar."""
        x = self.replica.lift(contexts)
        return ContextEvaluation(x, self.epoch.evaluate(x) if self.needs_global(iteration) else None)

    def global_bound(self, found: Evaluation) -> Tensor:
        """Return UCB^a [n, arms] (line 5)."""
        return global_bound(found.mean, found.variance, self._global_scale, self.replica.estimate.inflated)

    # Alg. 1, lines 8-10

    def learn(
        self, iteration: int, contexts: Tensor, arms: Tensor, rewards: Tensor, evidence: ContextEvaluation
    ) -> None:
        self.append(evidence, contexts, arms, rewards)

    def append(self, evaluation: ContextEvaluation, contexts: Tensor, arms: Tensor, targets: Tensor) -> None:
        """Add the pulled arms with their targets [n] to the epoch's rows."""
        self.epoch.append(evaluation.features, contexts, arms, targets, evaluation.found)

    # Alg. 1, lines 11-13

    def measure(self) -> Tensor:
        """Return the trigger's measure that every agent reports, [n]; NaN where V_last is no longer updated."""
        if not self.needs_global(self.iteration):
            return torch.full_like(self.rewards[:, 0], torch.nan)
        measured = self.replica.trigger.measure(self.epoch, self.replica.counters(self.iteration))
        return self.replica.report(self.agents, measured)

    def advance(self, limit: int) -> bool:
        """Run to iteration `limit`, or to the first trigger of any of these agents; return True where one fired."""
        trigger = self.replica.trigger
        known = trigger.next_round(self.replica.last_round)
        if known is not None:
            super().advance(min(limit, known))
            return self.iteration == known
        super().advance(min(limit, 0))  # decisions before the first reward
        while self.iteration < limit:
            start = self.iteration
            measures = []
            for _ in range(min(self._looks, limit - start)):
                self.step()
                measures.append(self.measure())
            fired = read_values((torch.stack(measures) > trigger.level).any(1))
            if fired.any():
                self.rewind(start + 1 + int(fired.argmax()))
                return True
        return False

    def rewind(self, iteration: int) -> None:
        """Go back to an iteration of this epoch, and undo the later ones."""
        exact = self.epoch.truncate(iteration - self.replica.last_round)
        self.iteration = iteration
        if exact:
            return
        self.epoch.start()
        for t in range(self.replica.last_round + 1, iteration + 1):
            contexts = self.past.contexts(t)
            self.append(self.look(t, contexts), contexts, self.arms[:, t - 1], self.targets[:, t - 1])

    def policy_parts(self, index: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
        solution, inverse = self.epoch.posterior(index)
        facts = {"global_scale": self._global_scale, "unit": 1.0, "rescales": self.replica.estimate.inflated}
        return facts, {"solution": solution, "inverse": inverse}

    # Alg. 1, lines 14-18

    def train(self) -> None:
        """Train networks before an upload (line 14). The base class only frees memory of the epoch for the round."""
        self.epoch.release()

    def upload(self) -> Upload:
        """Return the upload of a round's first exchange (line 16)."""
        t, last, chain = self.iteration, self.replica.last_round, self.chain
        needed, present = self.needs_global(t + 1), self.present
        moments: Tensor | None
        if chain.privacy.sends_triangles:
            update, targets = chain.clip_rows(self.epoch.update(as_features=True), self.targets[:, last:t])
            moments = multiply(targets[:, None], update)[:, 0]
        else:
            moments = self.epoch.moments(self.targets[:, last:t]) if needed else None
            update = self.epoch.update(as_features=present is not None)
        if present is not None:
            update = mask_absent(update, present)
            moments = None if moments is None else mask_absent(moments, present)
        upload = Upload(self.agents, t, last, self.measure(), update, moments)
        upload = self.complete(chain.send_statistics(upload))
        self._carry(present)
        return self.send(upload if needed else replace(upload, covariance=None))

    def send(self, upload: Upload) -> Upload:
        """Pass an upload through the chain of channels; agents that do not take part send no network."""
        upload, present = self.chain.send(upload, self.replica.theta), self.present
        if present is None or not isinstance(upload.theta, Tensor):
            return upload
        return replace(upload, theta=mask_absent(upload.theta, present))

    @property
    def present(self) -> Tensor | None:
        """1 for agents of the group that take part in the present round, else 0, [n]; None where all always do."""
        if not self.replica.participation.is_partial:
            return None
        chosen = self.replica.participants(self.iteration)[self.agents.start : self.agents.stop]
        return put_values(chosen, self.device, self.dtype)

    def _carry(self, present: Tensor | None) -> None:
        """Let absent agents keep their rows for the next epoch."""
        if present is None:
            return
        t, replica = self.iteration, self.replica
        since = replica.since.copy()
        since[replica.participants(t)] = t
        slots = t - int(since.min())
        self.epoch.carry(1 - present, slots, self.targets[:, t - slots : t])

    def complete(self, upload: Upload) -> Upload:
        """Return the upload with the algorithm's further fields; W_new and B_new have passed the channels."""
        return upload

    def exchange(self, download: Download) -> Upload:
        """Answer a download that does not end its round; the replica has already applied it."""
        raise NotImplementedError

    def list_state(self) -> dict[str, int | None]:
        names = super().list_state() | {"chain": None}
        return names | {"epoch": None} if self.replica.participation.is_partial else names

    def start_epoch(self) -> None:
        """Start an epoch with the replica's statistics (line 18)."""
        self.epoch.start()


def mask_absent(values: Tensor, present: Tensor) -> Tensor:
    """Return values [n, ..] with zeros for agents that do not take part: `present` [n] is 0."""
    return values * present.view(-1, *[1] * (values.ndim - 1)).to(values)
