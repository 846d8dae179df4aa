"""The vocabulary and the contracts of the simulator. Read this file first.

N agents each face a contextual bandit. They share statistics and networks with a server, never raw observations.

    agent        one bandit player with its own stream of contexts; numbered 0 to N - 1
    iteration    every agent receives its contexts, pulls one arm and observes its reward; numbered 1 to T
    delay        iterations between a decision and the reward from it; an algorithm then counts the rewards observed
    regret       h(best arm) - h(pulled arm), without noise
    round        agents upload, the server answers; it consists of one or more exchanges
    exchange     every participant sends one Upload, the server answers with a Download
    participants the agents that upload in a round; all agents receive its Download
    epoch        the iterations between two rounds
    trigger      decides after which iteration a round takes place; D is its threshold
    schedule     decides which agents upload when: all at a barrier (`Barrier`), or each agent alone (`FirstCome`)
    W, B         sums of g g^T and of reward times g over observations; g is the feature row of a context
    V            lambda I + W; V_last is the shared one, V_local an agent's own, V-bar the shared one plus own rows
    theta        parameters of a network; theta_0 the initial ones, theta_i an agent's, theta_sync the average
    UCB^a        upper confidence bound of the linear model on V-bar
    UCB^b        upper confidence bound of the averaged network
    federation   decides how a round trains the network: by averaging networks, or one network by sums over agents
    sample       the observations that agents evaluate in the exchanges of one round
    alpha        weight of UCB^b against UCB^a
    replica      the statistics that every process holds of V_last, B, theta_sync, alpha
    channel      one link of the chain that a message passes: it may factor, round, clip or perturb it
    attacker     an agent that lies in its messages, one of the last floor(byzantine_share N); regret leaves it out
    claims       values of an exchange agent by agent, where sums over agents are not enough
    population   all agents of a simulation, in this process or in actors
    batch        agents of one process, computed together
    segment      finished iterations of all agents with their rounds, as they reach the observers

The loop, in words: agents advance to their first upload; the schedule admits uploads, and sends agents that ran
past a barrier back to it; the server aggregates each round's uploads, exchange by exchange; its downloads start
the next epoch. `fnbandit.simulation.loop` is that loop in code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

    from fnbandit.config import Config

    State = dict[str, Tensor]
    Values = Tensor | list[Tensor]
    """A quantity of n agents, [n, ..], or the partial sums that replace it, see `TreeSum.reduce`"""

# Records


@dataclass(frozen=True)
class Trace:
    """Consecutive iterations of some agents, each field [iterations, agents]; observers see those that do not lie."""

    arms: np.ndarray
    rewards: np.ndarray
    regret: np.ndarray
    alpha: np.ndarray
    """[iterations]; [iterations, agents] inside a batch whose agents each have their own"""
    time: np.ndarray | None = None
    """Simulated seconds at the end of every iteration, with a clock"""

    def part(self, start: int, end: int | None) -> Trace:
        """Return some of the iterations."""
        cut: dict[str, Any] = {k: None if v is None else v[start:end] for k, v in vars(self).items()}
        return Trace(**cut)

    def of_first(self, count: int) -> Trace:
        """Return the iterations of the first agents; all attackers come after the honest ones."""
        if count == self.arms.shape[1]:
            return self
        cut = {name: v if v is None or v.ndim == 1 else v[:, :count] for name, v in vars(self).items()}
        return Trace(**cut)


@dataclass(frozen=True)
class Cost:
    """Messages, numbers and bytes of a round, from agents to the server (up) and back (down)."""

    messages_up: int
    messages_down: int
    numbers_up: int
    numbers_down: int
    bytes_up: int
    bytes_down: int

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))


@dataclass(frozen=True)
class Times:
    """Simulated time of a round, and the seconds that agents spent since their last one; means over the agents."""

    time: float
    """Seconds from the start of the simulation to the server's answer"""
    computing: float
    """Seconds of iterations and training"""
    waiting: float
    """Seconds spent waiting for other agents"""
    sending: float
    """Seconds of messages, both ways"""
    away: float
    """Seconds in which agents were not available"""


