"""Two histories through the whole stack, with the same transcript: the server's answers to the first one.

Differential privacy of an adaptive protocol is about the messages of neighbours that have received the same answers.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import torch

from fnbandit import Config
from fnbandit.algorithms.base import Scored
from fnbandit.core import NEVER, Download, Round, Upload
from fnbandit.environments import make_environment
from fnbandit.environments.base import Block
from fnbandit.federation.server import BarrierServer
from fnbandit.numerics.randomness import BLOCK
from fnbandit.simulation.clock import make_clock
from fnbandit.simulation.population import make_batch

LOUD = 1e3
"""Factor of contexts and rewards of what is replaced: clipping must bound them"""


class Replaced:
    """An environment in which some iterations of one agent are others, with large contexts and rewards."""

    def __init__(self, inside: Any, agent: int, iterations: range, factor: float = LOUD) -> None:
        self._inside, self._agent, self._iterations, self._factor = inside, agent, iterations, factor
        self.arms, self.dim = inside.arms, inside.dim

    def block(self, agent: int, index: int) -> Block:
        block = self._inside.block(agent, index)
        here = [t - 1 - index * BLOCK for t in self._iterations if (t - 1) // BLOCK == index]
        if agent != self._agent or not here:
            return block
        contexts, means, noise = block.contexts.copy(), block.means.copy(), block.noise.copy()
        contexts[here] *= -self._factor
        means[here] = self._factor * (1 + np.arange(self.arms))
        return Block(contexts, means, noise)

    def domain(self, count: int) -> np.ndarray:
        return self._inside.domain(count)


@dataclass
class Transcript:
    """Everything that leaves the agents, and everything that they receive."""

    uploads: list[Upload] = field(default_factory=list)
    """Of all agents, before sums over them"""
    totals: list[dict[str, Any]] = field(default_factory=list)
    """Sums as the server receives them"""
    records: list[Round] = field(default_factory=list)
    downloads: list[Download] = field(default_factory=list)
    arms: torch.Tensor | None = None


def run(config: Config, environment: Any = None, given: Transcript | None = None, arms: bool = False) -> Transcript:
    """The transcript of a run; with a `given` one agents receive its downloads, and with `arms` pull its arms."""
    environment = environment or make_environment(config)
    batch = make_batch(config, environment, make_clock(config), range(config.agents))
    replica, group = batch.replica, batch.group
    server = BarrierServer(config, make_batch(config, environment, make_clock(config), range(config.agents)).replica)
    found = Transcript()
    receive = server.replica.chain.receive

    def listen(totals: dict[str, Any], upload: Upload) -> dict[str, Any]:
        found.totals.append(receive(totals, upload))
        return found.totals[-1]

    server.replica.chain.receive = listen
    if arms:
        scores = group.scores

        def pull(iteration: int, contexts: torch.Tensor) -> Scored:
            scored = scores(iteration, contexts)
            forced = torch.nn.functional.one_hot(given.arms[:, iteration - 1], contexts.shape[1])
            return scored._replace(values=forced.to(scored.values))

        group.scores = pull
    start, answers = 0, iter(given.downloads if given else [])

    def answer(upload: Upload) -> Download:
        found.uploads.append(copy(upload))
        own = server.exchange([replica.reduce(copy(upload))])
        return next(answers) if given else own

    def deliver(download: Download) -> None:
        found.downloads.append(download)
        for one in (replica, server.replica):
            one.apply([download], own=range(config.agents))
        batch.receive([download])

    while start < config.horizon:
        advance = batch.advance(start, config.horizon)
        if advance.bound == NEVER:
            break
        start = int(advance.bound[0])
        group.rewind(start)
        group.train()
        sent = [group.upload()]
        download = answer(sent[0])
        while not download.is_last:
            deliver(download)
            sent.append(group.exchange(download))
            download = answer(sent[-1])
        found.records.append(server.record([[replica.reduce(copy(one))] for one in sent], download))
        deliver(download)
    found.arms = group.arms.clone()
    return found


def copy(upload: Upload) -> Upload:
    """A copy whose tensors nobody overwrites."""
    changed = {
        one.name: value.clone()
        for one in fields(upload)
        if isinstance(value := getattr(upload, one.name), torch.Tensor)
    }
    return replace(upload, **changed)
