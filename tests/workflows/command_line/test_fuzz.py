"""Whatever stands in a config, a file or a table: one line or what it says; never another error, never other values."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import string
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import tomli_w
from helpers import folder, interrupt, plain, steps
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_records import written

from fnbandit import Config
from fnbandit.config import FIELDS
from fnbandit.environments import make_environment
from fnbandit.storage.checkpoints import CheckpointStore
from fnbandit.storage.records import read_run
from workflows.command_line.arguments import StudyArguments, parse_request
from workflows.studies.settings import SETTINGS, Settings
from workflows.studies.study import RunSpec, StudyPlan, load_study

FEW = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), database=None)
MANY = settings(FEW, max_examples=3000)


def fuzzed(strategy):
    """A test with a few cases in every session, and with thousands among the long ones."""

    def decorate(check):
        name = check.__name__.removeprefix("check_")

        @FEW
        @given(strategy)
        def few(case):
            check(case)

        @pytest.mark.long
        @pytest.mark.timeout(1800)
        @MANY
        @given(strategy)
        def many(case):
            check(case)

        globals()[f"test_{name}"], globals()[f"test_many_{name}"] = few, many
        return check

    return decorate


@contextlib.contextmanager
def one_line_at_most():
    """Bad input is a ValueError of one line."""
    logging.disable(logging.WARNING)
    error: ValueError | None = None
    try:
        yield
    except ValueError as found:
        error = found
    finally:
        logging.disable(logging.NOTSET)
    if error is not None:
        # Subclasses of others', such as UnicodeDecodeError, are a mistake of ours that happens to be a ValueError.
        assert type(error).__name__ in ("ValueError", "CheckpointError", "MissingTable"), repr(error)
        assert str(error) and "\n" not in str(error), str(error)


texts = st.text(max_size=12) | st.sampled_from(
    ["theory", "auto", "cosine", "a.csv", "x:y", ":", "cuda:99", "\0", "[/x]"]
)
numbers = st.integers() | st.floats() | st.sampled_from([0, -1, 2**31, 2**63, 2**64, 10**30, 1e308, 5e-324, 0.5, 1.0])
scalars = st.none() | st.booleans() | numbers | texts
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=2))
names = st.sampled_from([*FIELDS, *SETTINGS, "preset", "seeds", "nonsense", "agent"])


@fuzzed(st.dictionaries(st.sampled_from([*FIELDS, "nonsense"]), values, max_size=4))
def check_configs(fields):
    with one_line_at_most():
        config = Config(**{str(name): value for name, value in fields.items()}) if "nonsense" not in fields else None
        if config is not None:
            assert all(getattr(config, name) == value for name, value in fields.items())
            assert Config.preset("tuned").replace(**fields) is not None


@fuzzed(st.lists(st.tuples(names, texts | numbers.map(str)), max_size=4))
def check_command_lines(flags):
    argv = [word for name, text in flags for word in (f"--{name.replace('_', '-')}", text)]
    with one_line_at_most(), contextlib.redirect_stdout(io.StringIO()):
        if not {"-h", "--help"} & set(argv):
            parse_request("fnbandit run", argv, False, StudyArguments)


def toml_text(case):
    content, noise = case
    try:
        text = tomli_w.dumps(content)
    except (TypeError, ValueError, UnicodeEncodeError):
        text = "agents = 3\nseeds = 2\n"
    if noise is not None:
        place, rubbish = noise
        text = text[: place % (len(text) + 1)] + rubbish + text[place % (len(text) + 1) :]
    return text.encode("utf-8", "surrogatepass")


@fuzzed(
    st.tuples(
        st.dictionaries(names, values, max_size=4), st.none() | st.tuples(st.integers(0, 999), st.text(max_size=4))
    ).map(toml_text)
    | st.binary(max_size=60)
)
def check_toml_files(data):
    Path("fuzz.toml").write_bytes(data)
    with one_line_at_most():
        parse_request("fnbandit sweep", ["fuzz.toml"], True, StudyArguments)


def usable(path, label):
    """An environment, or one line; what is drawn from it are numbers."""
    with one_line_at_most():
        environment = make_environment(plain(environment=str(path), label=label))
        if environment.arms * environment.dim < 10**5:
            block = environment.block(0, 0)
            assert np.isfinite(block.contexts).all() and (block.means.sum(1) == 1).all()


cells = st.sampled_from(["", "1", "2.5", "-3", "x", "y", "NaN", "NULL", "inf", '"', '"a,b"', "1e400", "é", "\0", " "])
lines = st.lists(cells, max_size=4).map(",".join)


@fuzzed(st.lists(lines, max_size=8).map(lambda rows: "\n".join(["a,b,kind", *rows]).encode()) | st.binary(max_size=80))
def check_csv_tables(data):
    Path("fuzz.csv").write_bytes(data)
    usable("fuzz.csv", "kind")


KINDS = [
    pa.int8(), pa.uint64(), pa.float16(), pa.float64(), pa.bool_(), pa.string(), pa.large_string(), pa.binary(),
    pa.date32(), pa.timestamp("us"), pa.decimal128(10, 2), pa.list_(pa.int64()), pa.struct([("a", pa.int64())]),
    pa.null(), pa.dictionary(pa.int32(), pa.string()), pa.dictionary(pa.int8(), pa.float64()),
]  # fmt: skip


def column(kind, count, random):
    """Some values of an Arrow type, with nulls among them now and then."""
    makers = {
        "bool": lambda: bool(random.integers(2)),
        "float": lambda: float(random.choice([1.5, -2, np.nan, np.inf, 1e300])),
        "int": lambda: int(random.integers(0, 100)), "text": lambda: str(random.choice(["x", "y", "", "NULL", "ü"])),
    }  # fmt: skip
    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_struct(inner):
        made = [{"a": 1}] * count
    elif pa.types.is_list(inner):
        made = [[1, 2]] * count
    elif pa.types.is_null(inner):
        made = [None] * count
    elif pa.types.is_binary(inner):
        made = [b"x"] * count
    else:
        words = {"float": "float", "halffloat": "float", "double": "float", "bool": "bool", "string": "text"}
        maker = makers[words.get(str(inner).removeprefix("large_"), "int")]
        made = [maker() for _ in range(count)]
    if pa.types.is_float16(inner):
        made = [np.float16(min(value, 1e4)) for value in made]
    if random.integers(3) == 0 and count:
        made[int(random.integers(count))] = None
    array = pa.array(made, inner)
    return array.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else array


@st.composite
def parquet_files(draw):
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    count = draw(st.integers(0, 9))
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=0, max_size=3))
    label = draw(st.sampled_from([pa.string(), pa.int8(), *KINDS]))
    arrays = [column(kind, count, random) for kind in [*kinds, label]]
    names = [*string.ascii_lowercase[: len(kinds)], "kind"]
    if kinds and draw(st.integers(0, 9)) == 0:
        names[0] = "kind"
    sink = io.BytesIO()
    pyarrow.parquet.write_table(pa.Table.from_arrays(arrays, names), sink)
    data = bytearray(sink.getvalue())
    for _ in range(draw(st.integers(0, 3)) if draw(st.booleans()) else 0):
        data[draw(st.integers(0, len(data) - 1))] ^= 1 << draw(st.integers(0, 7))
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.integers(0, 9)) == 0 else data)


@fuzzed(parquet_files())
def check_parquet_tables(data):
    Path("fuzz.parquet").write_bytes(data)
    usable("fuzz.parquet", "kind")


@pytest.fixture(scope="module", autouse=True)
def in_a_directory_of_its_own(tmp_path_factory):
    """For the whole module: making records and checkpoints anew for every case would take too long."""
    with contextlib.chdir(tmp_path_factory.mktemp("fuzz")):
        for name, finished in (("running", False), ("finished", True)):
            written(Path(name), finished=finished)
        interrupt(SAVED, Path("saved"), segments=6)
        points = [RunSpec("agents=2", plain(agents=2), "two", 3.5), RunSpec("agents=3", plain(agents=3))]
        Path("study").mkdir()
        StudyPlan("mine", Path("study"), points, Settings(), "A title").save()
        yield


SAVED = plain(agents=2, horizon=30, dim=3, width=4, trigger="logdet", threshold=3.0)
damages = st.tuples(
    st.sampled_from(["flip", "cut", "insert", "zero", "swap"]), st.integers(0, 2**20), st.integers(0, 2**20),
    st.binary(min_size=1, max_size=9),
)  # fmt: skip


def damaged(data, damage):
    kind, first, second, rubbish = damage
    place, other = first % len(data), second % len(data)
    altered = bytearray(data)
    if kind == "flip":
        altered[place] ^= 1 << second % 8
    elif kind == "cut":
        del altered[place:]
    elif kind == "insert":
        altered[place:place] = rubbish
    elif kind == "zero":
        altered[min(place, other) : max(place, other)] = bytes(abs(place - other))
    else:
        altered[place], altered[other] = altered[other], altered[place]
    return bytes(altered)


@contextlib.contextmanager
def while_damaged(path, damage):
    data = path.read_bytes()
    try:
        path.write_bytes(damaged(data, damage))
        yield
    finally:
        path.write_bytes(data)


FILES = ["running/trace.arrows", "running/rounds.arrows", "running/summary.json", "finished/trace.parquet",
         "finished/rounds.parquet", "finished/summary.json"]  # fmt: skip


@fuzzed(st.tuples(st.sampled_from(FILES), damages))
def check_records(case):
    path = Path(case[0])
    logging.disable(logging.WARNING)
    whole = read_run(path.parent)
    with while_damaged(path, case[1]), one_line_at_most():
        found = read_run(path.parent)
        for name in ("trace", "rounds"):
            one, other = getattr(found, name), getattr(whole, name)
            assert one.equals(other.slice(0, len(one)))
            assert not whole.finished or len(one) == len(other)
        assert found.summary == whole.summary


@fuzzed(
    st.tuples(
        st.integers(0, 1), st.sampled_from(["agents.safetensors", "server.safetensors", "manifest.json"]), damages
    )
)
def check_checkpoints(case):
    which, name, damage = case
    good = CheckpointStore("saved").latest()
    step = steps("saved")[which]
    with while_damaged(folder(Path("saved"), step) / name, damage):
        found = CheckpointStore("saved").latest()
    assert found.iteration in steps("saved")
    whole = {key: value[:, : found.iteration] for key, value in good.agents.items() if key in ("arms", "rewards")}
    for key, value in whole.items():
        assert found.agents[key].equal(value)
    assert found.config == good.config


@fuzzed(damages | st.tuples(st.sampled_from(["version", "name", "title", "settings", "points"]), values))
def check_studies(case):
    path = Path("study/study.json")
    data = path.read_bytes()
    try:
        if len(case) == 2:
            path.write_text(json.dumps(json.loads(data) | {case[0]: case[1]}))
        else:
            path.write_bytes(damaged(data, case))
        with one_line_at_most():
            for point in load_study(path.parent).points:
                inside = (path.parent / point.path).resolve()
                assert inside.is_relative_to(path.parent.resolve())
    finally:
        path.write_bytes(data)
