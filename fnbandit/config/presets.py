"""Presets, named sets of settings: those of the published experiments, of the theory, and the tuned ones."""

from __future__ import annotations

from typing import Any

from fnbandit.config.registry import is_table, unknown

PRESETS = {
    "tuned": "tuned settings of this project, with which more agents mean less regret",
    "exact": "one network trained by sums over agents, and UCB on its features: not in the paper",
    "paper": "the published experiments (Sec. 5), with separate networks",
    "theory": "Algorithms 1 and 2 exactly, with the theory's numbers",
}
THEORY_FIELDS = (
    "regularization",
    "exploration_global",
    "exploration_local",
    "threshold",
    "training_rate",
    "training_steps",
    "norm_bound",
    "noise_bound",
)
"""Fields of Config that accept 'theory'"""


PRESET_FIELDS = ("environment", "algorithm", "hidden_layers")
"""Fields of Config on which a preset's other values depend"""
PLAIN_SETTINGS: dict[str, Any] = {
    "agents": 8,
    "regularization": 0.1,
    "exploration_global": 0.1,
    "exploration_local": 0.1,
    "weight": "ramp",
    "ramp": 100,
    "trigger": "always",
    "threshold": 5.0,
    "training_optimizer": "gd",
    "training_steps": 30,
    "training_subsample": 0.0,
    "training_rate": 0.1,
    "training_schedule": "constant",
    "training_fade": 0.0,
    "training_decay": "lambda",
    "training_start": "aggregate",
    "reward_unit": "one",
}
"""All fields that the tuned preset sets, without its additions to the paper: the base of `paper` and `theory`"""


EXACT_SETTINGS: dict[str, Any] = {
    "federation": "exact",
    "trigger": "logdet",
    "threshold": 5.0,
    "training_fade": 0.0,
    "training_least": 250,
}
"""Settings of training by sums; the number of exchanges follows the growth of the data, about 9 % from one training
to the next"""
EXACT_ON_TABLES: dict[str, Any] = {
    "federation": "gradients",
    "training_sample": 32_000,
    "training_decay": 1.0,
}
"""Tables have wide contexts, so that networks are large: gradients of many observations take less work and fewer
numbers than the curvature of few. Weaker decay follows each of the few rewards of 1 that agents have seen."""


def preset_settings(name: str, environment: str, algorithm: str | None = None) -> dict[str, Any]:
    """Return the settings of a preset for an environment and an algorithm (None: the preset's default algorithm).

    The settings of `tuned` are the defaults of Config.
    """
    if name not in PRESETS:
        raise ValueError(unknown("preset", name, PRESETS))
    algorithm = algorithm or {"theory": "fn-ucb", "exact": "fn-exact"}.get(name, "fn-ucb-less-comm")
    settings = {"environment": environment, "algorithm": algorithm}
    if name == "exact":
        return settings | _exact(environment)
    if name == "tuned":
        return settings
    table = _has_table(environment)
    own = paper(table, algorithm) if name == "paper" else theory()
    return settings | PLAIN_SETTINGS | own | _own_trigger(algorithm)


def _has_table(environment: str) -> bool:
    return environment in ("shuttle", "magic", "routing") or is_table(environment)


def _exact(environment: str) -> dict[str, Any]:
    """Return the settings of training by sums for an environment."""
    return EXACT_SETTINGS | (EXACT_ON_TABLES if _has_table(environment) else {})


def _own_trigger(algorithm: str) -> dict[str, Any]:
    """Return the published trigger of an algorithm, if it has one: Wang et al. 2019, He et al. 2022, Li et al. 2023."""
    triggers = {"dislinucb": "logdet", "fn-ucb-async": "determinant", "fedlinucb": "determinant",
                "fedigw": "geometric"}  # fmt: skip
    return {"trigger": triggers[algorithm]} if algorithm in triggers else {}


def tune(environment: str, algorithm: str, hidden_layers: int) -> dict[str, Any]:
    """Return the tuned values that differ from Config's defaults, by environment, algorithm and depth.

    All are tuned on seeds 100 and up (`fnbandit reproduce tune-functions` and `tune-tables` vary each field): Adam with
    a number of steps that grows with the new data, from the aggregate; rewards in each agent's own unit; alpha
    reduced while the networks predict badly.
    """
    settings = _own_trigger(algorithm)
    if algorithm == "fn-exact":
        settings |= _exact(environment)
    rate = 0.03
    if _has_table(environment):
        settings |= {"regularization": 1.0, "ramp": 100, "training_fade": 0.0}
        rate = 0.01
    is_linear = algorithm.startswith(("linear", "dislinucb", "fedlinucb", "hetofedbandit"))
    if environment == "routing":
        # A linear model of [x, e_k] has one constant per arm and cannot depend on the question.
        settings |= {"agents": 14, "heterogeneity": "domain", "coding": "disjoint" if is_linear else "one-hot"}
    if algorithm.startswith(("linear", "kernel", "dislinucb", "fedlinucb", "hetofedbandit")):
        settings["regularization"] = 1.0
    # At the rate that suits one hidden layer, units of deeper networks become inactive.
    return settings | {"training_rate": rate / hidden_layers}


def paper(table: bool, algorithm: str) -> dict[str, Any]:
    """Return the settings of the published code.

    They are: entries N(0, 1) with biases, features not divided by sqrt(m), the mean loss with decay towards 0, 30
    steps of gradient descent from an agent's own last network, a ramp over 700 iterations. In the published code the
    networks share one storage; here they are separate, as the paper describes them. The published code puts nu of
    Neural UCB and TS under the square root, so its 0.01 is a multiplier of 0.1, the value in the paper's text for
    functions, but not for tables.
    """
    settings: dict[str, Any] = {
        "agents": 5 if table else 10,
        "horizon": 5000,
        "ramp": 700,
        "trigger": "always",
        "training_start": "own",
        "training_rate": 0.01,
        "stop_training_after": 2000,
    }
    if table:
        neural = algorithm in ("neural-ucb", "neural-ts")
        settings |= {
            "regularization": 10.0,
            "exploration_global": 0.1,
            "exploration_local": 0.1 if neural else 0.01,
        }
    if algorithm.startswith(("linear", "kernel", "dislinucb", "fedlinucb", "hetofedbandit")):
        settings["regularization"] = 1.0
    return settings


def theory() -> dict[str, Any]:
    """Return App. B's network, Sec. 3.3's alpha, Eq. (1), the exact trigger, and 'theory' for every number.

    With width 20 some contexts activate no unit, and alpha stays 0 (6 of 20 seeds); 64 is wide enough.
    """
    return {
        "network": "ntk",
        "width": 64,
        "weight": "theory",
        "trigger": "logdet",
        "training_loss": "paper",
        "training_start": "initial",
        **dict.fromkeys(THEORY_FIELDS, "theory"),
    }
