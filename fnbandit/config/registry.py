"""Names of the parts that compose a simulation. To add a part, write its class in a file and add a line here.

This module does not import torch: `resolve_part` imports the class of a part on request. Wherever a name is accepted,
"package.module:Class" names a user's class.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

from fnbandit.config.part import Part
from fnbandit.config.user_parts import OWN_OBJECTS, import_user_part
from fnbandit.config.words import unknown
from fnbandit.config.worlds import (
    DRIFTS,
    ENVIRONMENTS,
    FORGETTINGS,
    FUNCTION,
    HETEROGENEITIES,
    OWN_TABLE,
    PERSONALIZATIONS,
)
from fnbandit.errors import call_user_code

TRAINING = ("training_optimizer", "training_loss", "training_steps", "training_rate", "training_schedule",
            "training_fade", "training_decay", "training_start", "stop_training_after")  # fmt: skip
NETWORKS = ("network", "width", "hidden_layers", "initialization", "network_dtype", *TRAINING)
"""Fields of all algorithms with networks"""
AUTOMATIC = ("training_effort", "training_cap", "training_least")
AVERAGING = ("aggregation", "server_momentum", "averagings", "training_subsample")
SUMS = ("training_sample",)
UCB_B = (*TRAINING, *AUTOMATIC, *AVERAGING, *SUMS, "newton_steps", "federation", "weight", "first_iteration_only",
         "aggregate", "exploration_local", "network_dtype")  # fmt: skip
BOUNDS = ("norm_bound", "noise_bound", "delta")
MATRICES = ("diagonal", "regularization", "statistics_dtype")
PRIVATE_NETWORKS = ("privacy", "privacy_clip")
PRIVATE_STATISTICS = ("privacy_feature_clip", "privacy_reward_clip", "privacy_factorization")
ROUND_FIELDS = ("trigger", "participation", "messages", "exploration_global", "attack", "aggregation_statistics",
                *MATRICES)  # fmt: skip
LEARNED = (*NETWORKS, *ROUND_FIELDS, "federation", *AVERAGING, "reward_unit", *PRIVATE_NETWORKS)
FEDERATED = (*LEARNED, "weight", "first_iteration_only", "exploration_local", "use_global", "use_local", "aggregate")
ASYNCHRONOUS_LINEAR = ("trigger", "messages", "exploration_global", "regularization", "statistics_dtype")
ASYNCHRONOUS = (*NETWORKS, *ASYNCHRONOUS_LINEAR, "weight", "first_iteration_only", "exploration_local", "use_global",
                "use_local", "aggregate", "reward_unit", "staleness")  # fmt: skip
NEURAL_FIELDS = (*NETWORKS, *MATRICES, "exploration_local")
FEDIGW_FIELDS = (*NETWORKS, *AVERAGING, "federation", "trigger", "participation", "messages", "reward_unit",
                 "attack", "regularization", "statistics_dtype", "gap_weight", *PRIVATE_NETWORKS)  # fmt: skip
LINEAR = ("exploration_global", "regularization", "statistics_dtype")

ALGORITHMS = {
    "fn-ucb": Part(
        "fnbandit.algorithms.fn_ucb:FNUCB", "FN-UCB",
        "FN-UCB, Algorithms 1 and 2: every agent receives every agent's local inverse", FEDERATED,
    ),
    "fn-ucb-less-comm": Part(
        "fnbandit.algorithms.fn_ucb:FNUCBLessComm", "FN-UCB (less comm.)",
        "FN-UCB (Less Comm.), Sec. 3.4: one averaged inverse is broadcast", FEDERATED,
    ),
    "fn-ucb-async": Part(
        "fnbandit.algorithms.fn_ucb_async:FNUCBAsynchronous", "FN-UCB (async.)",
        "FN-UCB (Less Comm.) without barriers: each agent exchanges with the server alone", ASYNCHRONOUS,
    ),
    "fn-exact": Part(
        "fnbandit.algorithms.learned_features:FNExact", "FN-UCB (exact)",
        "one network trained by sums over agents, and UCB on its features",
        (*LEARNED, *PRIVATE_STATISTICS, "forgetting"),
    ),
    "fn-linear": Part(
        "fnbandit.algorithms.learned_features:FNLinear", "FN-linear",
        "federated neural-linear UCB: statistics of the last layer of the shared network",
        (*LEARNED, *PRIVATE_STATISTICS, "forgetting", "personalization", "cluster_level"),
    ),
    "dislinucb": Part(
        "fnbandit.algorithms.dislinucb:DisLinUCB", "DisLinUCB",
        "distributed linear UCB (Wang et al. 2019): the log det trigger on raw contexts",
        (*ROUND_FIELDS, "privacy", *PRIVATE_STATISTICS),
    ),
    "fedlinucb": Part(
        "fnbandit.algorithms.fedlinucb:FedLinUCB", "FedLinUCB",
        "asynchronous federated linear UCB (He et al. 2022) on raw contexts", ASYNCHRONOUS_LINEAR,
    ),
    "neural-ucb": Part(
        "fnbandit.algorithms.neural:NeuralUCB", "Neural UCB",
        "Neural UCB, one independent learner per agent", NEURAL_FIELDS,
    ),
    "neural-ts": Part(
        "fnbandit.algorithms.neural:NeuralTS", "Neural TS",
        "Neural Thompson sampling, one independent learner per agent", NEURAL_FIELDS,
    ),
    "neural-epsilon-greedy": Part(
        "fnbandit.algorithms.epsilon_greedy:NeuralEpsilonGreedy", "Neural ε-greedy",
        "the arm of largest predicted reward, or a random arm with probability epsilon, one learner per agent",
        (*NETWORKS, "regularization", "statistics_dtype", "epsilon"),
    ),
    "neural-linear": Part(
        "fnbandit.algorithms.own_networks:NeuralLinear", "neural-linear",
        "neural-linear UCB (Riquelme et al. 2018), one independent learner per agent",
        (*NETWORKS, *LINEAR),
    ),
    "linear-ucb": Part(
        "fnbandit.algorithms.linear:LinearUCB", "Linear UCB",
        "linear UCB on raw contexts, one independent learner per agent", LINEAR,
    ),
    "linear-ts": Part(
        "fnbandit.algorithms.linear:LinearTS", "Linear TS",
        "linear Thompson sampling, one independent learner per agent", LINEAR,
    ),
    "kernel-ucb": Part(
        "fnbandit.algorithms.kernel:KernelUCB", "Kernel UCB",
        "kernelised UCB with exp(-||x-x'||), one independent learner per agent", LINEAR,
    ),
    "kernel-ts": Part(
        "fnbandit.algorithms.kernel:KernelTS", "Kernel TS",
        "kernelised Thompson sampling, one independent learner per agent", LINEAR,
    ),
    "pooled-neural-ucb": Part(
        "fnbandit.algorithms.neural:PooledNeuralUCB", "pooled Neural UCB",
        "Neural UCB on the raw data of all agents, whose traffic is not counted: an upper bound for federation",
        NEURAL_FIELDS,
    ),
    "fedigw": Part(
        "fnbandit.algorithms.fedigw:FedIGW", "FedIGW",
        "inverse gap weighting by an averaged network (Li et al. 2023): agents send networks only", FEDIGW_FIELDS,
    ),
    "hetofedbandit": Part(
        "fnbandit.algorithms.hetofedbandit:HetoFedBandit", "HetoFedBandit",
        "linear UCB on the observations of an agent's cluster, found by a test (Blaser et al. 2024)",
        ("trigger", "exploration_global", "regularization", "statistics_dtype", "cluster_level"),
    ),
    "random": Part(
        "fnbandit.algorithms.uniform:RandomArms", "random",
        "a random arm in every iteration: the baseline for all learners", ("statistics_dtype",),
    ),
}  # fmt: skip

SPARSE_ROUNDS = ("training_subsample",)
"""Fields that have an effect only where epochs have several iterations"""
TRIGGERS = {
    "logdet": Part("fnbandit.federation.triggers:LogDeterminant", "exact trigger",
                   "(t - t_last) * log det ratio > D (Alg. 1, line 11)", ("threshold", *SPARSE_ROUNDS)),
    "diagonal": Part("fnbandit.federation.triggers:DiagonalLogDeterminant", "diagonal trigger",
                     "logdet on the matrices' diagonals (the paper's experiments)", ("threshold", *SPARSE_ROUNDS)),
    "determinant": Part("fnbandit.federation.triggers:Determinant", "det",
                        "det V grows by a factor of 1 + async_gain (He et al. 2022)",
                        ("async_gain", *SPARSE_ROUNDS)),
    "always": Part("fnbandit.federation.triggers:Always", "always communicating", "a round in every iteration"),
    "period": Part("fnbandit.federation.triggers:Period", "", "a round every `period` iterations",
                   ("period", *SPARSE_ROUNDS)),
    "geometric": Part("fnbandit.federation.triggers:Geometric", "growing gaps",
                      "rounds at gaps that grow with the iterations", ("gap_growth", "largest_gap", *SPARSE_ROUNDS)),
    "budget": Part("fnbandit.federation.triggers:Budget", "budget", "at most `round_budget` rounds, by log det gain",
                   ("round_budget", *SPARSE_ROUNDS)),
}  # fmt: skip

WEIGHTS = {
    "ramp": Part("fnbandit.federation.alpha:Ramp", "", "rises linearly with the iterations", ("ramp",)),
    "theory": Part("fnbandit.federation.alpha:DomainRatio", "theory's α", "Sec. 3.3's ratio of uncertainties",
                   ("domain_sample", "received_sample")),
    "earned": Part("fnbandit.federation.alpha:ErrorGatedRamp", "earned α",
                   "the ramp, reduced while networks predict rewards worse than UCB^a does", ("ramp",)),
    "constant": Part("fnbandit.federation.alpha:Constant", "", "weight_value in every iteration", ("weight_value",)),
}  # fmt: skip

OPTIMIZERS = {
    "gd": Part("fnbandit.networks.training:GradientDescent", "gradient descent", "plain gradient descent (the paper)"),
    "adam": Part("fnbandit.networks.training:Adam", "Adam", "Adam, whose moments start from zero in each round"),
}

AGGREGATIONS = {
    "mean": Part("fnbandit.federation.aggregation:Mean", "mean", "the average (Alg. 2, line 4)"),
    "median": Part("fnbandit.federation.aggregation:Median", "median", "the median of every coordinate"),
    "trimmed-mean": Part("fnbandit.federation.aggregation:TrimmedMean", "trimmed mean",
                         "the mean of every coordinate without its extremes", ("trim",)),
    "geometric-median": Part("fnbandit.federation.aggregation:GeometricMedian", "geometric median",
                             "the point with the least sum of distances (Weiszfeld)"),
    "krum": Part("fnbandit.federation.aggregation:Krum", "Krum",
                 "the agent's network that is nearest to its n - f - 1 nearest others, f = floor(trim n)", ("trim",)),
    "multi-krum": Part("fnbandit.federation.aggregation:MultiKrum", "multi-Krum",
                       "the mean of the n - f networks that Krum prefers", ("trim",)),
    "centered-clipping": Part("fnbandit.federation.aggregation:CenteredClipping", "centered clipping",
                              "steps from the last aggregate, of at most clipping_radius per agent",
                              ("clipping_radius",)),
    "neighbour-mixing": Part("fnbandit.federation.aggregation:NeighbourMixing", "neighbour mixing",
                             "the trimmed mean of means over the n - f nearest neighbours", ("trim",)),
}  # fmt: skip

STATISTICS_RULES = {
    "sum": Part("fnbandit.federation.statistics_rules:SumOfStatistics", "", "the sum over all agents (Alg. 2, line 5)"),
    "certificate": Part("fnbandit.federation.statistics_rules:Certificate", "certificate",
                        "the sum over agents whose statistics are those of some rows; the others are dropped"),
    "trimmed": Part("fnbandit.federation.statistics_rules:TrimmedStatistics", "trimmed",
                    "certificate, and agents are dropped whose rewards the others' solution does not explain"),
    "geometric-median": Part("fnbandit.federation.statistics_rules:MedianOfSolutions", "median of solutions",
                             "certificate, and the geometric median of the solutions of groups of agents", ("trim",)),
}  # fmt: skip

LIARS = ("byzantine_share",)
SCALED = (*LIARS, "attack_scale")
ATTACKS = {
    "none": Part("fnbandit.federation.attacks:NoAttack", "", "all agents are honest"),
    "zero": Part("fnbandit.federation.attacks:Zero", "zeros", "0 in place of statistics and networks", LIARS),
    "noise": Part("fnbandit.federation.attacks:Noise", "noise",
                  "Gaussian noise of attack_scale times the root mean square of the values", SCALED),
    "sign-flip": Part("fnbandit.federation.attacks:SignFlip", "flipped signs",
                      "-attack_scale times B, gradients, and theta_i - theta_sync", SCALED),
    "ipm": Part("fnbandit.federation.attacks:InnerProduct", "inner products",
                "inner-product manipulation: -2 attack_scale times the mean of the honest", SCALED),
    "alie": Part("fnbandit.federation.attacks:ALittleIsEnough", "a little is enough",
                 "the mean of the honest plus 1.5 attack_scale standard deviations", SCALED),
    "mimic": Part("fnbandit.federation.attacks:Mimic", "mimicry", "a copy of the first honest upload", LIARS),
    "reward-flip": Part("fnbandit.federation.attacks:RewardFlip", "flipped rewards",
                        "true statistics of rewards h_max + h_min - r", LIARS),
    "promote": Part("fnbandit.federation.attacks:Promote", "promotion",
                    "true statistics of rewards that are high for attack_arm and low for the others",
                    (*LIARS, "attack_arm")),
    "overconfident": Part("fnbandit.federation.attacks:Overconfident", "overconfidence",
                          "W_i = attack_scale n L^2 I, which ends everybody's exploration", SCALED),
    "anxious": Part("fnbandit.federation.attacks:Anxious", "anxiety",
                    "W_i = 0, which keeps the bonus of UCB^b up for ever", LIARS),
    "flood": Part("fnbandit.federation.attacks:TriggerFlood", "flood", "asks for a round in every iteration", SCALED),
    "alpha-zero": Part("fnbandit.federation.attacks:AlphaAtZero", "alpha = 0", "argues for alpha = 0", LIARS),
    "alpha-one": Part("fnbandit.federation.attacks:AlphaAtOne", "alpha = 1", "argues for alpha = 1", LIARS),
}  # fmt: skip

FEDERATIONS = {
    "average": Part("fnbandit.federation.network_training:Averaging", "averaged networks",
                    "the average of networks that agents train on their own histories (the paper)",
                    (*AVERAGING, "training_start")),
    "gradients": Part("fnbandit.federation.network_training:GradientSums", "gradient sums",
                      "one network: optimiser steps at the server on sums of gradients", (*SUMS, "aggregation")),
    "gauss-newton": Part("fnbandit.federation.network_training:GaussNewton", "Gauss-Newton",
                         "one network: Levenberg-Marquardt steps at the server on sums of g g^T",
                         (*SUMS, "newton_steps")),
    "exact": Part("fnbandit.federation.network_training:ExactFederation", "exact federation",
                  "gauss-newton from 16 observations on; gradients with diagonal matrices", (*SUMS, "newton_steps")),
}  # fmt: skip

CHANNELS = {
    "exact": Part("fnbandit.federation.channels:Exact", "exact", "matrices as the paper sends them"),
    "factored": Part("fnbandit.federation.channels:Factored", "factored",
                     "triangular factors of new rows where these have fewer numbers"),
    "quantized": Part("fnbandit.federation.channels:Quantized", "factored and quantized",
                      "factored, then rounded stochastically to message_bits per number; compare it with factored",
                      ("message_bits",)),
}  # fmt: skip

PRECEDING = {"quantized": ("factored",)}
"""Links that must precede a link in a chain of channels"""

STALENESS = {
    "none": Part("fnbandit.federation.staleness:Unweighted", "", "all uploads have the same weight"),
    "polynomial": Part("fnbandit.federation.staleness:Polynomial", "staleness counts",
                       "an upload has weight (1 + staleness)^-staleness_power", ("staleness_power",)),
}  # fmt: skip

SPELLS = ("jitter", "away_seconds", "training_pace")
DRAWN = ("speed", "speed_spread", "slow_share", "slow_factor", "latency", "bandwidth_up", "bandwidth_down",
         "link_spread", "availability", *SPELLS)  # fmt: skip
CLOCKS = {
    "none": Part("fnbandit.simulation.clock:Clock", "no clock",
                 "no simulated time; agents that do not wait for others have equal speeds"),
    "uniform": Part("fnbandit.simulation.clock:UniformClock", "uniform speeds",
                    "speeds and links drawn uniformly between 1 - spread and 1 + spread times the typical one", DRAWN),
    "lognormal": Part("fnbandit.simulation.clock:LognormalClock", "lognormal speeds",
                      "speeds and links drawn as exp(spread z) times the typical one, z standard normal", DRAWN),
    "trace": Part("fnbandit.simulation.clock:TableClock", "measured speeds",
                  "speeds and links from a table: agent, speed, latency, up, down[, availability]",
                  ("clock_table", *SPELLS)),
}  # fmt: skip

PARTICIPATIONS = {
    "all": Part("fnbandit.federation.participation:Everyone", "", "all agents upload in every round (the paper)"),
    "fraction": Part("fnbandit.federation.participation:Fraction", "a fraction",
                     "a share participation_fraction of the agents, drawn anew in each round",
                     ("participation_fraction",)),
    "availability": Part("fnbandit.federation.participation:Availability", "those available",
                         "the agents that are available by the clock"),
}  # fmt: skip

PROMISED = ("privacy_epsilon", "privacy_delta", "privacy_clip", "privacy_feature_clip", "privacy_reward_clip",
            "privacy_factorization", "privacy_allow_noise")  # fmt: skip
PRIVACIES = {
    "none": Part("fnbandit.privacy.link:NoPrivacy", "", "agents send what they have computed (the paper)"),
    "local": Part("fnbandit.privacy.link:LocalPrivacy", "local privacy",
                  "differential privacy: every agent adds noise to what it sends", PROMISED),
    "central": Part("fnbandit.privacy.link:CentralPrivacy", "central privacy",
                    "differential privacy: noise is added once to the sum over agents, by who is trusted", PROMISED),
}  # fmt: skip

KINDS: dict[str, dict[str, Part]] = {
    "algorithm": ALGORITHMS,
    "environment": ENVIRONMENTS,
    "trigger": TRIGGERS,
    "weight": WEIGHTS,
    "training_optimizer": OPTIMIZERS,
    "federation": FEDERATIONS,
    "aggregation": AGGREGATIONS,
    "aggregation_statistics": STATISTICS_RULES,
    "attack": ATTACKS,
    "messages": CHANNELS,
    "clock": CLOCKS,
    "staleness": STALENESS,
    "participation": PARTICIPATIONS,
    "privacy": PRIVACIES,
    "heterogeneity": HETEROGENEITIES,
    "drift": DRIFTS,
    "personalization": PERSONALIZATIONS,
    "forgetting": FORGETTINGS,
}
"""Fields of Config that name a part, and the parts that they accept."""


def describe_part(kind: str, name: str) -> Part:
    """Return the part that a field names; the title of a user's part ("package.module:Class") is its class name."""
    if name in KINDS[kind]:
        return KINDS[kind][name]
    if kind == "environment" and is_table(name):
        return OWN_TABLE
    return Part(name, name.partition(":")[2], name)


