"""How far the runs of a study are: a few lines that stay in place on a terminal, calm lines elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fnbandit.config import Config
from fnbandit.registry import part_of
from workflows.study import Point

if TYPE_CHECKING:
    from fnbandit.results import Segment

LINE_EVERY = 10.0
"""Seconds between two plain lines."""
SETTLED = 1.0
"""Seconds of progress that say nothing of the speed: what is restored comes at once, the first calls are slow."""
BAR = 24
"""Characters of a bar."""


@dataclass
class Pace:
    """How fast something goes after its start-up."""

    clock: Callable[[], float] = time.monotonic
    _first: float | None = None
    _settled: tuple[float, float] | None = None
    """When the speed began to count, and what had been done by then"""

    def note(self, done: float) -> None:
        """So much has been done by now."""
        now = self.clock()
        if self._first is None:
            self._first = now
        elif self._settled is None and now - self._first >= SETTLED:
            self._settled = (now, done)

    def speed(self, done: float) -> float | None:
        """Work per second; None while it is too early to say."""
        if self._settled is None:
            return None
        since, before = self._settled
        elapsed = self.clock() - since
        return (done - before) / elapsed if elapsed >= SETTLED and done > before else None

    def left(self, done: float, total: float) -> float | None:
        """Seconds to the end; None while it is too early to say."""
        speed = self.speed(done)
        return None if speed is None else (total - done) / speed


@dataclass
class Bar:
    """One run's progress."""

    name: str
    horizon: int
    work: float
    """What it costs, in the unit in which its study's other runs are measured"""
    progress: Progress
    pace: Pace = field(default_factory=Pace)
    iterations: int = 0
    regret: float = 0.0
    rounds: int = 0
    began: float = field(default_factory=time.monotonic)

    @property
    def share(self) -> float:
        return self.iterations / self.horizon

    def update(self, iterations: int, regret: float, rounds: int) -> None:
        self.iterations, self.regret, self.rounds = iterations, regret, rounds
        self.pace.note(iterations)
        self.progress.note()

    def close(self, status: str) -> None:
        """The run has ended; "finished" or not."""
        self.progress.fold(self, status)

    def text(self) -> str:
        """In words, for a plain line."""
        speed = self.pace.speed(self.iterations)
        words = [f"{self.iterations}/{self.horizon}", f"regret {self.regret:.2f}", f"rounds {self.rounds}"]
        return ", ".join([*words, *([f"{speed:.3g} iterations/s"] if speed else [])])