@dataclass(frozen=True)
class Round:
    """The record of one round: of all participants at a barrier, or of one agent that does not wait for others."""

    iteration: int
    """The iteration after which it took place"""
    length: int
    """Iterations of the epoch that it ended"""
    triggered: tuple[int, ...]
    """Agents that asked for it; all of them where its iteration was known before"""
    measure: float
    """The largest value that the trigger measured"""
    level: float
    """The value that the trigger compared it with (D); NaN where it compared nothing"""
    cost: Cost
    quantities: dict[str, float]
    """Means over the participants of the quantities that they reported; NaN where none did"""
    participants: int = 1
    """Number of agents that uploaded"""
    exchanges: int = 1
    """Number of exchanges that it consisted of"""
    costs: tuple[tuple[int, Cost], ...] = ()
    """Where there are several exchanges: consecutive ones of equal cost, as their number and the cost of each"""
    times: Times | None = None
    """With a clock"""
    staleness: int | None = None
    """Of one agent's round: rounds of other agents since its last one"""
    dropped: tuple[int, ...] | None = None
    """Agents whose statistics the server leaves out; None where it checks nobody"""

    @property
    def agent(self) -> int | None:
        """The agent of a one-agent round; None for a round at a barrier."""
        return None if self.staleness is None else self.triggered[0]


@dataclass(frozen=True)
class Segment:
    """Finished iterations start + 1 to end of all agents, with the rounds that came with them."""

    start: int
    end: int
    trace: Trace
    rounds: tuple[Round, ...]
    seconds: float
    theta: np.ndarray | None = None
    """theta_sync, with the last segment of a simulation"""
    before: int = 0
    """Number of rounds before the first one of `rounds`"""
    is_boundary: bool = True
    """True where the state of the simulation can be saved after it"""

    def after(self, iteration: int) -> Segment:
        """Return the part that lies after an iteration."""
        skip = max(0, iteration - self.start)
        return replace(self, start=self.start + skip, trace=self.trace.part(skip, None))


# Messages

Content = Literal["network", "gradient", "curvature", "statistics"]
"""Content of the uploads of an exchange after the first of its round, all of the theta that the agents received:

network      theta_i, trained from theta on the agent's own history
gradient     sum over the sample of (y - f(x; theta)) g(x; theta), and the sum of squared errors
curvature    the same, and the sum of g(x; theta) g(x; theta)^T
statistics   W and B of the sample on the features of theta
"""


@dataclass(frozen=True)
class Upload:
    """One message of each of n agents to the server (Alg. 1, line 16).

    A full matrix travels as the rows that made it: W_new = G^T G as G, and V_local^-1 as the downdate rows Z with
    V_local^-1 <- V_local^-1 - Z^T Z. A diagonal one travels as it is. Fields that an exchange does not send are None.
    """

    agents: range
    iteration: int
    since: int
    """Iteration of the round before; the upload covers the iterations after it"""
    measure: Tensor
    """The value that the trigger compares with its level, [n]"""
    covariance: Values | None = None
    """W_new: contexts [n, k, dim] or rows [n, k, p], or its diagonal [n, p]"""
    moments: Values | None = None
    """B_new [n, p]"""
    theta: Values | None = None
    """theta_i [n, p]"""
    alpha: Tensor | None = None
    """alpha_i [n], or [n, r] where it consists of r numbers"""
    inverse: Values | None = None
    """V_local^-1: its downdate rows [n, k, p], or the change of its diagonal [n, p]"""
    squares: Values | None = None
    """Sum of squares, [n, 1]: of all rewards in the first exchange, of the errors of theta on the sample later"""
    trained: bool = False
    """True where theta_i has been trained for this exchange"""
    report: dict[str, Tensor] = field(default_factory=dict)
    """Quantities for the record, [n] each (see `quantities.QUANTITIES`)"""
    content: Content | None = None
    """Content of the upload; None in the first exchange of a round"""
    exchange: int = 0
    """Number of the exchange inside its round"""


