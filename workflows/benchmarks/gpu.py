"""Lines of `make bench-gpu`: a GPU against one core of the same machine; and its plan, which needs no GPU."""

from __future__ import annotations

import time

import torch
from rich.table import Table

from fnbandit import Config, simulate
from fnbandit.environments import make_environment
from fnbandit.planning.capacity import memory, readable
from workflows.benchmarks.measures import Line, plain_config
from workflows.benchmarks.stand_in import DeviceWork, count_device_work

GPU_CONFIG = plain_config(trigger="logdet", threshold=5.0)


def against_a_core(name: str, config: Config, target: float, device: str = "cuda") -> Line:
    """Divide a run's time on one core by its time on the device; a short run warms up each."""
    times = {}
    for place in ("cpu", device):
        simulate(config.replace(device=place, horizon=3))
        began = time.perf_counter()
        simulate(config.replace(device=place))
        times[place] = time.perf_counter() - began
    ratio = times["cpu"] / times[device]
    note = f"{times[device]:.1f} s against {times['cpu']:.1f} s, {config.horizon} iterations"
    return Line(f"times faster than a core: {name}", ratio, f"at least {target:g}", ratio >= target, note)


def agreement(agents: int = 64, horizon: int = 200, device: str = "cuda") -> Line:
    """Measure the share of equal choices: the last bits of scores differ, which changes an occasional choice."""
    config = plain_config(agents=agents, horizon=horizon, network_dtype="float64")
    core, other = (simulate(config.replace(device=place)) for place in ("cpu", device))
    share = float((core.arms == other.arms).mean())
    return Line(f"choices as on a core, N={agents}, T={horizon}", share, "at least 0.99", share >= 0.99)


def device_memory(agents: int = 10_000, horizon: int = 200) -> Line:
    """Divide the peak of a device's memory by the estimate before the run."""
    config = GPU_CONFIG.replace(agents=agents, horizon=horizon, device="cuda")
    torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    simulate(config)
    seconds, peak = time.perf_counter() - began, torch.cuda.max_memory_allocated()
    estimate = memory(config, make_environment(config)).of(agents)
    note = f"{seconds:.0f} s, {readable(peak)} of {readable(estimate)}"
    return Line(f"N={agents:,}, T={horizon}, full: memory over the estimate", peak / estimate, "at most 1",
                peak <= estimate, note)  # fmt: skip


GPU_BENCHMARKS = {
    "cosine": lambda: against_a_core("cosine N=1000, rare rounds", GPU_CONFIG.replace(agents=1000, horizon=120), 5),
    "always": lambda: against_a_core(
        "cosine N=64, a round in every iteration", plain_config(agents=64, horizon=200), 1
    ),
    "shuttle-wide": lambda: against_a_core(
        "shuttle N=5 m=50", Config.preset("paper", environment="shuttle", agents=5, width=50, horizon=200), 3
    ),
    "agreement": agreement,
    "ten-thousand-full": device_memory,
}

PLANNED = {
    "cosine, gradient descent": plain_config(),
    "cosine, tuned": Config(),
    "cosine, exact federation": Config.preset("exact"),
}
PLANNED_AGENTS = (10, 1000)


def split_work(config: Config, iterations: int = 16) -> tuple[DeviceWork, DeviceWork]:
    """Return the work of an iteration and, in addition, of the last of two rounds, on a stand-in for a GPU."""
    alone, once, twice = (
        count_device_work(config.replace(horizon=iterations, trigger="period", period=period))[1]
        for period in (iterations + 1, iterations // 2 + 1, iterations // 2)
    )
    return alone / iterations, twice - once


def tabulate_plan(agents: tuple[int, ...] = PLANNED_AGENTS) -> Table:
    """Return a table of the work of iterations and rounds on a device, counted without one."""
    table = Table("per iteration | per round", "copies to the device", "kB to the device", "reads", "launches")
    for name, config in PLANNED.items():
        for count in agents:
            iteration, round_ = split_work(config.replace(agents=count))
            pairs = zip(vars(iteration).values(), vars(round_).values(), strict=True)
            copies, size, reads, launches = (f"{one:,.4g} | {other:,.4g}" for one, other in pairs)
            table.add_row(f"{name}, N={count:,}", copies, size, reads, launches)
    return table
