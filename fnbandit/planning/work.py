"""Work, traffic and messages of a simulation as functions of N, p, K, T and the number of processes.

Symbols: N agents, n of them in one process, K arms, p parameters, t iterations so far, k since the last round,
J training steps, d inputs, m width. A product with an inverse multiplies by q rows: q = p once the inverse is stored as
a matrix, before that the number of rows that it has absorbed, see `covariance/full.py`.

    an iteration    2 n K p q per inverse (V_last, V_sync,NN; FN-UCB: N inverses) + 2 n K p k for the epoch's own rows
    a round         J n t (4 d m + 6 m) for training, in the network's precision,
                    n k (2 p q + 2 p^2) for the local inverses
    few rows        N k <= 2 p, or one leaf of agents: N k (2 p q + 2 p^2) for V_last and 2 N k p^2 for V_sync,NN, on
                    the server and in every process, and 2 N k p^2 more on the server if there are more leaves
    many rows       n k 4 p^2 for the sums of W_new and of the downdates of V_local^-1, in every process; p^3 for
                    V_last^-1, on the server and in every process; on the server, s additions of triangles for the s
                    subtrees that it receives, one from every process whose agents form one: only s grows with N
    asynchronous    2 N K p q per inverse an iteration, q = p plus the rows since a base (`versions.py`), and
                    2 N K p r for Gram matrices of r contexts; an exchange of k rows costs as much as a round of one
                    agent, 4 k p q + 4 k p^2; agents share none of this work
    diagonal        about 10 n K p an iteration and n p a round; s p on the server
    memory          8 p^2 an agent (Less Comm., full), 8 N p^2 a process (FN-UCB, full); `capacity.py` has the rest
    messages        few rows: n k (8 p + 8 dim) bytes up a round; down, once for every node, N k (8 p + 8 dim), or
                    16 p^2 for two matrices where that is less; many rows: 8 p (p + 1) for each subtree, and down;
                    12 p more for each subtree, and down; diagonal: 28 p for each, and down (Less Comm.)

`make bench` measures the ratio of the time of an iteration that communicates to `Work.seconds`: 2 to 4 on one core of
this project's machine. An agent's iteration takes one core about 0.1 ms (cosine, m = 20, full matrices, D = 5), for N
from 100 to 10,000; 10,000 agents with full matrices need 5 GB for 200 iterations. The ideal for N = 100,000 on 100
nodes of 16 cores (64 agents an actor, cosine, m = 20, t = 1,000), with full and with diagonal matrices:

    an iteration inside an epoch                               1.6 ms         0.1 ms
    a round: training, in every actor                          23 ms          23 ms
    a round of 10 (50) iterations: matrices, in every actor    8 ms (41 ms)   0
    the server's part of it                                    0.15 s         0.002 s
    bytes to the server, and in its memory                     0.7 GB         0.01 GB
    memory of a node's agents                                  2.1 GB         0.8 GB

Actors send sums over their agents: the bytes that the server receives grow with the number of actors, not with the
agents of an actor or the iterations of an epoch. FN-UCB as such (every inverse to every agent) and aggregation rules
other than the mean need every agent's own values. `make bench-gpu` compares a GPU with a core.
"""

from __future__ import annotations

from fnbandit.config import Config
from fnbandit.config.registry import build, resolve_part
from fnbandit.covariance.full import most_rows
from fnbandit.covariance.gram import sum_of_squares
from fnbandit.covariance.lookahead import ROWS
from fnbandit.covariance.versions import chunk_rows
from fnbandit.federation.alpha import make_alpha
from fnbandit.networks.network import Network
from fnbandit.numerics.tree import LEAF, TreeSum, sum_vectors
from fnbandit.planning.arithmetic import Rates, Work
from fnbandit.planning.training import has_full_matrices, steps_of_training, work_of_training


def effective_rank(absorbed: int, parameters: int, shared: bool = True) -> int:
    """Return q, the number of rows of an inverse that a product multiplies by."""
    return absorbed if absorbed <= most_rows(parameters, shared) else parameters