@dataclass(frozen=True)
class Rows:
    """A change of a full matrix by G^T G, as the rows G of all agents."""

    values: Tensor
    """[N, k, ..] or [N k, ..]: features, or contexts whose features are the rows"""


@dataclass(frozen=True)
class Triangle:
    """A symmetric full matrix, as its upper triangle, row by row."""

    values: Tensor
    """[p (p + 1) / 2]"""


@dataclass(frozen=True)
class StatisticsUpdate:
    """The change of the global statistics in a round at a barrier, for every replica to apply."""

    covariance: Rows | Triangle | Tensor
    """W_new as rows, or V itself as a triangle; with diagonal matrices the sum of W_new, [p]"""
    sum_of_moments: Tensor
    """B [p]"""
    is_new: bool = False
    """True where both replace the statistics, because features have changed; `covariance` is then all of W"""


@dataclass(frozen=True)
class StatisticsVersion:
    """The version of the global statistics that one agent downloads; replicas hold the matrices of every version."""

    covariance: int
    """Version of V"""
    solution: Tensor
    """V^-1 B [p]"""
    inverses: int = 0
    """Version of the sum of downdates of local inverses"""
    uploaders: int = 0
    """Number of agents that have uploaded so far: those in the averages"""


@dataclass(frozen=True)
class Download:
    """The server's answer in one exchange (Alg. 2, line 6): to all agents, or to one."""

    agents: range
    iteration: int
    statistics: StatisticsUpdate | StatisticsVersion | None
    """None where the exchange does not change them"""
    theta: Tensor | None = None
    """theta_sync [p]"""
    alpha: Tensor | float = 0.0
    """alpha; where it is computed, a number on the agents' device"""
    inverses: Rows | Triangle | Tensor | None = None
    """The change of the local inverses, in the form that `LocalInverses.apply` takes"""
    unit: Tensor | None = None
    """Unit of the rewards that theta predicts from now on; None where it does not change"""
    trained: bool = False
    """True where agents have trained for this round"""
    is_last: bool = True
    """True where the round ends with it; otherwise agents answer with another Upload"""
    asks: Content = "network"
    """Content of that upload"""
    exchange: int = 0
    """Number of the exchange inside its round"""
    time: float = 0.0
    """Simulated seconds at which it arrives at a single agent"""
    ignored: Tensor | None = None
    """True for agents whose triggers the server ignores from now on, [N]; None where that does not change"""


ArrivalTime = tuple[float, int]
"""Simulated seconds (at a barrier: the iteration) and an agent: uploads are ordered by it"""
NEVER: ArrivalTime = (float("inf"), 0)


@dataclass(frozen=True, order=True)
class Arrival:
    """An agent's upload on its arrival at the server."""

    time: float
    agent: int
    computing: float = field(compare=False)
    """Seconds of the agent's iterations since its last round, and of training"""
    away: float = field(compare=False)
    sending: float = field(compare=False)
    """Seconds of the upload"""
    upload: Upload = field(compare=False)

    @property
    def key(self) -> ArrivalTime:
        """Position in the server's order."""
        return self.time, self.agent


@dataclass(frozen=True)
class Advance:
    """Progress of a batch of agents."""

    bound: ArrivalTime
    """No later upload of these agents arrives before it; at a barrier: the iteration of their first trigger"""
    trace: Trace | None = None
    """Iterations that all agents of the batch have finished since the last Advance; None while they may go back"""
    upload: Upload | None = None
    """At a barrier: the upload of the whole batch"""
    is_certain: bool = False
    """True where all agents trigger in the iteration of `bound`: a batch that is alone in its process may upload"""
    arrivals: tuple[Arrival, ...] = ()
    """Without a barrier: single agents' uploads, which no other upload of the batch can precede"""


