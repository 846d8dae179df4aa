"""`make bench`: speed as ratios within one run, and memory, against the targets. From a checkout only."""

from __future__ import annotations

import functools
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import tyro
from rich.console import Console
from rich.table import Table

from fnbandit import Config
from fnbandit.environments import make_environment
from fnbandit.network import Network
from fnbandit.server import Server
from fnbandit.simulation import LocalCohort, one_thread, run_epochs

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Line:
    """One measurement against its target."""

    name: str
    value: float
    target: str
    holds: bool
    note: str = ""


def seconds_per_iteration(config: Config, first: int, last: int) -> float:
    """Median seconds of iterations first to last, each communicating, in this process."""
    with one_thread():
        cohort = LocalCohort(config, make_environment(config))
        assert cohort.statistics is not None
        epochs = run_epochs(config, cohort, Server(config, cohort.statistics))
        times = [epoch.seconds for epoch in epochs if first <= epoch.end <= last]
    return statistics.median(times)


def oracle_seconds(config: Config, first: int, last: int) -> float:
    """The same of the literal transcription in tests/."""
    sys.path.insert(0, str(ROOT / "tests"))
    import oracle  # type: ignore[import-not-found]

    environment = make_environment(config)
    initial = Network(config, environment.dim).initial_parameters(config.seed).numpy()
    stamps: list[float] = []
    oracle.run(config, environment, initial, horizon=last, clock=lambda: stamps.append(time.perf_counter()))
    return statistics.median(b - a for a, b in zip(stamps[first - 1 : last], stamps[first : last + 1], strict=True))


def against_oracle(name: str, config: Config, first: int, last: int, target: float) -> Line:
    fast = seconds_per_iteration(config.replace(horizon=last), first, last)
    slow = oracle_seconds(config, first, last)
    note = f"{fast * 1e3:.1f} ms against {slow * 1e3:.0f} ms"
    return Line(name, slow / fast, f"at least {target:g}", slow / fast >= target, note)


def oracle_cosine() -> Line:
    config = Config(agents=10, horizon=200)
    return against_oracle("times faster than the oracle: cosine N=10, iterations 100-110", config, 100, 110, 100)


def oracle_shuttle() -> Line:
    config = Config.preset("paper", environment="shuttle", agents=5)
    return against_oracle("times faster than the oracle: shuttle N=5 m=20, iterations 3-6", config, 3, 6, 120)


def oracle_shuttle_wide() -> Line:
    config = Config.preset("paper", environment="shuttle", agents=5, width=50)
    return against_oracle("times faster than the oracle: shuttle N=5 m=50, iterations 2-3", config, 2, 3, 250)


def rates() -> tuple[float, float, float]:
    """This machine's one-thread rates: float64 and float32 products (flop/s), a copy's traffic (bytes/s)."""
    with one_thread():
        products = []
        for dtype in (torch.float64, torch.float32):
            a = torch.randn(1000, 1000, dtype=dtype)
            times = [_timed(functools.partial(torch.mm, a, a)) for _ in range(8)]
            products.append(2e9 / min(times))
        source = torch.randn(30_000_000)
        target = torch.empty_like(source)
        copy = min(_timed(lambda: target.copy_(source)) for _ in range(5))
    return products[0], products[1], 2 * source.numel() * 4 / copy


