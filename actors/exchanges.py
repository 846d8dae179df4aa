"""Asynchronous runs on Ray: hosts of agents in actors, and what travels between them and the server.

One call per actor carries all answers since the last one and what is new in the server's statistics, written once for
all actors of a node, and brings back whatever uploads of its agents are certain. Every actor makes the versions that
its agents hold from the same rows, and so to the same bits.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch

from actors.messages import Arrays, Order, packed, unpacked
from fnbandit.algorithms.base import Trace
from fnbandit.clock import make_clock
from fnbandit.environments import Environment
from fnbandit.hosts import Ahead, Answer, Event, Host
from fnbandit.registry import find
from fnbandit.rounds.exchange import AgentUpload, Download, Statistics
from fnbandit.state import State, as_arrays, as_tensors

News = dict[str, Any]
"""New rows of both logs, and the server's answers"""


class Calls(Protocol):
    """Actors that are called together."""

    def call(self, method: str, *args: Any) -> list[Any]: ...


class RayHosts:
    """All agents, in actors."""

    def __init__(self, actors: Calls, statistics: Statistics) -> None:
        self._actors, self._statistics = actors, statistics
        self._sent = self._latest()

    def _latest(self) -> tuple[int, int]:
        inverses = self._statistics.inverses
        return self._statistics.covariance.latest, inverses.latest if inverses else 0

    def _news(self, answers: list[Answer]) -> News:
        (rows, inverses), latest = self._sent, self._latest()
        logs, self._sent = self._statistics, latest
        news = {
            "rows": logs.covariance.between(rows, latest[0]).numpy(),
            "inverses": logs.inverses.between(inverses, latest[1]).numpy() if logs.inverses else None,
            "answers": [(answer.time, packed(answer.download)) for answer in answers],
        }
        # The server works with the latest version only.
        logs.keep(np.array([latest[0]]), np.array([latest[1]]))
        return news

    def advance(self, answers: list[Answer]) -> list[Ahead]:
        return [ahead_of(answer) for answer in self._actors.call("ahead", self._news(answers))]

    def states(self, answers: list[Answer]) -> State:
        parts = self._actors.call("host_state", self._news(answers))
        return {name: tensor for part in parts for name, tensor in as_tensors(part).items()}


def make_host(order: Order, environment: Environment, agents: range, state: Arrays | None) -> Host:
    """The host of an actor's agents, from a checkpoint's state where there is one."""
    config = order.config
    host = Host(config, make_clock(config), find("algorithm", config.algorithm)(config, environment, agents))
    if state is not None:
        host.load(order.iteration, as_tensors(state))
    return host


def hear(host: Host, news: News) -> None:
    """Take in what the server tells."""
    group = host.group
    logs = group.statistics
    logs.covariance.append(_tensor(news["rows"], group.like))
    if logs.inverses is not None:
        logs.inverses.append(_tensor(news["inverses"], group.like))
    own = [(time, answer) for time, answer in news["answers"] if answer["agent"] in group.agents]
    host.hear([Answer(time, unpacked(Download, answer, group.device)) for time, answer in own])
    logs.keep(group.versions, group.inverse_versions)


def _tensor(rows: np.ndarray, like: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(rows.copy()).to(like)


def ahead_packed(ahead: Ahead) -> dict[str, Any]:
    """How far a host has come, as arrays."""
    events = [vars(event) | {"upload": packed(event.upload)} for event in ahead.events]
    return {"events": events, "bound": ahead.bound, "trace": vars(ahead.trace)}


def ahead_of(message: dict[str, Any]) -> Ahead:
    """The way back."""
    events = [Event(**event | {"upload": unpacked(AgentUpload, event["upload"])}) for event in message["events"]]
    return Ahead(events, tuple(message["bound"]), Trace(**message["trace"]))


def part_of_hosts(state: State, agents: range) -> Arrays:
    """The states of some agents, and all versions that any agent holds."""
    wanted = {"statistics", *map(str, agents)}
    return as_arrays({name: tensor for name, tensor in state.items() if name.partition(".")[0] in wanted})
