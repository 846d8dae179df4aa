"""Where contexts and rewards come from: the protocol, reward functions, classification tables."""

from __future__ import annotations

from fnbandit.config import SYNTHETIC, Config
from fnbandit.environments.base import Block, Environment, Stream
from fnbandit.environments.functions import FunctionEnvironment, imported_function, synthetic_function
from fnbandit.environments.tables import TableEnvironment, load_table

__all__ = ["Block", "Environment", "FunctionEnvironment", "Stream", "TableEnvironment", "make_environment"]


def make_environment(config: Config) -> Environment:
    """The environment that `config.environment` names."""
    name = config.environment
    if name in SYNTHETIC:
        return FunctionEnvironment(config, synthetic_function(config))
    if ":" in name:
        return FunctionEnvironment(config, imported_function(name))
    features, labels = load_table(name, config.label)
    return TableEnvironment(config, features, labels)
