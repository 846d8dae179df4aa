"""Classes and functions given as objects, on Ray by value; a federated algorithm of a user's own; callbacks."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from helpers import plain

from fnbandit import Config, Group, Scored, simulate
from fnbandit.config.registry import collect_objects
from fnbandit.runs import Checkpointing, LocalRun
from fnbandit.simulation.results import collect
from workflows.examples.own_federated import FourierUCB

FOURIER = "workflows.examples.own_federated:FourierUCB"
FEDERATED = {"algorithm": FOURIER, "dim": 3, "horizon": 40, "agents": 6, "trigger": "logdet", "threshold": 1.0}


def make_last():
    class LastArm(Group):
        def scores(self, iteration, contexts):
            return Scored(contexts.new_tensor(range(contexts.shape[1])).expand(contexts.shape[:2]))

        def learn(self, iteration, contexts, arms, rewards, evidence):
            pass

    return LastArm


def first(x):
    return x[:, 0]


def test_classes_and_functions_are_names_in_a_config():
    assert Config(algorithm=FourierUCB).algorithm == FOURIER
    config = Config(algorithm=make_last(), environment=first, agents=2, horizon=5)
    assert config.algorithm == "test_own_objects:make_last.<locals>.LastArm"
    assert config.environment == "test_own_objects:first"
    assert list(collect_objects(vars(config))) == [config.algorithm]  # the function can be imported elsewhere
    assert (simulate(config).arms == 3).all()
    assert config.replace(algorithm=FourierUCB).algorithm == FOURIER
    with pytest.raises(
        ValueError, match="environment=<function .*: expected a name, a class, or a function that has a"
    ):
        Config(environment=lambda x: x[:, 0])


NOTEBOOK = """
from fnbandit import Config, Group, Scored, Study, simulate
from fnbandit.federation.triggers import Trigger
class Mine(Group):
    def scores(self, iteration, contexts):
        return Scored(contexts[:, :, 0])
    def learn(self, iteration, contexts, arms, rewards, evidence):
        pass
class Third(Trigger):
    measures = False
    def next_round(self, last_round):
        return last_round + 3
def mine(x):
    return x[:, 1]
if __name__ == "__main__":
    for config in (Config(algorithm=Mine, environment=mine, agents=4, horizon=10),
                   Config(algorithm="__main__:Mine", agents=4, horizon=10),
                   Config(trigger=Third, agents=4, horizon=10, width=4)):
        assert (simulate(config, engine="ray").arms == simulate(config).arms).all()
    base = Config(algorithm=Mine, horizon=10)
    record = Study(base, sweep={"agents": [2, 4]}).run("study", engine="ray", agents_per_actor=1, tracking="none")
    assert len(record.finished) == 2
    print("the same")
"""


def test_classes_of_a_script_work_on_ray_and_never_from_a_stored_study(tmp_path, ray_cluster, monkeypatch):
    import os

    (tmp_path / "script.py").write_text(NOTEBOOK)
    environment = os.environ | {"RAY_ADDRESS": ray_cluster}
    done = subprocess.run([sys.executable, "script.py"], capture_output=True, text=True, timeout=240, cwd=tmp_path,
                          env=environment)  # fmt: skip
    assert done.returncode == 0 and done.stdout.strip().endswith("the same"), done.stderr
    for path in (tmp_path / "study").rglob("summary.json"):
        path.unlink()  # so that there is something to resume
    command = [sys.executable, "-m", "workflows", "resume", "study", "--trust"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 2 and "algorithm='__main__:Mine': cannot import it" in done.stderr, done.stderr


@pytest.mark.parametrize(
    "more",
    [{}, {"messages": "quantized"}, {"participation": "fraction"}, {"diagonal": True}, {"trigger": "always"}],
    ids=lambda more: " ".join(more) or "plain",
)
def test_an_own_federated_algorithm_in_groups_and_from_a_checkpoint(tmp_path, more):
    config = Config().replace(**FEDERATED | more)
    whole = simulate(config)
    assert len(whole.rounds) > 1 and whole.communication.total.bytes_up > 0
    np.testing.assert_array_equal(simulate(config, groups=3).arms, whole.arms)
    for segment in LocalRun(config, Checkpointing(str(tmp_path), seconds=0, rounds=1)).segments():
        if segment.end >= 20:
            break
    again = LocalRun(config, Checkpointing(str(tmp_path)), resume=True).result()
    np.testing.assert_array_equal(again.arms, whole.arms)
    assert whole.regret.sum() < 0.7 * simulate(config.replace(algorithm="random")).regret.sum()


def test_an_own_federated_algorithm_on_ray(ray_cluster):
    from actors import Options, RayRun

    config = Config(**FEDERATED)
    there, here = RayRun(config, Options(agents_per_actor=2, cpus_per_actor=0.1)).result(), simulate(config)
    np.testing.assert_array_equal(there.arms, here.arms)
    assert there.rounds == here.rounds and there.communication.total == here.communication.total


def test_a_callback_sees_every_segment_and_may_stop():
    config = plain(agents=2, horizon=100, width=4, trigger="period", period=10)
    whole, seen = simulate(config), []
    assert simulate(config, on_segment=seen.append).rounds == whole.rounds
    assert [segment.end for segment in seen] == [segment.end for segment in whole.segments]
    part = simulate(config, on_segment=lambda segment: segment.end >= 30)
    assert part.arms.shape == (30, 2)
    np.testing.assert_array_equal(part.arms, whole.arms[:30])
    with pytest.raises(ValueError, match="^policy: the run ended after 30 of 100 iterations; expected all$"):
        part.policy()
    with pytest.raises(ZeroDivisionError):
        simulate(config, on_segment=lambda segment: 1 / 0)


def test_a_callback_stops_a_run_on_ray(ray_cluster):
    config = plain(agents=2, horizon=2000, width=4, trigger="period", period=10)
    part = simulate(config, engine="ray", on_segment=lambda segment: segment.end >= 30)
    assert 30 <= len(part.arms) < 2000
    expected = collect(config, simulate(config.replace(horizon=len(part.arms))).segments)
    np.testing.assert_array_equal(part.arms, expected.arms)
