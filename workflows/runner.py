"""Carrying out a study: runs side by side, their records, their window in MLflow, a summary at the end."""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import logging
import platform
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from typing import Any

import tomli_w
from rich.console import Console

from fnbandit.clock import make_clock
from fnbandit.environments import make_environment
from fnbandit.errors import Interrupted
from fnbandit.records import RecordWriter, aside, read_run, read_summary, write_summary
from fnbandit.runs import Run
from workflows.dry_run import plan_lines
from workflows.engines import LocalEngine, make_engine
from workflows.estimates import run_seconds
from workflows.extension import clear, extended
from workflows.failures import FAILED, Failure, command, resume_command, tell
from workflows.jobs import job_tags
from workflows.locks import locked
from workflows.logs import logged
from workflows.mirror import Mirror, check_place
from workflows.output import errors
from workflows.progress import Progress, short_name
from workflows.secrets import masked
from workflows.sharing import take_finished
from workflows.standing import unfinished
from workflows.stopping import Stop
from workflows.stores import located, store_uri
from workflows.story import run_content, study_content, study_outcome
from workflows.study import Point, Study, load_study
from workflows.tables import show
from workflows.tally import Tally
from workflows.tracking import Outcome, Tracker
from workflows.trust import confirm_runs

log = logging.getLogger("fnbandit")
SUMMARY_EVERY = 10.0
"""Seconds between two summaries of a run that lasts: all that is known of it after a crash"""
PACKAGES = ("fnbandit", "torch", "numpy", "pyarrow", "ray", "mlflow")


def execute(study: Study, console: Console, overwrite: bool = False, others: Sequence[Study] = ()) -> int:
    """Run what is not finished of a study, and in none of the `others` before it; the exit code."""
    engine = make_engine(study.settings)
    check(study, engine)
    for line in plan_lines(study):
        console.print(line, soft_wrap=True)
    with locked(study.directory):
        mirror = Mirror(study.uri, study.directory) if study.uri else None
        if mirror is None:
            check_place(study.directory, str(study.directory))
            study = joined(study, overwrite)
            if taken := take_finished(study, others):
                console.print(f"{taken} of {len(study.points)} runs are those of {', '.join(o.name for o in others)}")
            return _execute(study, engine, console)
        mirror.fetch()
        if overwrite and (study.directory / "study.json").exists():
            mirror.clear(load_study(study.directory))
        try:
            code = _execute(joined(study, overwrite), engine, console, mirror)
        finally:
            behind = mirror.finish()
            if behind:
                errors().print(f"fnbandit: {behind}; `{resume_command(study)}` tries again", markup=False)
        return FAILED if behind else code


def _execute(study: Study, engine: LocalEngine, console: Console, mirror: Mirror | None = None) -> int:
    study = dataclasses.replace(study, settings=located(study.settings))
    todo = unfinished(study)
    study.save()
    if mirror is not None:
        mirror.begin()
    finished = len(study.points) - len(todo)
    if finished:
        console.print(f"{finished} of {len(study.points)} runs are finished already")
    failures: list[Failure] = []
    if todo:
        with ExitStack() as stack:
            stop = stack.enter_context(Stop())
            tracker = None
            if study.settings.tracking:
                content = study_content(study, {"commit": git_commit()}) if len(study.points) > 1 else None
                store = store_uri(study.settings.tracking_uri)
                tracker = Tracker(store, study.settings.experiment, content, study.directory)
            status, left = "failed", None
            try:
                work = sum(run_seconds(point.config) for point in todo)
                with Progress(console, len(study.points), work, finished) as progress, engine:
                    failures = run_points(study, todo, engine, tracker, progress, stop, mirror)
                left = report(study, console)
                status = "failed" if failures else "finished"
            except KeyboardInterrupt:
                status = "interrupted"
                raise KeyboardInterrupt(f"interrupted; `{resume_command(study)}` goes on") from None
            finally:
                if tracker is not None:
                    tracker.close(status, left)
    else:
        if len(study.points) == 1:
            draw_run(study.directory)  # once more: it may have been stopped between its end and its figures
        report(study, console)
    if not failures:
        return 0
    if len(study.points) == 1:
        raise failures[0].error
    tell(study, failures)
    return 1


def joined(study: Study, overwrite: bool) -> Study:
    """A study with the runs of the one that is in its folder, unless that is to be overwritten."""
    if (study.directory / "study.json").exists():
        earlier = load_study(study.directory)
        if overwrite:
            clear(earlier, study.settings)
        else:
            both = extended(earlier, study)
            confirm_runs(both, study)
            return both
    return study


