"""What agents and server tell each other in a round, and what it costs as the paper counts it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fnbandit.config import Config


@dataclass(frozen=True)
class Upload:
    """What n agents send (Alg. 1, line 16); k observations each since the last round.

    Full matrices travel as what made them: W_new = G^T G for the features G of the chosen contexts, which
    W_new of a few rows gives away, too, and V_local^-1 has shrunk by local^T local. Diagonal ones travel as they are.
    """

    covariance: Tensor | None
    """W_new: chosen contexts [n, k, dim], or the diagonal [n, p]; None, as B_new, where nothing depends on it"""
    moments: Tensor | None
    """B_new [n, p]"""
    measure: Tensor
    """(t - t_last) * log det ratio, what the trigger compares with D, [n]"""
    parameters: Tensor | None
    """theta_i [n, p]"""
    weight: Tensor | None
    """alpha_i [n]"""
    local: Tensor | None
    """V_local^-1: what it lost, as rows [n, k, p], or its diagonal [n, p]"""
    loss: Tensor | None
    """Mean squared error of the training, [n] (for the record; not part of the algorithm)"""


@dataclass(frozen=True)
class Broadcast:
    """What the server sends to every agent (Alg. 2, line 6), as the change since the last round."""

    iteration: int
    covariance: Tensor | None
    """sum of W_new: contexts [N, k, dim] of all agents, or diagonals [N, p]; None, as B_sync, where nobody sent it"""
    moments: Tensor | None
    """B_sync [p]"""
    parameters: Tensor | None
    """theta_sync,NN [p]"""
    weight: Tensor | float
    """alpha; where it is computed, a number on the agents' device"""
    local: Tensor | None
    """What every agent uploaded as `local`, in agent order: [N, k, p], or [N, p]"""


@dataclass(frozen=True)
class Cost:
    """What one round sends, from all agents (up) and to all agents (down)."""

    messages_up: int
    messages_down: int
    numbers_up: int
    numbers_down: int
    bytes_up: int
    bytes_down: int


def round_cost(config: Config, parameters: int, signals: int) -> Cost:
    """The cost of a round as Algs. 1 and 2 send it, whatever travels in this implementation (Sec. 3.4).

    A matrix counts p0 numbers if it is diagonal, p0^2 if it is full. Up, every agent sends
    W_new, B_new, theta_i, alpha_i and V_local^-1; down, every agent hears W_sync, B_sync,
    theta_sync, alpha and N inverses (FN-UCB) or one (Less Comm.). Without UCB^b it is W and B only.
    A trigger's round starts with `signals` signals up and one to every agent; they carry no number.
    """
    matrix = parameters if config.diagonal else parameters * parameters
    real = torch.empty((), dtype=getattr(torch, config.statistics_dtype)).itemsize
    network = torch.empty((), dtype=getattr(torch, config.network_dtype)).itemsize
    inverses = config.agents if config.algorithm == "fn-ucb" else 1
    statistics_up = statistics_down = matrix + parameters
    networks = 0
    if config.networked:
        statistics_up += matrix + 1
        statistics_down += inverses * matrix + 1
        networks = parameters
    n = config.agents
    signalled = config.trigger in ("logdet", "diagonal")
    return Cost(
        messages_up=n + (signals if signalled else 0),
        messages_down=n * (2 if signalled else 1),
        numbers_up=n * (statistics_up + networks),
        numbers_down=n * (statistics_down + networks),
        bytes_up=n * (statistics_up * real + networks * network),
        bytes_down=n * (statistics_down * real + networks * network),
    )