def needs_global(config: Config, iteration: int) -> bool:
    """Return True where V_last has an effect in an iteration or after it, with full matrices."""
    trigger = build("trigger", config.trigger, config)
    return trigger.measures or config.first_iteration_only or iteration <= make_alpha(config).last_global


def iteration_work(config: Config, arms: int, dim: int, n: int, t: int, k: int) -> Work:
    """Return the work of an iteration of n agents in a process, before its round (FN-UCB and Less Comm.)."""
    p, x = Network(config, dim).parameter_count, n * arms
    if config.diagonal:
        return Work(double=10 * x * p, traffic=8 * 4 * x * p)
    q = effective_rank(config.agents * (t - k), p)
    work = Work(traffic=8 * 2 * x * p)
    if needs_global(config, t):
        work += Work(double=2 * x * p * (q + k), traffic=8 * (p * q + n * p * k))
    if config.use_local:
        averaged = resolve_part("algorithm", config.algorithm).traits.averages_inverses
        inverses, rows = (1, q) if averaged else (config.agents, p)
        work += Work(double=2 * x * p * rows * inverses, traffic=8 * p * rows * inverses)
    return work


def round_work(config: Config, dim: int, n: int, t: int, k: int) -> Work:
    """Return the work of a round in a process of n agents, which applies the uploads of all N agents."""
    p, rows = Network(config, dim).parameter_count, config.agents * k
    work = Work()
    if config.use_local:
        work += work_of_training(config, dim, None, n, t, k)
    if config.diagonal:
        return work + Work(double=10 * n * p, traffic=8 * 4 * n * p)
    q = effective_rank(config.agents * (t - k), p)
    rewriting = 2 * p * p if q == p else 0
    if config.use_local:
        own = effective_rank(t, p, shared=False)
        work += Work(double=n * k * (2 * p * own + (2 * p * p if own == p else 2 * p * own)), traffic=8 * n * p * own)
        work += Work(double=n * k * 2 * p * p) if many_rows(config, p, k) else Work(double=rows * rewriting)
    if needs_global(config, t + 1):
        if many_rows(config, p, k):
            work += Work(double=n * k * 2 * p * p + p**3)
        else:
            work += Work(double=rows * (2 * p * q + (rewriting or 2 * p * q)), traffic=8 * p * q)
    return work


def work_on_features(config: Config, arms: int, dim: int, features: int, n: int, t: int, k: int) -> Work:
    """Return the work of an iteration of n agents whose W is on features of the network that rounds train.

    It contains the share of a round that ends an epoch of k iterations.
    """
    x, q = n * arms, features
    training = work_of_training(config, dim, q, n, t, k)
    if not has_full_matrices(config):
        return Work(double=10 * x * q, traffic=8 * 4 * x * q) + training * (1 / k)
    absorbed = effective_rank(config.agents * (t - k), q)
    work = Work(double=2 * x * q * (absorbed + k), traffic=8 * (2 * x * q + q * absorbed + n * q * k))
    return work + (training + Work(double=4 * config.agents * k * q * absorbed)) * (1 / k)


def learners_work(config: Config, arms: int, dim: int, n: int, t: int) -> Work:
    """Return the work of an iteration of n agents that never communicate, with their own covariance and training."""
    network, x = Network(config, dim), n * arms
    p = network.parameter_count
    work = Work(single=steps_of_training(config, t, 1) * n * t * network.flops, traffic=8 * 2 * x * p)
    if config.diagonal:
        return work + Work(double=10 * x * p, traffic=8 * 2 * x * p)
    # Each agent's matrix is read for its arms, and updated by one row.
    return work + Work(double=2 * x * p * p + 4 * n * p * p, traffic=8 * 3 * n * p * p)


