"""The parts that a simulation can be composed of, by name. A new part is a class in its own file and a line here.

Nothing here imports torch: a part's class is imported when it is asked for. Everywhere a name is accepted,
"package.module:Class" takes a user's own class.
"""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fnbandit.errors import OWN, call_own


@dataclass(frozen=True)
class Part:
    """One choice of its kind."""

    path: str
    """Where its class is: "package.module:Class\""""
    title: str
    """What figures call it"""
    summary: str
    """What it is, in a line"""
    fields: tuple[str, ...] = ()
    """Fields of Config that matter with it, and not with every other part of its kind"""


TRAINING = ("training_optimizer", "training_loss", "training_steps", "training_rate", "training_schedule",
            "training_fade", "training_decay", "training_start", "stop_training_after")  # fmt: skip
NETWORKS = ("network", "width", "hidden_layers", "initialization", "network_dtype", *TRAINING)
AUTOMATIC = ("training_effort", "training_cap", "training_least")
UCB_B = (*TRAINING, *AUTOMATIC, "training_subsample", "weight", "first_iteration_only", "aggregation",
         "server_momentum", "aggregate", "exploration_local", "network_dtype")  # fmt: skip
BOUNDS = ("norm_bound", "noise_bound", "delta")
MATRICES = ("diagonal", "regularization", "statistics_dtype")
ROUNDS = ("trigger", "messages", "exploration_global", *MATRICES)
FEDERATED = (*NETWORKS, "training_subsample", *ROUNDS, "weight", "first_iteration_only", "aggregation",
             "server_momentum", "exploration_local", "use_global", "use_local", "aggregate", "reward_unit")  # fmt: skip
ASYNCHRONOUS_LINEAR = ("trigger", "messages", "exploration_global", "regularization", "statistics_dtype")
ASYNCHRONOUS = (*NETWORKS, *ASYNCHRONOUS_LINEAR, "weight", "first_iteration_only", "exploration_local", "use_global",
                "use_local", "aggregate", "reward_unit", "staleness")  # fmt: skip
NEURAL = (*NETWORKS, *MATRICES, "exploration_local")
LINEAR = ("exploration_global", "regularization", "statistics_dtype")

ALGORITHMS = {
    "fn-ucb": Part(
        "fnbandit.algorithms.fn_ucb:FNUCB", "FN-UCB",
        "FN-UCB, Algorithms 1 and 2: every agent hears every agent's local inverse", FEDERATED,
    ),
    "fn-ucb-less-comm": Part(
        "fnbandit.algorithms.fn_ucb:FNUCBLessComm", "FN-UCB (less comm.)",
        "FN-UCB (Less Comm.), Sec. 3.4: one averaged inverse is broadcast", FEDERATED,
    ),
    "fn-ucb-async": Part(
        "fnbandit.algorithms.fn_ucb_async:FNUCBAsynchronous", "FN-UCB (async.)",
        "FN-UCB (Less Comm.) whose agents never wait: each exchanges with the server on its own", ASYNCHRONOUS,
    ),
    "dislinucb": Part(
        "fnbandit.algorithms.distributed_linear:DisLinUCB", "DisLinUCB",
        "distributed linear UCB (Wang et al. 2019): the same trigger on raw contexts", ROUNDS,
    ),
    "fedlinucb": Part(
        "fnbandit.algorithms.fedlinucb:FedLinUCB", "FedLinUCB",
        "asynchronous federated linear UCB (He et al. 2022) on raw contexts", ASYNCHRONOUS_LINEAR,
    ),
    "neural-ucb": Part(
        "fnbandit.algorithms.neural:NeuralUCB", "Neural UCB",
        "Neural UCB, one independent learner per agent", NEURAL,
    ),
    "neural-ts": Part(
        "fnbandit.algorithms.neural:NeuralTS", "Neural TS",
        "Neural Thompson sampling, one independent learner per agent", NEURAL,
    ),
    "neural-epsilon-greedy": Part(
        "fnbandit.algorithms.epsilon_greedy:NeuralEpsilonGreedy", "Neural ε-greedy",
        "a network's best guess, a random arm with probability epsilon, one learner per agent",
        (*NETWORKS, "regularization", "statistics_dtype", "epsilon"),
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
        "Neural UCB that sees the raw data of all agents: the bound for federation", NEURAL,
    ),
    "random": Part(
        "fnbandit.algorithms.uniform:Uniform", "random",
        "a random arm in every iteration: what learning is judged by", ("statistics_dtype",),
    ),
}  # fmt: skip

