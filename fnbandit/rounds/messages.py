"""What agents and server tell each other in a round, and what it costs as the paper counts it."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

Values = Tensor | list[Tensor]
"""A quantity of n agents, [n, ..]; or what stands for it in a sum over all N of them, see `tree.Sum.parts`"""


@dataclass(frozen=True)
class Upload:
    """What n agents send (Alg. 1, line 16); k observations each since the last round.

    Full matrices travel as what made them: W_new = G^T G for the features G of the chosen contexts, which a
    W_new of a few rows gives away, too, and V_local^-1 has shrunk by change^T change. Diagonal ones travel as they are.
    """

    measure: Tensor
    """What the trigger compares with its level, [n]"""
    news: Values | None
    """W_new: chosen contexts [n, k, dim] or rows [n, k, p], or the diagonal [n, p]; None where nothing depends on it"""
    moments: Values | None
    """B_new [n, p]; None as `news`"""
    theta: Values | None = None
    """theta_i [n, p]"""
    weight: Tensor | None = None
    """alpha_i [n], or [n, r] where it is made of several numbers"""
    change: Values | None = None
    """V_local^-1: what it lost, as rows [n, k, p], or its diagonal [n, p]"""
    trained: bool = False
    """Whether theta_i has been trained for this round"""
    report: dict[str, Tensor] = field(default_factory=dict)
    """Quantities of this round, [n] each, for the record (see `records.QUANTITIES`)"""


@dataclass(frozen=True)
class Broadcast:
    """What the server sends to every agent (Alg. 2, line 6), as the change since the last round."""

    iteration: int
    news: Tensor | None
    """The sum of W_new as `Estimate.apply` takes it; None where nobody sent it"""
    sum_of_moments: Tensor | None
    """B_sync [p]; None as `news`"""
    theta: Tensor | None
    """theta_sync,NN [p]"""
    weight: Tensor | float
    """alpha; where it is computed, a number on the agents' device"""
    inverses: Tensor | None
    """What the server made of all agents' `change`, as `LocalInverses.apply` takes it"""
    trained: bool
    """Whether agents have trained for this round"""


@dataclass(frozen=True)
class Contents:
    """What one message holds, as Algs. 1 and 2 list it."""

    covariances: int = 0
    """W_new, or W_sync"""
    inverses: int = 0
    """V_local^-1's, or their mean"""
    vectors: int = 0
    """B_new, or B_sync"""
    networks: int = 0
    """theta_i, or theta_sync,NN"""
    scalars: int = 0
    """alpha_i, or alpha"""


@dataclass(frozen=True)
class Size:
    """How large one message is."""

    numbers: int
    bytes: int


@dataclass(frozen=True)
class Cost:
    """What one round sends, from all agents (up) and to all agents (down)."""

    messages_up: int
    messages_down: int
    numbers_up: int
    numbers_down: int
    bytes_up: int
    bytes_down: int


def round_cost(agents: int, up: Size, down: Size, signals: int | None) -> Cost:
    """The cost of a round of so many agents, each sending `up` and hearing `down`.

    A round that agents ask for starts with `signals` signals up and one to every agent, which carry no
    number (Alg. 1, lines 12-13); None where the iteration of the round was known before.
    """
    return Cost(
        messages_up=agents + (signals or 0),
        messages_down=agents * (1 if signals is None else 2),
        numbers_up=agents * up.numbers,
        numbers_down=agents * down.numbers,
        bytes_up=agents * up.bytes,
        bytes_down=agents * down.bytes,
    )
