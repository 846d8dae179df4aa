"""Environments: what is drawn, tables, a user's own, and what is refused."""

from __future__ import annotations

from importlib import resources

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from helpers import plain

from fnbandit import simulate
from fnbandit.environments import make_environment
from fnbandit.environments.tables import STANDARDIZATIONS, load_table
from fnbandit.numerics.randomness import BLOCK, Purpose, generator


def test_draws_depend_on_seed_agent_and_block_only():
    one, again = (make_environment(plain(agents=n, horizon=h)) for n, h in ((2, 10), (9, 5000)))
    np.testing.assert_array_equal(one.block(1, 3).contexts, again.block(1, 3).contexts)
    np.testing.assert_array_equal(one.block(1, 3).noise, again.block(1, 3).noise)
    blocks = [one.block(0, 0), one.block(0, 1), one.block(1, 0), make_environment(plain(seed=1)).block(0, 0)]
    for i, left in enumerate(blocks):
        for right in blocks[i + 1 :]:
            assert np.abs(left.contexts - right.contexts).min() > 0
    streams = [generator(0, purpose).random() for purpose in Purpose]
    assert len(set(streams)) == len(streams)


@pytest.mark.parametrize(("name", "value"), [("cosine", lambda z: np.cos(3 * z)), ("square", lambda z: 10 * z**2)])
def test_synthetic_functions(name, value):
    config = plain(environment=name, noise=0.5)
    environment = make_environment(config)
    blocks = [environment.block(agent, 0) for agent in range(40)]
    contexts = np.concatenate([b.contexts for b in blocks]).reshape(-1, 10)
    means = np.concatenate([b.means for b in blocks]).ravel()
    np.testing.assert_allclose(np.linalg.norm(contexts, axis=1), 1)
    direction = generator(config.seed, Purpose.TASK).standard_normal(10)
    direction /= np.linalg.norm(direction)
    np.testing.assert_allclose(means, value(contexts @ direction), atol=1e-12)
    assert np.concatenate([b.noise for b in blocks]).std() == pytest.approx(0.5, rel=0.1)


@pytest.mark.parametrize(("name", "rows", "features", "classes"), [("shuttle", 58_000, 9, 7), ("magic", 19_020, 10, 2)])
def test_shipped_tables(name, rows, features, classes):
    data = (resources.files("fnbandit") / "data" / f"{name}.parquet").read_bytes()
    values, labels = load_table(data, f"{name}.parquet", "class")
    assert values.shape == (rows, features)
    assert (
        np.bincount(labels).tolist()
        == {
            "shuttle": [45586, 50, 171, 8903, 3267, 10, 13],
            "magic": [12332, 6688],
        }[name]
    )
    environment = make_environment(plain(environment=name))
    assert (environment.arms, environment.dim) == (classes, classes * features)
    block = environment.block(3, 0)
    assert block.contexts.shape == (BLOCK, classes, classes * features)
    assert block.means.sum(1).tolist() == [1.0] * BLOCK
    cells = block.contexts.reshape(BLOCK, classes, classes, features)
    for arm in range(classes):
        np.testing.assert_array_equal(cells[:, arm, arm], cells[:, 0, 0])
        assert np.abs(np.delete(cells[:, arm], arm, axis=1)).max() == 0
    assert not block.noise.any()


def test_standardised_rows_then_columns():
    rows = np.array([[3.0, 4.0, 0.0], [0.0, 5.0, 0.0], [0.0, 0.0, 0.0]])
    unit = np.array([[0.6, 0.8], [0.0, 1.0], [0.0, 0.0]])
    expected = (unit - unit.mean(0)) / unit.std(0)
    found = STANDARDIZATIONS["paper"](rows)
    np.testing.assert_allclose(found[:, :2], expected)
    assert not found[:, 2].any()


def small_table(tmp_path, **columns):
    table = pa.table({"a": [1.0, 2.0, 3.0, 4.0, 5.0], "b": [2, 1, 0, 1, 7], "kind": list("yxyxx")} | columns)
    pyarrow.parquet.write_table(table, tmp_path / "small.parquet")
    pyarrow.csv.write_csv(table, tmp_path / "small.csv")
    return tmp_path / "small.parquet", tmp_path / "small.csv"


