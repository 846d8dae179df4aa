"""The theory as numbers: NTK matrices, effective dimensions, B, nu, D, eta, J and the bounds, constants set to 1.

Sections and equations are those of Dai et al., "Federated Neural Bandits" (ICLR 2023). `fnbandit.theory.assumptions`
lists the assumptions of the theorems that a config violates.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import torch

from fnbandit.algorithms.traits import Traits
from fnbandit.config import Config
from fnbandit.config.presets import THEORY_FIELDS
from fnbandit.config.registry import describe_part, resolve_part
from fnbandit.covariance import FULL, matrices
from fnbandit.environments import Environment, make_environment
from fnbandit.federation.triggers import Trigger
from fnbandit.theory.dimensions import (
    EXACT_CONTEXTS,
    SAMPLE,
    effective_dimension,
    features_in_use,
    norm_of,
    ntk,
    receive_contexts,
)

log = logging.getLogger("fnbandit")
LONG_WORK = 1e11
"""Cube of the number of contexts, times the agents, beyond which the NTK matrices take more than about ten seconds"""
AGENTS_LOOKED_AT = 16
"""Largest number of agents whose d~_i are computed; d~_max is the maximum over them"""


def nu(
    norm_bound: float, noise_bound: float, failure: float, dimension: float, count: float, regularization: float
) -> float:
    """Return B + R sqrt(2 (log(1/failure) + 1) + d log(1 + count/lambda)) (Sec. 3.2)."""
    inside = 2 * (math.log(1 / failure) + 1) + dimension * math.log(1 + count / regularization)
    return norm_bound + noise_bound * math.sqrt(inside)


def regret_below(
    horizon: int, agents: int, dimension: float, local_dimension: float, growth: float, averaged: bool
) -> float:
    """Return d~ sqrt(T N) + sqrt(D-bar) d~_max N sqrt(T), the regret of all agents without constants and log factors.

    It is Theorem 1 with D-bar = 1, and the last equation of App. F with D-bar = `growth`, which affects the second
    term only. Less Comm. (`averaged`) has another factor sqrt(N) in the second term (App. C.7).
    """
    second = local_dimension * agents * math.sqrt(horizon) * (math.sqrt(agents) if averaged else 1.0)
    return dimension * math.sqrt(horizon * agents) + math.sqrt(growth) * second


class TheoryNumbers:
    """The paper's quantities for a config, each computed on first access.

    Absolute constants and log factors of the bounds are set to 1.
    """

    def __init__(self, config: Config, environment: Environment | None = None) -> None:
        self.config = config
        self.environment = environment or make_environment(config)

    # Sec. 2

    @cached_property
    def regularization(self) -> float:
        """lambda: as given, or 1 + 2/T (Theorem 1)."""
        given = self.config.regularization
        return 1 + 2 / self.config.horizon if given == "theory" else given

    @property
    def contexts(self) -> int:
        """T K N, the number of contexts of all agents."""
        return self.contexts_of_one * self.config.agents

    @property
    def contexts_of_one(self) -> int:
        """T K, the number of contexts of one agent."""
        return self.config.horizon * self.environment.arms

    @property
    def own_features(self) -> bool:
        """True where d~ belongs to the features in use, not to App. B's NTK matrix."""
        return features_in_use(self.config, self.environment) is not None

    @cached_property
    def _norms(self) -> tuple[float, float, int]:
        """sqrt(2 h^T H^-1 h) on (a sample of) the contexts received, on half of them, and their number."""
        if self.own_features:
            linear = self._traits.features == "context"
            choice = f"algorithm={self.config.algorithm}" if linear else "network=standard"
            raise ValueError(
                f"norm_bound='theory': h is not linear in the features of {choice}, so B is undefined; "
                f"give a number{'' if linear else ', or use network=ntk'}"
            )
        given = receive_contexts(self.environment, self.config, range(self.config.agents), SAMPLE)
        matrix, _ = ntk(given.x, self.config.depth)
        return norm_of(given.h, matrix), norm_of(given.h[::2], matrix[::2, ::2]), len(given.x)

    @cached_property
    def norm_bound(self) -> float:
        """B: as given, or sqrt(2 h^T H^-1 h) (Sec. 2) on the contexts that all agents receive, where h is known.

        Computed on at most SAMPLE contexts. The value rises with every context, towards sqrt(2) times the norm of h in
        the NTK's RKHS where that is finite, so on a sample it is somewhat too small.
        """
        given = self.config.norm_bound
        return self._norms[0] if given == "theory" else given

    @cached_property
    def noise_bound(self) -> float:
        """R (Sec. 2): as given, or that of the environment: Gaussian noise of deviation s is s-sub-Gaussian."""
        given = self.config.noise_bound
        if given != "theory":
            return given
        known = getattr(self.environment, "noise_bound", None)
        if known is None:
            raise ValueError(
                f"noise_bound='theory': environment={self.config.environment!r} has no `noise_bound`; give a number"
            )
        return float(known)

    @cached_property
    def _dimensions(self) -> tuple[float, bool]:
        agents = range(self.config.agents)
        return effective_dimension(self.environment, self.config, agents, self.regularization)

    @cached_property
    def _local_dimensions(self) -> tuple[float, bool]:
        agents = min(self.config.agents, AGENTS_LOOKED_AT)
        ranges = [range(i, i + 1) for i in range(agents)]
        if not self.own_features and agents * min(self.contexts_of_one, EXACT_CONTEXTS) ** 3 > LONG_WORK:
            count = f"{self.contexts_of_one:,} contexts of {agents} agent{'s' if agents > 1 else ''}"
            log.warning("fnbandit: computing the theory's effective dimensions, on %s each: this takes a while", count)
        found = [effective_dimension(self.environment, self.config, one, self.regularization) for one in ranges]
        return max(d for d, _ in found), all(exact for _, exact in found) and agents == self.config.agents

    @property
    def effective_dimension(self) -> float:
        """d~ of all agents' contexts."""
        return self._dimensions[0]

    @property
    def largest_local_dimension(self) -> float:
        """d~_max, the largest d~ of one agent's contexts."""
        return self._local_dimensions[0]

    @property
    def exact(self) -> tuple[bool, bool]:
        """True where all contexts are used for d~; True where all contexts of all agents are used for d~_max."""
        return self._dimensions[1], self._local_dimensions[1]

    # Sec. 3.2

    @cached_property
    def exploration_global(self) -> float:
        """nu_TKN, the scale of the bonus of UCB^a."""
        failure, count = self.config.delta / 3, self.contexts
        return nu(self.norm_bound, self.noise_bound, failure, self.effective_dimension, count, self.regularization)

    @cached_property
    def exploration_local(self) -> float:
        """nu_TK, the scale of the bonus of UCB^b."""
        failure, count = self.config.delta / (3 * self.config.agents), self.contexts_of_one
        return nu(self.norm_bound, self.noise_bound, failure, self.largest_local_dimension, count, self.regularization)

    # Theorem 1 and App. C.1

    @cached_property
    def threshold(self) -> float:
        """D = T / (N d~) (Theorem 1)."""
        return self.config.horizon / (self.config.agents * self.effective_dimension)

    @cached_property
    def training_rate(self) -> float:
        """eta = 1 / (m lambda + m T L) (App. C.1, C_4 = 1)."""
        config = self.config
        return 1 / (config.width * self.regularization + config.width * config.horizon * config.depth)

    @cached_property
    def training_steps(self) -> int:
        """J of App. C.1 with C_2 = C_4 = 1.

        The paper prints J with log(sqrt(lambda / (T^3 L)) / (3 N)), which is negative. J must satisfy
        (1 - eta m lambda)^J sqrt(T L / lambda) T N <= 1/3, which requires the inverse of the log's argument.
        """
        horizon, depth = self.config.horizon, self.config.depth
        ratio = 3 * self.config.agents * math.sqrt(horizon**3 * depth / self.regularization)
        return math.ceil((1 + horizon * depth / self.regularization) * math.log(ratio))

    # Information, App. C.2 and App. F

    @cached_property
    def information(self) -> float:
        """R' = d~ log(1 + TKN/lambda) + 1 (App. C.2), a bound on the growth of log det V; no + 1 if `own_features`."""
        slack = 0.0 if self.own_features else 1.0
        return self.effective_dimension * math.log(1 + self.contexts / self.regularization) + slack

    @cached_property
    def epoch_growth(self) -> float:
        """D-bar, a bound on the ratio of det V_local,i before an epoch's last iteration to that at its start (App. F).

        The paper assumes some constant. The algorithm does not bound D-bar; the information that an agent can collect
        does. log D-bar is the least of
            (E - 1) log(1 + ||g||^2/lambda), that of E - 1 rows, with the longest epoch E: 1 (trigger=always), `period`,
                or T where it is unknown,
            d~_max log(1 + TK/lambda) + 1, that of an agent in T iterations (App. C.4),
            D for a single agent with trigger=logdet, because the trigger then measures V_local.
        For several agents the trigger measures V_last, which grows by less than V_local: D does not bound D-bar.
        """
        longest = min(self._trigger.next_round(0) or self.config.horizon, self.config.horizon)
        if longest == 1:
            return 1.0
        slack = 0.0 if self.own_features else 1.0
        logs = [self.largest_local_dimension * math.log(1 + self.contexts_of_one / self.regularization) + slack]
        logs.append((longest - 1) * math.log1p(self._largest_square / self.regularization))
        if self.config.agents == 1 and matrices(self.config) is FULL:
            logs.append(self._trigger.most_gain)
        least = min(logs)
        return math.exp(least) if least < 700 else math.inf

    @cached_property
    def _largest_square(self) -> float:
        """The largest ||g||^2 on a sample of the domain; for network=ntk its limit, the diagonal of H~."""
        points = self.environment.domain(256)
        use = features_in_use(self.config, self.environment)
        if use is None:
            return float(ntk(points, self.config.depth)[1].diagonal().max())
        return float(use[0](torch.from_numpy(points)[None])[0].square().sum(1).max())

    @property
    def used_threshold(self) -> float:
        """D of the config; where it is 'theory', `threshold`."""
        return self.threshold if self.config.threshold == "theory" else self.config.threshold

    # Bounds

    @property
    def _traits(self) -> Traits:
        return resolve_part("algorithm", self.config.algorithm).traits

    @property
    def _trigger(self) -> Trigger:
        return resolve_part("trigger", self.config.trigger)(self.config.replace(threshold=self.used_threshold))

    def _regret(self, growth: float) -> float:
        if not self._traits.uses_alpha or not self.config.use_global:
            return math.nan
        local = self.largest_local_dimension if self.config.use_local else 0.0
        config, dimension = self.config, self.effective_dimension
        return regret_below(config.horizon, config.agents, dimension, local, growth, self._traits.averages_inverses)

    @cached_property
    def first_iteration_regret_bound(self) -> float:
        """Theorem 1's bound, for alpha > 0 in first iterations of epochs only; NaN for algorithms other than FN-UCB."""
        return self._regret(1.0)

    @cached_property
    def regret_bound(self) -> float:
        """The bound for the config: Theorem 1's with first_iteration_only, else App. F's with its sqrt(D-bar)."""
        restricted = self.config.first_iteration_only or not self.config.use_local
        return self._regret(1.0 if restricted else self.epoch_growth)

    def warn_of_growth(self) -> list[str]:
        """Return a line where D-bar, which App. F assumes to be a constant, is so large that its bound is empty."""
        if not self._traits.uses_alpha or not self.config.use_local or self.config.first_iteration_only:
            return []
        trivial = 2.0 * self.config.agents * self.config.horizon
        if math.isnan(self.regret_bound) or self.regret_bound <= trivial:
            return []
        return [
            f"App. F: D-bar is assumed to be a small constant, but may reach {self.epoch_growth:.3g}: R_T = "
            f"{self.regret_bound:.3g} is above 2 N T = {trivial:,.0f}, the regret of any choices with |h| <= 1"
        ]

    @cached_property
    def rounds_bound(self) -> int:
        """Bound on the rounds of the config with its own D (App. D), at most T; App. D excludes diagonal matrices."""
        if not self._traits.communicates:
            return 0
        return self._trigger.most_rounds(self.information if matrices(self.config) is FULL else math.inf)