# Contracts


class Batch(Protocol):
    """Agents of one process, computed together; in lock-step, or each in its own iteration."""

    agents: range

    def receive(self, downloads: Sequence[Download]) -> None:
        """Start the next epoch of the addressed agents. The replica has applied the downloads before."""
        ...

    def advance(self, start: int, limit: int) -> Advance:
        """Run on to `limit`, or to the first uploads."""
        ...

    def settle(self, start: int, iteration: int) -> Advance:
        """Go back to a barrier, train, and upload."""
        ...

    def exchange(self, download: Download) -> Upload:
        """Answer a download that does not end its round."""
        ...

    def state(self) -> State:
        """Return all that `load` needs to continue with the same bits."""
        ...

    def load(self, iteration: int, state: State) -> None:
        """Continue from a `state` of these agents."""
        ...


class Population(Protocol):
    """All agents of a simulation, in this process or in actors; lists are in agent order."""

    def advance(self, downloads: Sequence[Download], start: int, limit: int) -> list[Advance]:
        """Deliver downloads to replicas and agents, and let all batches advance."""
        ...

    def settle(self, start: int, iteration: int) -> list[Advance]:
        """Bring all batches back to a barrier, train, and upload."""
        ...

    def exchange(self, download: Download) -> list[Upload]:
        """Deliver a download that does not end its round, and collect the answers."""
        ...

    def state(self, downloads: Sequence[Download]) -> State:
        """Deliver downloads, and return the states of all agents."""
        ...


class Schedule(Protocol):
    """Decides which agents upload when."""

    @property
    def is_finished(self) -> bool: ...

    @property
    def start(self) -> int:
        """Iterations that all agents have finished and that observers have seen."""
        ...

    @property
    def limit(self) -> int:
        """Iteration at which agents stop even without a trigger."""
        ...

    def barrier(self, advances: Sequence[Advance]) -> int | None:
        """Return the iteration that all agents must go back to before they upload; None where there is none."""
        ...

    def admit(self, advances: Sequence[Advance]) -> Iterator[Sequence[Upload]]:
        """Yield the uploads of one round after another, each once no earlier upload can arrive."""
        ...

    def answer(self, download: Download, record: Round) -> Download:
        """Note a finished round; return its download with the simulated time at which it arrives."""
        ...

    def finish(self, advances: Sequence[Advance]) -> Segment | None:
        """Return the iterations that all agents have finished, with their rounds; None where there are none."""
        ...

    def state(self) -> State: ...

    def load(self, iteration: int, state: State) -> None: ...


class Server(Protocol):
    """The server (Alg. 2) for the participants of a round."""

    @property
    def rounds(self) -> int:
        """Number of rounds so far."""
        ...

    @property
    def theta(self) -> Tensor | None:
        """theta_sync [p]; None without networks."""
        ...

    def exchange(self, uploads: Sequence[Upload]) -> Download:
        """Aggregate the uploads of one exchange; `Download.is_last` is True where the round ends with it."""
        ...

    def record(self, sent: Sequence[Sequence[Upload]], download: Download) -> Round:
        """Build the record of a round from the uploads of all its exchanges and its last download."""
        ...

    def state(self) -> State: ...

    def load(self, state: State) -> None: ...


Status = Literal["finished", "interrupted", "failed"]


class Observer(Protocol):
    """Watches one run: records, totals, a progress bar, a summary, a tracker."""

    def begin(self, config: Config) -> None:
        """Start, with the config as the run has resolved it."""

    def segment(self, segment: Segment) -> None:
        """Receive the next iterations. A resumed run delivers all of them again, from the first on."""

    def end(self, status: Status) -> None:
        """Finish. Called once after `begin`, however the run ends."""
