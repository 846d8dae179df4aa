"""Executes the runs of a study, one after another or side by side, and tracks them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import nullcontext

from rich.console import Console

from fnbandit.core import Status
from fnbandit.errors import Interrupted
from fnbandit.planning.duration import run_seconds
from fnbandit.simulation.observers import Observers
from fnbandit.storage.records import read_run
from workflows.execution.engines import LocalEngine
from workflows.execution.failures import Failure, resume_command
from workflows.execution.logs import logged
from workflows.execution.provenance import find_commit
from workflows.execution.run_observers import Session, make_observers
from workflows.reporting.naming import run_names
from workflows.reporting.study_report import draw_run, report_study
from workflows.studies.locks import locked
from workflows.studies.mirror import Mirror
from workflows.studies.study import RunSpec, StudyPlan
from workflows.terminal.progress import Progress
from workflows.terminal.stopping import Stop
from workflows.tracking.base import RunArtifacts, Tracker, list_run_files, make_tracker, tolerated
from workflows.tracking.metadata import collect_artifacts, describe_run, describe_study, replay_metrics


class Worker:
    """Executes one run from its last checkpoint, or its start, to its end."""

    def __init__(self, session: Session, spec: RunSpec, name: str) -> None:
        self._session, self.spec, self._name = session, spec, name
        self._directory = session.study.directory / spec.path

    def work(self) -> None:
        """Execute the run in its locked folder, with a log, and copy the folder if the study is mirrored."""
        if self._session.stop.event.is_set():
            raise Interrupted
        try:
            # A study of one run has locked its folder already.
            with nullcontext() if self.spec.path == "." else locked(self._directory), logged(self._directory):
                self._execute()
        finally:
            if self._session.mirror is not None:
                self._session.mirror.send(self._directory)

    def _execute(self) -> None:
        study, stop = self._session.study, self._session.stop
        checkpointing = study.settings.choose_checkpointing(study.directory, self.spec.path)
        run = self._session.engine.run(self.spec.config, checkpointing)
        observers = Observers(make_observers(self._session, self.spec, self._name, run))
        status: Status = "failed"
        try:
            with stop.held():
                observers.begin(run.config)
            for segment in run.segments():
                with stop.held():
                    observers.segment(segment)
                if stop.event.is_set():
                    raise Interrupted
            status = "finished"
        except (KeyboardInterrupt, Interrupted):
            status = "interrupted"
            raise
        finally:
            with stop.held():
                observers.end(status)


def execute_runs(
    study: StudyPlan, todo: list[RunSpec], engine: LocalEngine, console: Console, mirror: Mirror | None
) -> list[Failure]:
    """Execute runs, report the study, and end its tracker with its status, whatever happens; return failed runs."""
    with Stop() as stop:
        metadata = describe_study(study, {"commit": find_commit()}) if len(study.points) > 1 else None
        tracker = make_tracker(metadata, study.directory, study.settings)
        status: Status = "failed"
        artifacts = RunArtifacts()
        try:
            work = sum(run_seconds(spec.config) for spec in todo)
            failures = []
            if todo:
                with Progress(console, len(study.points), work, len(study.points) - len(todo)) as progress, engine:
                    if cluster := engine.describe():
                        progress.say(cluster)
                        progress.layouts = set()
                    failures = _execute(Session(study, engine, tracker, progress, stop, mirror), todo)
            elif len(study.points) == 1 and study.settings.figures:
                draw_run(study.directory)  # again: it may have been stopped between its end and its figures
            report = report_study(study, console)
            send_again(study, tracker, {spec.path for spec in todo})
            artifacts = collect_artifacts(report.runs, report.files, study.caption)
            status = "failed" if failures else "finished"
        except KeyboardInterrupt:
            status = "interrupted"
            raise KeyboardInterrupt(f"interrupted; `{resume_command(study)}` goes on") from None
        finally:
            with tolerated(study.name):
                tracker.finish(status, artifacts)
    return failures


def send_again(study: StudyPlan, tracker: Tracker, just_run: set[str]) -> None:
    """Send the finished runs of earlier sessions that the tracker has not received completely."""
    names = run_names(study.points)
    for spec in study.points:
        folder = study.directory / spec.path
        if spec.path in just_run or tracker.has_received(folder):
            continue
        with tolerated(names[spec.path]):
            record = read_run(folder)
            facts = record.summary
            tracked = tracker.start_run(describe_run(study, spec, names[spec.path], spec.config, facts), folder)
            for step, metrics in replay_metrics(record):
                tracked.log(step, metrics)
            tags = {"device": facts["device"], "layout": facts["layout"]}
            tracked.finish("finished", RunArtifacts(list_run_files(folder), tags=tags))


def _execute(session: Session, todo: Sequence[RunSpec]) -> list[Failure]:
    """Execute runs and return those that failed; one that fails does not keep the others from going on."""
    names = run_names(session.study.points)
    workers = [Worker(session, spec, names[spec.path]) for spec in todo]
    return _execute_in_turn(workers) if session.engine.in_turn else _execute_side_by_side(session, workers)


def _execute_in_turn(workers: list[Worker]) -> list[Failure]:
    failures = []
    for worker in workers:
        try:
            worker.work()
        except (Exception, SystemExit) as error:
            failures.append(Failure(worker.spec, error))
    return failures


def _execute_side_by_side(session: Session, workers: list[Worker]) -> list[Failure]:
    """Execute as many runs at a time as the engine has room for now."""
    futures: dict[Future[None], RunSpec] = {}
    with ThreadPoolExecutor(len(workers), thread_name_prefix="fnbandit-run") as pool:
        try:
            waiting, pending = list(workers), set[Future[None]]()
            while pending or waiting:
                left = [*(worker.spec for worker in waiting), *(futures[future] for future in pending)]
                room = session.engine.room(left)
                while waiting and len(pending) < room:
                    worker = waiting.pop(0)
                    future = pool.submit(worker.work)
                    futures[future] = worker.spec
                    pending.add(future)
                # In slices, because a wait without end would not let Ctrl-C through, and because nodes may join.
                _, pending = wait(pending, timeout=0.5, return_when=FIRST_COMPLETED)
        finally:
            session.stop.event.set()
            session.engine.stop()
            for future in futures:
                future.cancel()
    ended = {spec: future.exception() for future, spec in futures.items() if not future.cancelled()}
    return [Failure(spec, error) for spec, error in ended.items() if error and not isinstance(error, Interrupted)]