def check(study: Study, engine: LocalEngine) -> None:
    """Raise on what can be seen to be wrong before anything is written or started."""
    seen = set()
    for config in (point.config for point in study.points):
        if config.replace(seed=0) in seen:
            continue
        seen.add(config.replace(seed=0))
        engine.check(config, make_environment(config))
        make_clock(config)  # which holds something of every agent: after the memory has been reckoned


def run_points(
    study: Study,
    todo: list[Point],
    engine: LocalEngine,
    tracker: Tracker | None,
    progress: Progress,
    stop: Stop,
    mirror: Mirror | None,
) -> list[Failure]:
    """Run points side by side, as many as there is room for now; one that fails does not keep others from going on."""
    if engine.in_turn:
        return run_in_turn([Worker(study, point, engine, tracker, progress, stop, mirror) for point in todo])
    futures: dict[Future[None], Point] = {}
    with ThreadPoolExecutor(len(todo), thread_name_prefix="fnbandit-run") as pool:
        try:
            waiting, pending = list(todo), set[Future[None]]()
            while pending or waiting:
                room = engine.room([*waiting, *(futures[future] for future in pending)])
                while waiting and len(pending) < room:
                    worker = Worker(study, waiting[0], engine, tracker, progress, stop, mirror)
                    future = pool.submit(worker.run)
                    futures[future] = waiting.pop(0)
                    pending.add(future)
                # In slices, because a wait without end would not let Ctrl-C through, and because nodes may join.
                _, pending = wait(pending, timeout=0.5, return_when=FIRST_COMPLETED)
        finally:
            stop.event.set()
            engine.stop()
            for future in futures:
                future.cancel()
    ended = {point: future.exception() for future, point in futures.items() if not future.cancelled()}
    return [Failure(point, error) for point, error in ended.items() if error and not isinstance(error, Interrupted)]


def run_in_turn(workers: list[Worker]) -> list[Failure]:
    """Run one after another in this thread."""
    failures = []
    for worker in workers:
        try:
            worker.run()
        except (Exception, SystemExit) as error:
            failures.append(Failure(worker.point, error))
    return failures


class Worker:
    """One run from its last checkpoint, or its start, to its end, with all that it leaves behind."""

    def __init__(
        self,
        study: Study,
        point: Point,
        engine: LocalEngine,
        tracker: Tracker | None,
        progress: Progress,
        stop: Stop,
        mirror: Mirror | None,
    ) -> None:
        self._study, self.point, self._engine, self._tracker = study, point, engine, tracker
        self._progress, self._stop, self._mirror = progress, stop, mirror
        self._directory = study.directory / point.path

    def run(self) -> None:
        if self._stop.event.is_set():
            raise Interrupted
        # A study of one run has locked its folder already.
        try:
            with nullcontext() if self.point.path == "." else locked(self._directory), logged(self._directory):
                self._run()
        finally:
            if self._mirror is not None:
                self._mirror.send(self._directory)

    def _run(self) -> None:
        point, settings = self.point, self._study.settings
        run = self._engine.run(point.config, settings.checkpointing(self._study.directory, point.path))
        resolved = {k: v for k, v in dataclasses.asdict(run.config).items() if v is not None}
        with aside(self._directory / "config.toml") as part:
            part.write_text(tomli_w.dumps(resolved))
        tally = Tally(run.config, earlier_seconds(self._directory))
        facts = self._facts(run)
        self._summarise("running", tally, facts)
        name = self._study.names[point.path]
        window = None
        if self._tracker is not None:
            window = self._tracker.run(run_content(self._study, point, run.config, facts), self._directory)
        log.info("fnbandit: %s: begins, %s", name, settings.engine)
        bar = self._progress.add(short_name(point), run.config.horizon, run_seconds(run.config))
        writer = RecordWriter(self._directory, settings.trace)
        status, summarised = "failed", time.monotonic()
        try:
            for segment in run.segments():
                with self._stop.held():
                    writer.write(segment)
                    due = tally.add(segment)
                    bar.update(tally.iterations, tally.regret, tally.rounds)
                    if time.monotonic() - summarised > SUMMARY_EVERY:
                        self._summarise("running", tally, facts)
                        summarised = time.monotonic()
                    if window is not None:
                        window.log(due)
                if self._stop.event.is_set():
                    raise Interrupted
            with self._stop.held():
                facts["files"] = writer.finish(run.config.horizon, run.config.agents)
                status = "finished"
        except (KeyboardInterrupt, Interrupted):
            status = status if status == "finished" else "interrupted"
            raise
        finally:
            with self._stop.held():
                writer.close()
                facts |= {"layout": run.layout, "device": run.device}
                self._summarise(status, tally, facts)
                if status == "finished":
                    run.clear()
                log.info("fnbandit: %s: %s, %s, %s", name, status, bar.text(), run.layout)
                bar.close(status)
                self._leave(window, status)

    def _facts(self, run: Run) -> dict[str, Any]:
        return {
            "label": self.point.label,
            "engine": self._study.settings.engine,
            "layout": run.layout,
            "device": run.device,
            "versions": versions(),
            "machine": machine(),
            "commit": git_commit(),
            "job": job_tags(),
            "data": run.fingerprint.data,
            "sources": run.fingerprint.sources,
            "files": {},
        }

    def _summarise(self, status: str, tally: Tally, facts: dict[str, Any]) -> None:
        body = {
            "status": status,
            **tally.summary(),
            "seed": tally.config.seed,
            "config": dataclasses.asdict(tally.config),
            **facts,
        }
        write_summary(self._directory, body)

    def _leave(self, window: Any, status: str) -> None:
        """Figures, and everything into MLflow."""
        if status == "finished" and len(self._study.points) == 1:
            # A study of several runs has figures of its own: drawing those of each would take longer than small runs.
            draw_run(self._directory)
        if window is not None:
            files = [
                self._directory / name for name in ("config.toml", "summary.json", "trace.parquet", "rounds.parquet")
            ]
            files += sorted((self._directory / "figures").glob("*.png"))
            window.finish(status, Outcome([path for path in files if path.exists()]))


