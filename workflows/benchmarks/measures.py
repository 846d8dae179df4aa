"""Tools of the benchmarks: a line of their table, the times of iterations and processes."""

from __future__ import annotations

import dataclasses
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from fnbandit import Config
from fnbandit.config.presets import PLAIN_SETTINGS
from fnbandit.core import Segment
from fnbandit.environments import make_environment
from fnbandit.numerics.device import one_thread
from fnbandit.simulation.clock import make_clock
from fnbandit.simulation.loop import make_simulation
from fnbandit.simulation.population import LocalPopulation


@dataclass(frozen=True)
class Line:
    """One measurement against its target."""

    name: str
    value: float
    target: str
    holds: bool
    note: str = ""


def segments_of(config: Config) -> Iterator[Segment]:
    """Run a simulation in this process, without a Run; seconds are processor time, which other load disturbs less."""
    with one_thread():
        population = LocalPopulation(config, make_environment(config), make_clock(config))
        simulation = make_simulation(config, make_clock(config), population)
        began = time.process_time()
        for segment in simulation.segments():
            yield dataclasses.replace(segment, seconds=time.process_time() - began)
            began = time.process_time()


def plain_config(**fields: Any) -> Config:
    """Return a config that trains by gradient descent, a fixed number of steps: iterations take the same time."""
    return Config.complete(PLAIN_SETTINGS | fields)


def seconds_per_iteration(segments: Iterable[Segment], first: int, last: int) -> float:
    """Return the median seconds of iterations first to last, each with a round."""
    return statistics.median(segment.seconds for segment in segments if first <= segment.end <= last)


def in_a_process(settings: dict[str, Any]) -> tuple[float, float]:
    """Return processor seconds and peak bytes of a simulation in its own process.

    Linux only: reads /proc, because getrusage includes the parent's peak.
    """
    code = (
        "import json, pathlib, re, sys, time\nfrom fnbandit import Config, simulate\n"
        "began = time.process_time()\nsimulate(Config(**json.loads(sys.argv[1])))\n"
        "peak = re.search(r'VmHWM:\\s+(\\d+) kB', pathlib.Path('/proc/self/status').read_text())[1]\n"
        "print(json.dumps([time.process_time() - began, 1024 * int(peak)]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(PLAIN_SETTINGS | settings)], capture_output=True, text=True, check=True
    )
    seconds, peak = json.loads(done.stdout)
    return seconds, peak
