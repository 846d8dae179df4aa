"""The commands export and replay."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from fnbandit import Config, Policy, simulate
from fnbandit.environments import make_environment
from fnbandit.storage.records import read_summary, write_summary
from workflows.command_line import main

CONFIG = Config(agents=2, horizon=12, training_cap=10, width=6)


@pytest.fixture(autouse=True)
def in_a_directory_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_export_and_replay(tmp_path, capsys):
    result = simulate(CONFIG)
    result.save("run")
    assert main(["export", "run", "policy.safetensors", "--agent", "1"]) == 0
    assert capsys.readouterr().out == "policy   policy.safetensors\n"
    policy, environment = Policy.load("policy.safetensors"), make_environment(CONFIG)
    contexts = np.concatenate([environment.block(7, index).contexts for index in range(200)])
    np.testing.assert_array_equal(policy.scores(contexts), result.policy(1).scores(contexts))
    means = np.concatenate([environment.block(7, index).means for index in range(200)])
    random = np.random.default_rng(0)
    arms, rows = random.integers(4, size=len(means)), np.arange(len(means))
    columns = {"context": list(contexts.reshape(len(means), -1)), "arm": arms, "reward": means[rows, arms],
               "probability": np.full(len(means), 0.25)}  # fmt: skip
    pyarrow.parquet.write_table(pa.table(columns), "log.parquet")
    assert main(["replay", "log.parquet", "--policy", "policy.safetensors", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    truth = means[rows, policy.act(contexts)].mean()
    assert abs(found["mean"] - truth) < 4 * found["standard_error"]
    assert found["matched"] == (policy.act(contexts) == arms).sum()
    assert main(["replay", "log.parquet", "--policy", "policy.safetensors"]) == 0
    assert f"rows     {found['matched']} of 6400 match\n" in capsys.readouterr().out


def test_what_is_refused(tmp_path, capsys):
    simulate(CONFIG).save("run")
    summary = read_summary(tmp_path / "run")

    def refused(*words, **changes):
        write_summary(tmp_path / "run", summary | changes)
        code = main(list(words))
        printed = capsys.readouterr().err
        assert printed.count("\n") == 1
        return code, printed

    export = ("export", "run", "policy.safetensors")
    assert refused(*export, "--agent", "2") == (2, "fnbandit: agent=2: expected a number from 0 to 1\n")
    assert "run is failed" in refused(*export, status="failed")[1]
    assert "no such folder" in refused("export", "run", "nowhere/policy.safetensors")[1]
    own = summary["config"] | {"environment": "os:getcwd"}
    assert "imports environment=os:getcwd; --trust allows it" in refused(*export, config=own)[1]
    code, line = refused(*export, regret=summary["regret"] + 0.5)
    assert code == 1
    assert "the record has" in line
    assert not (tmp_path / "policy.safetensors").exists()
    assert refused("replay", "log.parquet", "--policy", "nowhere")[0] == 2
    assert "policy: is missing" in refused("replay", "log.parquet")[1]
