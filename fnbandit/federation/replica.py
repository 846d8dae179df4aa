"""The replica of the global statistics that the agents of a process share, for rounds at a barrier."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fnbandit.config import Config
from fnbandit.config.registry import build, resolve_part
from fnbandit.core import Clusters, Content, Cost, Download, Rows, StatisticsUpdate, Triangle, Upload
from fnbandit.covariance import Account, Estimate, Lift, LocalInverses, matrices
from fnbandit.covariance.gram import sum_of_curvatures
from fnbandit.federation.attacks import make_attack
from fnbandit.federation.forgetting import NoForgetting
from fnbandit.federation.messages import OWN_SUMS, THETA_ALONE, UPLOADS, Contents, exchange_cost
from fnbandit.federation.network_training import NetworkTraining
from fnbandit.federation.participation import make_participation
from fnbandit.federation.parts import CommunicationParts
from fnbandit.federation.sampling import Sample, sample_limit
from fnbandit.federation.statistics_rules import make_statistics_rule
from fnbandit.federation.triggers import RoundCounters
from fnbandit.networks.features import LearnedFeatures
from fnbandit.networks.network import Network
from fnbandit.networks.training import steps_due
from fnbandit.numerics.state import State, add_prefix, remove_prefix
from fnbandit.numerics.tree import TreeSum, gather, sum_vectors

UNIT = Contents(scalars=1)
"""The sum of squared rewards, or the unit that follows from it"""


@dataclass(frozen=True)
class Networks:
    """The parts of a replica that only algorithms with networks have."""

    network: Network
    theta: Tensor
    """theta_0 [p], in the network's precision"""
    inverses: LocalInverses | None = None
    """The local inverses of all agents, for UCB^b"""
    features: LearnedFeatures | None = None
    """Features of the trained network, where W and B are on these"""


ClusterRule = Callable[[np.ndarray, int, float], tuple[np.ndarray, np.ndarray]]
"""Maps packed sums of all agents [N, q], the number of parameters, and the level of the test to members and sums"""


