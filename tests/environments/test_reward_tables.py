"""Reward tables: what is read, what is dealt to whom, what is refused in one line; the shipped table of questions."""

from __future__ import annotations

import hashlib
import json
from importlib import resources

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from helpers import plain

from fnbandit import Config, simulate
from fnbandit.environments import make_environment

COLUMNS = {
    "x": [1.0, 2.0, 3.0, 6.0],
    "y": [0, 0, 4, 4],
    "reward:a": [1.0, 0.5, 0.0, 0.25],
    "reward:b": [0, 1, 0, 1],
    "domain": ["p", "q", "p", "q"],
}


def written(tmp_path, metadata=None, without=(), **columns):
    """Paths of the same table as Parquet and as CSV."""
    table = pa.table({name: values for name, values in (COLUMNS | columns).items() if name not in without})
    pyarrow.parquet.write_table(table.replace_schema_metadata(metadata), tmp_path / "t.parquet")
    pyarrow.csv.write_csv(table, tmp_path / "t.csv")
    return str(tmp_path / "t.parquet"), str(tmp_path / "t.csv")


def one_pass(environment, agent, rows=4):
    """The first pass over a table: features in the order of x, and the rewards with them."""
    block = environment.block(agent, 0)
    contexts, means = block.contexts[:rows], block.means[:rows]
    order = np.argsort(contexts[:, 0, 0])
    return contexts[order], means[order]


@pytest.mark.parametrize("kind", [0, 1])
def test_a_row_has_the_rewards_of_all_arms(tmp_path, kind):
    path = written(tmp_path)[kind]
    environment = make_environment(plain(environment=path, standardization="none"))
    assert (environment.arms, environment.dim) == (2, 4)
    contexts, means = one_pass(environment, 0)
    np.testing.assert_array_equal(contexts[:, 0], [[1, 0, 0, 0], [2, 0, 0, 0], [3, 4, 0, 0], [6, 4, 0, 0]])
    np.testing.assert_array_equal(contexts[:, 1], [[0, 0, 1, 0], [0, 0, 2, 0], [0, 0, 3, 4], [0, 0, 6, 4]])
    np.testing.assert_array_equal(means, [[1, 0], [0.5, 1], [0, 0], [0.25, 1]])
    assert not environment.block(0, 0).noise.any()


def test_one_hot_contexts(tmp_path):
    environment = make_environment(plain(environment=written(tmp_path)[0], standardization="none", coding="one-hot"))
    assert environment.dim == 4
    contexts, _ = one_pass(environment, 0)
    np.testing.assert_array_equal(contexts[3], [[6, 4, 1, 0], [6, 4, 0, 1]])
    points = environment.domain(100)
    assert len(points) == 8
    assert sorted(map(tuple, points))[:2] == [(1, 0, 0, 1), (1, 0, 1, 0)]
    magic = make_environment(Config(environment="magic", coding="one-hot"))
    assert magic.dim == 12


def test_regret_is_that_of_the_table(tmp_path):
    config = plain(environment=written(tmp_path)[0], algorithm="random", agents=3, horizon=50)
    result = simulate(config)
    gaps = {0.0, 1.0, 0.5, 0.75}
    assert set(np.unique(result.regret)) <= gaps
    for agent in range(3):
        blocks = [make_environment(config).block(agent, index).means for index in (0, 1)]
        means = np.concatenate(blocks)[:50]
        pulled = means[np.arange(50), result.arms[:, agent]]
        np.testing.assert_array_equal(result.rewards[:, agent], pulled)
        np.testing.assert_array_equal(result.regret[:, agent], means.max(1) - pulled)


@pytest.mark.parametrize("source", ["columns", "metadata"])
def test_price_times_cost_is_subtracted(tmp_path, source):
    prices = {"price_per_million_output_tokens": json.dumps({"a": 1.0, "b": 4.0})}
    costs = {"cost:a": [1.0] * 4, "cost:b": [4.0] * 4} if source == "columns" else {}
    path = written(tmp_path, None if costs else prices, **costs)[0]
    environment = make_environment(plain(environment=path, standardization="none", price=0.2))
    _, means = one_pass(environment, 0)
    np.testing.assert_allclose(means, [[0.95, -0.2], [0.45, 0.8], [-0.05, -0.2], [0.2, 0.8]], atol=1e-15)
    np.testing.assert_array_equal(environment.costs, [1, 4])


@pytest.mark.parametrize("label", [None, "kind"])
def test_agents_receive_rows_of_their_domain(tmp_path, label):
    columns = {"kind": ["u", "v", "v", "u"]} if label else {}
    without = ("reward:a", "reward:b") if label else ()
    path = written(tmp_path, without=without, **columns)[0]
    settings = {"label": label} if label else {}
    environment = make_environment(plain(environment=path, standardization="none", heterogeneity="domain", **settings))
    for agent, expected in ((0, {1, 3}), (1, {2, 6}), (2, {1, 3})):
        contexts = environment.block(agent, 0).contexts
        assert set(contexts[:, 0, 0]) == expected
        # Every pass has each of the two rows once.
        assert (np.sort(contexts[:, 0, 0].reshape(-1, 2), axis=1) == sorted(expected)).all()
    assert (environment.block(0, 0).contexts != environment.block(2, 0).contexts).any()


def test_a_raw_row_becomes_the_contexts_of_the_table(tmp_path):
    for standardization in ("columns", "none", "paper"):
        for coding in ("disjoint", "one-hot"):
            environment = make_environment(
                plain(environment=written(tmp_path)[0], standardization=standardization, coding=coding)
            )
            found = environment.row_coding.contexts(np.column_stack([COLUMNS["x"], COLUMNS["y"]]))
            known = {tuple(row.ravel().round(9)) for row in environment.block(0, 0).contexts}
            assert {tuple(row.ravel().round(9)) for row in found} == known


