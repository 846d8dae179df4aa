"""How far the runs are: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from fnbandit.config import Config
from workflows.tally import Tally

LINE_EVERY = 10.0
"""Seconds between two plain lines of a run."""


class Progress:
    """All runs' progress; a context manager."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars = None
        if console.is_terminal:
            self._bars = Bars(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                TextColumn("{task.completed}/{task.total}"),
                TextColumn("regret {task.fields[regret]:.2f}"),
                TextColumn("rounds {task.fields[rounds]}"),
                TextColumn("{task.fields[speed]:.0f}/s"),
                TimeRemainingColumn(),
                console=console,
            )

    def __enter__(self) -> Progress:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def add(self, name: str, config: Config) -> Bar:
        """A run's bar."""
        task = None
        if self._bars is not None:
            task = self._bars.add_task(name, total=config.horizon, regret=0.0, rounds=0, speed=0.0)
        return Bar(self._console, self._bars, task, name)


class Bar:
    """One run's progress."""

    def __init__(self, console: Console, bars: Bars | None, task: Any, name: str) -> None:
        self._console, self._bars, self._task, self._name = console, bars, task, name
        self._last = time.monotonic()

    def update(self, tally: Tally) -> None:
        done = tally.iterations == tally.config.horizon
        if self._bars is not None:
            fields: dict[str, Any] = {"regret": tally.regret, "rounds": tally.rounds, "speed": tally.speed}
            self._bars.update(self._task, completed=tally.iterations, **fields)
        elif done or time.monotonic() - self._last > LINE_EVERY:
            self._last = time.monotonic()
            left = (tally.config.horizon - tally.iterations) / max(tally.speed, 1e-9)
            self._console.print(
                f"{self._name}: {tally.iterations}/{tally.config.horizon}, regret {tally.regret:.2f}, "
                f"rounds {tally.rounds}, {tally.speed:.0f} iterations/s, {left:.0f} s left",
                soft_wrap=True,
            )

    def close(self) -> None:
        if self._bars is not None:
            self._bars.stop_task(self._task)