def link_names(messages: str) -> list[str]:
    """Return the links of a chain of channels, "factored, quantized" or "factored+quantized", in order.

    A link that must precede another one is added before it if it is missing.
    """
    links: list[str] = []
    for name in messages.replace("+", ",").split(","):
        links += [before for before in PRECEDING.get(name.strip(), ()) if before not in links] + [name.strip()]
    return links


def is_table(name: str) -> bool:
    """Return True where an environment's name is the path of a table."""
    return name.endswith((".parquet", ".csv"))


def resolve_part(kind: str, name: str) -> Any:
    """Return the class or function of a part; import a user's part also from the working directory."""
    part = describe_part(kind, name)
    if part.path != name:
        module, _, attribute = part.path.partition(":")
        return getattr(importlib.import_module(module), attribute)
    return import_user_part(kind, name)


def build(kind: str, name: str, *args: Any) -> Any:
    """Build an object of a part's class; an exception of a user's part is raised with the name of the part."""
    found = resolve_part(kind, name)
    if name in KINDS[kind]:
        return found(*args)
    from fnbandit.config.own_parts import check_methods

    part = f"{kind}={name!r}"
    return call_user_code(part, check_methods(part, found, kind), *args)


def collect_objects(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the user's parts that no other process can import: those defined in a notebook, in a script or locally."""
    found: dict[str, Any] = {}
    for kind in KINDS:
        names = link_names(settings[kind]) if kind == "messages" else [settings[kind]]
        here = [name for name in names if name in OWN_OBJECTS or name.startswith("__main__:")]
        found |= {name: resolve_part(kind, name) for name in here}
    return found


def check_name(kind: str, name: str) -> None:
    """Raise a one-line ValueError, with the nearest known name, where no part of this kind has the name."""
    if kind == "messages":
        links = [link.strip() for link in name.replace("+", ",").split(",")]
        for link in links if len(links) > 1 else []:
            check_name(kind, link)
        for place, link in enumerate(links):
            late = [before for before in PRECEDING.get(link, ()) if before in links[place:]]
            if late:
                raise ValueError(f"messages={name!r}: {late[0]} must precede {link}")
            if link in links[:place]:
                raise ValueError(f"messages={name!r}: {link} is given twice")
        if len(links) > 1:
            return
    own = ":" in name or (kind == "environment" and is_table(name))
    if not own and name not in KINDS[kind]:
        others = ["path/to/table.parquet", "path/to/table.csv"] if kind == "environment" else []
        raise ValueError(unknown(kind, name, [*KINDS[kind], *others, "package.module:Name"]))


SHARED_FIELDS = ("trim",)
"""Fields that parts of several kinds read: they have an effect where one of the chosen parts reads them"""


def without_effect(settings: dict[str, Any]) -> dict[str, str]:
    """Return the fields that have no effect in a Config with these settings, each with the choice that disables it.

    Example: without_effect({"trigger": "always"})["threshold"] is "trigger=always".
    """
    idle: dict[str, str] = {}
    read: set[str] = set()
    for kind, parts in KINDS.items():
        name = str(settings.get(kind))
        chosen = link_names(name) if kind == "messages" else [name]
        others = [*parts.values(), OWN_TABLE] if kind == "environment" else list(parts.values())
        optional = {field for part in others for field in part.fields}
        if kind in idle:
            idle |= dict.fromkeys(optional, idle[kind])
        elif all(one in parts for one in chosen) or (kind == "environment" and is_table(name)):
            used = {field for one in chosen for field in describe_part(kind, one).fields}
            idle |= dict.fromkeys(optional - used, f"{kind}={name}")
            read |= used
        elif kind == "environment":
            idle |= dict.fromkeys(optional - set(FUNCTION), f"{kind}={name}")
        for reason, fields in _idle_with(settings, idle):
            for field in fields:
                idle.setdefault(field, reason)
    return {field: reason for field, reason in idle.items() if field not in SHARED_FIELDS or field not in read}


def _idle_with(settings: dict[str, Any], idle: dict[str, str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield values that disable other fields, whatever the parts are: the choice and the fields."""

    def has_value(field: str, *values: Any) -> bool:
        return field in settings and any(settings[field] is value or settings[field] == value for value in values)

    if has_value("slow_share", 0):
        yield "slow_share=0", ("slow_factor",)
    if has_value("availability", 1):
        yield "availability=1", ("away_seconds",)
    if str(settings.get("algorithm")) not in ALGORITHMS:
        return  # A user's algorithm may read any field.
    if has_value("use_local", False):
        yield "use_local=false", UCB_B
    if "federation" in settings and not has_value("federation", "average") and "federation" not in idle:
        yield f"federation={settings['federation']}", ("training_start",)
    if has_value("personalization", "none", "head") and "personalization" not in idle:
        yield f"personalization={settings['personalization']}", ("cluster_level",)
    if has_value("use_global", False):
        yield "use_global=false", ("exploration_global", "weight", "first_iteration_only")
    if has_value("aggregate", False) and not has_value("training_start", "aggregate"):
        yield "aggregate=false", ("aggregation", "server_momentum")
    steps = settings.get("training_steps", "auto")
    if "training_steps" in idle:
        yield idle["training_steps"], AUTOMATIC
    elif steps != "auto":
        yield f"training_steps={steps}", AUTOMATIC
    if steps == 0:
        yield "training_steps=0", tuple(name for name in TRAINING if name != "training_steps")
    if has_value("network", "ntk"):
        yield "network=ntk", ("initialization",)
    if has_value("hidden_layers", 1):
        yield "hidden_layers=1", ("initialization",)


def without_theory(settings: dict[str, Any]) -> dict[str, str]:
    """Return the fields that only the theory reads where no other field, weight included, is 'theory'."""
    requested = [name for name, value in settings.items() if value == "theory" and name not in BOUNDS]
    return {} if requested else dict.fromkeys(BOUNDS, "no field that is 'theory'")