def _timed(action: Callable[[], Any]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def ideal_seconds(config: Config, iteration: int) -> float:
    """What an iteration that communicates must do, at the machine's rates: the larger of work and traffic.

    Work: two quadratic forms (one once alpha is 1), J training steps over the history, rank-N updates of
    the shared matrices, and the local inverses' products; traffic: every matrix once read and, where it
    changes, once written, and the activations once per step where they do not fit the cache.
    """
    double, single, stream = rates()
    environment = make_environment(config)
    network = Network(config, environment.dim)
    n, k, p = config.agents, environment.arms, network.parameters
    d, m = network.inputs_dim, config.width
    matrices = 2 if iteration <= config.ramp else 1
    rows = min(iteration, p)
    work = matrices * 2 * n * k * p * p / double
    work += matrices * 4 * n * p * p / double + 4 * n * rows * p / double
    samples = n * iteration
    work += int(config.number("training_steps")) * samples * (4 * d * m + 6 * m) / single
    traffic = matrices * 3 * p * p * 8 + n * rows * p * 8
    return max(work, traffic / stream)


def over_ideal(name: str, config: Config, first: int, last: int, target: float) -> Line:
    measured = seconds_per_iteration(config, first, last)
    ideal = ideal_seconds(config, last)
    note = f"{measured * 1e3:.1f} ms over {ideal * 1e3:.1f} ms"
    return Line(name, measured / ideal, f"at most {target:g}", measured / ideal <= target, note)


def ideal_cosine() -> Line:
    config = Config(agents=64, horizon=1000)
    return over_ideal("time over ideal: cosine N=64, iterations 980-1000", config, 980, 1000, 4)


def ideal_shuttle() -> Line:
    config = Config.preset("paper", environment="shuttle", agents=5, horizon=60)
    return over_ideal("time over ideal: shuttle N=5 m=20, iterations 40-60", config, 40, 60, 3)


def ideal_shuttle_wide() -> Line:
    config = Config.preset("paper", environment="shuttle", agents=5, width=50, horizon=14)
    return over_ideal("time over ideal: shuttle N=5 m=50, iterations 5-14", config, 5, 14, 2)


def ray_seconds(config: Config, actors: int, first: int) -> tuple[float, int]:
    """Seconds from iteration `first` to the end on Ray, and the agents' actor calls."""
    from actors import Options, RayRun

    per_actor = -(-config.agents // actors)
    run = RayRun(config, Options(agents_per_actor=per_actor, cpus_per_actor=1))
    began = 0.0
    for epoch in run.epochs():
        if not began and epoch.end >= first:
            began = time.perf_counter()
    return time.perf_counter() - began, run.calls


def one_actor() -> Line:
    config = Config(agents=64, horizon=260)
    with one_thread():
        cohort = LocalCohort(config, make_environment(config))
        assert cohort.statistics is not None
        epochs = list(run_epochs(config, cohort, Server(config, cohort.statistics)))
    local = sum(epoch.seconds for epoch in epochs if epoch.end > 60)
    remote, _ = ray_seconds(config, 1, 60)
    ratio = remote / local
    note = f"{remote:.1f} s against {local:.1f} s"
    return Line("one actor against in-process, cosine N=64", ratio, "at most 1.15", ratio <= 1.15, note)


def two_actors() -> Line:
    config = Config(agents=64, horizon=260)
    one, _ = ray_seconds(config, 1, 60)
    two, _ = ray_seconds(config, 2, 60)
    note = f"{one:.1f} s against {two:.1f} s"
    return Line("two actors against one, cosine N=64", one / two, "at least 1.7", one / two >= 1.7, note)


def coarse_calls() -> Line:
    config = Config(agents=8, horizon=400, trigger="logdet", threshold=60.0)
    from actors import Options, RayRun

    run = RayRun(config, Options(agents_per_actor=4))
    rounds = sum(epoch.round is not None for epoch in run.epochs())
    calls = run.calls / (400 * 2)
    note = f"{rounds} rounds in 400 iterations"
    return Line("calls per actor and iteration, logdet", calls, "under 0.2", calls < 0.2, note)


def growth() -> Line:
    """Time per agent and iteration at N=1000 over N=100."""
    times = []
    for agents in (100, 1000):
        config = Config(agents=agents, horizon=60, trigger="logdet", threshold=5.0)
        with one_thread():
            cohort = LocalCohort(config, make_environment(config))
            assert cohort.statistics is not None
            began = time.perf_counter()
            for _ in run_epochs(config, cohort, Server(config, cohort.statistics)):
                pass
            times.append((time.perf_counter() - began) / agents / 60)
    note = f"{times[1] * 1e6:.0f} us against {times[0] * 1e6:.0f} us"
    ratio = times[1] / times[0]
    return Line("time per agent and iteration, N=1000 over N=100", ratio, "at most 1.1", ratio <= 1.1, note)


def _in_a_process(settings: dict[str, Any]) -> tuple[float, float]:
    """Seconds and peak bytes of a simulation in a process of its own."""
    code = (
        "import json, resource, sys, time\nfrom fnbandit import Config, simulate\n"
        "began = time.perf_counter()\nsimulate(Config(**json.loads(sys.argv[1])))\n"
        "peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024\n"
        "print(json.dumps([time.perf_counter() - began, peak]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(settings)], capture_output=True, text=True, check=True
    )
    seconds, peak = json.loads(done.stdout)
    return seconds, peak


def thousand_agents() -> Line:
    settings = {"agents": 1000, "horizon": 1000, "trigger": "logdet", "threshold": 5.0}
    seconds, peak = _in_a_process(settings)
    ratio = peak / (8 * 1000 * 241**2)
    note = f"{seconds:.0f} s, {peak / 1e9:.2f} GB"
    return Line("N=1000, T=1000, full: peak memory over 8 N p^2", ratio, "at most 3", ratio <= 3, note)


def ten_thousand_agents() -> Line:
    settings = {"agents": 10_000, "horizon": 200, "diagonal": True, "trigger": "logdet", "threshold": 5.0}
    seconds, peak = _in_a_process(settings)
    return Line("N=10,000, T=200, diagonal: peak GB", peak / 1e9, "under 4", peak < 4e9, f"{seconds:.0f} s")


def first_iteration(engine: str, target: float) -> Line:
    """Seconds from the command to its first recorded iteration."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "workflows.run", "--engine", engine, "--no-tracking", "--out", f"{folder}/run"]
        began = time.perf_counter()
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        stream = Path(folder, "run", "trace.arrows")
        while not (stream.exists() and stream.stat().st_size > 1500) and process.poll() is None:
            time.sleep(0.02)
        seconds = time.perf_counter() - began
        process.terminate()
        process.wait()
    return Line(f"seconds to the first iteration, engine {engine}", seconds, f"under {target:g}", seconds < target)


def first_iteration_local() -> Line:
    return first_iteration("local", 4)


def first_iteration_ray() -> Line:
    return first_iteration("ray", 12)


BENCHMARKS: dict[str, Callable[[], Line]] = {
    "oracle-cosine": oracle_cosine,
    "oracle-shuttle": oracle_shuttle,
    "oracle-shuttle-wide": oracle_shuttle_wide,
    "ideal-cosine": ideal_cosine,
    "ideal-shuttle": ideal_shuttle,
    "ideal-shuttle-wide": ideal_shuttle_wide,
    "one-actor": one_actor,
    "two-actors": two_actors,
    "calls": coarse_calls,
    "growth": growth,
    "thousand-agents": thousand_agents,
    "ten-thousand-agents": ten_thousand_agents,
    "first-iteration-local": first_iteration_local,
    "first-iteration-ray": first_iteration_ray,
}


@dataclass(frozen=True)
class Arguments:
    """Measures speed and memory; each line is a ratio within one run, or memory."""

    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """Which benchmarks; all without any."""
    json: Path | None = None
    """Where to write a record."""


def main() -> None:
    """Run the benchmarks and print one table."""
    arguments = tyro.cli(Arguments)
    lines = []
    for name in arguments.names or BENCHMARKS:
        if name not in BENCHMARKS:
            raise SystemExit(f"{name}: is no benchmark; accepted: {', '.join(BENCHMARKS)}")
        lines.append(BENCHMARKS[name]())
        print(f"{lines[-1].name}: {lines[-1].value:.3g} ({lines[-1].note})", flush=True)
    table = Table("measured", "value", "target", "holds", "")
    for line in lines:
        table.add_row(line.name, f"{line.value:.3g}", line.target, "yes" if line.holds else "no", line.note)
    Console(width=150).print(table)
    if arguments.json is not None:
        record = {"cores": os.cpu_count(), "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}
        arguments.json.write_text(json.dumps(record | {"lines": [vars(line) for line in lines]}, indent=2))


if __name__ == "__main__":
    main()
