"""States as dictionaries of tensors: joined over groups, split among them, moved between processes and files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

State = dict[str, Tensor]


def prefixed(name: str, state: State) -> State:
    """A part's state among others': "rows" as "name.rows"."""
    return {f"{name}.{key}": tensor for key, tensor in state.items()}


def unprefixed(name: str, state: State) -> State:
    """The way back: what belongs to the part."""
    return {key.removeprefix(f"{name}."): tensor for key, tensor in state.items() if key.startswith(f"{name}.")}


def joined_states(states: list[State]) -> State:
    """States of groups as one, in agent order."""
    return {name: torch.cat([state[name] for state in states]) for name in states[0]}


def part_of_state(state: State, agents: range, total: int) -> State:
    """The part of a joined state that belongs to some agents; what one learner holds for all stays whole."""
    return {
        name: tensor[agents.start : agents.stop] if len(tensor) == total else tensor for name, tensor in state.items()
    }


@contextmanager
def loading() -> Iterator[None]:
    """Whatever does not fit when a state is taken over is one line."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        reason = (str(error).splitlines() or [""])[0]
        raise ValueError(f"the checkpoint does not fit its config ({type(error).__name__}: {reason})") from None


def on_host(state: State) -> State:
    """Copies in the host's memory, each its own: safetensors refuses tensors that share memory."""
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in state.items()}


def as_arrays(state: State) -> dict[str, np.ndarray]:
    """Tensors as numpy arrays, which travel between processes without a copy."""
    return {name: tensor.detach().cpu().numpy() for name, tensor in state.items()}


def as_tensors(arrays: dict[str, np.ndarray]) -> State:
    """The way back; copied, because what has travelled is read-only."""
    return {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
