"""What a simulation costs: work, traffic and messages as functions of N, p, K, T and the number of processes.

Symbols: N agents, n of them in one process, K arms, p parameters, t iterations so far, k since the last round,
J training steps, d inputs, m width. An inverse is met as q rows: q = p once it is a matrix, else as many rows as it
has absorbed, see `covariance.py`.

    an iteration    2 n K p q per inverse (V_last, V_sync,NN; FN-UCB: N inverses) + 2 n K p k for the epoch's own rows
    a round         J n t (4 d m + 6 m) for training, in the network's precision,
                    n k (2 p q + 2 p^2) for the local inverses
    few rows        N k <= 2 p, or one leaf of agents: N k (2 p q + 2 p^2) for V_last and 2 N k p^2 for V_sync,NN, on
                    the server and in every process, and 2 N k p^2 more on the server if there are more leaves
    many rows       n k 4 p^2 for the sums of W_new and of what V_local^-1 lost, in every process; p^3 for V_last^-1, on
                    the server and in every process; on the server, s additions of triangles for s subtrees that
                    it gets, one from every process whose agents are one: nothing grows with N but s
    asynchronous    2 N K p q per inverse an iteration, q = p and what has come since a base (`versions.py`), and
                    2 N K p r for Gram matrices of r contexts; an exchange of k rows as a round of one agent with the
                    server, 4 k p q + 4 k p^2; no agent's part can be shared with the others'
    diagonal        about 10 n K p an iteration and n p a round; s p on the server
    memory          8 p^2 an agent (Less Comm., full), 8 N p^2 a process (FN-UCB, full); `capacity.py` has the rest
    messages        few rows: n k (8 p + 8 dim) bytes up a round; down, once for every node, N k (8 p + 8 dim), or
                    16 p^2 for two matrices where that is less; many rows: 8 p (p + 1) for each subtree, and down;
                    12 p more for each subtree, and down; diagonal: 28 p for each, and down (Less Comm.)

`make bench` measures the time of an iteration that communicates over `Work.seconds`; on one core of this project's
machine it is 2 to 4. What that says of N = 100,000 agents on 100 nodes is in the README.
"""

from __future__ import annotations

from dataclasses import dataclass

from fnbandit.config import Config
from fnbandit.covariance.full import most_rows
from fnbandit.covariance.prospects import ROWS
from fnbandit.covariance.squares import sum_of_squares
from fnbandit.covariance.versions import chunk_rows
from fnbandit.network import Network
from fnbandit.registry import find
from fnbandit.rounds.weights import make_weight
from fnbandit.tree import LEAF, Sum, vectors


@dataclass(frozen=True)
class Rates:
    """What a core does in a second: products in double and single precision (flop), a copy's traffic (bytes)."""

    double: float
    single: float
    stream: float


@dataclass(frozen=True)
class Work:
    """Floating-point operations in double and single precision, and bytes read and written."""

    double: float = 0.0
    single: float = 0.0
    traffic: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(self.double + other.double, self.single + other.single, self.traffic + other.traffic)

    def seconds(self, rates: Rates) -> float:
        """The least time on one core: the larger of work and traffic."""
        return max(self.double / rates.double + self.single / rates.single, self.traffic / rates.stream)


def met_rows(absorbed: int, parameters: int, shared: bool = True) -> int:
    """q: the rows of an inverse that a product meets."""
    return absorbed if absorbed <= most_rows(parameters, shared) else parameters


def needs_global(config: Config, iteration: int) -> bool:
    """Whether V_last still matters in an iteration or after it, with full matrices."""
    measures = getattr(find("trigger", config.trigger), "measures", True)  # an own one may not say
    return measures or config.first_iteration_only or iteration <= make_weight(config).last_global


def iteration_work(config: Config, arms: int, dim: int, n: int, t: int, k: int) -> Work:
    """One iteration of n agents in a process, before its round (FN-UCB and Less Comm.)."""
    p, x = Network(config, dim).parameter_count, n * arms
    if config.diagonal:
        return Work(double=10 * x * p, traffic=8 * 4 * x * p)
    q = met_rows(config.agents * (t - k), p)
    work = Work(traffic=8 * 2 * x * p)
    if needs_global(config, t):
        work += Work(double=2 * x * p * (q + k), traffic=8 * (p * q + n * p * k))
    if config.use_local:
        averaged = find("algorithm", config.algorithm).averages_inverses
        inverses, rows = (1, q) if averaged else (config.agents, p)
        work += Work(double=2 * x * p * rows * inverses, traffic=8 * p * rows * inverses)
    return work