FUNCTION = ("arms", "dim", "noise")
ENVIRONMENTS = {
    "cosine": Part("fnbandit.environments.functions:cosine", "cosine", "h(x) = cos(3 <a, x>) on the unit sphere",
                   FUNCTION),
    "square": Part("fnbandit.environments.functions:square", "square", "h(x) = 10 <a, x>^2 on the unit sphere",
                   FUNCTION),
    "shuttle": Part("fnbandit.environments.tables:shipped", "shuttle",
                    "UCI Statlog (Shuttle): 58,000 rows, 9 features, 7 classes", ("standardization",)),
    "magic": Part("fnbandit.environments.tables:shipped", "magic",
                  "UCI MAGIC Gamma Telescope: 19,020 rows, 10 features, 2 classes", ("standardization",)),
    "wheel": Part("fnbandit.environments.wheel:Wheel", "wheel",
                  "the wheel bandit (Riquelme et al. 2018): 5 arms, a rare region where one of them pays",
                  ("wheel_delta", "noise")),
}  # fmt: skip
OWN_TABLE = Part("fnbandit.environments.tables:own", "table", "a classification table (.parquet or .csv)",
                 ("label", "standardization"))  # fmt: skip

RARE = ("training_subsample",)
"""Fields that matter where a round does not follow every iteration"""
TRIGGERS = {
    "logdet": Part("fnbandit.rounds.triggers:LogDeterminant", "exact trigger",
                   "(t - t_last) * log det ratio > D (Alg. 1, line 11)", ("threshold", *RARE)),
    "diagonal": Part("fnbandit.rounds.triggers:DiagonalLogDeterminant", "diagonal trigger",
                     "the same on the matrices' diagonals (the paper's experiments)", ("threshold", *RARE)),
    "determinant": Part("fnbandit.rounds.triggers:Determinant", "det",
                        "a determinant has grown by a factor of 1 + async_gain (He et al. 2022)",
                        ("async_gain", *RARE)),
    "always": Part("fnbandit.rounds.triggers:Always", "always communicating", "a round in every iteration"),
    "period": Part("fnbandit.rounds.triggers:Period", "", "a round every `period` iterations", ("period", *RARE)),
    "budget": Part("fnbandit.rounds.triggers:Budget", "budget", "at most `round_budget` rounds, by log det gain",
                   ("round_budget", *RARE)),
}  # fmt: skip

WEIGHTS = {
    "ramp": Part("fnbandit.rounds.weights:Ramp", "", "rises linearly with the iterations", ("ramp",)),
    "theory": Part("fnbandit.rounds.weights:DomainRatio", "theory's α", "Sec. 3.3's ratio of uncertainties",
                   ("domain_sample", "received_sample")),
    "earned": Part("fnbandit.rounds.weights:Earned", "earned α",
                   "the ramp, held back while networks predict rewards worse than UCB^a does", ("ramp",)),
    "constant": Part("fnbandit.rounds.weights:Constant", "", "weight_value, always", ("weight_value",)),
}  # fmt: skip

OPTIMIZERS = {
    "gd": Part("fnbandit.training:GradientDescent", "gradient descent", "plain gradient descent (the paper)"),
    "adam": Part("fnbandit.training:Adam", "Adam", "Adam, its moments from zero in each round"),
}

AGGREGATIONS = {
    "mean": Part("fnbandit.rounds.aggregation:Mean", "mean", "the average (Alg. 2, line 4)"),
    "median": Part("fnbandit.rounds.aggregation:Median", "median", "the median of every coordinate"),
    "trimmed-mean": Part("fnbandit.rounds.aggregation:TrimmedMean", "trimmed mean",
                         "the mean of every coordinate without its extremes", ("trim",)),
    "geometric-median": Part("fnbandit.rounds.aggregation:GeometricMedian", "geometric median",
                             "the point with the least sum of distances (Weiszfeld)"),
}  # fmt: skip

MESSAGES = {
    "exact": Part("fnbandit.rounds.channels:Exact", "exact", "matrices as the paper sends them"),
    "factored": Part("fnbandit.rounds.channels:Factored", "factored", "factors of new rows where they are fewer"),
    "quantized": Part("fnbandit.rounds.channels:Quantized", "quantized",
                      "what agents send, rounded stochastically to message_bits per number", ("message_bits",)),
}  # fmt: skip

