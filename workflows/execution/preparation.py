"""Checks a study before it is executed, and joins it with an earlier study in its folder."""

from __future__ import annotations

from fnbandit.environments import make_environment
from fnbandit.planning.duration import without_theory_values
from fnbandit.privacy.promise import check_promise, make_promise
from fnbandit.simulation.clock import make_clock
from fnbandit.storage.files import STUDY_FILE
from workflows.execution.engines import LocalEngine
from workflows.studies.extension import clear, extend
from workflows.studies.study import StudyPlan, load_study
from workflows.studies.trust import confirm_runs
from workflows.tracking.base import find_tracker


def check_study(study: StudyPlan, engine: LocalEngine) -> None:
    """Raise on errors that can be found before anything is written or started."""
    find_tracker(study.settings.tracking)
    seen = set()
    for config in (point.config for point in study.points):
        if config.replace(seed=0) in seen:
            continue
        seen.add(config.replace(seed=0))
        environment = make_environment(config)
        engine.check(config, environment)
        check_promise(make_promise(without_theory_values(config), environment), config)
        make_clock(config)  # after the check of the memory: a clock holds values of every agent


def join_earlier(study: StudyPlan, overwrite: bool) -> StudyPlan:
    """Add the runs of the study that is in the folder already, or remove it with `overwrite`."""
    if not (study.directory / STUDY_FILE).exists():
        return study
    earlier = load_study(study.directory)
    if overwrite:
        clear(earlier, study.settings)
        return study
    both = extend(earlier, study)
    confirm_runs(both, study)
    return both
