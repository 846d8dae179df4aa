"""Every knob of a simulation, in one frozen dataclass."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from fnbandit.presets import preset_settings
from fnbandit.registry import check_together, unknown
from fnbandit.validation import (
    AggregationName,
    AlgorithmName,
    ClockName,
    Count,
    EnvironmentName,
    MessagesName,
    Natural,
    NotNegative,
    OptimizerName,
    Positive,
    Probability,
    Share,
    StalenessName,
    Theory,
    TriggerName,
    WeightName,
    settings,
)


@settings
class Config:
    """One simulation. Symbols in the descriptions are those of the paper."""

    environment: EnvironmentName = "cosine"
    """What is learned: `fnbandit environments` lists them; a table's path (.parquet, .csv); package.module:Name."""
    algorithm: AlgorithmName = "fn-ucb-less-comm"
    """What the agents run: `fnbandit algorithms` lists them; or package.module:Class."""
    agents: Count = 8
    """N, the number of agents."""
    horizon: Count = 2000
    """T, the number of iterations."""
    seed: Annotated[int, Field(ge=0, lt=2**64)] = 0
    """Fixes the task, the contexts, the noise and theta_0."""
    arms: Annotated[int, Field(ge=2)] = 4
    """K, contexts per agent and iteration (reward functions; a table has one per class)."""
    dim: Count = 10
    """d, the contexts' dimension (reward functions; a table has features times classes)."""
    noise: NotNegative = 0.01
    """Standard deviation of the reward's Gaussian noise (reward functions; tables have none)."""
    network: Literal["standard", "ntk"] = "standard"
    """standard: biases, entries N(0, 1), features not divided; ntk: App. B, on doubled contexts."""
    width: Count = 20
    """m, units per hidden layer."""
    hidden_layers: Annotated[int, Field(ge=1, le=1000)] = 1
    """Hidden layers; the paper's depth L is one more."""
    initialization: Literal["scaled", "normal"] = "scaled"
    """Of network=standard: entries N(0, 1), and between hidden layers, where those would explode, N(0, 2 / fan-in);
    normal: N(0, 1) everywhere."""
    diagonal: bool = False
    """Keep only the diagonal of every matrix (Sec. 3.4)."""
    regularization: Positive | Theory = 0.1
    """lambda; theory: 1 + 2/T."""
    exploration_global: NotNegative | Theory = 0.1
    """nu_TKN, the bonus scale of UCB^a (and of the linear and kernel baselines)."""
    exploration_local: NotNegative | Theory = 0.1
    """nu_TK, the bonus scale of UCB^b (and of the neural baselines)."""
    weight: WeightName = "ramp"
    """alpha, the weight of UCB^b: a linear ramp, Sec. 3.3's ratio of uncertainties, or constant."""
    ramp: Count = 100
    """Iterations in which a ramp's weight rises from 0 to 1."""
    weight_value: Share = 0.5
    """alpha of weight=constant."""
    first_iteration_only: bool = False
    """alpha > 0 only in the first iteration of an epoch, the version that Theorem 1 analyses."""
    domain_sample: Annotated[int, Field(ge=2)] = 512
    """Points of the domain on which weight=theory looks for the smallest and largest uncertainty."""
    received_sample: Natural = 2048
    """Contexts that an agent has received on which weight=theory looks, too: of evenly spaced iterations; 0: none."""
    trigger: TriggerName = "always"
    """When to communicate: logdet, diagonal (log det ratio > D, exactly or on diagonals), always, period, budget."""
    threshold: NotNegative | Theory = 5.0
    """D, the threshold of the logdet and diagonal triggers; theory: T / (N d~)."""
    period: Count = 10
    """Iterations between rounds of trigger=period."""
    round_budget: Count = 50
    """R, the rounds that trigger=budget may spend over the horizon."""
    async_gain: Positive = 1.0
    """gamma of trigger=determinant: communicate when det(V + new rows) exceeds 1 + gamma times det V."""
    staleness: StalenessName = "none"
    """How uploads of algorithm=fn-ucb-async count in averages: none (all alike), polynomial."""
    staleness_power: Positive = 0.5
    """a of staleness=polynomial: an upload counts (1 + others' exchanges since its agent's last one)^-a."""
    aggregation: AggregationName = "mean"
    """How the server combines the networks: mean, median, trimmed-mean, geometric-median."""
    trim: Annotated[float, Field(ge=0, lt=0.5)] = 0.1
    """The share of agents that aggregation=trimmed-mean leaves out at either end of every coordinate."""
    server_momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Momentum of the server's step from the last aggregate to the next."""
    messages: MessagesName = "exact"
    """In which form messages travel: exact, factored, quantized."""
    message_bits: Annotated[int, Field(ge=2, le=16)] = 8
    """Bits per number of messages=quantized."""
    training_loss: Literal["mean", "paper"] = "mean"
    """mean: mean squared error with weight decay lambda/t; paper: Eq. (1), with a pull m lambda to theta_0."""
    training_optimizer: OptimizerName = "gd"
    """gd: gradient descent; adam: Adam, its moments from zero in each round."""
    training_steps: Natural | Theory | Literal["auto"] = 30
    """J, steps per training; theory: App. C.1; auto: as many as what is new since the last training asks for."""
    training_effort: Positive = 3000.0
    """training_steps=auto: steps while a history grows e-fold."""
    training_cap: Count = 300
    """training_steps=auto: the most steps of one training."""
    training_least: Count = 50
    """training_steps=auto: a round with fewer steps due trains nothing, and saves them up."""
    training_subsample: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """r: in the first 8 rounds, after epochs of several iterations, an agent trains on a share r of its history, too,
    and uploads (theta_i - r theta_i^r) / (1 - r); 0: it does not."""
    training_rate: Positive | Theory = 0.1
    """eta, the learning rate; theory: App. C.1."""
    training_schedule: Literal["constant", "linear"] = "constant"
    """The rate within one training: constant, or falling linearly to 0."""
    training_fade: NotNegative = 0.0
    """After t observations the rate is divided by sqrt(1 + t / fade); 0: it stays."""
    training_decay: NotNegative | Literal["lambda"] = "lambda"
    """What stands for lambda in the loss."""
    reward_unit: Literal["one", "rms"] = "one"
    """What an agent measures rewards in, for training and bonuses: 1, or the root mean square of those it has had."""
    training_start: Literal["initial", "own", "aggregate"] = "aggregate"
    """Where training starts: theta_0, the agent's own last parameters, or the aggregate."""
    stop_training_after: Natural | None = None
    """Last iteration in which networks are trained (the paper's experiments: 2000)."""
    use_global: bool = True
    """False removes UCB^a (Fig. 1c)."""
    use_local: bool = True
    """False removes UCB^b (Fig. 1c)."""
    aggregate: bool = True
    """False uses the agent's own theta_i in UCB^b (Fig. 1c)."""
    norm_bound: NotNegative | Theory = 1.0
    """B of the theory's nu, at least sqrt(2 h^T H^-1 h); theory: that, on contexts that agents receive."""
    noise_bound: NotNegative | Theory = 0.01
    """R of the theory's nu: the noise is R-sub-Gaussian; theory: as the environment makes it."""
    delta: Probability = 0.1
    """Failure probability of the theory's nu."""
    device: str = "auto"
    """auto (cuda where there is one), cpu, cuda or cuda:INDEX."""
    statistics_dtype: Literal["float32", "float64"] = "float64"
    """Precision of features, covariances and estimates."""
    network_dtype: Literal["float32", "float64"] = "float32"
    """Precision of the networks and their training."""
    label: str = "class"
    """The label column of an own table."""
    standardization: Literal["auto", "paper", "columns", "none"] = "auto"
    """Of a table's features: columns to zero mean and unit variance; paper: rows to unit length before; auto: paper for
    the two shipped tables, columns for an own one."""
    wheel_delta: Share = 0.95
    """environment=wheel: the radius of the inner disc, in which the first arm is the best."""
    epsilon: Share = 0.05
    """algorithm=neural-epsilon-greedy: the probability of a random arm."""
    clock: ClockName = "none"
    """Simulated time: none, uniform or lognormal (speeds and links drawn from the seed), trace (from clock_table)."""
    clock_table: str | None = None
    """clock=trace: a .csv or .parquet file with a row per agent: agent, speed, latency, up, down[, availability]."""
    speed: Positive = 10.0
    """Iterations per simulated second of a typical agent."""
    speed_spread: NotNegative = 0.5
    """How much agents' speeds differ: sigma of clock=lognormal, the half width of clock=uniform."""
    slow_share: Share = 0.0
    """The share of agents that are slow_factor times slower than drawn."""
    slow_factor: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 10.0
    """How many times slower those are."""
    latency: NotNegative = 0.05
    """Simulated seconds that a message takes whatever its size."""
    bandwidth_up: Positive = 1e6
    """Bytes per simulated second from an agent to the server."""
    bandwidth_down: Positive = 5e6
    """Bytes per simulated second from the server to an agent."""
    link_spread: NotNegative = 0.0
    """How much agents' latencies and bandwidths differ, as speed_spread."""
    jitter: NotNegative = 0.0
    """How much an agent's iterations differ in length: sigma of a lognormal factor."""
    availability: Annotated[float, Field(gt=0, le=1)] = 1.0
    """The share of its time that an agent is there; it goes away for spells, before an iteration."""
    away_seconds: Positive = 60.0
    """The mean length of a spell in simulated seconds."""
    training_pace: Positive = 100.0
    """Steps of training in the time of one iteration."""

    @model_validator(mode="after")
    def _check_together(self) -> Config:
        if self.network == "ntk" and self.width % 2:
            raise ValueError(f"width={self.width!r}: network=ntk needs an even width")
        if not (self.use_global or self.use_local):
            raise ValueError("use_global=False, use_local=False: one of the two bounds must stay")
        check_together(self.algorithm, self.trigger, self.diagonal)
        return self

    @property
    def depth(self) -> int:
        """L of the paper: hidden layers and the output layer."""
        return self.hidden_layers + 1

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
        """`paper` (Sec. 5), `theory` (Algs. 1 and 2 to the letter) or `tuned` (our defaults), with changes."""
        check_fields(changes)
        # A preset looks at these: they are checked first.
        asked = {name: changes[name] for name in ("algorithm", "hidden_layers") if name in changes}
        cls(environment=environment, **asked)
        return cls(**preset_settings(name, environment, **asked) | changes)


FIELDS = tuple(field.name for field in dataclasses.fields(Config))


def check_fields(changes: Iterable[str]) -> None:
    """Raise on the first name that is not a field of Config."""
    for name in changes:
        if name not in FIELDS:
            raise ValueError(unknown("field", name, FIELDS))
