"""The cost model against hand calculation and against what really travels."""

from __future__ import annotations

import pytest
from helpers import communicate

from actors.agents import packed
from actors.server import news_of
from fnbandit import Config
from fnbandit.costs import Rates, Work, iteration_work, message_bytes, round_work
from fnbandit.environments import make_environment
from fnbandit.rounds.server import Server
from fnbandit.simulation import make_group

P = 241
FOR_THE_RECORD = ("measure", "report", "weight", "last_round", "rounds", "trained", "last_trained")
"""What a message has beside what the algorithm needs: a number or two for an agent or a round"""


def test_work_takes_the_larger_of_products_and_traffic():
    rates = Rates(double=10.0, single=100.0, stream=1000.0)
    assert Work(double=20.0, single=100.0, traffic=1000.0).seconds(rates) == 3.0
    assert (Work(double=20.0) + Work(traffic=4000.0)).seconds(rates) == 4.0


def test_an_iteration_by_hand():
    config = Config(agents=64)  # the ramp ends at 100: then one inverse, V_sync,NN, and no V_last
    late = iteration_work(config, arms=4, dim=10, n=32, t=1000, k=1)
    assert late.double == 2 * (32 * 4) * P * P
    assert late.traffic == 8 * (2 * 32 * 4 * P + P * P)
    # In iteration 2 both inverses are the 64 rows of the first round; V_last also meets the epoch's own row.
    early = iteration_work(config, arms=4, dim=10, n=32, t=2, k=1)
    assert early.double == 2 * (32 * 4) * P * (64 + 1) + 2 * (32 * 4) * P * 64
    full = iteration_work(config.replace(algorithm="fn-ucb"), arms=4, dim=10, n=32, t=1000, k=1)
    assert full.double == 64 * late.double


def test_a_round_by_hand():
    config = Config(agents=64)
    work = round_work(config, dim=10, n=32, t=1000, k=2)
    # 11 inputs with the bias, 20 units, 21 weights of the output: forward, weights' and inputs' gradients.
    assert work.single == 30 * 32 * 1000 * (4 * 11 * 20 + 6 * 21)
    assert work.double == 32 * 2 * (2 * P * P + 2 * P * P) + 64 * 2 * 2 * P * P
    logdet = round_work(config.replace(trigger="logdet"), dim=10, n=32, t=1000, k=2)
    assert logdet.double - work.double == 64 * 2 * (2 * P * P + 2 * P * P)


@pytest.mark.parametrize(("diagonal", "agents", "sent"), [(False, 5, "rows"), (False, 90, "state"), (True, 5, "rows")])
def test_messages_are_what_travels(diagonal, agents, sent):
    config = Config(agents=agents, horizon=20, trigger="logdet", diagonal=diagonal)
    group = make_group(config, make_environment(config), range(agents))
    server = Server(config, group.shared)
    for _ in range(2):
        for _ in range(6):
            group.step()
        upload, broadcast = communicate(group, server)

    def size(message):
        """Bytes without the few numbers for the record."""
        return sum(v.nbytes for name, v in message.items() if name not in FOR_THE_RECORD)

    up, down = message_bytes(config, dim=10, n=agents, k=6)
    told = {name: value for name, value in packed(upload).items() if value is not None}
    assert up == size(told)
    ((kind, news),) = news_of(broadcast, group.shared).items()
    assert kind == sent
    assert down == size({name: value for name, value in news.items() if not isinstance(value, int | float)})
