"""Sources of contexts and rewards: the protocol, reward functions, tables, the wheel, differing and drifting tasks."""

from __future__ import annotations

from typing import Any

import numpy as np

from fnbandit.config import Config
from fnbandit.config.registry import ENVIRONMENTS, is_table, resolve_part
from fnbandit.environments.base import Block, Environment, Stream, draw_domain
from fnbandit.environments.functions import FunctionEnvironment
from fnbandit.environments.worlds import make_world
from fnbandit.errors import call_user_code

__all__ = ["Block", "Environment", "FunctionEnvironment", "Stream", "as_environment", "make_environment"]


def make_environment(config: Config) -> Environment:
    """Return the environment that `config.environment` names."""
    found = resolve_part("environment", config.environment)
    if config.environment in ENVIRONMENTS or is_table(config.environment):
        return make_world(config, found(config))
    return as_environment(config, found)


def as_environment(config: Config, own: Any) -> Environment:
    """Return a user's own environment, which may be given as a class to call with a config, or as a reward function.

    The contexts of a reward function h(x) are on the unit sphere.
    """
    if isinstance(own, type):
        own = call_user_code(f"environment={config.environment!r}", own, config)
    if hasattr(own, "block"):
        missing = [name for name in ("arms", "dim", "domain") if not hasattr(own, name)]
        if missing:
            raise ValueError(
                f"environment={config.environment!r}: has no {missing[0]!r}; expected arms, dim, block, domain"
            )
        for name, value in (("arms", own.arms), ("dim", own.dim)):
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
                raise ValueError(
                    f"environment={config.environment!r}: {name} is {value!r}; expected a whole number, at least 1"
                )
        world = make_world(config, own)
        draw_domain(world, 2)
        return world
    if not callable(own):
        raise ValueError(f"environment={own!r}: is neither an environment nor a function")
    return make_world(config, FunctionEnvironment(config, own))
