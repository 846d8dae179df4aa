"""A user's own algorithm, trigger, weight, aggregation, message form and task: named or handed in, on Ray too."""

from __future__ import annotations

import numpy as np
import own_parts
import pytest
from helpers import plain

from fnbandit import simulate
from fnbandit.runs import Checkpointing, LocalRun

SMALL = {"agents": 3, "horizon": 40, "dim": 4, "width": 6, "training_rate": 0.01}


def test_an_own_algorithm_by_name():
    config = plain(algorithm="own_parts:MeanReward", environment="own_parts:TwoArms", agents=2, horizon=10)
    result = simulate(config)
    # Every arm once, then the one that pays.
    np.testing.assert_array_equal(result.arms[:2].sum(0), [1, 1])
    assert (result.arms[2:] == 1).all()
    assert result.rounds == []


def test_an_own_algorithm_resumes(tmp_path):
    config = plain(**SMALL, algorithm="own_parts:MeanReward")
    for segment in LocalRun(config, Checkpointing(str(tmp_path), rounds=1)).segments():
        if segment.end >= 30:
            break
    resumed = LocalRun(config, Checkpointing(str(tmp_path)), resume=True).result()
    np.testing.assert_array_equal(resumed.arms, simulate(config).arms)


def test_an_own_optimiser_reads_the_config():
    own = simulate(plain(**SMALL, training_optimizer="own_parts:SquaredRate"))
    known = simulate(plain(**SMALL | {"training_rate": 1e-4}))
    np.testing.assert_allclose(own.theta, known.theta, rtol=1e-5, atol=1e-7)
    assert not np.allclose(own.theta, simulate(plain(**SMALL)).theta, rtol=1e-3)


def test_own_parts_of_a_round_by_name():
    assert simulate(plain(**SMALL, trigger="own_parts:PrimeTrigger")).rounds == [2, 3, 5, 7, 11, 13, 17, 19, 23, 29,
                                                                                 31, 37]  # fmt: skip
    assert (simulate(plain(**SMALL, weight="own_parts:HalfWeight")).alpha == 0.5).all()
    free = simulate(plain(**SMALL, messages="own_parts:Free"))
    assert free.communication.total.bytes_up == 0 < free.communication.total.bytes_down
    first = simulate(plain(**SMALL, aggregation="own_parts:FirstAgent"))
    assert not np.array_equal(first.theta, simulate(plain(**SMALL)).theta)


def test_an_environment_is_handed_in_as_object_class_or_function():
    config = plain(agents=2, horizon=30, width=4, training_rate=0.01)
    by_object = simulate(config, environment=own_parts.TwoArms())
    by_class = simulate(config, environment=own_parts.TwoArms)
    by_name = simulate(config.replace(environment="own_parts:TwoArms"))
    np.testing.assert_array_equal(by_object.arms, by_name.arms)
    np.testing.assert_array_equal(by_class.arms, by_name.arms)
    assert by_object.config == by_name.config
    by_function = simulate(config, environment=own_parts.first_coordinate)
    assert by_function.config.environment == "own_parts:first_coordinate"
    assert 0 < by_function.regret.sum(0).mean() < 30
    np.testing.assert_array_equal(simulate(config, environment=lambda x: x[:, 0]).arms, by_function.arms)


def test_what_is_no_part_is_told_in_one_line():
    with pytest.raises(ValueError, match=r"algorithm='own_parts:Nothing': cannot import it .*"):
        simulate(plain(**SMALL, algorithm="own_parts:Nothing"))
    with pytest.raises(ValueError, match="environment=3: is neither an environment nor a function"):
        simulate(plain(**SMALL), environment=3)

    class Half:
        def block(self, agent, index): ...

    with pytest.raises(ValueError, match="has no 'arms'; expected arms, dim, block, domain"):
        simulate(plain(**SMALL), environment=Half())


def test_on_ray_too(ray_cluster):
    from actors import Options, RayRun

    two = Options(agents_per_actor=2)
    for settings in ({"algorithm": "own_parts:MeanReward"}, {"trigger": "own_parts:PrimeTrigger"},
                     {"aggregation": "own_parts:FirstAgent", "messages": "own_parts:Free"}):  # fmt: skip
        config = plain(**SMALL | settings)
        there = RayRun(config, two).result()
        np.testing.assert_array_equal(there.arms, simulate(config).arms)
    config, environment = plain(**SMALL), own_parts.first_coordinate
    here = simulate(config, environment=environment)
    np.testing.assert_array_equal(RayRun(config, two, environment=environment).result().arms, here.arms)
    np.testing.assert_array_equal(simulate(config, environment=environment, engine="ray").arms, here.arms)
