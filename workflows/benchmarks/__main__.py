"""`make bench`: compares speed, as ratios within one run, and memory with targets. Needs a checkout."""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from fnbandit import Config
from fnbandit.environments import make_environment
from fnbandit.networks.network import Network
from fnbandit.planning.duration import measure_rates
from fnbandit.planning.work import iteration_work, round_work
from fnbandit.runs import LocalRun
from fnbandit.simulation.results import Segment
from fnbandit.storage.files import STREAM_FILES
from workflows.benchmarks.actors import actor_each, idle_memory
from workflows.benchmarks.gpu import GPU_BENCHMARKS, tabulate_plan
from workflows.benchmarks.measures import Line, plain_config, seconds_per_iteration, segments_of
from workflows.benchmarks.scale import (
    growth,
    in_epoch,
    not_waiting,
    peak_memory,
    prediction,
    servers_part,
    thousand_agents,
    two_actors_not_waiting,
)

ROOT = Path(__file__).resolve().parents[2]
ORACLES = ROOT / "tests" / "oracles"
"""Folder of the literal transcription"""


def oracle_seconds(config: Config, first: int, last: int) -> float:
    """Return the median seconds per iteration of the literal transcription in tests/oracles."""
    sys.path.insert(0, str(ORACLES))
    import oracle  # type: ignore[import-not-found]

    environment = make_environment(config)
    initial = Network(config, environment.dim).initial_parameters(config.seed).numpy()
    stamps: list[float] = []
    oracle.run(config, environment, initial, horizon=last, clock=lambda: stamps.append(time.perf_counter()))
    return statistics.median(b - a for a, b in zip(stamps[first - 1 : last], stamps[first : last + 1], strict=True))


def against_oracle(name: str, config: Config, fast: tuple[int, int], slow: tuple[int, int], target: float) -> Line:
    """Compare iterations `fast` here with iterations `slow` of the oracle.

    Where the oracle takes too long, `slow` are its first iterations, which take no longer than later ones.
    """
    ours = seconds_per_iteration(LocalRun(config.replace(horizon=fast[1])).segments(), *fast)
    theirs = oracle_seconds(config, *slow)
    note = f"{ours * 1e3:.1f} ms (iterations {fast[0]}-{fast[1]}) against {theirs * 1e3:.0f} ms ({slow[0]}-{slow[1]})"
    return Line(name, theirs / ours, f"at least {target:g}", theirs / ours >= target, note)


def oracle_cosine() -> Line:
    config = plain_config(agents=10, horizon=200)
    return against_oracle("times faster than the oracle: cosine N=10", config, (100, 200), (100, 120), 100)


def oracle_shuttle() -> Line:
    config = Config.preset("paper", environment="shuttle", agents=5)
    return against_oracle("times faster than the oracle: shuttle N=5 m=20", config, (100, 200), (100, 102), 120)


def oracle_shuttle_wide() -> Line:
    config = Config.preset("paper", environment="shuttle", agents=5, width=50)
    return against_oracle("times faster than the oracle: shuttle N=5 m=50", config, (100, 120), (2, 3), 250)


def over_ideal(name: str, config: Config, first: int, last: int, target: float) -> Line:
    """Divide the time of a communicating iteration by the least time of its work (fnbandit/planning/work.py)."""
    measured = seconds_per_iteration(segments_of(config), first, last)
    environment, t = make_environment(config), (first + last) // 2
    work = iteration_work(config, environment.arms, environment.dim, config.agents, t, k=1)
    ideal = (work + round_work(config, environment.dim, config.agents, t, k=1)).seconds(measure_rates(8))
    note = f"{measured * 1e3:.1f} ms over {ideal * 1e3:.1f} ms, iterations {first}-{last}"
    return Line(f"time over ideal: {name}", measured / ideal, f"at most {target:g}", measured / ideal <= target, note)


COSINE = plain_config(agents=64, horizon=1000)
SHUTTLE = Config.preset("paper", environment="shuttle", agents=5, horizon=420)
WIDE_SHUTTLE = SHUTTLE.replace(width=50, horizon=600)


def time_published(name: str, config: Config, seconds: float, target: float) -> Line:
    """Compare iterations 100 to 140 on one core with the least time of the published code for them, on two cores."""
    ours = seconds_per_iteration(segments_of(config.replace(horizon=140)), 100, 140)
    note = f"{ours * 1e3:.1f} ms against {seconds * 1e3:.0f} ms, as measured on two cores like these"
    ratio = seconds / ours
    return Line(f"times faster than the published code: {name}", ratio, f"at least {target:g}", ratio >= target, note)