def test_own_table_goes_round_in_new_orders(tmp_path):
    parquet, csv = small_table(tmp_path)
    environment = make_environment(plain(environment=str(parquet), label="kind"))
    assert (environment.arms, environment.dim) == (2, 4)
    rows = environment.block(0, 0).contexts[:30, 0, :2].reshape(6, 5, 2)
    orders = [tuple(map(tuple, part)) for part in rows]
    assert all(len(set(order)) == 5 for order in orders)
    assert len({frozenset(order) for order in orders}) == 1
    assert len(set(orders)) > 2
    results = [simulate(plain(environment=str(path), label="kind", agents=2, horizon=20, training_rate=0.01)).arms
               for path in (parquet, csv)]  # fmt: skip
    np.testing.assert_array_equal(*results)


def test_domain_is_the_whole_table_where_it_is_small(tmp_path):
    environment = make_environment(plain(environment=str(small_table(tmp_path)[0]), label="kind"))
    points = environment.domain(512)
    assert points.shape == (10, 4)
    assert len(np.unique(points, axis=0)) == 10
    assert environment.domain(4).shape == (4, 4)
    assert make_environment(plain()).domain(7).shape == (7, 10)


def own_reward(x):
    return x[:, 0] ** 2


def nan_reward(x):
    return np.full(len(x), np.nan)


def flat_reward(x):
    return 1.0


def test_own_function():
    config = plain(environment="test_environments:own_reward", agents=2, horizon=20, dim=3)
    block = make_environment(config).block(0, 0)
    np.testing.assert_allclose(block.means, block.contexts[:, :, 0] ** 2)
    assert simulate(config).regret.shape == (20, 2)


@pytest.mark.parametrize(
    ("environment", "pattern"),
    [
        ("test_environments:nan_reward", "nan_reward.*NaN.*finite number"),
        ("test_environments:flat_reward", r"flat_reward.*shape \(\).*expected \(2,\)"),
        ("test_environments:missing", "missing.*cannot import.*package.module:Name"),
        ("no_such_module:f", "no_such_module.*cannot import"),
        ("nowhere.parquet", "nowhere.parquet.*no such file"),
        ("cosin", r"cosin.*did you mean 'cosine'\?.*square"),
    ],
)
def test_bad_environments(environment, pattern):
    with pytest.raises(ValueError, match=f"environment='.*{pattern}"):
        make_environment(plain(environment=environment))


@pytest.mark.parametrize(
    ("columns", "label", "pattern"),
    [
        ({}, "class", "label='class'.*no such column.*'a', 'b', 'kind'"),
        ({"kind": ["x"] * 5}, "kind", "label='kind'.*has 1 class; expected at least 2"),
        (
            {"kind": ["x", None, "y", "x", "y"]},
            "kind",
            "label='kind': 1 of 5 rows of .* no class, the first is row 2",
        ),
        ({"a": [1.0, float("nan"), 1.0, 1.0, 1.0]}, "kind", "column 'a' has NaN"),
        ({"b": [1, None, 1, 1, 1]}, "kind", "column 'b' has NaN"),
        ({"b": list("vwxyz")}, "kind", "column 'b' is string; expected numbers"),
    ],
)
def test_bad_tables(tmp_path, columns, label, pattern):
    path, _ = small_table(tmp_path, **columns)
    with pytest.raises(ValueError, match=pattern):
        make_environment(plain(environment=str(path), label=label))


CATEGORIES = pa.array(list("yxyxx")).dictionary_encode()


@pytest.mark.parametrize(
    "labels",
    [
        CATEGORIES,
        pa.array([1, 0, 1, 0, 0]),
        pa.array([1.5, 0.5, 1.5, 0.5, 0.5]),
        pa.array(np.array([1.5, 0.5, 1.5, 0.5, 0.5], dtype=np.float16)),
        pa.array([True, False, True, False, False]),
        pa.array(list("yxyxx"), pa.large_string()),
        pa.array([7, 3, 7, 3, 3]).dictionary_encode(),
    ],
    ids=lambda labels: str(labels.type),
)
def test_labels_of_every_kind(tmp_path, labels):
    path, _ = small_table(tmp_path)
    table = pyarrow.parquet.read_table(path).drop_columns(["kind"]).append_column("kind", labels)
    pyarrow.parquet.write_table(table, path)
    _, classes = load_table(path.read_bytes(), str(path), "kind")
    assert classes.tolist() == [1, 0, 1, 0, 0]


