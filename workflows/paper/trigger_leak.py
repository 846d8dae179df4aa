"""What the times of rounds tell about one interaction: an attack on triggers that measure raw data.

Two histories of one agent (DisLinUCB, T = 50) differ in one interaction: its contexts are one unit vector, or 0. All
other contexts and rewards are drawn from the seed. The attacker sees nothing but the iterations of rounds, and guesses
the history from the first round that takes place with the interaction or after it. A private protocol allows no test
with P(hit) > e^epsilon P(false alarm) + delta, so the two rates bound epsilon from below, whatever noise the messages
have (Zhou and Chowdhury 2024 say that the log det trigger is not private; this measures it).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from fnbandit.config import Config
from fnbandit.environments import Environment, make_environment
from fnbandit.environments.base import Block
from fnbandit.numerics.device import one_thread
from fnbandit.numerics.randomness import BLOCK
from fnbandit.privacy.audit import bound_epsilon, bound_share
from fnbandit.simulation.clock import make_clock
from fnbandit.simulation.loop import make_local
from fnbandit.storage.records import atomic_write
from workflows.paper.page_figures import write_picture
from workflows.reporting.canvas import COLOURS, STYLE, WIDTH

LEAK_NAME = "trigger-leak"
TITLE = "What the times of rounds tell about one interaction"
FULL_SEEDS, QUICK_SEEDS = 1000, 60
HORIZON = 50
EVENTS = (1, 10, 30)
"""Iterations of the interaction that differs"""
SCHEDULES: dict[str, dict[str, Any]] = {
    "log det, D = 2": {"trigger": "logdet", "threshold": 2.0},
    "fixed gaps": {"trigger": "geometric"},
}
RESULT_FILE, PICTURE_FILE = f"{LEAK_NAME}.json", f"{LEAK_NAME}.png"


class OneInteraction:
    """An environment in which the contexts of one iteration are the first unit vector times a length."""

    def __init__(self, inside: Environment, iteration: int, length: float) -> None:
        self._inside, self._iteration, self._length = inside, iteration, length
        self.arms, self.dim = inside.arms, inside.dim

    def block(self, agent: int, index: int) -> Block:
        block = self._inside.block(agent, index)
        place = self._iteration - 1 - index * BLOCK
        if not 0 <= place < BLOCK:
            return block
        contexts, means = block.contexts.copy(), block.means.copy()
        contexts[place] = np.eye(1, self.dim)[0] * self._length
        means[place] = self._length
        return Block(contexts, means, block.noise)

    def domain(self, count: int) -> np.ndarray:
        return self._inside.domain(count)


@dataclass(frozen=True)
class Leak:
    """The attack on one trigger and one iteration of the interaction."""

    schedule: str
    event: int
    times: tuple[tuple[int, ...], tuple[int, ...]]
    """First round from the interaction on, by seed: with a unit vector, and with 0; HORIZON + 1 where there is none"""

    @property
    def epsilon(self) -> float:
        """Lower bound at 95 % confidence; the attacker's threshold is chosen on half of the seeds."""
        early, late = (-np.array(one, dtype=float) for one in self.times)
        return bound_epsilon(early, late, 0.0)

    @property
    def rates(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Clopper-Pearson bounds of hits and false alarms of the best "not after iteration t", on all seeds."""
        early, late = (np.array(one) for one in self.times)
        best = max(np.unique(np.r_[early, late]), key=lambda t: float((early <= t).mean() - (late <= t).mean()))
        return (
            bound_share(int((early <= best).sum()), len(early)),
            bound_share(int((late <= best).sum()), len(late)),
        )


def measure_leaks(seeds: int, schedules: dict[str, dict[str, Any]] | None = None) -> list[Leak]:
    """Run both histories with every trigger, iteration of the interaction, and seed."""
    found = []
    for name, settings in (schedules or SCHEDULES).items():
        for event in EVENTS:
            times = tuple(
                tuple(find_round(settings, event, length, seed) for seed in range(seeds)) for length in (1.0, 0.0)
            )
            found.append(Leak(name, event, (times[0], times[1])))
    return found


def find_round(settings: dict[str, Any], event: int, length: float, seed: int) -> int:
    """Return the iteration of the first round that takes place with the interaction or after it."""
    config = Config(algorithm="dislinucb", agents=1, horizon=HORIZON, seed=seed, **settings)
    environment = OneInteraction(make_environment(config), event, length)
    _, simulation = make_local(config, environment, make_clock(config))
    with one_thread():
        for segment in simulation.segments():
            for record in segment.rounds:
                if record.iteration >= event:
                    return int(record.iteration)
    return HORIZON + 1


def reproduce_leak(folder: Path, seeds: int, console: Console) -> list[Path]:
    """Run the attack, print a table, and write the results and the picture into a folder."""
    leaks = measure_leaks(seeds)
    folder.mkdir(parents=True, exist_ok=True)
    print_leaks(leaks, console)
    with atomic_write(folder / RESULT_FILE) as part:
        part.write_text(json.dumps([asdict(leak) for leak in leaks]) + "\n", encoding="utf-8")
    write_picture(draw_leaks(leaks), folder / PICTURE_FILE)
    paths = [folder / RESULT_FILE, folder / PICTURE_FILE]
    for path in paths:
        console.print(f"leak     {path}", soft_wrap=True)
    return paths


def read_leaks(path: Path) -> list[Leak]:
    """Read the results that `reproduce_leak` wrote."""
    rows = json.loads(path.read_text(encoding="utf-8"))
    return [Leak(row["schedule"], row["event"], (tuple(row["times"][0]), tuple(row["times"][1]))) for row in rows]


def leak_rows(leaks: Sequence[Leak]) -> Iterator[list[str]]:
    """Yield the cells of a table: trigger, interaction, hits, false alarms, epsilon."""
    for leak in leaks:
        hits, false = leak.rates
        yield [leak.schedule, str(leak.event), f"{hits[0]:.3f} to {hits[1]:.3f}", f"{false[0]:.3f} to {false[1]:.3f}",
               f"at least {leak.epsilon:.2f}"]  # fmt: skip


LEAK_COLUMNS = ("rounds", "iteration of the interaction", "hits", "false alarms", "epsilon")


def print_leaks(leaks: Sequence[Leak], console: Console) -> None:
    """Print the rates of the attack with their bounds."""
    table = Table(*LEAK_COLUMNS, title=f"{TITLE}; {len(leaks[0].times[0])} seeds, bounds at 95 %", title_justify="left")
    for row in leak_rows(leaks):
        table.add_row(*row)
    console.print(table)


def draw_leaks(leaks: Sequence[Leak]) -> Figure:
    """Draw the distribution of the attacker's round under both histories, a panel per trigger and interaction."""
    names = list(dict.fromkeys(leak.schedule for leak in leaks))
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(2 * WIDTH, 1.0 + 1.5 * len(names)), layout="constrained")
        axes = figure.subplots(len(names), len(EVENTS), sharey=True, squeeze=False)
        for leak in leaks:
            axis = axes[names.index(leak.schedule)][EVENTS.index(leak.event)]
            both = np.concatenate(leak.times)
            bins = np.arange(both.min(), min(both.max(), both.min() + 14) + 2) - 0.5
            for number, (times, words) in enumerate(zip(leak.times, ("a unit vector", "0"), strict=True)):
                weights = np.full(len(times), 1 / len(times))
                axis.hist(np.clip(times, None, bins[-1] - 0.5), bins, weights=weights, color=COLOURS[number], alpha=0.6,
                          label=words)  # fmt: skip
            axis.set_title(f"{leak.schedule}; at {leak.event}: ε ≥ {leak.epsilon:.1f}")
            axis.set_xticks(np.unique(np.linspace(bins[0] + 0.5, bins[-1] - 0.5, 5).round()))
        for axis in axes[-1]:
            axis.set_xlabel("next round")
        for row in axes:
            row[0].set_ylabel("share of seeds")
        handles, words = axes[0][0].get_legend_handles_labels()
        figure.legend(handles, words, loc="outside lower center", ncols=2, title="contexts of one interaction")
        figure.suptitle(TITLE)
        return figure
