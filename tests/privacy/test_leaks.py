"""Neighbours through the whole stack: what leaves differs only where there is noise, and by no more than the clip."""

from __future__ import annotations

import functools
import math
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch
from transcripts import LOUD, Replaced, Transcript, run

from fnbandit import Config
from fnbandit.core import Triangle, Upload
from fnbandit.environments import make_environment
from fnbandit.privacy.releases import plan_releases

AGENT, EVENT = 2, 5
BASE = {"agents": 4, "horizon": 20, "dim": 3, "width": 4, "trigger": "geometric", "training_cap": 6,
        "training_least": 2, "training_effort": 12.0, "privacy_allow_noise": True, "privacy_reward_clip": 0.7,
        "privacy_clip": 0.05}  # fmt: skip
CASES = {
    "networks": {"algorithm": "fedigw"},
    "own inverses": {"algorithm": "fn-ucb-less-comm", "use_global": False},
    "gradients": {"algorithm": "fedigw", "federation": "gradients", "reward_unit": "one"},
    "statistics": {"algorithm": "dislinucb"},
    "tree": {"algorithm": "dislinucb", "privacy_factorization": "tree"},
    "last layer": {"algorithm": "fn-linear", "reward_unit": "one", "stop_training_after": 8},
    "last layer, gradients": {"algorithm": "fn-linear", "federation": "gradients", "reward_unit": "one"},
}
RUNS = [(name, trust) for name in CASES for trust in ("local", "central")]


def make(name: str, trust: str, **more: Any) -> Config:
    return Config.build("tuned", "cosine", BASE | CASES[name] | {"privacy": trust} | more)


@functools.cache
def neighbours(config: Config) -> tuple[Transcript, Transcript]:
    """A run, and one that replaces an agent's whole history, or one interaction of it with all arms the same."""
    is_event = bool(plan_releases(config).sequences)
    iterations = range(EVENT, EVENT + 1) if is_event else range(1, config.horizon + 1)
    first = run(config)
    return first, run(config, Replaced(make_environment(config), AGENT, iterations), first, arms=is_event)


def norm_of_statistics(config: Config, covariance: torch.Tensor, moments: torch.Tensor) -> float:
    """Frobenius norm of the symmetric matrix with blocks W and (L / R) B, without the corner."""
    k = len(moments)
    rows, columns = np.triu_indices(k)
    weights = torch.from_numpy(np.where(rows == columns, 1.0, 2.0))
    scale = config.privacy_feature_clip / config.privacy_reward_clip
    return math.sqrt(float((weights * covariance**2).sum() + 2 * scale**2 * (moments**2).sum()))


def difference(config: Config, one: Upload, other: Upload, agent: int) -> tuple[str, float, float]:
    """The kind of an agent's release, the distance of the two, and the sensitivity that the noise is for."""
    if one.theta is not None:
        return "network", float((one.theta - other.theta)[agent].norm()), 2 * config.privacy_clip
    if one.content == "gradient":
        limit = 2 * config.privacy_clip * one.iteration  # of a sum over the history
        return "gradient", float((one.moments - other.moments)[agent].norm()), limit
    if one.covariance is not None:
        changed = (one.covariance - other.covariance)[agent], (one.moments - other.moments)[agent]
        return "statistics", norm_of_statistics(config, *changed), 2 * math.sqrt(2) * config.privacy_feature_clip**2
    return "nothing", 0.0, 0.0


@pytest.mark.parametrize(("name", "trust"), RUNS)
def test_neighbours_differ_within_the_sensitivity_of_noisy_fields(name, trust):
    config = make(name, trust)
    first, second = neighbours(config)
    assert len(first.uploads) == len(second.uploads) > 3
    seen = {}
    for one, other in zip(first.uploads, second.uploads, strict=True):
        kind, distance, limit = difference(config, one, other, AGENT)
        assert distance <= limit * (1 + 1e-5), (kind, one.iteration, distance, limit)
        seen[kind] = max(seen.get(kind, 0.0), distance / limit if limit else 0.0)
        noisy = {
            "network": {"theta"},
            "gradient": {"moments"},
            "statistics": {"covariance", "moments"},
            "nothing": set(),
        }
        for part in fields(Upload):
            mine, theirs = getattr(one, part.name), getattr(other, part.name)
            if isinstance(mine, torch.Tensor):
                others = [agent for agent in range(config.agents) if agent != AGENT or part.name not in noisy[kind]]
                assert torch.equal(torch.nan_to_num(mine[others]), torch.nan_to_num(theirs[others])), part.name
            elif part.name == "report":
                assert mine.keys() == theirs.keys() <= {"steps"}
            else:
                assert mine == theirs, part.name
        # Nothing else that an algorithm could send is there.
        assert one.alpha is None and one.inverse is None and one.squares is None and one.measure.isnan().all()
    kinds = {"networks", "statistics"} & set(plan_releases(config).kinds)
    assert len([kind for kind in seen if kind != "nothing"]) == len(kinds)
    # The replaced data are loud: the difference is there.
    assert all(size > 0.1 for kind, size in seen.items() if kind != "nothing"), seen


