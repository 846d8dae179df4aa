"""Shows the progress of a study: lines that stay in place on a terminal, a line every few seconds elsewhere."""

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

if TYPE_CHECKING:
    from fnbandit.core import Segment, Status

PROGRESS_LINE_SECONDS = 10.0
"""Seconds between two plain lines."""
WARM_UP = 1.0
"""Seconds that do not count for the speed: restored segments come at once, the first calls are slow."""
BAR = 24
"""Characters of a bar."""


@dataclass
class Pace:
    """Measures a speed, without the start-up."""

    clock: Callable[[], float] = time.monotonic
    _first: float | None = None
    _warm: tuple[float, float] | None = None
    """When the speed began to count, and the work done before"""

    def note(self, done: float) -> None:
        """Receive the work done so far."""
        now = self.clock()
        if self._first is None:
            self._first = now
        elif self._warm is None and now - self._first >= WARM_UP:
            self._warm = (now, done)

    def speed(self, done: float) -> float | None:
        """Return the work per second; None during the start-up."""
        if self._warm is None:
            return None
        since, before = self._warm
        elapsed = self.clock() - since
        return (done - before) / elapsed if elapsed >= WARM_UP and done > before else None

    def estimate_left(self, done: float, total: float) -> float | None:
        """Return the seconds to the end; None during the start-up."""
        speed = self.speed(done)
        return None if speed is None else (total - done) / speed


@dataclass
class Bar:
    """One run's progress: an observer."""

    progress: Progress
    name: str
    work: float
    """Expected duration, relative to the other runs of the study"""
    horizon: int = 1
    pace: Pace = field(default_factory=Pace)
    iterations: int = 0
    regret: float = 0.0
    rounds: int = 0
    exchanges: int = 0
    """Of single agents, where they do not wait for others"""
    began: float = field(default_factory=time.monotonic)

    @property
    def share(self) -> float:
        return self.iterations / self.horizon

    def begin(self, config: Config) -> None:
        self.horizon = config.horizon
        self.progress.add(self)

    def segment(self, segment: Segment) -> None:
        self.iterations = segment.end
        self.regret += float(segment.trace.regret.sum(0).mean())
        alone = sum(record.agent is not None for record in segment.rounds)
        self.rounds, self.exchanges = self.rounds + len(segment.rounds) - alone, self.exchanges + alone
        self.pace.note(self.iterations)
        self.progress.note()

    def end(self, status: Status) -> None:
        self.progress.fold(self, status)

    @property
    def communication(self) -> str:
        return f"exchanges {self.exchanges}" if self.exchanges else f"rounds {self.rounds}"

    def text(self) -> str:
        """Describe the progress in words, for a plain line."""
        speed = self.pace.speed(self.iterations)
        words = [f"{self.iterations}/{self.horizon}", f"regret {self.regret:.2f}", self.communication]
        return ", ".join([*words, *([f"{speed:.3g} iterations/s"] if speed else [])])


class Progress:
    """The progress of a study of `total` runs, `finished` of which were finished before; a context manager."""

    def __init__(self, console: Console, total: int, work: float, finished: int = 0) -> None:
        self._console = console
        self._total, self._finished, self._failed = total, finished, 0
        self._work, self._folded = work, 0.0
        self._running: list[Bar] = []
        self._pace = Pace()
        self._lock = threading.RLock()
        self.layouts: set[str] | None = None
        """Layouts printed so far; None where the layout was printed before the start"""
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

    def add(self, bar: Bar) -> None:
        """Show a run that starts."""
        with self._lock:
            self._running.append(bar)

    def note(self) -> None:
        """Update the speed, and print a line if it is time."""
        with self._lock:
            self._pace.note(self._sum_work())
            if self._live is None and time.monotonic() - self._last > PROGRESS_LINE_SECONDS:
                self.say(f"{self._running[0].text()}{self._format_left()}" if self._total == 1 else self._text())

    def fold(self, bar: Bar, status: Status) -> None:
        """Remove the line of a run that has ended, and count its work."""
        with self._lock:
            self._running.remove(bar)
            self._folded += bar.work * (1 if status == "failed" else bar.share)
            self._finished += status == "finished"
            self._failed += status == "failed"
            if self._live is None and status == "finished":
                seconds = f"{time.monotonic() - bar.began:.1f} s"
                of = f"{self._finished} of {self._total} runs: " if self._total > 1 else ""
                self.say(f"{of}{bar.name}: {bar.text()}, {seconds}{self._format_left()}")

    def _sum_work(self) -> float:
        return self._folded + sum(bar.work * bar.share for bar in self._running)

    def _format_left(self) -> str:
        left = self._pace.estimate_left(self._sum_work(), self._work)
        return f", {duration(left)} left" if left else ""

    def _text(self) -> str:
        words = [f"{self._finished} of {self._total} runs", f"{len(self._running)} running"]
        if self._failed:
            words.append(f"{self._failed} failed")
        return f"{', '.join(words)}, {self._sum_work() / self._work:.0%}{self._format_left()}"

    def say_layout(self, layout: str) -> None:
        """Print a layout that was not known before the cluster was joined, once."""
        with self._lock:
            if self.layouts is not None and layout not in self.layouts:
                self.layouts.add(layout)
                self.say(f"layout   {layout}")

    def say(self, line: str) -> None:
        """Print a line above the picture."""
        self._last = time.monotonic()
        self._console.print(line, soft_wrap=True, markup=False)

    def picture(self) -> RenderableType:
        """Draw the terminal's picture: a line per running run as far as there is room, then the whole study."""
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
            speed, left = bar.pace.speed(bar.iterations), bar.pace.estimate_left(bar.iterations, bar.horizon)
            table.add_row(
                Text(bar.name),
                ProgressBar(bar.horizon, bar.iterations, width=BAR),
                f"{bar.iterations}/{bar.horizon}",
                f"regret {bar.regret:.2f}",
                bar.communication,
                f"{f'{speed:.3g}/s' if speed else ''}  {f'{duration(left)} left' if left else ''}",
            )
        return table

    def _cells(self, room: int) -> RenderableType:
        """Draw several runs in a line, by name and percentage; for runs without room, the range."""
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
        done = self._sum_work()
        left = self._pace.estimate_left(done, self._work)
        passed = f"{duration(time.monotonic() - self._began)}{f', {duration(left)} left' if left else ''}"
        counts = f"{self._finished} of {self._total} runs"
        failed = Text(f"{self._failed} failed", style="red") if self._failed else Text()
        bar: Any = ProgressBar(self._work, done, width=BAR)
        table.add_row(counts, bar, f"{done / self._work:.0%}", passed, failed)
        return table


def show_progress(config: Config, segments: Iterable[Segment]) -> Iterator[Segment]:
    """Pass the segments of a simulation on, and show its progress on standard error."""
    with Progress(Console(stderr=True, highlight=False), 1, 1.0) as progress:
        bar = Bar(progress, f"N={config.agents} s{config.seed}", 1.0)
        bar.begin(config)
        for segment in segments:
            bar.segment(segment)
            yield segment
        bar.end("finished")


def duration(seconds: float) -> str:
    """Format a duration: "8 s", "3 min", "2 h 5 min"."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min" if minutes < 48 * 60 else f"{minutes // 1440} days"
