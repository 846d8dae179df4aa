"""Asynchronous runs: versions of a matrix, the same bits in any grouping and after a resume, records, refusals."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from helpers import LIKE, assert_same, interrupt, plain, rows

from fnbandit import simulate
from fnbandit.covariance.full import compute_downdate
from fnbandit.covariance.lookahead import OwnRows, Prospects, room
from fnbandit.covariance.versions import Versions, chunk_rows
from fnbandit.networks.network import Network
from fnbandit.networks.ragged import pad_lengths, train_ragged
from fnbandit.networks.training import train
from fnbandit.runs import Checkpointing, LocalRun
from fnbandit.storage.records import read_run
from workflows.command_line import main

SMALL = {
    "agents": 5, "horizon": 40, "dim": 4, "width": 6, "trigger": "determinant", "async_gain": 5.0, "training_steps": 5,
    "clock": "lognormal", "latency": 0.2, "jitter": 0.3, "availability": 0.9, "away_seconds": 1.0, "slow_share": 0.2,
}  # fmt: skip
CASES = [
    {"algorithm": "fn-ucb-async"},
    {"algorithm": "fn-ucb-async", "weight": "earned", "reward_unit": "rms", "training_optimizer": "adam"},
    {"algorithm": "fn-ucb-async", "weight": "theory", "domain_sample": 20, "staleness": "polynomial"},
    {"algorithm": "fn-ucb-async", "messages": "quantized", "trigger": "period", "period": 3},
    {"algorithm": "fedlinucb", "async_gain": 0.3},
]


def test_every_version_of_a_matrix_is_its_first_rows():
    p, constant, sign = 20, 0.5, -0.01
    versions = Versions(p, LIKE, constant, sign)
    log = rows(4 * chunk_rows(p) + 3, p)
    for part in log.split(5):
        versions.append(part)
    asked = np.array([0, 3, chunk_rows(p), chunk_rows(p) + 2, 2 * chunk_rows(p) - 1, len(log)])
    x = rows(len(asked), 3, p, seed=1)
    found = versions.join_product(asked, *versions.split_product(asked, x))
    quadratic = versions.quadratic(asked, x)
    for version, point, product, value in zip(asked, x, found, quadratic, strict=True):
        matrix = constant * torch.eye(p, dtype=torch.float64) + sign * log[:version].T @ log[:version]
        torch.testing.assert_close(product, point @ matrix)
        torch.testing.assert_close(value, (point @ matrix * point).sum(1))


def test_versions_that_nobody_holds_are_forgotten():
    versions = Versions(20, LIKE, 1.0, -0.01)
    versions.append(rows(100, 20))
    assert len([name for name in versions.state() if name.endswith("log")]) == 1 + 100 // chunk_rows(20)
    versions.keep(np.array([17, 99]))
    kept = [name for name in versions.state() if name.endswith("log")]
    assert kept == [
        f"{base}.log" for base in sorted({17 // chunk_rows(20), 99 // chunk_rows(20), 100 // chunk_rows(20)})
    ]
    copy = Versions(20, LIKE, 1.0, -0.01)
    copy.load(versions.state())
    x = rows(2, 3, 20, seed=2)
    assert torch.equal(copy.quadratic(np.array([17, 99]), x), versions.quadratic(np.array([17, 99]), x))


def test_own_rows_lower_the_inverse():
    """Against V^-1 = I: V-bar^-1 x and the mean with as many rows as an agent has."""
    p, counts = 6, [0, 3, 11]
    own = OwnRows(3, p, LIKE)
    x = rows(3, 2, p, seed=1)
    given = {1: rows(3, p, seed=2), 2: rows(11, p, seed=3)}
    targets = {agent: rows(len(g), seed=4) for agent, g in given.items()}
    for agent, g in given.items():
        for some, values in zip(g.split(8), targets[agent].split(8), strict=True):
            solved, mean = some[None].clone(), torch.zeros(1, len(some), dtype=torch.float64)
            one = np.array([agent])
            own.correct_for_own_rows(one, some[None], solved, mean)
            change = compute_downdate(some[None], solved, (values - mean)[:, :, None])
            own.append(one, np.array([len(some)]), change[..., :-1], change[..., -1])
    assert own.lengths.tolist() == counts
    solved, mean = x.clone(), torch.zeros(3, 2, dtype=torch.float64)
    own.correct_for_own_rows(np.arange(3), x, solved, mean)
    torch.testing.assert_close(solved[0], x[0])
    for agent, g in given.items():
        inverse = torch.linalg.inv(torch.eye(p, dtype=torch.float64) + g.T @ g)
        torch.testing.assert_close(solved[agent], x[agent] @ inverse)
        torch.testing.assert_close(mean[agent], x[agent] @ inverse @ g.T @ targets[agent])
    own.reset(2)
    assert [few.tolist() for few, _, _ in own.of(np.array([2, 1]))] == [[1]]


def test_room():
    assert room(np.array([0, 1, 8, 9, 32, 33, 200])).tolist() == [0, 8, 8, 16, 32, 64, 256]


def test_prospects_are_what_pulled_contexts_make_of_them():
    """Of two agents that pull in different iterations: against (I + G^T G)^-1 of the contexts pulled."""
    p, iterations, arms = 5, 3, 2
    x, rewards = rows(2, iterations * arms, p), rows(2, iterations, seed=1)
    prospects = Prospects(2, iterations, arms, LIKE)
    prospects.start(torch.arange(2), x @ x.mT, torch.zeros(2, iterations * arms, dtype=torch.float64))
    pulled: list[list[int]] = [[], []]
    for who, place, chosen in [([0, 1], [0, 0], [1, 0]), ([1], [1], [1]), ([0, 1], [1, 2], [0, 1]), ([0], [2], [0])]:
        index, places, picks = (torch.tensor(values) for values in (who, place, chosen))
        mean, variance = prospects.at(index, places)
        for row, agent in enumerate(who):
            g = x[agent, pulled[agent]]
            inverse = torch.linalg.inv(torch.eye(p, dtype=torch.float64) + g.T @ g)
            now = x[agent].unflatten(0, (iterations, arms))[place[row]]
            torch.testing.assert_close(variance[row], (now @ inverse * now).sum(1))
            torch.testing.assert_close(mean[row], now @ inverse @ g.T @ rewards[agent, : len(g)])
        before = prospects.pull(index, places, picks, rewards[index, places])
        torch.testing.assert_close(before, variance[torch.arange(len(who)), picks])
        for agent, at, arm in zip(who, place, chosen, strict=True):
            pulled[agent].append(at * arms + arm)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_same_bits_in_any_grouping_and_after_a_resume(case, tmp_path):
    config = plain(**SMALL | case)
    whole = simulate(config)
    assert len(whole.round_records) > 20
    grouped = simulate(config, groups=3)
    interrupt(config, tmp_path, 4)
    resumed = LocalRun(config, Checkpointing(str(tmp_path)), resume=True, groups=2).result()
    for other in (grouped, resumed):
        assert_same(whole, other)
        np.testing.assert_array_equal(whole.times, other.times)


def test_time_goes_somewhere():
    result = simulate(plain(**SMALL | CASES[0]))
    for agent in range(5):
        own = [r.times for r in result.round_records if r.agent == agent]
        # Up to its last answer's departure an agent has computed, sent, been away, and never waited.
        spent = sum(t.computing + t.sending + t.away for t in own)
        assert all(t.waiting == 0 for t in own)
        down = result.round_records[0].cost.bytes_down / 5e6 + 0.2
        assert own[-1].time == pytest.approx(spent - down)
    assert sum(t.times.away for t in result.round_records) > 0
    assert [r.times.time for r in result.round_records] == sorted(r.times.time for r in result.round_records)


def test_factored_messages_count_what_is_new_to_the_agent():
    config = plain(**SMALL | {"algorithm": "fedlinucb", "messages": "factored", "clock": "none", "dim": 10})
    seen, known = 0, dict.fromkeys(range(5), 0)
    for record in simulate(config).round_records:
        k, p = record.length, 10
        seen += k
        news = min(seen - known[record.agent], p)
        known[record.agent] = seen
        assert record.cost.numbers_up == min(k, p) * (2 * p - min(k, p) + 1) // 2 + p
        assert record.cost.numbers_down == news * (2 * p - news + 1) // 2 + p


def test_records_of_events(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = "run --algorithm fn-ucb-async --agents 3 --horizon 25 --clock lognormal --engine local --tracking none"
    assert main([*command.split(), "--out", "here"]) == 0
    record = read_run("here")
    rounds = record.rounds.to_pylist()
    assert {row["agent"] for row in rounds} == {0, 1, 2}
    assert all(row["triggered"] == [row["agent"]] and row["staleness"] >= 0 and row["time"] > 0 for row in rounds)
    assert all(row["waiting"] == 0 and row["computing"] > 0 and row["bytes_up"] > 0 for row in rounds)
    assert len(record.trace) == 75 and min(record.trace.column("time").to_pylist()) > 0
    summary = json.loads((tmp_path / "here" / "summary.json").read_text())
    assert summary["rounds"] == 0 and summary["exchanges"] == len(rounds) and summary["status"] == "finished"


@pytest.mark.parametrize(("settings", "message"), [
    ({"trigger": "budget"}, "trigger='budget': algorithm=fn-ucb-async accepts logdet, determinant, always, period"),
    ({"trigger": "diagonal"}, "trigger='diagonal': algorithm=fn-ucb-async accepts"),
    ({"diagonal": True}, "diagonal=True: algorithm=fn-ucb-async needs full matrices"),
])  # fmt: skip
def test_what_asynchronous_agents_cannot_do(settings, message):
    with pytest.raises(ValueError, match=message):
        plain(algorithm="fn-ucb-async", **settings)


def test_staleness_counts():
    config = plain(**SMALL | {"algorithm": "fn-ucb-async"})
    alike, less = simulate(config), simulate(config.replace(staleness="polynomial"))
    assert max(r.staleness for r in alike.round_records) > 3
    assert not np.array_equal(alike.theta, less.theta)


@pytest.mark.parametrize("optimizer", ["gd", "adam"])
@pytest.mark.parametrize("loss", ["mean", "paper"])
def test_training_histories_of_different_lengths_together(optimizer, loss):
    """Each agent alone, by the code that trains agents with as many observations and steps; and the same bits."""
    config = plain(dim=4, width=6, training_optimizer=optimizer, training_loss=loss, training_rate=0.002,
                    training_fade=20.0, training_schedule="linear", network_dtype="float64")  # fmt: skip
    network = Network(config, 4)
    initial = network.initial_parameters(0)
    counts, steps = np.array([17, 20, 32, 25]), np.array([6, 2, 9, 1])
    there = (torch.arange(32) < torch.from_numpy(counts)[:, None]).double()
    x = torch.nn.functional.pad(network.inputs(rows(4, 32, 4)), (0, 0, 0, network.padded_dim - network.inputs_dim))
    x, y = x * there[:, None], rows(4, 32, seed=1) * there
    start = initial + 0.1 * rows(4, len(initial), seed=2)
    caution = torch.tensor([1.0, 0.5, 1.0, 0.25], dtype=torch.float64)

    def together(agents):
        index = np.array(agents)
        return train_ragged(config, network, start[index], initial, x[index], y[index], counts[index], steps[index],
                            caution[index])  # fmt: skip

    whole = together([0, 1, 2, 3])
    for agent, (count, step) in enumerate(zip(counts, steps, strict=True)):
        one = slice(agent, agent + 1)
        alone = train(config, network, start[one], initial, x[one, :, :count], y[one, :count], int(step), caution[one])
        torch.testing.assert_close(whole.theta[one], alone.theta)
        torch.testing.assert_close(whole.loss[one], alone.loss)
    for agents in ([1], [2, 3], [3, 0]):
        assert torch.equal(together(agents).theta, whole.theta[agents])


def test_padded_lengths():
    found = pad_lengths(np.array([1, 32, 33, 64, 96, 128, 129, 192, 193, 300, 512]))
    assert found.tolist() == [32, 32, 64, 64, 128, 128, 192, 192, 256, 384, 512]
