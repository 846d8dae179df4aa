"""Clocks: simulated seconds of computing and sending, as a function of (seed, agent, iteration).

A clock gives the duration of an agent's iteration, training and messages. `timeline.py` (rounds at a barrier) and
`events.py` (rounds of single agents) add up durations and waiting.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fnbandit.config import Config
from fnbandit.config.registry import build
from fnbandit.numerics.randomness import Purpose, uniforms

CLOCK_COLUMNS = ("agent", "speed", "latency", "up", "down")
"""Required columns of a table of clock=trace; `availability` is optional"""
CLOCK_BOUNDS = {"speed": "above 0", "latency": "at least 0", "up": "above 0", "down": "above 0"}


class Clock:
    """Durations. `clock=none` is this class: an iteration takes one unit of time, training and messages take none."""

    shown = False
    """True where its seconds are recorded"""

    def __init__(self, config: Config) -> None:
        self._config = config
        n = config.agents
        self.speed = np.ones(n)
        """Iterations per second, [N]"""
        self.latency = np.zeros(n)
        """Seconds that any message takes, [N]"""
        self.up = np.full(n, np.inf)
        """Bytes per second to the server, [N]"""
        self.down = np.full(n, np.inf)
        """Bytes per second from the server, [N]"""
        self.availability = np.ones(n)
        """Share of its time in which an agent is available, [N]"""
        self._pace = np.inf
        self._jitter = 0.0

    def iterations(self, agents: Sequence[int] | np.ndarray, iterations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the seconds [n] that agents [n] compute in their iterations [n], and those that they are away before.

        Jitter multiplies an iteration's seconds by exp(jitter z), z standard normal. An agent with availability a
        is away for exponentially distributed periods of mean length `away_seconds` = L: before an iteration of c
        seconds with probability q = c (1 - a) / (a L), so that it is available for a share a of its time. Where q is
        above 1 it is away before every iteration, for q L on average.
        """
        agents = np.asarray(agents)
        computing = 1 / self.speed[agents]
        away = np.zeros(len(agents))
        absent = self.availability[agents] < 1
        if not self._jitter and not absent.any():
            return computing, away
        draws = 1 - uniforms(self._config.seed, Purpose.CLOCK, agents, iterations, 4)
        if self._jitter:
            normal = np.sqrt(-2 * np.log(draws[:, 0])) * np.cos(2 * np.pi * draws[:, 1])
            computing = computing * np.exp(self._jitter * normal)
        if absent.any():
            share, length = self.availability[agents], self._config.away_seconds
            chance = computing * (1 - share) / (share * length)
            away = np.where(draws[:, 2] <= chance, np.maximum(chance, 1) * length * -np.log(draws[:, 3]), 0.0)
        return computing, away

    def time_training(self, agents: np.ndarray, steps: np.ndarray | float) -> np.ndarray:
        """Return the seconds of a training of `steps` steps."""
        return steps / (self.speed[agents] * self._pace)

    def time_upload(self, agents: np.ndarray, size: np.ndarray | float) -> np.ndarray:
        """Return the seconds of a message of `size` bytes to the server."""
        return self.latency[agents] + size / self.up[agents]

    def time_download(self, agents: np.ndarray, size: np.ndarray | float) -> np.ndarray:
        """Return the seconds of a message of `size` bytes from the server."""
        return self.latency[agents] + size / self.down[agents]


class Measured(Clock):
    """Base class of clocks whose seconds are recorded; subclasses set speeds and links."""

    shown = True

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._pace = config.training_pace
        self._jitter = config.jitter