def round_work(config: Config, dim: int, n: int, t: int, k: int) -> Work:
    """A round of n agents in a process that takes in what all N agents have sent."""
    network = Network(config, dim)
    p, rows = network.parameter_count, config.agents * k
    work = Work()
    if config.use_local:
        work += Work(single=steps_of_training(config, t, k) * n * t * network.flops)
    if config.diagonal:
        return work + Work(double=10 * n * p, traffic=8 * 4 * n * p)
    q = met_rows(config.agents * (t - k), p)
    settling = 2 * p * p if q == p else 0
    if config.use_local:
        own = met_rows(t, p, shared=False)
        work += Work(double=n * k * (2 * p * own + (2 * p * p if own == p else 2 * p * own)), traffic=8 * n * p * own)
        work += Work(double=n * k * 2 * p * p) if many_rows(config, p, k) else Work(double=rows * settling)
    if needs_global(config, t + 1):
        if many_rows(config, p, k):
            work += Work(double=n * k * 2 * p * p + p**3)
        else:
            work += Work(double=rows * (2 * p * q + (settling or 2 * p * q)), traffic=8 * p * q)
    return work


def asynchronous_work(config: Config, arms: int, dim: int, t: int, k: int) -> Work:
    """One iteration of N agents that do not wait, with its share of exchanges every k iterations."""
    neural = find("algorithm", config.algorithm).learns_on == "tangent features"
    network, n = Network(config, dim), config.agents
    p = network.parameter_count if neural else dim
    inverses = 2 if neural and config.use_local else 1
    q = min(n * t, p) + chunk_rows(p)
    work = Work(double=2 * n * (arms + 1) * p * q * inverses + 2 * n * arms * p * ROWS)
    work += Work(double=n * (4 * p * q + 2 * p * p * inverses), traffic=8 * n * p * q / k)
    if inverses == 2:
        own = met_rows(t, p, shared=False)
        work += Work(single=n * t * steps_of_training(config, t, k) / k * network.flops, double=n * 4 * p * own)
    return work


def steps_of_training(config: Config, t: int, k: int) -> float:
    """Training steps before an upload around iteration t, k iterations after the last one."""
    if config.stop_training_after is not None and t > config.stop_training_after:
        return 0.0
    if config.training_steps != "auto":
        return config.number("training_steps")
    return min(config.training_cap, config.training_effort * k / t)


def ideal_seconds(config: Config, arms: int, dim: int, rounds: list[int], rates: Rates) -> float:
    """The least time of all iterations of a run in one process, and of its rounds in some of them."""
    seconds, last = 0.0, 0
    for t in range(1, config.horizon + 1):
        seconds += iteration_work(config, arms, dim, config.agents, t, t - last).seconds(rates)
        if t in rounds:
            seconds += round_work(config, dim, config.agents, t, t - last).seconds(rates)
            last = t
    return seconds


def server_work(config: Config, dim: int, t: int, k: int, subtrees: int) -> Work:
    """The server's part of a round of Less Comm.: what one core does while all others wait.

    It gets so many subtrees: one from each process if groups end where leaves do (`simulation.split`). A sum is
    copied from its message, read, and added to one that stays in the cache.
    """
    p, rows = Network(config, dim).parameter_count, config.agents * k
    work = Work(traffic=3 * 12 * subtrees * p)
    if config.diagonal:
        return work + Work(traffic=3 * 16 * subtrees * p)
    matrices = int(needs_global(config, t + 1)) + int(config.use_local)
    if many_rows(config, p, k):
        inverse = p**3 if needs_global(config, t + 1) else 0
        return work + Work(double=inverse, traffic=3 * 8 * subtrees * matrices * p * (p + 1) // 2)
    taken_in = round_work(config, dim, 0, t, k)
    kept = 2 * rows * p * p if config.agents > LEAF and needs_global(config, t + 1) else 0
    return work + taken_in + Work(double=kept, traffic=3 * 8 * rows * (p + dim))


def many_rows(config: Config, parameters: int, k: int) -> bool:
    """Whether a round of Less Comm. with full matrices moves sums instead of rows."""
    return sum_of_rows(config, parameters, k).leaf < config.agents


def sum_of_rows(config: Config, parameters: int, k: int) -> Sum:
    return sum_of_squares(config.agents, k, parameters, lambda rows: rows)


def message_bytes(config: Config, dim: int, n: int, k: int) -> tuple[int, int]:
    """Bytes of a round of Less Comm. from a process of the first n agents to the server, and down to a node.

    As this implementation moves them, late in a run; `rounds.channels` counts as the paper does.
    """
    p, total = Network(config, dim).parameter_count, config.agents
    sums, single = sent(vectors(total), n)
    if config.diagonal:
        return (sums + single) * 28 * p, 28 * p
    rows, up = 8 * k * (p + dim), (sums + single) * 12 * p
    if many_rows(config, p, k):
        sums, single = sent(sum_of_rows(config, p, k), n)
        triangles = 8 * p * (p + 1)
        return up + sums * triangles + single * rows, triangles + 12 * p
    return up + n * rows, min(total * rows, 16 * p * p + 8 * p) + 12 * p


def sent(tree: Sum, n: int) -> tuple[int, int]:
    """How many sums, and how many agents' own values, a process of the first n agents sends."""
    pieces = tree.pieces(range(n))
    own = sum(len(piece) for piece in pieces if not tree.summed(piece))
    return sum(tree.summed(piece) for piece in pieces), own
