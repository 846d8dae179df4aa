"""Sets of settings that belong together: the paper's experiments, its theory, and ours."""

from __future__ import annotations

from typing import Any

from fnbandit.registry import is_table, unknown

PRESETS = {
    "tuned": "our defaults",
    "paper": "the settings of Sec. 5",
    "theory": "Algorithms 1 and 2 to the letter, with the theory's numbers",
}
THEORY_FIELDS = (
    "regularization",
    "exploration_global",
    "exploration_local",
    "threshold",
    "training_rate",
    "training_steps",
)
"""Fields of Config that accept 'theory'"""


def preset_settings(name: str, environment: str, algorithm: str | None = None) -> dict[str, Any]:
    """What a preset says of a config for an environment and an algorithm (None: the preset's own)."""
    if name not in PRESETS:
        raise ValueError(unknown("preset", name, PRESETS))
    algorithm = algorithm or ("fn-ucb" if name == "theory" else "fn-ucb-less-comm")
    table = environment in ("shuttle", "magic") or is_table(environment)
    settings: dict[str, Any] = {"environment": environment, "algorithm": algorithm}
    if name == "paper" or (name == "tuned" and table):
        settings.update(
            agents=5 if table else 10, horizon=5000, ramp=700, trigger="always",
            training_start="own", training_rate=0.01, stop_training_after=2000,
        )  # fmt: skip
        if table:
            settings.update(regularization=10.0, exploration_global=0.1, exploration_local=0.01)
        if algorithm.startswith(("linear", "kernel", "dislinucb")):
            settings.update(regularization=1.0)
    if name == "theory":
        settings.update(
            network="ntk", weight="theory", trigger="logdet", training_loss="paper", training_start="initial",
            **dict.fromkeys(THEORY_FIELDS, "theory"),
        )  # fmt: skip
    return settings