@pytest.mark.parametrize(("name", "trust"), RUNS)
def test_the_server_and_the_records_see_no_more(name, trust):
    """Sums differ by what one agent's message may differ, the records of rounds not at all."""
    config = make(name, trust)
    first, second = neighbours(config)
    for one, other, upload in zip(first.totals, second.totals, first.uploads, strict=True):
        assert one.keys() == other.keys() <= {"theta", "moments", "covariance"}
        if "theta" in one:
            distance = (one["theta"] - other["theta"]).mean(0).norm()
            assert distance <= 2 * config.privacy_clip / config.agents * (1 + 1e-4)
        if upload.content == "gradient":
            assert (one["moments"] - other["moments"]).norm() <= 2 * config.privacy_clip * upload.iteration * (1 + 1e-4)
        if "covariance" in one:
            assert isinstance(one["covariance"], Triangle)
            changed = one["covariance"].values - other["covariance"].values, one["moments"] - other["moments"]
            assert norm_of_statistics(config, *changed) <= 2 * math.sqrt(2) * (1 + 1e-9)
    for one, other in zip(first.records, second.records, strict=True):
        assert repr(one) == repr(other)
        assert math.isnan(one.measure) and {name for name, x in one.quantities.items() if not math.isnan(x)} <= {
            "steps"
        }


@pytest.mark.parametrize(("name", "trust"), [one for one in RUNS if "privacy_f" not in str(CASES[one[0]])])
def test_every_release_has_its_noise(name, trust):
    """The same history and transcript with little noise: the difference of networks and gradients is the noise."""
    config = make(name, trust)
    noisy, releases = neighbours(config)[0], plan_releases(config)
    quiet = run(config.replace(privacy_epsilon=100.0), given=noisy, arms=True)
    assert len(quiet.uploads) == len(noisy.uploads)
    pairs = zip(noisy.totals, quiet.totals, noisy.uploads, strict=True)
    messages = config.agents if trust == "local" else 1
    found: dict[str, list[float]] = {}
    for one, none, upload in pairs:
        if "theta" in one:
            scale = 2 * config.privacy_clip * releases.network_noise * math.sqrt(messages) / config.agents
            noise = (one["theta"] - none["theta"]).mean(0)
            found.setdefault("theta", []).append(float(noise.square().mean()) / scale**2)
        if upload.content == "gradient":
            scale = 2 * config.privacy_clip * upload.iteration * releases.network_noise * math.sqrt(messages)
            found.setdefault("gradient", []).append(
                float((one["moments"] - none["moments"]).square().mean()) / scale**2
            )
    for values in found.values():
        # A mean of squares of (numbers of a network) x (exchanges) standard normal numbers.
        spread = math.sqrt(2 / (len(values) * 21))
        assert abs(np.mean(values) - 1) < 4 * spread


def test_what_is_replaced_is_loud():
    config = make("statistics", "local")
    inside = make_environment(config)
    outside = Replaced(inside, AGENT, range(EVENT, EVENT + 1))
    assert np.abs(outside.block(AGENT, 0).contexts[EVENT - 1]).max() > LOUD / 10
    assert np.array_equal(outside.block(0, 0).contexts, inside.block(0, 0).contexts)


def test_without_privacy_the_test_finds_leaks():
    """The same comparison on agents that send what they have computed."""
    config = Config.build("tuned", "cosine", BASE | {"algorithm": "dislinucb"})
    first = run(config)
    second = run(config, Replaced(make_environment(config), AGENT, range(EVENT, EVENT + 1)), first, arms=True)
    distances = [
        float((one.moments - other.moments)[AGENT].norm())
        for one, other in zip(first.uploads, second.uploads, strict=True)
    ]
    assert max(distances) > LOUD and not first.uploads[0].measure.isnan().any()