STALENESS = {
    "none": Part("fnbandit.rounds.staleness:Alike", "", "all uploads count the same"),
    "polynomial": Part("fnbandit.rounds.staleness:Polynomial", "staleness counts",
                       "an upload counts (1 + staleness)^-staleness_power", ("staleness_power",)),
}  # fmt: skip

SPELLS = ("jitter", "away_seconds", "training_pace")
DRAWN = ("speed", "speed_spread", "slow_share", "slow_factor", "latency", "bandwidth_up", "bandwidth_down",
         "link_spread", "availability", *SPELLS)  # fmt: skip
CLOCKS = {
    "none": Part("fnbandit.clock:Clock", "no clock", "no simulated time; agents that do not wait are equally fast"),
    "uniform": Part("fnbandit.clock:Uniform", "uniform speeds",
                    "speeds and links drawn uniformly between 1 - spread and 1 + spread times the typical one", DRAWN),
    "lognormal": Part("fnbandit.clock:Lognormal", "lognormal speeds",
                      "speeds and links drawn as exp(spread z) times the typical one, z standard normal", DRAWN),
    "trace": Part("fnbandit.clock:Table", "measured speeds",
                  "speeds and links from a table: agent, speed, latency, up, down[, availability]",
                  ("clock_table", *SPELLS)),
}  # fmt: skip

KINDS: dict[str, dict[str, Part]] = {
    "algorithm": ALGORITHMS,
    "environment": ENVIRONMENTS,
    "trigger": TRIGGERS,
    "weight": WEIGHTS,
    "training_optimizer": OPTIMIZERS,
    "aggregation": AGGREGATIONS,
    "messages": MESSAGES,
    "clock": CLOCKS,
    "staleness": STALENESS,
}
"""The fields of Config that name a part, and what they accept."""


SERVICES = {
    "ray": "actors.engine:RayRun",
    "watched": "workflows.progress:watched",
    "save": "workflows.saving:save",
    "plot": "workflows.saving:plot",
    "plot_result": "workflows.saving:plot_result",
}
"""What stands above the science and is imported, by its path, when a user asks for it in Python."""


