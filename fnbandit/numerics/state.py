"""States as dictionaries of tensors: joined over batches, split among them, moved between processes and files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from fnbandit.numerics.device import read_values

State = dict[str, Tensor]


def add_prefix(name: str, state: State) -> State:
    """Return a part's state with its name before every key: "rows" becomes "name.rows"."""
    return {f"{name}.{key}": tensor for key, tensor in state.items()}


def remove_prefix(name: str, state: State) -> State:
    """Return the tensors of one part. Inverse of `add_prefix`."""
    return {key.removeprefix(f"{name}."): tensor for key, tensor in state.items() if key.startswith(f"{name}.")}


OF_ONE = ("agent.", "replica.")
"""Prefixes of tensors that belong to one agent, by number, or to the replica; others have agents first"""


def join_states(states: list[State]) -> State:
    """Join the states of batches, in agent order."""
    names = {name: None for state in states for name in state}
    return {
        name: next(state[name] for state in states if name in state)
        if name.startswith(OF_ONE)
        else torch.cat([state[name] for state in states])
        for name in names
    }


def split_state(state: State, agents: range) -> State:
    """Return the part of a joined state that belongs to some agents; the replica's tensors stay whole."""
    others = {name for name in state if name.startswith("agent.") and int(name.split(".")[1]) not in agents}
    return {
        name: tensor if name.startswith(OF_ONE) else tensor[agents.start : agents.stop]
        for name, tensor in state.items()
        if name not in others
    }


@contextmanager
def loading() -> Iterator[None]:
    """Turn any mismatch while a state is loaded into a one-line ValueError."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        reason = (str(error).splitlines() or [""])[0]
        raise ValueError(f"the checkpoint does not fit its config ({type(error).__name__}: {reason})") from None


def on_host(state: State) -> State:
    """Return a separate copy of every tensor in host memory: safetensors refuses tensors that share memory."""
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in state.items()}


def as_arrays(state: State) -> dict[str, np.ndarray]:
    """Return tensors as numpy arrays, which processes share without a copy."""
    return {name: read_values(tensor) for name, tensor in state.items()}


def as_tensors(arrays: dict[str, np.ndarray]) -> State:
    """Return arrays as tensors, copied, because arrays from another process are read-only. Inverse of `as_arrays`."""
    return {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