class Drawn(Measured):
    """Speeds and links drawn from the seed, independently of each other."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        draws = 1 - uniforms(config.seed, Purpose.CLOCK, range(config.agents), 0, 9)
        speed, latency, up, down = (self.factors(draws[:, 2 * k], draws[:, 2 * k + 1], spread) for k, spread in
                                    enumerate((config.speed_spread, *(config.link_spread,) * 3)))  # fmt: skip
        slow = np.argsort(draws[:, 8], kind="stable")[: round(config.slow_share * config.agents)]
        self.speed = config.speed * speed
        self.speed[slow] /= config.slow_factor
        self.latency = config.latency * latency
        self.up, self.down = config.bandwidth_up * up, config.bandwidth_down * down
        self.availability[:] = config.availability

    def factors(self, one: np.ndarray, other: np.ndarray, spread: float) -> np.ndarray:
        """Return factors of the typical value, [N], from two uniform numbers in (0, 1] per agent."""
        raise NotImplementedError


class UniformClock(Drawn):
    """Uniformly distributed between 1 - spread and 1 + spread times the typical value."""

    def __init__(self, config: Config) -> None:
        for name in ("speed_spread", "link_spread"):
            if getattr(config, name) >= 1:
                raise ValueError(f"{name}={getattr(config, name)!r}: clock=uniform expects a number below 1")
        super().__init__(config)

    def factors(self, one: np.ndarray, other: np.ndarray, spread: float) -> np.ndarray:
        return 1 + spread * (1 - 2 * one)


class LognormalClock(Drawn):
    """exp(spread z) times the typical value, z standard normal."""

    def factors(self, one: np.ndarray, other: np.ndarray, spread: float) -> np.ndarray:
        return np.exp(spread * np.sqrt(-2 * np.log(one)) * np.cos(2 * np.pi * other))


class TableClock(Measured):
    """Speeds and links from a table (CSV or Parquet) with a row per agent: agent, speed, latency, up, down."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        columns = read_table(config.clock_table, config.agents)
        self.speed, self.latency = columns["speed"], columns["latency"]
        self.up, self.down = columns["up"], columns["down"]
        self.availability = columns.get("availability", self.availability)


def read_table(path: str | None, agents: int) -> dict[str, np.ndarray]:
    """Return the columns of a clock's table for agents 0 to N - 1; raise a one-line ValueError on the first fault."""
    if path is None:
        raise ValueError("clock_table=None: clock=trace needs the path of a table (.csv or .parquet)")
    where = f"clock_table={path!r}"
    table = _read(path, where)
    missing = [name for name in CLOCK_COLUMNS if name not in table]
    if missing:
        raise ValueError(f"{where}: has no column {missing[0]!r}; expected {', '.join(CLOCK_COLUMNS)}")
    number = table.pop("agent")
    listed = set(number.tolist())
    if len(listed) < len(number):
        twice = next(agent for agent in sorted(listed) if (number == agent).sum() > 1)
        raise ValueError(f"{where}: agent {twice:g} has more than one row")
    absent = [agent for agent in range(agents) if agent not in listed]
    if absent:
        raise ValueError(f"{where}: has no row for agent {absent[0]}; agents={agents} needs 0 to {agents - 1}")
    rows = np.array([int(np.flatnonzero(number == agent)[0]) for agent in range(agents)])
    columns = {name: values[rows] for name, values in table.items()}
    for name, words in CLOCK_BOUNDS.items():
        good = np.isfinite(columns[name]) & ((columns[name] >= 0) if "least" in words else (columns[name] > 0))
        if not good.all():
            agent = int(np.argmin(good))
            raise ValueError(f"{where}: {name}={columns[name][agent]:g} of agent {agent}; expected a number {words}")
    if "availability" in columns:
        share = columns["availability"]
        if (share == 0).any():
            raise ValueError(f"{where}: agent {int(np.argmax(share == 0))} is never available (availability=0)")
        good = (share > 0) & (share <= 1)
        if not good.all():
            agent = int(np.argmin(good))
            raise ValueError(f"{where}: availability={share[agent]:g} of agent {agent}; expected above 0, at most 1")
    return columns


def _read(path: str, where: str) -> dict[str, np.ndarray]:
    """Return the columns of a table as numbers; raise ValueError on an unknown one."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    if not path.endswith((".csv", ".parquet")):
        raise ValueError(f"{where}: expected a path that ends with .csv or .parquet")
    try:
        reader = pyarrow.parquet.read_table if path.endswith(".parquet") else pyarrow.csv.read_csv
        table = reader(path)
    except (OSError, pa.ArrowException) as error:
        raise ValueError(f"{where}: cannot be read ({str(error).splitlines()[0]})") from None
    unknown = [name for name in table.column_names if name not in (*CLOCK_COLUMNS, "availability")]
    if unknown:
        raise ValueError(
            f"{where}: column {unknown[0]!r} is unknown; accepted: {', '.join(CLOCK_COLUMNS)}, availability"
        )
    columns = {}
    for name in table.column_names:
        try:
            columns[name] = table.column(name).cast(pa.float64()).to_numpy()
        except pa.ArrowException:
            raise ValueError(f"{where}: column {name!r} contains a value that is not a number") from None
    return columns


def make_clock(config: Config) -> Clock:
    """Make the clock that a config names."""
    return build("clock", config.clock, config)
