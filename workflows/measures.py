"""What the benchmark measures with: a line of its table, the rates of a core, the time of iterations and processes."""

from __future__ import annotations

import dataclasses
import functools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from fnbandit import Config
from fnbandit.costs import Rates
from fnbandit.environments import make_environment
from fnbandit.results import Segment
from fnbandit.rounds.server import Server
from fnbandit.simulation import LocalCohort, one_thread, run_segments


@dataclass(frozen=True)
class Line:
    """One measurement against its target."""

    name: str
    value: float
    target: str
    holds: bool
    note: str = ""


def segments_of(config: Config) -> Iterator[Segment]:
    """A simulation in this process, as plain as can be; seconds are the processor's, which others disturb less."""
    with one_thread():
        cohort = LocalCohort(config, make_environment(config))
        assert cohort.shared is not None
        began = time.process_time()
        for segment in run_segments(config, cohort, Server(config, cohort.shared)):
            yield dataclasses.replace(segment, seconds=time.process_time() - began)
            began = time.process_time()


def seconds_per_iteration(segments: Iterable[Segment], first: int, last: int) -> float:
    """Median seconds of iterations first to last, each communicating."""
    return statistics.median(segment.seconds for segment in segments if first <= segment.end <= last)


def rates() -> Rates:
    """What one thread of this machine does, now."""
    with one_thread():
        products = []
        for dtype in (torch.float64, torch.float32):
            a = torch.randn(1000, 1000, dtype=dtype)
            times = [timed(functools.partial(torch.mm, a, a)) for _ in range(8)]
            products.append(2e9 / min(times))
        source = torch.randn(30_000_000)
        target = torch.empty_like(source)
        copy = min(timed(lambda: target.copy_(source)) for _ in range(5))
    return Rates(double=products[0], single=products[1], stream=2 * source.numel() * 4 / copy)


def timed(action: Callable[[], Any]) -> float:
    """Seconds of the processor that this process takes for something."""
    began = time.process_time()
    action()
    return time.process_time() - began


def in_a_process(settings: dict[str, Any]) -> tuple[float, float]:
    """Seconds and peak bytes of a simulation in a process of its own (Linux: getrusage knows its parent's peak)."""
    code = (
        "import json, pathlib, re, sys, time\nfrom fnbandit import Config, simulate\n"
        "began = time.perf_counter()\nsimulate(Config(**json.loads(sys.argv[1])))\n"
        "peak = re.search(r'VmHWM:\\s+(\\d+) kB', pathlib.Path('/proc/self/status').read_text())[1]\n"
        "print(json.dumps([time.perf_counter() - began, 1024 * int(peak)]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(settings)], capture_output=True, text=True, check=True
    )
    seconds, peak = json.loads(done.stdout)
    return seconds, peak