def adam_cost() -> Line:
    """Divide the time of a communicating iteration that trains with Adam by that of one with gradient descent."""
    base = plain_config(agents=10, horizon=400, training_rate=0.01)
    times = {
        optimizer: seconds_per_iteration(segments_of(base.replace(training_optimizer=optimizer)), 300, 400)
        for optimizer in ("gd", "adam")
    }
    ratio = times["adam"] / times["gd"]
    note = f"{times['adam'] * 1e3:.1f} ms against {times['gd'] * 1e3:.1f} ms, cosine N=10, iterations 300-400"
    return Line("an iteration with Adam over one with gradient descent", ratio, "at most 1.3", ratio <= 1.3, note)


def last_hundred(segments: Iterable[Segment]) -> float:
    """Return the seconds per iteration of iterations 901 to 1000."""
    return sum(segment.seconds for segment in segments if segment.start >= 900) / 100


@functools.cache
def actor_seconds(actors: int) -> float:
    """Return seconds per iteration around t=950: cosine, 64 agents, a round in every iteration; 0 is in-process."""
    config = plain_config(agents=64, horizon=1000)
    if not actors:
        return last_hundred(LocalRun(config).segments())
    from actors import Options, RayRun

    return last_hundred(RayRun(config, Options(agents_per_actor=64 // actors, cpus_per_actor=1)).segments())


def one_actor() -> Line:
    local, one = actor_seconds(0), actor_seconds(1)
    note = f"{one * 1e3:.1f} ms against {local * 1e3:.1f} ms, iterations 901-1000"
    return Line("one actor against in-process, cosine N=64", one / local, "at most 1.15", one / local <= 1.15, note)


def two_actors() -> Line:
    one, two = actor_seconds(1), actor_seconds(2)
    note = f"{one * 1e3:.1f} ms against {two * 1e3:.1f} ms, iterations 901-1000"
    return Line("two actors against one, cosine N=64", one / two, "at least 1.7", one / two >= 1.7, note)


def coarse_calls() -> Line:
    config = plain_config(agents=8, horizon=400, trigger="logdet", threshold=60.0)
    from actors import Options, RayRun

    run = RayRun(config, Options(agents_per_actor=4))
    rounds = sum(len(segment.rounds) for segment in run.segments())
    calls = run.calls / (400 * 2)
    note = f"{rounds} rounds in 400 iterations"
    return Line("calls per actor and iteration, logdet", calls, "under 0.2", calls < 0.2, note)


def first_iteration(engine: str, target: float) -> Line:
    """Measure the seconds from the command to its first recorded iteration."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "workflows.run", "--engine", engine, "--out", "run"]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        began = time.perf_counter()
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        stream = Path(folder, "run", STREAM_FILES[0])
        while not (stream.exists() and stream.stat().st_size > 1500) and process.poll() is None:
            time.sleep(0.02)
        seconds = time.perf_counter() - began
        process.terminate()
        process.wait()
        assert stream.exists(), f"{' '.join(command)} failed"
    return Line(f"seconds to the first iteration, engine {engine}", seconds, f"under {target:g}", seconds < target)


def study_seconds(engine: str, *arguments: str) -> float:
    """Measure the seconds of a sweep command, including records, figures and report."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "workflows.sweep", "--engine", engine, "--out", "runs", *arguments]
        began = time.perf_counter()
        subprocess.run(command, cwd=folder, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, check=True)
        return time.perf_counter() - began


def sweep_against_local() -> Line:
    """Divide the time of 24 parallel runs on Ray, including its start, by their time in one process."""
    arguments = ("--environment", "cosine", "--agents", "10", "--horizon", "300", "--trigger", "logdet",
             "--threshold", "2.5,5", "--seeds", "12")  # fmt: skip
    there, here = study_seconds("ray", *arguments), study_seconds("local", *arguments)
    note = f"{there:.0f} s against {here:.0f} s: cosine N=10, T=300, two values of D, 12 seeds, {os.cpu_count()} cores"
    return Line("sweep of 24 runs on Ray against local", there / here, "at most 0.65", there / here <= 0.65, note)


def two_hundred_runs() -> Line:
    seconds = study_seconds("ray", "--agents", "2", "--horizon", "5", "--threshold", "2.5,5", "--trigger", "logdet",
                            "--seeds", "100")  # fmt: skip
    return Line("200 runs of T=5 on Ray: seconds", seconds, "under 60", seconds < 60, "cosine N=2, tracked in MLflow")


def first_iteration_local() -> Line:
    return first_iteration("local", 4)


def first_iteration_ray() -> Line:
    return first_iteration("ray", 5)


BENCHMARKS: dict[str, Callable[[], Line]] = {
    "oracle-cosine": oracle_cosine,
    "oracle-shuttle": oracle_shuttle,
    "oracle-shuttle-wide": oracle_shuttle_wide,
    "published-cosine": lambda: time_published("cosine N=10", COSINE.replace(agents=10), 0.22, 35),
    "published-shuttle": lambda: time_published("shuttle N=5 m=20", SHUTTLE, 1.1, 90),
    "published-shuttle-wide": lambda: time_published("shuttle N=5 m=50", WIDE_SHUTTLE, 18.0, 180),
    "ideal-cosine-early": lambda: over_ideal("cosine N=64", COSINE.replace(horizon=140), 100, 140, 4),
    "ideal-cosine": lambda: over_ideal("cosine N=64", COSINE, 980, 1000, 4),
    "ideal-shuttle-early": lambda: over_ideal("shuttle N=5 m=20", SHUTTLE.replace(horizon=140), 100, 140, 3),
    "ideal-shuttle": lambda: over_ideal("shuttle N=5 m=20", SHUTTLE, 380, 420, 3),
    "ideal-shuttle-wide-early": lambda: over_ideal("shuttle N=5 m=50", WIDE_SHUTTLE.replace(horizon=140), 100, 140, 2),
    "ideal-shuttle-wide": lambda: over_ideal("shuttle N=5 m=50", WIDE_SHUTTLE, 560, 600, 2),
    "ideal-in-epoch": in_epoch,
    "adam": adam_cost,
    "one-actor": one_actor,
    "two-actors": two_actors,
    "actor-each": lambda: actor_each(8, 300, 1.5),
    "actor-each-long": lambda: actor_each(8, 2000, 1.5),
    "actor-each-many": lambda: actor_each(32, 300, 2.5),
    "actor-memory": idle_memory,
    "not-waiting": not_waiting,
    "two-actors-not-waiting": two_actors_not_waiting,
    "calls": coarse_calls,
    "growth": growth,
    "thousand-agents": thousand_agents,
    "ten-thousand-agents": lambda: peak_memory(10_000, 200, diagonal=True, limit=4),
    "ten-thousand-full": lambda: peak_memory(10_000, 200, diagonal=False, limit=8),
    "hundred-thousand-agents": lambda: peak_memory(100_000, 50, diagonal=True, limit=8),
    "servers-part": servers_part,
    "prediction": prediction,
    "sweep": sweep_against_local,
    "two-hundred-runs": two_hundred_runs,
    "first-iteration-local": first_iteration_local,
    "first-iteration-ray": first_iteration_ray,
}


def parse_arguments() -> argparse.Namespace:
    """Parse the command line: names of benchmarks, --gpu, --json PATH."""
    parser = argparse.ArgumentParser(
        "benchmarks", description="Measure speed and memory; most lines are ratios within one run."
    )
    parser.add_argument("names", nargs="*", help="benchmarks to run (default: all)")
    parser.add_argument("--gpu", action="store_true", help="run the GPU benchmarks instead")
    parser.add_argument("--json", type=Path, help="write the measurements to this file")
    return parser.parse_args()


def run_benchmarks() -> None:
    """Run the benchmarks and print one table."""
    arguments = parse_arguments()
    benchmarks = GPU_BENCHMARKS if arguments.gpu else BENCHMARKS
    if arguments.gpu and not arguments.names:
        Console(width=150).print(tabulate_plan())
    if arguments.gpu and not torch.cuda.is_available():
        print("torch finds no GPU: nothing to measure")
        return
    lines = []
    for name in arguments.names or benchmarks:
        if name not in benchmarks:
            raise SystemExit(f"{name}: unknown benchmark; accepted: {', '.join(benchmarks)}")
        lines.append(benchmarks[name]())
        print(f"{lines[-1].name}: {lines[-1].value:.3g} ({lines[-1].note})", flush=True)
    table = Table("measured", "value", "target", "holds", "")
    for line in lines:
        table.add_row(line.name, f"{line.value:.3g}", line.target, "yes" if line.holds else "no", line.note)
    Console(width=150).print(table)
    if arguments.json is not None:
        record = {"cores": os.cpu_count(), "lines": [vars(line) for line in lines]}
        arguments.json.write_text(json.dumps(record, indent=2))


if __name__ == "__main__":
    run_benchmarks()
