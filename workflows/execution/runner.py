"""Execute a study: prepare its folder, run its unfinished runs, track it, report."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from rich.console import Console

from fnbandit.errors import ClusterGone
from fnbandit.storage.files import STUDY_FILE
from workflows.execution.dry_run import plan_lines
from workflows.execution.engines import LocalEngine, make_engine
from workflows.execution.failures import FAILED, print_failures, resume_command
from workflows.execution.preparation import check_study, join_earlier
from workflows.execution.worker import execute_runs
from workflows.studies.locks import locked
from workflows.studies.mirror import Mirror, check_place
from workflows.studies.progress_on_disk import list_unfinished
from workflows.studies.reuse import copy_finished
from workflows.studies.study import StudyPlan, load_study
from workflows.studies.tracking_uri import with_absolute_store
from workflows.terminal.output import errors
from workflows.terminal.stopping import exits_refused


def execute(study: StudyPlan, console: Console, overwrite: bool = False, others: Sequence[StudyPlan] = ()) -> int:
    """Run the runs that are finished neither in a study nor in the `others` before it; return the exit code."""
    with exits_refused():
        return _prepare(study, console, overwrite, others)


def _prepare(study: StudyPlan, console: Console, overwrite: bool, others: Sequence[StudyPlan]) -> int:
    engine = make_engine(study.settings, study.name)
    check_study(study, engine)
    for line in plan_lines(study):
        console.print(line, soft_wrap=True)
    with locked(study.directory):
        mirror = Mirror(study.uri, study.directory) if study.uri else None
        if mirror is None:
            check_place(study.directory, str(study.directory))
            study = join_earlier(study, overwrite)
            if copied := copy_finished(study, others):
                console.print(f"{copied} of {len(study.points)} runs are those of {', '.join(o.name for o in others)}")
            return _execute(study, engine, console)
        mirror.fetch()
        if overwrite and (study.directory / STUDY_FILE).exists():
            mirror.clear(load_study(study.directory))
        try:
            code = _execute(join_earlier(study, overwrite), engine, console, mirror)
        finally:
            behind = mirror.finish()
            if behind:
                errors().print(f"fnbandit: {behind}; `{resume_command(study)}` tries again", markup=False)
        return FAILED if behind else code


def _execute(study: StudyPlan, engine: LocalEngine, console: Console, mirror: Mirror | None = None) -> int:
    study = dataclasses.replace(study, settings=with_absolute_store(study.settings))
    todo = list_unfinished(study)
    study.save()
    if mirror is not None:
        mirror.begin()
    if len(todo) < len(study.points):
        console.print(f"{len(study.points) - len(todo)} of {len(study.points)} runs are finished already")
    failures = execute_runs(study, todo, engine, console, mirror)
    if not failures:
        return 0
    if len(study.points) == 1:
        error = failures[0].error
        raise ClusterGone(f"{error}; `{resume_command(study)}` goes on") if isinstance(error, ClusterGone) else error
    print_failures(study, failures)
    return 1