@pytest.mark.parametrize(
    ("columns", "settings", "pattern"),
    [
        ({"reward:b": [0, None, 0, 1]}, {}, "column 'reward:b' has NaN, empty or .* the first in row 2"),
        ({"reward:b": [0, 1, float("nan"), 1]}, {}, "column 'reward:b' has NaN.* row 3"),
        ({"reward:b": pa.nulls(4)}, {}, "column 'reward:b' is null; expected numbers.*'None' in row 1"),
        ({"reward:b": ["0", "1", "good", "1"]}, {}, "column 'reward:b' is string.*'good' in row 3"),
        ({"x": [1.0, float("inf"), 2, 3]}, {}, "column 'x' has .* row 2"),
        ({"x": ["1", "2", "3", "six"]}, {}, "column 'x' is string; expected numbers.*'six' in row 4"),
        ({"domain": ["p", None, "q", "q"]}, {}, "column 'domain' names no domain in row 2"),
        ({"domain": [0.5, 1, 2, 3]}, {}, "column 'domain' is double; expected text or whole numbers"),
        ({"cost:a": [1.0] * 4}, {}, "column 'cost:b' is missing; expected costs of all arms"),
        ({"cost:a": [1.0] * 4, "cost:b": [1.0, 2.0, -3.0, 1.0]}, {}, "cost of 'b' is -3.0 in row 3"),
        ({"cost:a": [1.0] * 4, "cost:b": [1.0] * 4, "cost:c": [1.0] * 4}, {}, "'cost:c' is the cost of an arm without"),
        ({}, {"price": 0.5}, "price=0.5: .* has no costs"),
        ({}, {"label": "x"}, "label='x': .* has rewards of all arms .* needs no label"),
        ({}, {"label": "z"}, "label='z': .* needs no label"),
        ({"domain": [1, 2, 3, 4]}, {"heterogeneity": "domain", "domain_column": "area"}, "column='area': .*no such"),
    ],
)  # fmt: skip
def test_bad_reward_tables(tmp_path, columns, settings, pattern):
    path = written(tmp_path, **columns)[0]
    with pytest.raises(ValueError, match=pattern) as caught:
        make_environment(plain(environment=path, **settings))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("without", "pattern"),
    [(("reward:b",), "has 1 arm, reward:a; expected at least 2"), (("x", "y"), "has no column besides rewards")],
)
def test_missing_columns(tmp_path, without, pattern):
    with pytest.raises(ValueError, match=pattern):
        make_environment(plain(environment=written(tmp_path, without=without)[0]))


def test_prices_of_all_arms_or_none(tmp_path):
    path = written(tmp_path, {"price_per_million_output_tokens": json.dumps({"a": 1.0})})[0]
    with pytest.raises(ValueError, match="has no price of 'b'"):
        make_environment(plain(environment=path))


def test_the_shipped_routing_table():
    data = (resources.files("fnbandit") / "data" / "routing.parquet").read_bytes()
    digest = "73bc4b7aed81bc3f750bca424a301aed2e9f13c294acf488f647e4a63e106862"
    assert hashlib.sha256(data).hexdigest() == digest
    notes = (resources.files("fnbandit") / "data" / "README.md").read_text()
    assert digest in notes
    for owner in ("LLMRouter project (University of Illinois)", "WordLlama", "MIT licence"):
        assert owner in notes
    table = pyarrow.parquet.read_table(pa.BufferReader(data))
    assert not {"question", "text", "prompt"} & set(table.column_names)
    environment = make_environment(Config(environment="routing", standardization="none"))
    assert (environment.arms, environment.dim) == (9, 41)
    assert environment.arm_names[3] == "llama-3.1-nemotron-51b-instruct"
    np.testing.assert_allclose(environment.costs, [0.2, 0.1, 0.2, 0.9, 0.9, 0.9, 0.2, 0.2, 0.2])
    # The lines by which learners are judged, as the data's README has them.
    rewards = np.column_stack([table[f"reward:{name}"].to_numpy().astype(float) for name in environment.arm_names])
    domains = np.array(table["domain"].to_pylist())
    best = {name: rewards[domains == name].mean(0).max() * (domains == name).sum() for name in set(domains)}
    assert len(best) == 14 and len(rewards) == 5608
    lines = [rewards.mean(), rewards.mean(0).max(), sum(best.values()) / 5608, rewards.max(1).mean()]
    assert [f"{line:.3f}" for line in lines] == ["0.429", "0.621", "0.670", "0.802"]
    assert all(f"| {line:.3f} |" in notes for line in lines)


def test_routing_deals_a_domain_to_each_agent():
    config = Config(environment="routing")
    assert (config.agents, config.heterogeneity, config.coding) == (14, "domain", "one-hot")
    assert Config(environment="routing", algorithm="dislinucb").coding == "disjoint"
    environment = make_environment(config)
    table = pyarrow.parquet.read_table(
        pa.BufferReader((resources.files("fnbandit") / "data" / "routing.parquet").read_bytes())
    )
    features = np.column_stack([table[f"x{i}"].to_numpy() for i in range(32)])
    homes = {row.tobytes(): name for row, name in zip(features, table["domain"].to_pylist(), strict=True)}
    found = []
    for agent in (0, 1, 13, 14):
        contexts = environment.block(agent, 0).contexts[:, 0, :32].astype(np.float32)
        names = {homes[row.tobytes()] for row in contexts}
        assert len(names) == 1
        found.append(names.pop())
    assert found == ["agentverse-logicgrid", "agentverse-mgsm", "trivia_qa", "agentverse-logicgrid"]
