"""Traits of every algorithm agree with the registry, and a user's subclass is treated as its base."""

from __future__ import annotations

import dataclasses

import pytest
from helpers import plain

from actors.layout import fastest
from fnbandit import Config, simulate
from fnbandit.algorithms.fn_ucb import FNUCB
from fnbandit.config.registry import ALGORITHMS, resolve_part
from fnbandit.environments import make_environment
from fnbandit.planning.duration import run_seconds
from fnbandit.runs import precision_warning
from fnbandit.theory.assumptions import remarks

BASES = {"fn-ucb": "own_parts:OwnFNUCB", "fn-ucb-async": "own_parts:OwnAsynchronous"}
"""Algorithms, and a user's subclass of each"""


@pytest.mark.parametrize("name", ALGORITHMS)
def test_traits_agree_with_the_fields_that_matter(name):
    traits, fields = resolve_part("algorithm", name).traits, ALGORITHMS[name].fields
    assert traits.has_network == ("width" in fields)
    assert traits.communicates == ("trigger" in fields)
    assert traits.uses_alpha == ("weight" in fields)
    assert traits.is_asynchronous == (name in ("fn-ucb-async", "fedlinucb"))
    assert traits.runs_in_one_group == (name == "pooled-neural-ucb")
    assert traits.averages_inverses == (name in ("fn-ucb-less-comm", "fn-ucb-async"))


def both(base: str, **settings) -> tuple[Config, Config]:
    """A config of an algorithm, and the same of a user's subclass."""
    return plain(algorithm=base, **settings), plain(algorithm=BASES[base], **settings)


def test_traits_are_frozen_and_inherited():
    with pytest.raises(dataclasses.FrozenInstanceError):
        FNUCB.traits.uses_alpha = False  # type: ignore[misc]
    for base, own in BASES.items():
        assert resolve_part("algorithm", own).traits is resolve_part("algorithm", base).traits


@pytest.mark.parametrize("base", BASES)
def test_a_subclass_gets_the_precision_warning(base):
    """N T ||g||^2 / lambda: tangent features are some 30 times as long as contexts, which give no warning."""
    config, own = both(base, agents=10, horizon=5000, regularization=0.05, statistics_dtype="float32")
    environment = make_environment(config)
    warning = precision_warning(config, environment)
    assert warning is not None and "float64 is safe" in warning
    assert precision_warning(own, environment) == warning
    assert precision_warning(config.replace(algorithm="linear-ucb"), environment) is None


@pytest.mark.parametrize("base", BASES)
def test_a_subclass_gets_the_remarks_of_the_theory(base):
    config, own = both(base, agents=2, horizon=20)
    environment = make_environment(config)
    assert remarks(own, environment) == remarks(config, environment) != []


def test_a_subclass_is_laid_out_by_the_cost_of_its_base():
    """30 agents of FN-UCB multiply 30 inverses in every iteration; 30 agents of a simple algorithm fit one actor."""
    settings = {"agents": 30, "horizon": 1000}
    environment = make_environment(plain())
    for config in both("fn-ucb", **settings):
        assert fastest(config, environment, most=2) == 2
    for config in (*both("fn-ucb-async", **settings), plain(algorithm="own_parts:MeanReward", **settings)):
        assert fastest(config, environment, most=2) == 1


@pytest.mark.parametrize("base", BASES)
def test_a_subclass_has_the_estimate_of_its_base(base):
    config, own = both(base, agents=8, horizon=300)
    assert run_seconds(own) == run_seconds(config) > 2 * run_seconds(config.replace(algorithm="own_parts:MeanReward"))


@pytest.mark.parametrize("base", BASES)
def test_a_subclass_runs_as_its_base(base):
    one, other = (simulate(config) for config in both(base, agents=2, horizon=6, width=4))
    assert (one.arms == other.arms).all() and one.rounds == other.rounds != []
