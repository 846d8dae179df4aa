"""A search over settings with Optuna, whose pruner stops bad runs early. Optuna is not installed with fnbandit."""

# %% An objective reports the regret so far after every segment, and gives up where the pruner says so.
from typing import Any

import fnbandit
from fnbandit import Config
from fnbandit.core import Segment

searched = Config(agents=2, horizon=150, width=8, trigger="period", period=10)


def objective(trial: Any, pruned: type[Exception]) -> float:
    """Return the regret per agent; raise `pruned` where the pruner gives a trial up."""
    exploration = trial.suggest_float("exploration_global", 0.01, 3.0, log=True)
    rate = trial.suggest_float("training_rate", 0.001, 0.1, log=True)
    config = searched.replace(exploration_global=exploration, training_rate=rate)
    regret = 0.0

    def watch(segment: Segment) -> None:
        nonlocal regret
        regret += float(segment.trace.regret.sum(0).mean())
        trial.report(regret, segment.end)
        if trial.should_prune():
            raise pruned  # ends the simulation; `return True` would end it with a result

    fnbandit.simulate(config, on_segment=watch)
    return regret


# %% pip install optuna
if __name__ == "__main__":
    import optuna  # type: ignore[import-not-found]

    pruner = optuna.pruners.MedianPruner(n_startup_trials=3, n_warmup_steps=30)
    search = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0), pruner=pruner)
    search.optimize(lambda trial: objective(trial, optuna.TrialPruned), n_trials=8)
    print(search.best_params)
