"""Events of a run that the server actor sends to the driver."""

from __future__ import annotations

import traceback
from dataclasses import dataclass

import numpy as np

from fnbandit.core import Segment
from fnbandit.errors import PACKAGES, describe_user_error


@dataclass(frozen=True)
class Started:
    """All actors have started: the agents' device, the process ids of the server actor and of the agent actors."""

    device: str
    server: int
    agents: list[int]


@dataclass(frozen=True)
class CheckpointReady:
    """The states of the agents and of the server at an iteration."""

    iteration: int
    agents: dict[str, np.ndarray]
    server: dict[str, np.ndarray]


@dataclass(frozen=True)
class Finished:
    """The horizon is reached; `calls` is the number of calls to agent actors."""

    calls: int


@dataclass(frozen=True)
class Failed:
    """An exception inside an actor, with its traceback."""

    message: str
    text: str
    is_plain: bool
    """True where the message suffices: a ValueError that this project raised, not a user's function"""


@dataclass(frozen=True)
class Died:
    """A lost actor, and Ray's message."""

    who: str
    text: str


@dataclass(frozen=True)
class Stuck:
    """An actor that did not answer within `seconds`."""

    who: str
    seconds: float


ServerEvent = Started | list[Segment] | CheckpointReady | Finished | Failed | Died | Stuck


class ActorFailure(Exception):  # noqa: N818
    """Carries a Failed, Died or Stuck out of the loop."""

    def __init__(self, event: Failed | Died | Stuck) -> None:
        super().__init__(event)
        self.event = event


def describe_exception(error: BaseException) -> Failed:
    """Return the exception with the traceback below the frame that caught it, or from a user's own part on."""
    below = error.__traceback__.tb_next if error.__traceback__ else None
    frames = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(below)]
    is_plain = isinstance(error, ValueError) and bool(frames) and frames[-1].split(".")[0] in PACKAGES
    text = describe_user_error(error)
    if text is None:
        lines = "".join(traceback.format_exception(type(error), error, below))
        text = f"{type(error).__name__}: {error}\n\n{lines}"
    return Failed(message=str(error), text=text, is_plain=is_plain)
