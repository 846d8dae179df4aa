"""Every setting of a simulation, in one frozen dataclass."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from fnbandit.config.combinations import (
    check_attack,
    check_delay,
    check_personal,
    check_private,
    check_together,
    count_liars,
    explain_idle,
)
from fnbandit.config.fields import (
    AggregationName,
    AlgorithmName,
    AttackName,
    ClockName,
    Count,
    DriftName,
    EnvironmentName,
    FederationName,
    FieldTexts,
    ForgettingName,
    HeterogeneityName,
    MessagesName,
    Natural,
    NotNegative,
    OptimizerName,
    ParticipationName,
    PersonalizationName,
    Positive,
    PrivacyName,
    Probability,
    Share,
    StalenessName,
    StatisticsRuleName,
    Theory,
    TriggerName,
    WeightName,
    settings,
)
from fnbandit.config.presets import PLAIN_SETTINGS, PRESET_FIELDS, preset_settings, tune
from fnbandit.config.registry import KINDS, unknown, without_effect, without_theory
from fnbandit.config.user_parts import name_object
from fnbandit.notebook import html_table


@settings
class Config:
    """One simulation. Symbols in the descriptions are those of the paper.

    The defaults are those of the tuned preset: `fnbandit run --agents 3` runs `Config(agents=3)`. The values below
    suit reward functions and one hidden layer. With a table, another algorithm or more layers, fields that are not
    given get the values tuned for those (`presets.tune`).
    """

    environment: EnvironmentName = "cosine"
    """Task: a name that `fnbandit environments` lists, the path of a table (.parquet, .csv), or package.module:Name."""
    algorithm: AlgorithmName = "fn-ucb-less-comm"
    """Algorithm: a name that `fnbandit algorithms` lists, or package.module:Class."""
    agents: Count = 8
    """N, the number of agents."""
    horizon: Count = 2000
    """T, the number of iterations."""
    seed: Annotated[int, Field(ge=0, lt=2**64)] = 0
    """Seed of the task, the contexts, the noise and theta_0."""
    arms: Annotated[int, Field(ge=2)] = 4
    """K, contexts per agent and iteration (reward functions only; a table has one per class or reward)."""
    dim: Count = 10
    """d, the dimension of a context (reward functions only; a table has the dimension of its coding)."""
    noise: NotNegative = 0.01
    """Standard deviation of the Gaussian noise of rewards (tables have none)."""
    network: Literal["standard", "ntk"] = "standard"
    """standard: biases, entries N(0, 1), features not divided by sqrt(m); ntk: App. B, on doubled contexts."""
    width: Count = 20
    """m, units per hidden layer."""
    hidden_layers: Annotated[int, Field(ge=1, le=1000)] = 1
    """Number of hidden layers; the paper's depth L is one more."""
    initialization: Literal["scaled", "normal"] = "scaled"
    """With network=standard: scaled: entries N(0, 1), but N(0, 2 / fan-in) between hidden layers, where N(0, 1) would
    explode; normal: N(0, 1) everywhere."""
    diagonal: bool = False
    """Keep only the diagonal of every matrix (Sec. 3.4)."""
    regularization: Positive | Theory = 0.1
    """lambda; theory: 1 + 2/T."""
    exploration_global: NotNegative | Theory = 0.1
    """nu_TKN, the scale of the bonus of UCB^a, and of the linear and kernel baselines."""
    exploration_local: NotNegative | Theory = 0.01
    """nu_TK, the scale of the bonus of UCB^b, and of the neural baselines."""
    weight: WeightName = "earned"
    """Rule for alpha, the weight of UCB^b: ramp (linear), earned (the ramp, reduced by the networks' prediction
    errors), theory (Sec. 3.3's ratio of uncertainties), constant."""
    ramp: Count = 30
    """Iterations in which alpha rises from 0 to 1 (weight=ramp and earned)."""
    weight_value: Share = 0.5
    """alpha with weight=constant."""
    first_iteration_only: bool = False
    """Use alpha > 0 in the first iteration of an epoch only, the version that Theorem 1 analyses."""
    domain_sample: Annotated[int, Field(ge=2)] = 512
    """Points of the domain on which weight=theory computes the smallest and the largest uncertainty."""
    received_sample: Natural = 2048
    """Received contexts per agent that weight=theory adds to these points, from evenly spaced iterations; 0: none."""
    trigger: TriggerName = "logdet"
    """Rule for rounds: logdet, diagonal (log det ratio > D, exact or on diagonals), determinant, always, period,
    budget."""
    threshold: NotNegative | Theory = 2.0
    """D, the threshold of the logdet and diagonal triggers; theory: T / (N d~)."""
    period: Count = 10
    """Iterations between rounds with trigger=period."""
    round_budget: Count = 50
    """R, the largest number of rounds over the horizon with trigger=budget."""
    gap_growth: Annotated[float, Field(gt=1, allow_inf_nan=False)] = 2.0
    """Growth of trigger=geometric: (gap_growth - 1) (t + 1) iterations lie between a round after t and the next."""
    largest_gap: Count = 4096
    """Largest number of iterations between two rounds with trigger=geometric."""
    async_gain: Positive = 1.0
    """gamma of trigger=determinant: communicate when det(V + new rows) > (1 + gamma) det V."""
    participation: ParticipationName = "all"
    """Agents that upload in a round: all, fraction (drawn anew in each round), availability (agents that are available
    by the clock). All agents receive the answer; an absent agent keeps its rows until its next round."""
    participation_fraction: Annotated[float, Field(gt=0, le=1)] = 0.5
    """f of participation=fraction: ceil(f N) agents upload."""
    staleness: StalenessName = "none"
    """Weights of uploads in the averages of algorithm=fn-ucb-async: none (equal weights), polynomial."""
    staleness_power: Positive = 0.5
    """a of staleness=polynomial: an upload has weight (1 + exchanges of other agents since its agent's last one)^-a."""
    federation: FederationName = "average"
    """How a round trains the shared network: average (networks that agents train on their own histories, as in the
    paper), or one network by sums over agents: gradients, gauss-newton, exact (gauss-newton from 16 observations on;
    gradients with diagonal matrices or more than 2048 parameters)."""
    training_sample: Natural | Literal["auto"] = "auto"
    """Largest number of observations of all agents together in one exchange of gradients or curvature; auto: 4 per
    network parameter, at least 4000; 0: all."""
    newton_steps: Count = 6
    """Largest number of Gauss-Newton steps in a round; fewer where a step reduces the loss by less than 1 in 1000."""
    aggregation: AggregationName = "mean"
    """Rule by which the server combines networks, or gradients: mean, median, trimmed-mean, geometric-median, krum,
    multi-krum, centered-clipping, neighbour-mixing."""
    trim: Annotated[float, Field(ge=0, lt=0.5)] = 0.1
    """Share of agents that trimmed-mean leaves out at each end of every coordinate, and share of liars that krum,
    multi-krum, neighbour-mixing and aggregation_statistics=geometric-median assume."""
    clipping_radius: Positive | Literal["auto"] = "auto"
    """tau of aggregation=centered-clipping; auto: the median distance of the networks from the last aggregate."""
    aggregation_statistics: StatisticsRuleName = "sum"
    """Rule by which the server adds up W, B and curvatures, and checks triggers: sum, certificate, trimmed,
    geometric-median."""
    attack: AttackName = "none"
    """Lies of the last agents: none, zero, noise, sign-flip, ipm, alie, mimic, reward-flip, promote, overconfident,
    anxious, flood, alpha-zero, alpha-one. Regret is that of the honest agents."""
    byzantine_share: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Share of agents that lie: the last floor(byzantine_share N)."""
    attack_scale: Positive = 1.0
    """Strength of an attack, relative to its usual one."""
    attack_arm: Natural = 0
    """Arm that attack=promote recommends."""
    server_momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Momentum of the server's step from the last aggregate to the next."""
    averagings: Count = 1
    """E, cycles of local training and averaging in a round that trains; the paper has 1."""
    messages: MessagesName = "exact"
    """Chain of channels that uploads pass: exact, factored, quantized (factored first: compare it with factored, not
    with exact, which sends whole matrices); join several by + or a comma."""
    message_bits: Annotated[int, Field(ge=2, le=16)] = 8
    """Bits per number with messages=quantized."""
    privacy: PrivacyName = "none"
    """Differential privacy of what leaves an agent, with neighbours that replace one unit: none, local (every agent
    adds noise to its messages), central (noise is added once to the sum over agents). The unit is an agent's whole
    history where agents send networks or gradients only, else one interaction (W and B of linear features)."""
    privacy_epsilon: Positive = 1.0
    """epsilon of the whole run, all rounds together."""
    privacy_delta: Probability = 1e-5
    """delta of the whole run."""
    privacy_clip: Positive = 3.0
    """C, the largest L2 norm of the change of a network that an agent sends, or of its mean gradient."""
    privacy_feature_clip: Positive = 1.0
    """L, the largest L2 norm of a feature row in the W and B that an agent sends."""
    privacy_reward_clip: Positive = 1.0
    """Largest absolute value of a reward (of a residual, where features are learned) in the B that an agent sends."""
    privacy_factorization: Literal["toeplitz", "tree"] = "toeplitz"
    """Correlation of the noise of W and B over rounds: a Toeplitz factorization of prefix sums, or a binary tree."""
    privacy_allow_noise: bool = False
    """Run although the noise is larger than the signal; --dry-run prints their ratio."""
    training_loss: Literal["mean", "paper"] = "mean"
    """mean: mean squared error with weight decay lambda/t; paper: Eq. (1), with a pull m lambda to theta_0."""
    training_optimizer: OptimizerName = "adam"
    """gd: gradient descent; adam: Adam, whose moments start from zero in each round."""
    training_steps: Natural | Theory | Literal["auto"] = "auto"
    """J, steps per training; theory: App. C.1; auto: a number that grows with the data since the last training."""
    training_effort: Positive = 3000.0
    """training_steps=auto: number of steps while a history grows by a factor of e."""
    training_cap: Count = 300
    """training_steps=auto: largest number of steps of one training."""
    training_least: Count = 50
    """training_steps=auto: smallest number of steps of one training; fewer are postponed to the next round."""
    training_subsample: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """r: in the first 8 rounds, after epochs of several iterations, an agent also trains theta_i^r on a share r of its
    history, and uploads (theta_i - r theta_i^r) / (1 - r); 0: it uploads theta_i."""
    training_rate: Positive | Theory = 0.03
    """eta, the learning rate; theory: App. C.1."""
    training_schedule: Literal["constant", "linear"] = "linear"
    """Learning rate within one training: constant, or falling linearly to 0."""
    training_fade: NotNegative = 30.0
    """Divide the learning rate by sqrt(1 + t / fade) after t observations; 0: do not."""
    training_decay: NotNegative | Literal["lambda"] = 0.1
    """Value of lambda in the training loss; lambda: that of regularization."""
    reward_unit: Literal["one", "rms"] = "rms"
    """Unit of an agent's rewards in training and bonuses: one, or rms (root mean square of its rewards so far)."""
    training_start: Literal["initial", "own", "aggregate"] = "aggregate"
    """Start of training: theta_0 (initial), the agent's last parameters (own), or theta_sync (aggregate)."""
    stop_training_after: Natural | None = None
    """Last iteration in which networks are trained (2000 in the paper's experiments)."""
    use_global: bool = True
    """False removes UCB^a (Fig. 1c)."""
    use_local: bool = True
    """False removes UCB^b (Fig. 1c)."""
    aggregate: bool = True
    """False uses the agent's own theta_i in UCB^b (Fig. 1c)."""
    norm_bound: NotNegative | Theory = 1.0
    """B in the theory's nu, at least sqrt(2 h^T H^-1 h); theory: this value, on contexts that agents receive."""
    noise_bound: NotNegative | Theory = 0.01
    """R in the theory's nu: the noise is R-sub-Gaussian; theory: the R of the environment."""
    delta: Probability = 0.1
    """Failure probability in the theory's nu."""
    device: str = "auto"
    """auto (cuda if available, else cpu), cpu, cuda or cuda:INDEX."""
    statistics_dtype: Literal["float32", "float64"] = "float64"
    """Precision of features, covariances and estimates."""
    network_dtype: Literal["float32", "float64"] = "float32"
    """Precision of the networks and their training."""
    label: str = "class"
    """Name of the label column of a table given by its path."""
    standardization: Literal["auto", "paper", "columns", "none"] = "auto"
    """Scaling of a table's features: columns: columns to zero mean and unit variance; paper: rows to unit length first,
    then columns; none; auto: paper for the two shipped tables, columns for a table given by its path."""
    coding: Literal["disjoint", "one-hot"] = "disjoint"
    """How an arm enters the context of a table's row x: disjoint: x in block k of K; one-hot: [x, e_k]."""
    price: NotNegative = 0.0
    """Reward tables with costs: the reward is lower by price times the arm's cost over the largest cost."""
    domain_column: str = "domain"
    """Column of a table given by its path that names every row's domain, which is no feature."""
    wheel_delta: Share = 0.95
    """environment=wheel: radius of the inner disc, in which the first arm is the best."""
    heterogeneity: HeterogeneityName = "none"
    """Difference between agents: none, clusters (agent i has the task of group i mod groups), personal (a share of
    every agent's rewards is its own), domain (rows of one domain of a table)."""
    groups: Count = 3
    """Groups of heterogeneity=clusters; the first has the task itself."""
    personal_share: Share = 0.3
    """rho of heterogeneity=personal: h_i = (1 - rho) h + rho h'_i, with h'_i of agent i alone."""
    drift: DriftName = "none"
    """Change of the task with time: none, rotate (drift_rate radians per iteration), switch (another task after
    T/2)."""
    drift_rate: Positive = 0.001
    """Radians per iteration of drift=rotate."""
    personalization: PersonalizationName = "none"
    """Estimates of an agent's own on the shared features: none, head (a ridge regression towards the model of all
    agents), cluster (the model of the agents with the same rewards), auto (both, the model of all, and a network of the
    agent's own, mixed by their past errors)."""
    cluster_level: Share = 0.01
    """Two groups of agents form one cluster where the p-value of equal parameters is at least this."""
    forgetting: ForgettingName = "none"
    """Weights of old observations in what rounds that train compute anew: none (all count alike), discount, window."""
    discount: Annotated[float, Field(gt=0, lt=1)] = 0.99
    """gamma of forgetting=discount: an observation of age a has the weight gamma^a."""
    window: Count = 200
    """M of forgetting=window: the newest M observations of every agent count."""
    feedback_delay: Natural = 0
    """Iterations between a decision and the one after which its reward is learned; 0: the same."""
    gap_weight: Positive = 7000.0
    """gamma of algorithm=fedigw: an arm with a predicted gap to the best of K arms has probability
    1 / (K + gamma gap)."""
    epsilon: Share = 0.05
    """algorithm=neural-epsilon-greedy: probability of a random arm."""
    clock: ClockName = "none"
    """Simulated time: none, uniform or lognormal (speeds and links drawn from the seed), trace (from clock_table)."""
    clock_table: str | None = None
    """clock=trace: .csv or .parquet file with one row per agent: agent, speed, latency, up, down[, availability]."""
    speed: Positive = 10.0
    """Iterations per simulated second of a typical agent."""
    speed_spread: NotNegative = 0.5
    """Spread of speeds between agents: sigma with clock=lognormal, half width with clock=uniform."""
    slow_share: Share = 0.0
    """Share of agents that are slow_factor times slower than drawn."""
    slow_factor: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 10.0
    """Factor by which these agents are slower."""
    latency: NotNegative = 0.05
    """Simulated seconds per message, in addition to its bytes over the bandwidth."""
    bandwidth_up: Positive = 1e6
    """Bytes per simulated second from an agent to the server."""
    bandwidth_down: Positive = 5e6
    """Bytes per simulated second from the server to an agent."""
    link_spread: NotNegative = 0.0
    """Spread of latencies and bandwidths between agents, defined as speed_spread."""
    jitter: NotNegative = 0.0
    """Spread of the durations of an agent's iterations: sigma of a lognormal factor."""
    availability: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of time in which an agent is available; its absences begin before an iteration."""
    away_seconds: Positive = 60.0
    """Mean length of an absence in simulated seconds."""
    training_pace: Positive = 100.0
    """Training steps in the time of one iteration."""

    @model_validator(mode="before")
    @classmethod
    def _tune(cls, data: Any) -> Any:
        """Add the tuned values that depend on the environment, the algorithm and the depth to the fields given."""
        given = _name_parts(dict(zip(FIELDS, data.args, strict=False)) | (data.kwargs or {}))
        whole = _add_tuned(given)
        if len(given) < len(FIELDS):  # a call with every field copies another config
            check_effects(given, {name: getattr(cls, name) for name in FIELDS} | whole)
        return whole

    @model_validator(mode="after")
    def _check_together(self) -> Config:
        if self.network == "ntk" and self.width % 2:
            raise ValueError(f"width={self.width!r}: network=ntk needs an even width")
        if not (self.use_global or self.use_local):
            raise ValueError("use_global=False, use_local=False: at least one must be True")
        check_delay(self.algorithm, self.clock, self.feedback_delay)
        check_private(self.privacy, dataclasses.asdict(self))
        check_together(self.algorithm, self.trigger, self.diagonal, self.participation, self.clock, self.federation)
        check_attack(dataclasses.asdict(self))
        check_personal(dataclasses.asdict(self))
        return self

    def _repr_html_(self) -> str:
        return html_table(self.effective.items(), most=len(FIELDS), title="Config; fields without effect are left out")

    @property
    def effective(self) -> dict[str, Any]:
        """The fields that have an effect, without those that are None; `Config(**effective)` runs the same."""
        fields = dataclasses.asdict(self)
        idle = without_effect(fields) | without_theory(fields)
        return {name: value for name, value in fields.items() if value is not None and name not in idle}

    @property
    def honest_agents(self) -> int:
        """Number of agents that do not lie: the first ones, whose regret is measured."""
        return self.agents - count_liars(dataclasses.asdict(self))

    @property
    def depth(self) -> int:
        """L of the paper: hidden layers and the output layer."""
        return self.hidden_layers + 1

    def number(self, name: str) -> float:
        """Return a field as a number. Call `fnbandit.theory.resolve` first, which replaces 'theory'."""
        value = getattr(self, name)
        if value == "theory":
            raise ValueError(f"{name}='theory' is not resolved: call fnbandit.theory.resolve(config) first")
        return value

    def replace(self, **changes: Any) -> Config:
        """Return a copy with changed fields, which may have no effect. An unknown name is a ValueError."""
        check_fields(changes)
        return dataclasses.replace(self, **changes)

    @classmethod
    def preset(cls, name: str, environment: str = "cosine", **changes: Any) -> Config:
        """Return a preset, `paper` (Sec. 5), `theory` (Algs. 1 and 2) or `tuned` (the defaults), with changes.

        A change that has no effect in the config is a ValueError, as a flag without effect is.
        """
        made = cls.build(name, environment, changes)
        check_effects(changes, dataclasses.asdict(made))
        return made

    @classmethod
    def build(cls, name: str, environment: str, changes: dict[str, Any]) -> Config:
        """Return a preset with changes that may have no effect."""
        check_fields(changes)
        changes = _name_parts(changes)
        depends = {name: changes[name] for name in PRESET_FIELDS if name in changes}
        first = cls.complete({"environment": environment} | depends)  # validates the fields that a preset reads
        return cls.complete(preset_settings(name, first.environment, changes.get("algorithm")) | changes)

    @classmethod
    def from_record(cls, fields: Mapping[str, Any]) -> Config:
        """Return the config of a file; fields newer than the file get values that do not change its run."""
        return cls.complete(PLAIN_SETTINGS | dict(fields))

    @classmethod
    def complete(cls, fields: Mapping[str, Any]) -> Config:
        """Return a config with these fields, which may have no effect; the others have their tuned values."""
        check_fields(fields)
        return cls(**{name: getattr(cls, name) for name in FIELDS} | _add_tuned(dict(fields)))


def _name_parts(given: dict[str, Any]) -> dict[str, Any]:
    """Return fields with the names of classes and functions that were given as objects."""
    return {name: name_object(name, v) if name in KINDS and callable(v) else v for name, v in given.items()}


def _add_tuned(given: dict[str, Any]) -> dict[str, Any]:
    """Add the tuned values that depend on the environment, the algorithm and the depth to the fields given."""
    environment, algorithm, layers = (given.get(name, getattr(Config, name)) for name in PRESET_FIELDS)
    # pydantic rejects other types after this.
    if isinstance(environment, str) and isinstance(algorithm, str) and type(layers) is int and layers > 0:
        return tune(environment, algorithm, layers) | given
    return given


def check_effects(given: Iterable[str], whole: dict[str, Any]) -> None:
    """Raise a ValueError of one line on the first given field that has no effect in a config."""
    idle = without_effect(whole) | without_theory(whole)
    for name in given:
        if name in idle:
            raise ValueError(explain_idle(name, idle[name]))


FIELDS = tuple(field.name for field in dataclasses.fields(Config))
setattr(Config, "__doc__", FieldTexts(Config.__doc__ or ""))  # noqa: B010 - a string only for whoever reads it


def _name_fields(function: Any) -> None:
    """Replace **changes in a function's signature by the fields, which notebooks then complete."""
    own = [one for one in inspect.signature(function).parameters.values() if one.kind is not one.VAR_KEYWORD]
    known = {one.name for one in own}
    kind = inspect.Parameter.KEYWORD_ONLY
    fields = [inspect.Parameter(name, kind, default=getattr(Config, name)) for name in FIELDS if name not in known]
    function.__signature__ = inspect.Signature([*own, *fields])


_name_fields(Config.replace)
_name_fields(Config.preset.__func__)  # type: ignore[attr-defined]


def check_fields(changes: Iterable[str]) -> None:
    """Raise on the first name that is not a field of Config."""
    for name in changes:
        if name not in FIELDS:
            raise ValueError(unknown("field", name, FIELDS))