class Replica(CommunicationParts):
    """W_sync, B_sync, theta_sync,NN, alpha and the local inverses.

    There is one per process, which its agents share; a simulation in one process shares it with the server. `apply` is
    a deterministic function of the downloads, so that all replicas hold the same bits.
    """

    is_versioned = False

    def __init__(
        self,
        config: Config,
        lift: Lift,
        parameters: int,
        like: Tensor,
        up: Contents,
        down: Contents,
        networks: Networks | None = None,
        clusters: ClusterRule | None = None,
    ) -> None:
        super().__init__(config, lift, parameters, up, down, networks.network.parameter_count if networks else None)
        self._config, self._agents, self._honest = config, config.agents, config.honest_agents
        regularization = config.number("regularization")
        self.estimate: Estimate = matrices(config).estimate(
            parameters, regularization, like, lift, self.trigger.needs_diagonal
        )
        """V_last and B_sync"""
        self.network = None if networks is None else networks.network
        self.theta = None if networks is None else networks.theta
        """theta_sync,NN [p], in the network's precision; it predicts rewards / `unit`"""
        self.initial = self.theta if self.theta is not None else like
        """theta_0 [p]"""
        self.unit = like.new_ones(())
        self.training_unit: Tensor | None = None
        """Unit of rewards in the exchanges of the present round"""
        self.inverses = None if networks is None else networks.inverses
        """The local inverses that define the norm of UCB^b"""
        self.features = None if networks is None else networks.features
        self.find_clusters = clusters
        """Returns clusters of agents by the sums that all send; None where agents do not send their own"""
        self.clusters: Clusters | None = None
        """The clusters of the last round that changed features"""
        self.forgetting: NoForgetting = build("forgetting", config.forgetting, config)
        self.federation: NetworkTraining | None = None
        """The rule that trains theta in rounds"""
        if networks is not None:
            self.federation = build("federation", config.federation, config)
            self._sample_limit = sample_limit(config, networks.network.parameter_count)
        self._like = like
        self.alpha: Tensor | float = 0.0
        """alpha of the last round"""
        self.last_round = 0
        """t_last"""
        self.rounds = 0
        """Number of rounds so far"""
        self.last_trained = 0
        """Iteration of the last round for which agents trained"""
        self.attack, self.statistics_rule = make_attack(config), make_statistics_rule(config)
        rule = None if self.federation is None else self.federation.gradient_rule
        self.needs_own_values = needs_claims(config) or not (rule is None or rule.linear)
        """True where the server needs every agent's own values of all fields, not only of theta_i"""
        self.ignored: Tensor | None = None
        """True for agents whose triggers the server ignores, [N]; None where it checks nobody"""
        if self.statistics_rule.checks:
            self.ignored = torch.zeros(config.agents, dtype=torch.bool, device=like.device)
        self.participation = make_participation(config)
        self.chain.privacy.check_rule(self.federation, self.participation.is_partial)
        self.since = np.zeros(config.agents, dtype=np.int64)
        """Iteration of every agent's last upload, [N]"""

    def account(self) -> Account:
        """Return the server's account of V_last."""
        return self.chain.privacy.account(self.estimate, self._like)

    def counters(self, iteration: int) -> RoundCounters:
        """Return the position of an iteration among the rounds."""
        return RoundCounters(iteration, self.last_round, self.rounds)

    def participants(self, iteration: int) -> np.ndarray:
        """Return the participants of the round of an iteration: [N], True for each of them."""
        return self.participation.draw(self.rounds, iteration)

    @property
    def trains_by_sums(self) -> bool:
        """True where rounds train one network by sums over agents."""
        return self.federation is not None and not self.federation.trains_locally

    def steps_due(self, iteration: int) -> int:
        """Return J, the steps of the training in an iteration's round; 0 where none is due."""
        stop = self._config.stop_training_after
        if self.federation is None or (stop is not None and iteration > stop):
            return 0
        least = self.federation.least_observations
        if iteration < least and iteration * int(self.participants(iteration).sum()) < least:
            return 0
        return steps_due(self._config, *self.forgetting.time_since(self.last_trained, iteration))

    def steps_by_sums(self, iteration: int) -> int:
        """Return `steps_due` where one network is trained by sums; 0 where agents train their own."""
        return self.steps_due(iteration) if self.trains_by_sums else 0

    def sends_squares(self, iteration: int) -> bool:
        """Return True where the first uploads of a round have sums of squared rewards, which set the unit."""
        by_server = self.trains_by_sums or self.features is not None
        return by_server and self._config.reward_unit == "rms" and self.steps_due(iteration) > 0

    def renews_statistics(self, iteration: int) -> bool:
        """Return True where a round replaces W and B by those on new features, so that W_new and B_new are not sent."""
        return self.features is not None and self.steps_due(iteration) > 0

    def sample(self, iteration: int) -> Sample:
        """Return the observations that agents evaluate in the exchanges of an iteration's round."""
        present, newest = self.participants(iteration), self.forgetting.count(iteration)
        return Sample(self._config, present, self.rounds, iteration, self._sample_limit, newest)

    def count_rows(self, iteration: int) -> int:
        """Return the rows of an upload in an iteration's round: those of the agent whose last upload is the oldest."""
        return iteration - int(self.since.min())

    def costs(self, iteration: int, contents: Sequence[Content | None], signals: int | None) -> list[Cost]:
        """Return the cost of every exchange of an iteration's round, given the contents of its uploads."""
        unit = UNIT if self.sends_squares(iteration) else Contents()
        up, down = self.up + unit, self.down
        if self.chain.privacy.is_private and self.steps_due(iteration) == 0:
            up = replace(up, networks=0)
        if self.renews_statistics(iteration):
            up, down = replace(up, covariances=0, vectors=0), replace(down, covariances=0, vectors=0)
        downs = [down, *[THETA_ALONE] * (len(contents) - 1)]
        if len(contents) > 1:
            downs[0] = replace(down, networks=1) + unit
            if self.renews_statistics(iteration):
                downs[-1] = UPLOADS["statistics"] + THETA_ALONE + (OWN_SUMS if self.find_clusters else Contents())
        rows, counts = np.unique(iteration - self.since[self.participants(iteration)], return_counts=True)
        total = int((rows * counts).sum())
        ups = [(int(n), self.chain.size_upload(up, int(k))) for k, n in zip(rows, counts, strict=True)]
        size = self.chain.size_download(downs[0], iteration - self.last_round, total)
        costs = [exchange_cost(ups, (self._agents, size), signals)]
        for content, down in zip(contents[1:], downs[1:], strict=True):
            assert content is not None
            slots = self.sample(iteration).slots if content != "network" else 0
            size = self.chain.size_upload(UPLOADS[content], slots)
            if content == "statistics" and self.find_clusters:
                size = size + self.chain.size_upload(OWN_SUMS, iteration)
            ups = [(int(counts.sum()), size)]
            costs.append(exchange_cost(ups, (self._agents, self.chain.size_download(down, slots))))
        return costs

    def report(self, agents: range, measure: Tensor) -> Tensor:
        """Return the measures of the trigger [n] as these agents report them; -inf where the server ignores them."""
        first = max(0, self._honest - agents.start)
        if first < len(agents):
            measure = torch.cat([measure[:first], self.attack.report(measure[first:], self.trigger.level)])
        if self.ignored is None:
            return measure
        return measure.masked_fill(self.ignored[agents.start : agents.stop], -torch.inf)

    def reductions(self, iteration: int, content: Content | None) -> dict[str, TreeSum]:
        """Return the sums by which the server reduces each field of all agents' uploads in an exchange."""
        sums = {"squares": sum_vectors(self._agents), "moments": sum_vectors(self._agents)}
        if content is None:
            length = self.count_rows(iteration)
            sums["covariance"] = self.estimate.sum(self._agents, length)
            if self.inverses is not None:
                sums["inverse"] = self.inverses.sum(length)
        elif content == "statistics":
            sums["covariance"] = self.estimate.sample_sum(self._agents, self.sample(iteration).slots)
        elif content == "curvature" and self.network is not None:
            parameters = self.network.parameter_count
            sums["covariance"] = sum_of_curvatures(self._agents, self.sample(iteration).slots, parameters)
        if self.find_clusters is not None:
            sums["own"] = gather(self._agents)
        if self.chain.privacy.sends_triangles:
            sums["covariance"] = replace(sum_vectors(self._agents), form=Triangle)
        if self.federation is not None:
            sums["theta"] = (sum_vectors if self.federation.is_linear else gather)(self._agents)
        if self.needs_own_values:
            sums = {name: gather(self._agents) for name in sums if name != "inverse"}
            if "covariance" in sums and not self.estimate.inflated:
                sums["covariance"] = gather(self._agents, Rows)
        return sums

    def reduce(self, upload: Upload) -> Upload:
        """Return the upload of a batch with partial sums in place of each agent's values."""
        parts: dict[str, Any] = {}
        for name, reduction in self.reductions(upload.iteration, upload.content).items():
            values = getattr(upload, name)
            if values is not None:
                parts[name] = reduction.parts(upload.agents, values)
        if self.needs_own_values:
            parts["inverse"] = None  # The server derives it.
        return replace(upload, **parts)

    def apply(self, downloads: Sequence[Download], own: range) -> None:
        """Apply downloads (Alg. 1, lines 17-18). Agents in `own` have updated their own local inverses already."""
        for download in downloads:
            if isinstance(download.statistics, StatisticsUpdate):
                take = self.estimate.renew if download.statistics.is_new else self.estimate.apply
                take(download.statistics.covariance, download.statistics.sum_of_moments)
            if self.inverses is not None and download.inverses is not None:
                self.inverses.apply(download.inverses, own)
            if download.clusters is not None:
                self.clusters = download.clusters
            self.theta = download.theta
            if download.ignored is not None:
                self.ignored = download.ignored
            if not download.is_last:
                self.training_unit = download.unit
                continue
            self.alpha = download.alpha
            if self.renews_statistics(download.iteration):
                self.since[:] = download.iteration
            else:
                self.since[self.participants(download.iteration)] = download.iteration
            if download.unit is not None:
                self.unit = download.unit
            self.last_round = download.iteration
            self.rounds += 1
            if download.trained:
                self.last_trained = download.iteration
                self._move_features()

    def _move_features(self) -> None:
        if self.features is not None and self.theta is not None:
            self.features.move(self.theta)

    def state(self) -> State:
        """Return all that `load` needs to continue with the same bits."""
        tensors = {
            "alpha": torch.as_tensor(self.alpha, dtype=torch.float64),
            "last_round": torch.tensor(self.last_round),
            "rounds": torch.tensor(self.rounds),
            "last_trained": torch.tensor(self.last_trained),
            "since": torch.from_numpy(self.since.copy()),
            **add_prefix("estimate", self.estimate.state()),
        }
        if self.ignored is not None:
            tensors["ignored"] = self.ignored
        if self.theta is not None:
            tensors["theta"] = self.theta
        if self.features is not None:
            tensors["unit"] = self.unit
        if self.inverses is not None:
            tensors |= add_prefix("inverses", self.inverses.state())
        if self.clusters is not None:
            tensors |= add_prefix("clusters", vars(self.clusters))
        return tensors

    def load(self, state: State) -> None:
        """Continue from another replica's `state`."""
        self.alpha = state["alpha"].to(self.estimate.sum_of_moments)
        self.last_round, self.rounds = int(state["last_round"]), int(state["rounds"])
        self.last_trained = int(state["last_trained"])
        self.since = state["since"].numpy().copy()
        self.estimate.load(remove_prefix("estimate", state))
        if self.ignored is not None:
            self.ignored = state["ignored"].to(self.ignored)
        if self.theta is not None:
            self.theta = state["theta"].to(self.theta)
        if self.features is not None:
            self.unit = state["unit"].to(self.unit)
            if self.last_trained:
                self._move_features()
        if self.inverses is not None:
            self.inverses.load(remove_prefix("inverses", state))
        clusters = remove_prefix("clusters", state)
        if clusters:
            like = self.estimate.sum_of_moments
            self.clusters = Clusters(clusters["member"].to(like.device), clusters["sums"].to(like))

    def retain(self, batches: Sequence[Any]) -> None:
        """Do nothing: a replica of rounds at a barrier has only one version."""

    def encode(self, downloads: Sequence[Download]) -> dict[str, Any]:
        """Return a message for other replicas: downloads that this one has applied, or its state if that is smaller.

        The state replaces the statistics, theta and alpha of the downloads.
        """
        if downloads:
            state = self.state()
            if count_numbers(downloads) > sum(tensor.numel() for tensor in state.values()):
                bare = [replace(one, statistics=None, theta=None, alpha=0.0, inverses=None, clusters=None)
                        for one in downloads]  # fmt: skip
                return {"downloads": bare, "state": state}
        return {"downloads": list(downloads), "state": None}

    def decode(self, message: dict[str, Any], own: range) -> list[Download]:
        """Apply another replica's message; return its downloads."""
        if message["state"] is None:
            self.apply(message["downloads"], own)
        else:
            self.load(message["state"])
        return message["downloads"]


def needs_claims(config: Config) -> bool:
    """Return True where the server needs the statistics of every agent: agents lie, or a rule checks them."""
    lies = resolve_part("attack", config.attack).lies and config.honest_agents < config.agents
    return lies or resolve_part("aggregation_statistics", config.aggregation_statistics).checks


def count_numbers(value: Any) -> int:
    """Return the number of numbers in the tensors of a message."""
    if isinstance(value, Tensor):
        return value.numel()
    if isinstance(value, list | tuple):
        return sum(map(count_numbers, value))
    return sum(map(count_numbers, vars(value).values())) if hasattr(value, "__dataclass_fields__") else 0
