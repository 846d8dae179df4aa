"""The cost model against hand calculation and against what really travels."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import communicate, make_group, plain, settle

from actors.transport import to_arrays
from fnbandit.environments import make_environment
from fnbandit.federation.server import BarrierServer
from fnbandit.planning.arithmetic import Rates, Work
from fnbandit.planning.training import steps_of_training
from fnbandit.planning.work import asynchronous_work, iteration_work, message_bytes, round_work, server_work

P = 241
FOR_THE_RECORD = (
    "measure",
    "report",
    "alpha",
    "unit",
    "agents",
    "iteration",
    "since",
    "exchange",
    "last_round",
    "rounds",
    "trained",
    "last_trained",
)
"""What a message has beside what the algorithm needs: a number or two for an agent or a round"""


def test_work_takes_the_larger_of_products_and_traffic():
    rates = Rates(double=10.0, single=100.0, stream=1000.0)
    assert Work(double=20.0, single=100.0, traffic=1000.0).seconds(rates) == 3.0
    assert (Work(double=20.0) + Work(traffic=4000.0)).seconds(rates) == 4.0


def test_an_iteration_by_hand():
    config = plain(agents=64)  # the ramp ends at 100: then one inverse, V_sync,NN, and no V_last
    late = iteration_work(config, arms=4, dim=10, n=32, t=1000, k=1)
    assert late.double == 2 * (32 * 4) * P * P
    assert late.traffic == 8 * (2 * 32 * 4 * P + P * P)
    # In iteration 2 both inverses are the 64 rows of the first round; V_last also meets the epoch's own row.
    early = iteration_work(config, arms=4, dim=10, n=32, t=2, k=1)
    assert early.double == 2 * (32 * 4) * P * (64 + 1) + 2 * (32 * 4) * P * 64
    full = iteration_work(config.replace(algorithm="fn-ucb"), arms=4, dim=10, n=32, t=1000, k=1)
    assert full.double == 64 * late.double


def test_a_round_by_hand():
    config = plain(agents=64)
    work = round_work(config, dim=10, n=32, t=1000, k=2)
    # 11 inputs with the bias, 20 units, 21 weights of the output: forward, weights' and inputs' gradients.
    assert work.single == 30 * 32 * 1000 * (4 * 11 * 20 + 6 * 21)
    assert work.double == 32 * 2 * (2 * P * P + 2 * P * P) + 64 * 2 * 2 * P * P
    for steps, fields in ((6, {"training_steps": "auto"}), (0, {"stop_training_after": 999})):  # 3000 k / t; none
        other = round_work(config.replace(**fields), dim=10, n=32, t=1000, k=2)
        assert (other.single, other.double) == (work.single * steps / 30, work.double)
    logdet = round_work(config.replace(trigger="logdet"), dim=10, n=32, t=1000, k=2)
    assert logdet.double - work.double == 64 * 2 * (2 * P * P + 2 * P * P)


def test_agents_that_do_not_wait_by_hand():
    """64 agents, 4 arms, 12 inputs to one of 20 units; a base of P rows, and up to 120 since."""
    config = plain(agents=64, algorithm="fn-ucb-async", training_steps=30)
    work = asynchronous_work(config, arms=4, dim=10, t=1000, k=5)
    looking = 2 * (64 * 5 * 2 * P * (P + 120)) + 2 * 64 * 4 * P * 32
    exchanging = 64 * (4 * P * (P + 120) + 4 * P * P + 4 * P * P)
    assert work.double == looking + exchanging
    assert work.single == 64 * 1000 * 30 / 5 * (4 * 11 * 20 + 6 * 21)
    auto = config.replace(training_steps="auto")  # 3000 k / t, at most 300
    assert steps_of_training(auto, 1000, 5) == 15 and steps_of_training(auto, 10, 5) == 300
    linear = asynchronous_work(config.replace(algorithm="fedlinucb"), arms=4, dim=10, t=1000, k=5)
    assert linear.single == 0 and linear.double == 64 * (2 * 5 * 10 * 18 + 2 * 4 * 10 * 32 + 4 * 10 * 18 + 2 * 10 * 10)


def test_many_rows_are_summed_by_those_who_have_them():
    config = plain(agents=64, trigger="logdet")
    few, many = (round_work(config, dim=10, n=32, t=1000, k=k).double for k in (7, 8))
    # 7 x 64 rows are fewer than 2 x 241, and every process takes all of them in.
    assert few == 32 * 7 * 4 * P * P + 64 * 7 * (2 * P * P) + 64 * 7 * (4 * P * P)
    assert many == 32 * 8 * 4 * P * P + 2 * 32 * 8 * 2 * P * P + P**3


def test_the_servers_part_by_hand():
    config = plain(agents=100_000, trigger="logdet")
    work = server_work(config, dim=10, t=1000, k=10, subtrees=1563)
    assert work.double == P**3
    assert work.traffic == 3 * 1563 * (2 * 8 * P * (P + 1) // 2 + 12 * P)
    assert work == server_work(config, dim=10, t=1000, k=50, subtrees=1563)
    # On one core like this project's, which copies 15 GB in a second.
    assert work.seconds(Rates(37e9, 85e9, 15e9)) < 0.3
    diagonal = server_work(config.replace(diagonal=True), dim=10, t=1000, k=10, subtrees=1563)
    assert diagonal == Work(traffic=3 * 1563 * 28 * P)
    # 20 agents' 40 rows: taken in as everywhere, and added to the V that only the server keeps.
    few = server_work(config.replace(agents=20), dim=10, t=1000, k=2, subtrees=2)
    assert few.double == 40 * (2 * P * P + 2 * P * P + 2 * P * P + 2 * P * P)


def arrays_of(message):
    """The arrays of a message, but for single numbers."""
    if isinstance(message, np.ndarray):
        return [message] if message.ndim else []
    return [array for value in getattr(message, "__dict__", {}).values() for array in arrays_of(value)]


@pytest.mark.parametrize(
    ("diagonal", "agents", "length", "kind"),
    [(False, 5, 6, "rows"), (False, 12, 45, "state"), (False, 90, 6, "rows"), (True, 5, 6, "rows")],
)
def test_messages_are_what_travels(diagonal, agents, length, kind):
    config = plain(agents=agents, horizon=90, trigger="logdet", diagonal=diagonal)
    group = make_group(config, make_environment(config), range(agents))
    server = BarrierServer(config, group.replica)
    for _ in range(2):
        for _ in range(length):
            group.step()
        upload, broadcast = communicate(group, server)

    def size(message):
        """Bytes without the few numbers for the record."""
        parts = (value for name, value in message.items() if name not in FOR_THE_RECORD)
        return sum(part.nbytes for value in parts for part in (value if isinstance(value, list) else [value]))

    up, down = message_bytes(config, dim=10, n=agents, k=length)
    sent = {name: value for name, value in vars(to_arrays(upload)).items() if value is not None}
    assert up == size(sent)
    message = to_arrays(group.replica.encode([broadcast]))
    ((download,), state) = message["downloads"], message["state"]
    assert kind == ("rows" if state is None else "state")
    sent = arrays_of(download) if state is None else {k: v for k, v in state.items() if k not in FOR_THE_RECORD}
    assert down == sum(array.nbytes for array in (sent if isinstance(sent, list) else sent.values()))


@pytest.mark.parametrize(
    ("agents", "n", "length"), [(200, 40, 10), (200, 64, 10), (20, 7, 10), (200, 40, 1), (8, 3, 2)]
)
@pytest.mark.parametrize("diagonal", [False, True])
def test_messages_of_a_part_of_the_agents(diagonal, agents, n, length):
    config = plain(agents=agents, horizon=20, trigger="logdet", diagonal=diagonal, dim=4, width=6)
    group = make_group(config, make_environment(config), range(n))
    for _ in range(length):
        group.step()
    sent = vars(to_arrays(settle(group, length)))
    size = sum(part.nbytes for name in ("covariance", "moments", "theta", "inverse") for part in sent[name])
    assert size == message_bytes(config, dim=4, n=n, k=length)[0]