@pytest.mark.parametrize(
    ("labels", "pattern"),
    [
        (["a", "", "b", " ", "a"], "2 of 5 rows of .* have no class, the first is row 2"),
        (["a", "b", "NULL", "nan", "N/A"], "3 of 5 rows of .* have no class, the first is row 3"),
        ([1.0, float("nan"), 2.0, float("inf"), 1.0], "2 of 5 rows"),
        ([None] * 5, "5 of 5 rows"),
        ([[1], [2], [1], [2], [1]], r"is list<.*>.*; expected text, numbers or booleans"),
        ([{"a": 1}, {"a": 2}, {"a": 1}, {"a": 2}, {"a": 1}], "is struct<.*>.*; expected text"),
        ([b"a", b"b", b"a", b"b", b"a"], "is binary.*; expected text"),
    ],
    ids=str,
)
def test_labels_that_are_none(tmp_path, labels, pattern):
    path = tmp_path / "t.parquet"
    pyarrow.parquet.write_table(pa.table({"a": [1.0, 2.0, 3.0, 4.0, 5.0], "kind": labels}), path)
    with pytest.raises(ValueError, match=f"label='kind': .*{pattern}") as caught:
        make_environment(plain(environment=str(path), label="kind"))
    assert "\n" not in str(caught.value)


def test_no_class_in_a_csv_file_is_no_class(tmp_path):
    (tmp_path / "t.csv").write_text("a,kind\n1,x\n2,\n3,y\n4,NULL\n")
    with pytest.raises(ValueError, match="2 of 4 rows of .* have no class, the first is row 2"):
        make_environment(plain(environment=str(tmp_path / "t.csv"), label="kind"))
    (tmp_path / "t.csv").write_text("kind,a,kind\nx,1,x\ny,2,y\n")
    with pytest.raises(ValueError, match="label='kind': .* has 2 such columns"):
        make_environment(plain(environment=str(tmp_path / "t.csv"), label="kind"))


def test_columns_of_a_dictionary_are_decoded(tmp_path):
    values = pa.array([1.0, 3.0, 1.0, 3.0, 2.0])
    tables = []
    for column in (values, values.dictionary_encode()):
        path, _ = small_table(tmp_path, b=column)
        tables.append(load_table(path.read_bytes(), str(path), "kind"))
    for one, other in zip(*tables, strict=True):
        np.testing.assert_array_equal(one, other)
    assert values.to_pylist() in tables[1][0].T.tolist()


def test_a_table_with_more_classes_than_memory(tmp_path):
    kinds = np.arange(200_000) // 2
    pyarrow.parquet.write_table(pa.table({"a": kinds * 1.0, "kind": kinds}), tmp_path / "t.parquet")
    with pytest.raises(ValueError, match="arms=100000, dim=100000: the contexts of 32 iterations"):
        make_environment(plain(environment=str(tmp_path / "t.parquet"), label="kind"))


def test_a_file_that_is_no_table(tmp_path):
    path = tmp_path / "broken.parquet"
    path.write_bytes(b"not a table")
    with pytest.raises(ValueError, match="cannot be read as parquet"):
        make_environment(plain(environment=str(path)))


def test_what_to_do_about_a_table_is_said(tmp_path, caplog):
    path = tmp_path / "t.csv"

    def refuse(text):
        path.write_text(text)
        with pytest.raises(ValueError, match="label|column") as caught:
            make_environment(plain(environment=str(path), label="kind"))
        return str(caught.value)

    numbers = "\n".join(f"{n}.5,{n}" for n in range(50))
    message = refuse(f"kind,a\n{numbers}\n")
    assert "50 classes in 50 rows of" in message and "is this a label?" in message
    holes = refuse("kind,a,b,c\nx,1,,3\ny,2,4,\nx,1,2,3\n")
    assert "column 'b', 'c' has NaN, empty or infinite values in 2 of 3 rows, the first in row 1; expected" in holes
    texts = refuse("kind,a,b\nx,u,v\ny,u,w\n")
    assert "column 'a' (and 'b') is string; expected numbers: drop it or encode it" in texts
    path.write_text(",kind,a\n0,x,3\n1,y,4\n2,x,9\n")
    make_environment(plain(environment=str(path), label="kind"))
    assert "column '' numbers the rows, as pandas' index does" in caplog.text
