"""Every knob of a simulation, in one frozen dataclass."""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

Theory = Literal["theory"]

ALGORITHMS = {
    "fn-ucb": "FN-UCB, Algorithms 1 and 2: every agent hears every agent's local inverse",
    "fn-ucb-less-comm": "FN-UCB (Less Comm.), Sec. 3.4: one averaged inverse is broadcast",
    "dislinucb": "distributed linear UCB (Wang et al. 2019): the same trigger on raw contexts",
    "neural-ucb": "Neural UCB, one independent learner per agent",
    "neural-ts": "Neural Thompson sampling, one independent learner per agent",
    "linear-ucb": "linear UCB on raw contexts, one independent learner per agent",
    "linear-ts": "linear Thompson sampling, one independent learner per agent",
    "kernel-ucb": "kernelised UCB with exp(-||x-x'||), one independent learner per agent",
    "kernel-ts": "kernelised Thompson sampling, one independent learner per agent",
    "pooled-neural-ucb": "Neural UCB that sees the raw data of all agents: the bound for federation",
}
FEDERATED = ("fn-ucb", "fn-ucb-less-comm", "dislinucb")
SYNTHETIC = ("cosine", "square")
TABLES = ("shuttle", "magic")
ENVIRONMENTS = {
    "cosine": "h(x) = cos(3 <a, x>) on the unit sphere",
    "square": "h(x) = 10 <a, x>^2 on the unit sphere",
    "shuttle": "UCI Statlog (Shuttle): 58,000 rows, 9 features, 7 classes",
    "magic": "UCI MAGIC Gamma Telescope: 19,020 rows, 10 features, 2 classes",
}
PRESETS = ("paper", "theory", "tuned")


