"""Lines of `make bench-gpu`: what a GPU makes of what one core does on the same machine."""

from __future__ import annotations

import time

import torch

from fnbandit import Config, simulate
from fnbandit.capacity import memory, readable
from fnbandit.environments import make_environment
from workflows.measures import Line

RARE = Config(trigger="logdet", threshold=5.0)


def against_a_core(name: str, config: Config, target: float, device: str = "cuda") -> Line:
    """A run's time on one core over its time on the device, both after a short one that warms up."""
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
    """The share of choices that are the same: last bits differ, and with them a choice now and then."""
    config = Config(agents=agents, horizon=horizon, network_dtype="float64")
    core, other = (simulate(config.replace(device=place)) for place in ("cpu", device))
    share = float((core.arms == other.arms).mean())
    return Line(f"choices as on a core, N={agents}, T={horizon}", share, "at least 0.99", share >= 0.99)


def device_memory(agents: int = 10_000, horizon: int = 200) -> Line:
    """The peak of a device's memory over what was reckoned before the run."""
    config = RARE.replace(agents=agents, horizon=horizon, device="cuda")
    torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    simulate(config)
    seconds, peak = time.perf_counter() - began, torch.cuda.max_memory_allocated()
    reckoned = memory(config, make_environment(config)).of(agents)
    note = f"{seconds:.0f} s, {readable(peak)} of {readable(reckoned)}"
    return Line(f"N={agents:,}, T={horizon}, full: memory over what was reckoned", peak / reckoned, "at most 1",
                peak <= reckoned, note)  # fmt: skip


GPU_BENCHMARKS = {
    "cosine": lambda: against_a_core("cosine N=1000, rare rounds", RARE.replace(agents=1000, horizon=120), 5),
    "always": lambda: against_a_core("cosine N=64, a round in every iteration", Config(agents=64, horizon=200), 1),
    "shuttle-wide": lambda: against_a_core(
        "shuttle N=5 m=50", Config.preset("paper", environment="shuttle", agents=5, width=50, horizon=200), 3
    ),
    "agreement": agreement,
    "ten-thousand-full": device_memory,
}