class Progress:
    """All runs of a study; a context manager. `total` runs, of which `finished` need nothing any more."""

    def __init__(self, console: Console, total: int, work: float, finished: int = 0) -> None:
        self._console = console
        self._total, self._finished, self._failed = total, finished, 0
        self._work, self._folded = work, 0.0
        self._running: list[Bar] = []
        self._pace = Pace()
        self._lock = threading.RLock()
        self._began = self._last = time.monotonic()
        self._live: Live | None = None
        if console.is_terminal and not console.is_dumb_terminal and not console.quiet:
            self._live = Live(
                console=console, get_renderable=self.picture, refresh_per_second=4, vertical_overflow="crop"
            )

    def __enter__(self) -> Progress:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def add(self, name: str, horizon: int, work: float) -> Bar:
        """A run that starts."""
        bar = Bar(name, horizon, work, self)
        with self._lock:
            self._running.append(bar)
        return bar

    def note(self) -> None:
        """Something has gone on."""
        with self._lock:
            self._pace.note(self._done())
            if self._live is None and time.monotonic() - self._last > LINE_EVERY:
                self._say(f"{self._running[0].text()}{self._left()}" if self._total == 1 else self._text())

    def fold(self, bar: Bar, status: str) -> None:
        """A run has ended: its line goes, its work counts."""
        with self._lock:
            self._running.remove(bar)
            self._folded += bar.work * (1 if status == "failed" else bar.share)
            self._finished += status == "finished"
            self._failed += status == "failed"
            if self._live is None and status == "finished":
                seconds = f"{time.monotonic() - bar.began:.1f} s"
                of = f"{self._finished} of {self._total} runs: " if self._total > 1 else ""
                self._say(f"{of}{bar.name}: {bar.text()}, {seconds}{self._left()}")

    def _done(self) -> float:
        return self._folded + sum(bar.work * bar.share for bar in self._running)

    def _left(self) -> str:
        left = self._pace.left(self._done(), self._work)
        return f", {duration(left)} left" if left else ""

    def _text(self) -> str:
        words = [f"{self._finished} of {self._total} runs", f"{len(self._running)} running"]
        if self._failed:
            words.append(f"{self._failed} failed")
        return f"{', '.join(words)}, {self._done() / self._work:.0%}{self._left()}"

    def _say(self, line: str) -> None:
        self._last = time.monotonic()
        self._console.print(line, soft_wrap=True, markup=False)

    def picture(self) -> RenderableType:
        """What a terminal shows: a line per running run as far as there is room, then the whole study."""
        with self._lock:
            if not self._running and not self._folded:
                return Text(f"starting, {duration(time.monotonic() - self._began)}")
            if self._total == 1:
                return self._lines() if self._running else Text()
            room = self._console.size.height - 3
            shown = self._lines() if len(self._running) <= room else self._cells(room)
            return Group(shown, self._overall())

    def _lines(self) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True, overflow="ellipsis")
        for _ in range(5):
            table.add_column(no_wrap=True, justify="right")
        for bar in self._running:
            speed, left = bar.pace.speed(bar.iterations), bar.pace.left(bar.iterations, bar.horizon)
            table.add_row(
                Text(bar.name),
                ProgressBar(bar.horizon, bar.iterations, width=BAR),
                f"{bar.iterations}/{bar.horizon}",
                f"regret {bar.regret:.2f}",
                f"rounds {bar.rounds}",
                f"{f'{speed:.3g}/s' if speed else ''}  {f'{duration(left)} left' if left else ''}",
            )
        return table

    def _cells(self, room: int) -> RenderableType:
        """Several runs in a line, by name and percentage; of those for which there is no room, the range."""
        texts = [f"{bar.name} {bar.share:4.0%}" for bar in self._running]
        width = max(map(len, texts)) + 2
        columns = max(1, self._console.size.width // width)
        places = columns * room
        more = ""
        if len(texts) > places:
            rest = [bar.share for bar in self._running[places - columns :]]
            texts = texts[: places - columns]
            more = f"and {len(rest)} more, {min(rest):.0%} to {max(rest):.0%}"
        lines = ["".join(text.ljust(width) for text in texts[i : i + columns]) for i in range(0, len(texts), columns)]
        return Text("\n".join([*lines, *([more] if more else [])]), no_wrap=True)

    def _overall(self) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        done = self._done()
        left = self._pace.left(done, self._work)
        passed = f"{duration(time.monotonic() - self._began)}{f', {duration(left)} left' if left else ''}"
        counts = f"{self._finished} of {self._total} runs"
        failed = Text(f"{self._failed} failed", style="red") if self._failed else Text()
        bar: Any = ProgressBar(self._work, done, width=BAR)
        table.add_row(counts, bar, f"{done / self._work:.0%}", passed, failed)
        return table


def watched(config: Config, segments: Iterable[Segment]) -> Iterator[Segment]:
    """The segments of a simulation, with a line on standard error that says how far it is."""
    regret, rounds = 0.0, 0
    with Progress(Console(stderr=True, highlight=False), 1, 1.0) as progress:
        bar = progress.add(f"N={config.agents} s{config.seed}", config.horizon, 1.0)
        for segment in segments:
            regret += float(segment.trace.regret.sum(0).mean())
            rounds += len(segment.rounds)
            bar.update(segment.end, regret, rounds)
            yield segment
        bar.close("finished")


def duration(seconds: float) -> str:
    """A time as people say it: "8 s", "3 min", "2 h 5 min"."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min" if minutes < 48 * 60 else f"{minutes // 1440} days"


def short_name(point: Point) -> str:
    """A run's name for a line of progress: N, D and the seed, then what else its study varies."""
    config, parts = point.config, [part for part in point.path.split("/") if "=" in part]
    words = [point.label] if point.label else [f"N={config.agents}"]
    if not point.label and "threshold" in part_of("trigger", config.trigger).fields:
        words.append(f"D={config.threshold}")
    words.append(f"s{config.seed}")
    return " ".join(
        [*words, *(part for part in parts if not part.startswith(("agents=", "threshold=", "seed=", "curve=")))]
    )