def describe_theory(config: Config, environment: Environment | None = None) -> TheoryNumbers:
    """Return the theory's numbers for a config."""
    return TheoryNumbers(config, environment)


class TheoryRow(NamedTuple):
    """One line of the output of `fnbandit theory`."""

    symbol: str
    value: float
    meaning: str
    source: str


def theory_table(numbers: TheoryNumbers) -> list[TheoryRow]:
    """Return every quantity with its meaning and its place in the paper."""
    config = numbers.config

    def name_source(name: str, otherwise: Callable[[], str]) -> str:
        return otherwise() if getattr(config, name) == "theory" else "as given"

    def norm() -> str:
        _, half, count = numbers._norms
        of = f" of {numbers.contexts:,}" if count < numbers.contexts else ""
        return f"sqrt(2 h^T H^-1 h) on {count:,}{of} contexts (on half of them {half:.4g})"

    raw = numbers._traits.features == "context"
    gram = "of the NTK matrix H"
    if numbers.own_features:
        gram = f"of the Gram matrix of {'contexts' if raw else 'the features in use, g(x; theta_0)'}"
    noise = "of the environment's noise" if numbers.noise_bound else "rewards have no noise"
    rows = [
        TheoryRow("lambda", numbers.regularization, name_source("regularization", lambda: "1 + 2/T"), "Theorem 1"),
        TheoryRow("B", numbers.norm_bound, name_source("norm_bound", norm), "Sec. 2"),
        TheoryRow("R", numbers.noise_bound, name_source("noise_bound", lambda: noise), "Sec. 2"),
    ]
    sampled = ["" if exact else ", from a sample" for exact in numbers.exact]
    by_threshold = "threshold" in describe_part("trigger", config.trigger).fields
    mark = f"with D = {numbers.used_threshold:.4g}" if by_threshold else f"trigger={config.trigger}"
    rows += [
        TheoryRow("d~", numbers.effective_dimension, f"{gram}, all agents{sampled[0]}", "Sec. 2"),
        TheoryRow("d~_max", numbers.largest_local_dimension, f"{gram}, one agent, the largest{sampled[1]}", "Sec. 2"),
        TheoryRow("nu_TKN", numbers.exploration_global, "scale of UCB^a's bonus", "Sec. 3.2"),
        TheoryRow("nu_TK", numbers.exploration_local, "scale of UCB^b's bonus", "Sec. 3.2"),
        TheoryRow("D", numbers.threshold, "T / (N d~)", "Theorem 1"),
        TheoryRow("R'", numbers.information, "bound on the growth of log det V", "App. C.2"),
        TheoryRow("rounds", numbers.rounds_bound, f"at most, {mark}, T = {config.horizon}", "App. D"),
    ]
    if not raw:
        rows.append(TheoryRow("eta", numbers.training_rate, "1 / (m lambda + m T L)", "App. C.1"))
        rows.append(TheoryRow("J", numbers.training_steps, "gradient steps per round", "App. C.1"))
    if not math.isnan(numbers.regret_bound):
        less = ", C.7 (Less Comm.)" if numbers._traits.averages_inverses else ""
        first = "regret of all agents, constants 1, alpha > 0 in first iterations of epochs only"
        rows.append(TheoryRow("R_T", numbers.first_iteration_regret_bound, first, f"Theorem 1{less}"))
        if config.use_local and not config.first_iteration_only:
            growth = "bound on the growth factor of det V_local in an epoch (assumed small)"
            rows.append(TheoryRow("D-bar", numbers.epoch_growth, growth, "App. F"))
            general = "regret of all agents, constants 1, alpha in every iteration: second term times sqrt(D-bar)"
            rows.append(TheoryRow("R_T", numbers.regret_bound, general, f"App. F{less}"))
    return rows


def resolve(config: Config, environment: Environment | None = None) -> Config:
    """Return the config with every 'theory' replaced by its number, except weight='theory', which is a rule."""
    names = [name for name in THEORY_FIELDS if getattr(config, name) == "theory"]
    if not names:
        return config
    numbers = describe_theory(config, environment)
    return config.replace(**{name: getattr(numbers, name) for name in names})