def draw_run(directory: Path) -> None:
    """The figures of a study of one run."""
    from workflows.figures import draw

    draw([read_run(directory)], directory / "figures")


def earlier_seconds(directory: Path) -> float:
    """What earlier sessions of a run took; none of a run that begins anew."""
    if not (directory / "summary.json").exists():
        return 0.0
    summary = read_summary(directory)
    return 0.0 if summary["status"] == "finished" else float(summary["seconds"])


@functools.cache
def versions() -> dict[str, str]:
    """Of Python and of what results depend on."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "none"
    return found


@functools.cache
def machine() -> str:
    """The kind of processor, on which the last bits of results depend: "x86_64, AMD EPYC, AVX512"."""
    import torch

    found: list[str] = []
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        found = [line.partition(": ")[2] for line in lines if line.startswith("model name")][:1]
    return ", ".join([platform.machine(), *found, torch.backends.cpu.get_cpu_capability()])


@functools.cache
def git_commit() -> str:
    """The commit of the checkout that this package runs from, if it is one."""
    here = Path(__file__).resolve().parent.parent
    try:
        done = subprocess.run(["git", "-C", str(here), "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def report(study: Study, console: Console) -> Outcome:
    """Print the table and where everything is; what MLflow is given of it."""
    folders = [study.directory / point.path for point in study.points]
    runs = [read_run(folder) for folder in folders if (folder / "summary.json").exists()]
    runs = [run for run in runs if run.finished]
    show(runs, console, study.title)
    if study.caption:
        console.print(study.caption)
    out = study.directory / "figures"
    files: list[Path] = []
    if len(study.points) == 1:
        figures = sorted(out.glob("*.png"))
    else:
        published = {p.label: p.published for p in study.points if p.label and p.published is not None}
        # Here, because runs should not wait for matplotlib.
        from workflows.figures import draw
        from workflows.html_report import write_report

        figures = draw(runs, out, study.title, published)
        if runs:
            files = [*figures, *write_report(runs, study.directory, study.title or study.name, study.caption)]
    for layout in dict.fromkeys(run.summary["layout"] for run in runs):
        console.print(f"layout   {layout}", soft_wrap=True)
    console.print(f"records  {study.directory}{f', copied to {study.uri}' if study.uri else ''}", soft_wrap=True)
    for path in figures:
        console.print(f"figure   {path}", soft_wrap=True)
    if files:
        console.print(f"report   {study.directory / 'report.html'}", soft_wrap=True)
    if study.settings.tracking:
        store = study.settings.tracking_uri or ""
        console.print(f"MLflow   {masked(store) if store.startswith('http') else f'{command()} ui {study.directory}'}")
    return study_outcome(runs, files, study.caption)
