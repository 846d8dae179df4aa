"""Simulated time: how fast agents compute and send, as a function of (seed, agent, iteration).

A clock is chosen as other parts are. It says how long an agent's iteration, training and messages take; who waits
for whom is the protocol's matter (`timeline.py` for synchronous rounds, `asynchronous.py` for single agents).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fnbandit.config import Config
from fnbandit.randomness import Purpose, uniforms
from fnbandit.registry import made

COLUMNS = ("agent", "speed", "latency", "up", "down")
"""What a table of clock=trace has at the least; `availability` may come with it"""
LEAST = {"speed": "above 0", "latency": "at least 0", "up": "above 0", "down": "above 0"}


class Clock:
    """How long agents take. `clock=none` is this class: an iteration is one unit of time, all else takes none."""

    shown = False
    """Whether its seconds are recorded"""

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
        """The share of its time that an agent is there, [N]"""
        self._pace = np.inf
        self._jitter = 0.0

    def iterations(self, agents: Sequence[int] | np.ndarray, iterations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Seconds that agents [n] compute in an iteration each [n], and that they are away before it, each [n].

        Jitter multiplies an iteration's seconds by exp(jitter z), z standard normal. An agent with availability a
        goes away for spells of mean length `away_seconds` = L, exponentially distributed, as often as to be there a
        share a of its time: before an iteration of c seconds with probability q = c (1 - a) / (a L). Where q is above
        1 it goes away before every iteration, for q L on average.
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
            there, length = self.availability[agents], self._config.away_seconds
            often = computing * (1 - there) / (there * length)
            away = np.where(draws[:, 2] <= often, np.maximum(often, 1) * length * -np.log(draws[:, 3]), 0.0)
        return computing, away

    def training(self, agents: np.ndarray, steps: np.ndarray | float) -> np.ndarray:
        """Seconds of a training of so many steps."""
        return steps / (self.speed[agents] * self._pace)

    def sending(self, agents: np.ndarray, size: np.ndarray | float) -> np.ndarray:
        """Seconds that so many bytes take to the server."""
        return self.latency[agents] + size / self.up[agents]

    def receiving(self, agents: np.ndarray, size: np.ndarray | float) -> np.ndarray:
        """Seconds that so many bytes take from the server."""
        return self.latency[agents] + size / self.down[agents]


class Measured(Clock):
    """A clock whose seconds count; its kinds say what agents are like."""

    shown = True

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._pace = config.training_pace
        self._jitter = config.jitter


class Drawn(Measured):
    """Speeds and links are drawn from the seed, each independently of the others."""

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
        """What the typical value is multiplied by, from two uniform numbers in (0, 1] per agent."""
        raise NotImplementedError


class Uniform(Drawn):
    """Uniformly distributed between 1 - spread and 1 + spread times the typical value."""

    def __init__(self, config: Config) -> None:
        for name in ("speed_spread", "link_spread"):
            if getattr(config, name) >= 1:
                raise ValueError(f"{name}={getattr(config, name)!r}: clock=uniform expects a number below 1")
        super().__init__(config)

    def factors(self, one: np.ndarray, other: np.ndarray, spread: float) -> np.ndarray:
        return 1 + spread * (1 - 2 * one)


class Lognormal(Drawn):
    """exp(spread z) times the typical value, z standard normal."""

    def factors(self, one: np.ndarray, other: np.ndarray, spread: float) -> np.ndarray:
        return np.exp(spread * np.sqrt(-2 * np.log(one)) * np.cos(2 * np.pi * other))


class Table(Measured):
    """Speeds and links from a table (CSV or Parquet) with a row per agent: agent, speed, latency, up, down."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        columns = read_table(config.clock_table, config.agents)
        self.speed, self.latency = columns["speed"], columns["latency"]
        self.up, self.down = columns["up"], columns["down"]
        self.availability = columns.get("availability", self.availability)


def read_table(path: str | None, agents: int) -> dict[str, np.ndarray]:
    """The columns of a clock's table for agents 0 to N - 1, checked; a ValueError of one line on the first fault."""
    if path is None:
        raise ValueError("clock_table=None: clock=trace needs the path of a table (.csv or .parquet)")
    where = f"clock_table={path!r}"
    table = _read(path, where)
    missing = [name for name in COLUMNS if name not in table]
    if missing:
        raise ValueError(f"{where}: has no column {missing[0]!r}; expected {', '.join(COLUMNS)}")
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
    for name, words in LEAST.items():
        good = np.isfinite(columns[name]) & ((columns[name] >= 0) if "least" in words else (columns[name] > 0))
        if not good.all():
            agent = int(np.argmin(good))
            raise ValueError(f"{where}: {name}={columns[name][agent]:g} of agent {agent}; expected a number {words}")
    if "availability" in columns:
        there = columns["availability"]
        if (there == 0).any():
            raise ValueError(f"{where}: agent {int(np.argmax(there == 0))} is never there (availability=0)")
        good = (there > 0) & (there <= 1)
        if not good.all():
            agent = int(np.argmin(good))
            raise ValueError(f"{where}: availability={there[agent]:g} of agent {agent}; expected above 0, at most 1")
    return columns


def _read(path: str, where: str) -> dict[str, np.ndarray]:
    """The known columns of a table as numbers."""
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
    unknown = [name for name in table.column_names if name not in (*COLUMNS, "availability")]
    if unknown:
        raise ValueError(f"{where}: column {unknown[0]!r} is unknown; accepted: {', '.join(COLUMNS)}, availability")
    columns = {}
    for name in table.column_names:
        try:
            columns[name] = table.column(name).cast(pa.float64()).to_numpy()
        except pa.ArrowException:
            raise ValueError(f"{where}: column {name!r} holds something that is no number") from None
    return columns


def make_clock(config: Config) -> Clock:
    """The clock that a config names."""
    return made("clock", config.clock, config)