@dataclass(frozen=True)
class Config:
    """One simulation. Symbols in the descriptions are those of the paper."""

    environment: str = "cosine"
    """cosine, square, shuttle, magic; a table's path (.parquet or .csv); or package.module:function."""
    algorithm: str = "fn-ucb-less-comm"
    """What the agents run: see `fnbandit algorithms`."""
    agents: int = 8
    """N, the number of agents."""
    horizon: int = 2000
    """T, the number of iterations."""
    seed: int = 0
    """Fixes the task, the contexts, the noise and theta_0."""
    arms: int = 4
    """K, contexts per agent and iteration (reward functions; a table has one per class)."""
    dim: int = 10
    """d, the contexts' dimension (reward functions; a table has features times classes)."""
    noise: float = 0.01
    """Standard deviation of the reward's Gaussian noise (reward functions; tables have none)."""
    network: Literal["standard", "ntk"] = "standard"
    """standard: biases, entries N(0, 1), features not divided; ntk: App. B, on doubled contexts."""
    width: int = 20
    """m, units per hidden layer."""
    hidden_layers: int = 1
    """Hidden layers; the paper's depth L is one more."""
    diagonal: bool = False
    """Keep only the diagonal of every matrix (Sec. 3.4)."""
    regularization: float | Theory = 0.1
    """lambda; theory: 1 + 2/T."""
    exploration_global: float | Theory = 0.1
    """nu_TKN, the bonus scale of UCB^a (and of the linear and kernel baselines)."""
    exploration_local: float | Theory = 0.1
    """nu_TK, the bonus scale of UCB^b (and of the neural baselines)."""
    weight: Literal["ramp", "theory", "constant"] = "ramp"
    """alpha, the weight of UCB^b: a linear ramp, Sec. 3.3's ratio of uncertainties, or constant."""
    ramp: int = 100
    """Iterations in which a ramp's weight rises from 0 to 1."""
    weight_value: float = 0.5
    """alpha of weight=constant."""
    first_iteration_only: bool = False
    """alpha > 0 only in the first iteration of an epoch, the version that Theorem 1 analyses."""
    domain_sample: int = 512
    """Points on which weight=theory looks for the smallest and largest uncertainty."""
    trigger: Literal["logdet", "diagonal", "always", "period"] = "always"
    """When to communicate: (t - t_last) * log det ratio > D (exactly, or on diagonals); always; period."""
    threshold: float | Theory = 5.0
    """D, the threshold of the logdet and diagonal triggers; theory: T / (N d~)."""
    period: int = 10
    """Iterations between rounds of trigger=period."""
    training_loss: Literal["mean", "paper"] = "mean"
    """mean: mean squared error with weight decay lambda/t; paper: Eq. (1)."""
    training_steps: int | Theory = 30
    """J, gradient steps per training; theory: App. C.1."""
    training_rate: float | Theory = 0.1
    """eta, the learning rate; theory: App. C.1."""
    training_start: Literal["initial", "own", "aggregate"] = "aggregate"
    """Where training starts: theta_0, the agent's own last parameters, or the aggregate."""
    stop_training_after: int | None = None
    """Last iteration in which networks are trained (the paper's experiments: 2000)."""
    use_global: bool = True
    """False removes UCB^a (Fig. 1c)."""
    use_local: bool = True
    """False removes UCB^b (Fig. 1c)."""
    aggregate: bool = True
    """False uses the agent's own theta_i in UCB^b (Fig. 1c)."""
    norm_bound: float = 1.0
    """B of the theory's nu: bound on sqrt(2 h^T H^-1 h)."""
    noise_bound: float = 0.01
    """R of the theory's nu: the noise is R-sub-Gaussian."""
    delta: float = 0.1
    """Failure probability of the theory's nu."""
    device: str = "auto"
    """auto (cuda where there is one), cpu, cuda or cuda:INDEX."""
    statistics_dtype: Literal["float32", "float64"] = "float64"
    """Precision of features, covariances and estimates."""
    network_dtype: Literal["float32", "float64"] = "float32"
    """Precision of the networks and their training."""
    label: str = "class"
    """The label column of an own table."""

    def __post_init__(self) -> None:
        self._check_names()
        for name, least in (("agents", 1), ("horizon", 1), ("arms", 2), ("dim", 1), ("width", 1),
                            ("hidden_layers", 1), ("ramp", 1), ("period", 1), ("domain_sample", 2),
                            ("seed", 0)):  # fmt: skip
            self._integer(name, least)
        if self.training_steps != "theory":
            self._integer("training_steps", 0)
        if self.stop_training_after is not None:
            self._integer("stop_training_after", 0)
        for name, positive in (("regularization", True), ("exploration_global", False),
                               ("exploration_local", False), ("threshold", False), ("noise", False),
                               ("training_rate", True), ("norm_bound", False), ("noise_bound", False)):  # fmt: skip
            self._number(name, positive)
        if not 0 <= self.weight_value <= 1:
            raise ValueError(f"weight_value={self.weight_value!r}: expected a number from 0 to 1")
        if not 0 < self.delta < 1:
            raise ValueError(f"delta={self.delta!r}: expected a number between 0 and 1")
        if self.network == "ntk" and self.width % 2:
            raise ValueError(f"width={self.width!r}: network=ntk needs an even width")
        if not (self.use_global or self.use_local):
            raise ValueError("use_global=False, use_local=False: one of the two bounds must stay")

    def _check_names(self) -> None:
        if self.algorithm not in ALGORITHMS:
            raise ValueError(unknown("algorithm", self.algorithm, ALGORITHMS))
        own = ":" in self.environment or self.environment.endswith((".parquet", ".csv"))
        if not own and self.environment not in ENVIRONMENTS:
            accepted = [*ENVIRONMENTS, "path/to/table.parquet", "path/to/table.csv", "package.module:function"]
            raise ValueError(unknown("environment", self.environment, accepted))
        for field in dataclasses.fields(self):
            choices = CHOICES.get(field.name)
            if choices and getattr(self, field.name) not in choices:
                raise ValueError(unknown(field.name, getattr(self, field.name), choices))
            if field.type == "bool" and not isinstance(getattr(self, field.name), bool):
                raise ValueError(f"{field.name}={getattr(self, field.name)!r}: expected true or false")

    def _integer(self, name: str, least: int) -> None:
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"{name}={value!r}: expected a whole number, at least {least}")

    def _number(self, name: str, positive: bool) -> None:
        value = getattr(self, name)
        if value == "theory" and name in THEORY_FIELDS:
            return
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or value < 0 or (positive and value == 0):
            accepted = "a number above 0" if positive else "a number, at least 0"
            accepted += " or 'theory'" if name in THEORY_FIELDS else ""
            raise ValueError(f"{name}={value!r}: expected {accepted}")

    @property
    def depth(self) -> int:
        """L of the paper: hidden layers and the output layer."""
        return self.hidden_layers + 1

    @property
    def networked(self) -> bool:
        """Whether agents train networks for UCB^b."""
        return self.use_local and self.algorithm != "dislinucb"

    def number(self, name: str) -> float:
        """The field as a number; `fnbandit.theory.resolve` has replaced 'theory' before."""
        value = getattr(self, name)
        if value == "theory":
            raise ValueError(f"{name}='theory' is not resolved: call fnbandit.theory.resolve(config) first")
        return value

    def replace(self, **changes: Any) -> Config:
        """A copy with changed fields; an unknown name is an error with the nearest known one."""
        check_fields(changes)
        return dataclasses.replace(self, **changes)

    @classmethod
    def preset(cls, name: str, environment: str = "cosine", **changes: Any) -> Config:
        """`paper` (Sec. 5), `theory` (Algs. 1 and 2 to the letter) or `tuned` (our defaults)."""
        if name not in PRESETS:
            raise ValueError(unknown("preset", name, PRESETS))
        check_fields(changes)
        algorithm = changes.get("algorithm", "fn-ucb" if name == "theory" else "fn-ucb-less-comm")
        table = environment not in SYNTHETIC and ":" not in environment
        settings: dict[str, Any] = {}
        if name == "paper" or (name == "tuned" and table):
            settings.update(
                agents=5 if table else 10, horizon=5000, ramp=700, trigger="always",
                training_start="own", training_rate=0.01, stop_training_after=2000,
            )  # fmt: skip
            if table:
                settings.update(regularization=10.0, exploration_global=0.1, exploration_local=0.01)
            if algorithm.startswith(("linear", "kernel", "dislinucb")):
                settings.update(regularization=1.0)
        if name == "theory":
            settings.update(
                network="ntk", weight="theory", trigger="logdet", training_loss="paper", training_start="initial",
                **dict.fromkeys(THEORY_FIELDS, "theory"),
            )  # fmt: skip
        return cls(**{"environment": environment, "algorithm": algorithm, **settings, **changes})


THEORY_FIELDS = (
    "regularization",
    "exploration_global",
    "exploration_local",
    "threshold",
    "training_rate",
    "training_steps",
)
FIELDS = tuple(field.name for field in dataclasses.fields(Config))
CHOICES: dict[str, tuple[str, ...]] = {
    name: get_args(hint) for name, hint in get_type_hints(Config).items() if get_origin(hint) is Literal
}


def unknown(field: str, value: object, accepted: Iterable[str]) -> str:
    """One line that names the field, the value, the nearest known name and what is accepted."""
    accepted = list(accepted)
    near = difflib.get_close_matches(str(value), accepted, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return f"{field}={value!r} is unknown{hint}; accepted: {', '.join(accepted)}"


def check_fields(changes: Iterable[str]) -> None:
    """Raise on the first name that is not a field of Config."""
    for name in changes:
        if name not in FIELDS:
            raise ValueError(unknown("field", name, FIELDS))