def service(name: str) -> Any:
    """What a service's name stands for."""
    module, _, attribute = SERVICES[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def part_of(kind: str, name: str) -> Part:
    """The part that a field names; a user's own ("package.module:Class") is titled by its class."""
    if name in KINDS[kind]:
        return KINDS[kind][name]
    if kind == "environment" and is_table(name):
        return OWN_TABLE
    return Part(name, name.partition(":")[2], name)


def is_table(name: str) -> bool:
    """Whether an environment's name is the path of a table."""
    return name.endswith((".parquet", ".csv"))


def find(kind: str, name: str) -> Any:
    """The class (or function) of a part; modules of the working directory count for a user's own."""
    part = part_of(kind, name)
    if part.path != name:
        module, _, attribute = part.path.partition(":")
        return getattr(importlib.import_module(module), attribute)
    here = str(Path.cwd())
    # For nothing else: a file there might have the name of a module that some library looks for.
    if here not in sys.path:
        sys.path.append(here)
    return imported(kind, name)


def made(kind: str, name: str, *args: Any) -> Any:
    """An object of a part's class; what a user's own raises is told with the part's name."""
    found = find(kind, name)
    return found(*args) if name in KINDS[kind] else call_own(f"{kind}={name!r}", found, *args)


def imported(kind: str, name: str) -> Any:
    """A user's own part, "package.module:Name"; a ValueError of one line where there is no such thing."""
    module_name, _, attribute = name.partition(":")
    fault = None
    try:
        if all(part.isidentifier() for part in module_name.split(".")):
            module = call_own(f"{kind}={name!r}", importlib.import_module, module_name)
        else:
            fault = f"{module_name!r} is no module's name"
    except ImportError as error:
        fault = str(error)
    if fault is None and not hasattr(module, attribute):
        fault = f"module {module_name!r} has no {attribute!r}"
    if fault is not None:
        raise ValueError(f"{kind}={name!r}: cannot import it ({fault}); expected package.module:Name")
    found = getattr(module, attribute)
    if not callable(found):
        raise ValueError(f"{kind}={name!r}: is no class and no function; expected package.module:Name")
    if kind == "algorithm" and not hasattr(found, "memory"):
        raise ValueError(f"{kind}={name!r}: is no algorithm; expected a class that extends fnbandit.Group")
    OWN[module_name] = f"{kind}={name!r}"
    return found


def check_name(kind: str, name: str) -> None:
    """Raise one line, with the nearest known name, on a name that no part of a kind has."""
    own = ":" in name or (kind == "environment" and is_table(name))
    if not own and name not in KINDS[kind]:
        others = ["path/to/table.parquet", "path/to/table.csv"] if kind == "environment" else []
        raise ValueError(unknown(kind, name, [*KINDS[kind], *others, "package.module:Name"]))


def check_together(algorithm: str, trigger: str, diagonal: bool) -> None:
    """Raise one line on what agents that do not wait for each other cannot be asked for."""
    if algorithm not in ("fn-ucb-async", "fedlinucb"):
        return
    if trigger in ("diagonal", "budget"):
        accepted = ", ".join(name for name in TRIGGERS if name not in ("diagonal", "budget"))
        raise ValueError(f"trigger={trigger!r}: algorithm={algorithm} accepts {accepted}")
    if diagonal:
        raise ValueError(f"diagonal=True: algorithm={algorithm} keeps full matrices")


def without_effect(settings: dict[str, Any]) -> dict[str, str]:
    """The fields that change nothing in a Config with these settings, and the choice that makes each of them idle.

    Example: without_effect({"trigger": "always"})["threshold"] is "trigger=always".
    """
    idle: dict[str, str] = {}
    for kind, parts in KINDS.items():
        name = str(settings.get(kind))
        others = [*parts.values(), OWN_TABLE] if kind == "environment" else list(parts.values())
        optional = {field for part in others for field in part.fields}
        if kind in idle:
            idle |= dict.fromkeys(optional, idle[kind])
        elif name in parts or (kind == "environment" and is_table(name)):
            idle |= dict.fromkeys(optional - set(part_of(kind, name).fields), f"{kind}={name}")
        elif kind == "environment":
            idle |= dict.fromkeys(optional - set(FUNCTION), f"{kind}={name}")
        for reason, fields in _idle_with(settings, idle):
            for field in fields:
                idle.setdefault(field, reason)
    return idle


def _idle_with(settings: dict[str, Any], idle: dict[str, str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Values that make other fields idle, whatever the parts are: the choice and the fields."""

    def chosen(field: str, *values: Any) -> bool:
        return field in settings and any(settings[field] is value or settings[field] == value for value in values)

    if chosen("slow_share", 0):
        yield "slow_share=0", ("slow_factor",)
    if chosen("availability", 1):
        yield "availability=1", ("away_seconds",)
    if str(settings.get("algorithm")) not in ALGORITHMS:
        return  # An own one may look at any field.
    if chosen("use_local", False):
        yield "use_local=false", UCB_B
    if chosen("use_global", False):
        yield "use_global=false", ("exploration_global", "weight", "first_iteration_only")
    if chosen("aggregate", False) and not chosen("training_start", "aggregate"):
        yield "aggregate=false", ("aggregation", "server_momentum")
    steps = settings.get("training_steps", "auto")
    if "training_steps" in idle:
        yield idle["training_steps"], AUTOMATIC
    elif steps != "auto":
        yield f"training_steps={steps}", AUTOMATIC
    if steps == 0:
        yield "training_steps=0", tuple(name for name in TRAINING if name != "training_steps")
    if chosen("network", "ntk"):
        yield "network=ntk", ("initialization",)
    if chosen("hidden_layers", 1):
        yield "hidden_layers=1", ("initialization",)


def without_theory(settings: dict[str, Any]) -> dict[str, str]:
    """Fields of the theory alone that nothing asks for: no other field is 'theory', and no weight is the theory's."""
    asks = [name for name, value in settings.items() if value == "theory" and name not in BOUNDS]
    return {} if asks else dict.fromkeys(BOUNDS, "no field that is 'theory'")


def unknown(field: str, value: object, accepted: Iterable[str]) -> str:
    """One line that names the field, the value, the nearest known name and what is accepted."""
    accepted = list(accepted)
    near = difflib.get_close_matches(str(value), accepted, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return f"{field}={value!r} is unknown{hint}; accepted: {', '.join(accepted)}"