def asynchronous_work(config: Config, arms: int, dim: int, t: int, k: int) -> Work:
    """Return the work of an iteration of N asynchronous agents, with its share of exchanges every k iterations."""
    neural = resolve_part("algorithm", config.algorithm).traits.has_network
    network, n = Network(config, dim), config.agents
    p = network.parameter_count if neural else dim
    inverses = 2 if neural and config.use_local else 1
    q = min(n * t, p) + chunk_rows(p)
    work = Work(double=2 * n * (arms + 1) * p * q * inverses + 2 * n * arms * p * ROWS)
    work += Work(double=n * (4 * p * q + 2 * p * p * inverses), traffic=8 * n * p * q / k)
    if inverses == 2:
        own = effective_rank(t, p, shared=False)
        work += Work(single=n * t * steps_of_training(config, t, k) / k * network.flops, double=n * 4 * p * own)
    return work


def ideal_seconds(config: Config, arms: int, dim: int, rounds: list[int], rates: Rates) -> float:
    """Return the least time of a run in one process, with rounds after the iterations in `rounds`."""
    seconds, last = 0.0, 0
    for t in range(1, config.horizon + 1):
        seconds += iteration_work(config, arms, dim, config.agents, t, t - last).seconds(rates)
        if t in rounds:
            seconds += round_work(config, dim, config.agents, t, t - last).seconds(rates)
            last = t
    return seconds


def server_work(config: Config, dim: int, t: int, k: int, subtrees: int) -> Work:
    """Return the work of the server in a round of Less Comm., on one core while all others wait.

    The server receives `subtrees` sums: one from each process if batches end at subtrees
    (`partition.split_at_subtrees`). A sum is copied from its message, read, and added to one that stays in the cache.
    """
    p, rows = Network(config, dim).parameter_count, config.agents * k
    work = Work(traffic=3 * 12 * subtrees * p)
    if config.diagonal:
        return work + Work(traffic=3 * 16 * subtrees * p)
    matrices = int(needs_global(config, t + 1)) + int(config.use_local)
    if many_rows(config, p, k):
        inverse = p**3 if needs_global(config, t + 1) else 0
        return work + Work(double=inverse, traffic=3 * 8 * subtrees * matrices * p * (p + 1) // 2)
    applied = round_work(config, dim, 0, t, k)
    kept = 2 * rows * p * p if config.agents > LEAF and needs_global(config, t + 1) else 0
    return work + applied + Work(double=kept, traffic=3 * 8 * rows * (p + dim))


def many_rows(config: Config, parameters: int, k: int) -> bool:
    """Return True where processes send sums instead of rows in a round of Less Comm. with full matrices."""
    return sum_of_rows(config, parameters, k).leaf < config.agents


def sum_of_rows(config: Config, parameters: int, k: int) -> TreeSum:
    return sum_of_squares(config.agents, k, parameters, lambda rows: rows)


def message_bytes(config: Config, dim: int, n: int, k: int) -> tuple[int, int]:
    """Return the bytes of a round of Less Comm. from a process of the first n agents to the server, and to a node.

    They are the bytes that this implementation moves, late in a run; `federation.channels` counts those of the paper.
    """
    p, total = Network(config, dim).parameter_count, config.agents
    sums, single = count_sums(sum_vectors(total), n)
    if config.diagonal:
        return (sums + single) * 28 * p, 28 * p
    rows, up = 8 * k * (p + dim), (sums + single) * 12 * p
    if many_rows(config, p, k):
        sums, single = count_sums(sum_of_rows(config, p, k), n)
        triangles = 8 * p * (p + 1)
        return up + sums * triangles + single * rows, triangles + 12 * p
    return up + n * rows, min(total * rows, 16 * p * p + 8 * p) + 12 * p


def count_sums(tree: TreeSum, n: int) -> tuple[int, int]:
    """Return the number of sums, and of single agents' values, that a process of the first n agents sends."""
    pieces = tree.pieces(range(n))
    own = sum(len(piece) for piece in pieces if not tree.is_subtree(piece))
    return sum(tree.is_subtree(piece) for piece in pieces), own
