"""Attackers and the checks of a server, literally and slowly, and exact federation with both, on top of `oracle_exact`.

A claim is what one agent says: rows (how many observations, which the server knows), W, B and s, the sum of squares.
"""

from __future__ import annotations

import numpy as np
import oracle
import oracle_exact
import torch


def forge(attack, scale, honest, own):
    """What the attackers send in place of their `own` claims."""
    forged = []
    for claim in own:
        claim = dict(claim)
        if attack == "zero":
            claim.update(W=0 * claim["W"], B=0 * claim["B"], s=0.0)
        elif attack == "sign-flip":
            claim["B"] = -scale * claim["B"]
        elif attack == "ipm":
            claim["B"] = -2 * scale * np.mean([h["B"] for h in honest], axis=0)
        elif attack == "alie":
            sent = np.array([h["B"] for h in honest])
            claim["B"] = sent.mean(0) + 1.5 * scale * sent.std(0, ddof=1)
        elif attack == "mimic":
            claim.update({name: honest[0][name] for name in ("W", "B", "s")})
        elif attack == "overconfident":
            squared_length = sum(np.trace(h["W"]) for h in honest) / sum(h["rows"] for h in honest)
            claim["W"] = scale * claim["rows"] * squared_length * np.eye(len(claim["B"]))
        elif attack == "anxious":
            claim.update(W=0 * claim["W"], B=0 * claim["B"])
        forged.append(claim)
    return forged


def energy(claim):
    """B^T (W + eta I)^-1 B; not a number where W + eta I has a negative eigenvalue."""
    damped = claim["W"] + 1e-8 * np.trace(claim["W"]) * np.eye(len(claim["B"]))
    if np.linalg.eigvalsh(damped)[0] <= 0:
        return np.nan
    return claim["B"] @ np.linalg.inv(damped) @ claim["B"]


def passes(claims, usual):
    """Whether the statistics of each agent are those of some rows."""
    rows = np.array([c["rows"] for c in claims])
    spread = 10 + 100 / rows
    good = np.ones(len(claims), dtype=bool)
    if claims[0].get("s") is not None:
        s = np.array([c["s"] for c in claims])
        good &= s >= 0
        good &= s / rows <= np.maximum(spread * np.median(s[good] / rows[good]), usual)
    if claims[0].get("W") is None:
        return good
    traces = np.array([np.trace(c["W"]) for c in claims])
    good &= traces / rows <= spread * np.median(traces[good] / rows[good])
    good &= traces / rows >= np.median(traces[good] / rows[good]) / spread
    energies = np.array([energy(c) for c in claims])
    good &= ~np.isnan(energies)
    if claims[0].get("s") is not None:
        return good & (energies <= 1.01 * s)
    return good & (energies / rows <= np.maximum(spread * np.median(energies[good] / rows[good]), usual))


def solve(claims, weights, lambda_):
    W = sum(w * c["W"] for w, c in zip(weights, claims, strict=True))
    return np.linalg.solve(W + lambda_ * np.eye(len(W)), sum(w * c["B"] for w, c in zip(weights, claims, strict=True)))


def cross_errors(claims, weights, chosen, fold_of, lambda_):
    """Each agent's error per row at the solution of the chosen agents of the other folds."""
    errors = []
    for i, claim in enumerate(claims):
        others = [j for j in chosen if fold_of[j] != fold_of[i]]
        theta = solve([claims[j] for j in others], [weights[j] for j in others], lambda_)
        rest = claim["B"] - claim["W"] @ theta
        errors.append(energy(claim | {"B": rest}) / claim["rows"])
    return np.array(errors)


def trim(claims, fold_of, usual, lambda_):
    """Which of the agents' rewards the others explain."""
    n = len(claims)
    average = sum(np.trace(c["W"]) for c in claims) / sum(c["rows"] for c in claims)
    weights = [average * c["rows"] / np.trace(c["W"]) for c in claims]
    chosen = list(range(n))
    for _ in range(2):
        errors = cross_errors(claims, weights, chosen, fold_of, lambda_)
        chosen = sorted(range(n), key=lambda i: errors[i])[: n // 2 + 1]
    reference = usual or np.median([energy(c) / c["rows"] for c in claims])
    for _ in range(2):
        errors = cross_errors(claims, weights, chosen, fold_of, lambda_)
        if np.median(errors) > 0.3 * reference:
            return [True] * n
        limits = [max(np.median(errors) * (3 + 20 / c["rows"]), reference * (0.1 + 0.5 / c["rows"])) for c in claims]
        chosen = [i for i in range(n) if errors[i] <= limits[i] or claims[i]["rows"] < 4]
    return [i in chosen for i in range(n)]


def judge(rule, claims, order, usual, lambda_):
    """Whose claims the server adds up; `order` is the agents in a random order."""
    if rule == "sum":
        return np.ones(len(claims), dtype=bool)
    good = passes(claims, usual)
    if rule == "trimmed" and claims[0].get("W") is not None and good.sum() >= 4:
        there = [i for i in order if good[i]]
        fold_of = {i: place % 4 for place, i in enumerate(there)}
        kept = sorted(there)
        found = trim([claims[i] for i in kept], [fold_of[i] for i in kept], usual, lambda_)
        good[kept] = found
    return good


class Server(oracle_exact.Server):
    """Exact federation with attackers, the last agents, and a rule. `order(round, count)` is a random order."""

    def __init__(self, config, agents, observations, order):
        super().__init__(config, agents, observations)
        self.order, self.dropped = order, []
        self.totals = None

    def lie(self, claims):
        honest = self.config.agents - int(self.config.byzantine_share * self.config.agents)
        liars = forge(self.config.attack, self.config.attack_scale, claims[:honest], claims[honest:])
        return claims[:honest] + liars

    def drop(self, claims):
        """Judge the agents that are left."""
        there = [i for i in range(len(claims)) if self.kept[i] and claims[i]["rows"] > 0]
        found = judge(self.config.aggregation_statistics, [claims[i] for i in there],
                      self.order(self.rounds, len(there)), 1.0, self.config.regularization)  # fmt: skip
        for i, good in zip(there, found, strict=True):
            self.kept[i] = self.kept[i] and good

    def ask(self, theta, unit, feature):
        found = [agent.sums(theta, unit, used, feature) for agent, used in zip(self.agents, self.used, strict=True)]
        rows = [len(used) for used in self.used]
        claims = self.lie([{"rows": n, "W": A, "B": b, "s": s} for n, (b, A, s) in zip(rows, found, strict=True)])
        if self.is_training:
            self.drop(claims)
        mine = [i for i in range(len(claims)) if self.kept[i]]
        scale = sum(rows) / sum(rows[i] for i in mine) if self.is_training else 1.0
        self.last = claims
        return [scale * sum(claims[i][name] for i in mine) for name in ("B", "W", "s")]

    def unit_of_rewards(self, t):
        claims = self.lie([{"rows": t, "W": np.zeros((1, 1)), "B": np.zeros(1), "s": float(agent.squares())}
                           for agent in self.agents])  # fmt: skip
        claims = [{"rows": t, "s": claim["s"]} for claim in claims]
        self.drop(claims)
        mine = [claim["s"] for i, claim in enumerate(claims) if self.kept[i]]
        return np.sqrt(sum(mine) / (len(mine) * t)) or 1.0

    def round(self, t, theta_0):
        first = self.agents[0]
        self.kept, self.is_training = [True] * len(self.agents), True
        if self.steps(t) == 0:
            new = self.lie([{"rows": t - first.t_last, "W": a.W_new, "B": a.B_new, "s": 0.0} for a in self.agents])
            self.totals = self.totals or [{"rows": 0, "W": 0, "B": 0} for _ in new]
            self.totals = [{name: one[name] + other[name] for name in ("rows", "W", "B")}
                           for one, other in zip(self.totals, new, strict=True)]  # fmt: skip
            self.drop(self.totals)
            theta, unit = first.theta, first.unit
        else:
            self.used = [self.observations(i, t, self.rounds) for i in range(len(self.agents))]
            unit = self.unit_of_rewards(t)
            start = oracle_exact.with_last_layer_times(self.config, first.theta, first.unit / unit)
            theta = self.train(start if self.trained_at else first.theta, theta_0, unit, t, self.steps(t))
            self.trained_at, self.is_training = t, False
            self.ask(theta, unit, first.features)
            self.totals = [{name: self.factor * claim[name] for name in ("rows", "W", "B")} for claim in self.last]
            for agent in self.agents:
                agent.trained = True
        self.dropped.append([i for i, kept in enumerate(self.kept) if not kept])
        mine = [claim for i, claim in enumerate(self.totals) if self.kept[i]]
        V = sum(claim["W"] for claim in mine) + self.config.regularization * np.eye(len(first.B_last))
        self.broadcast(t, theta, unit, V, sum(claim["B"] for claim in mine))


class Flipper(oracle_exact.Agent):
    """An attacker that learns from h_max + h_min - r, with the means that `world.means` returns."""

    def iterate(self, t):
        fired = super().iterate(t)
        means = self.world.means(self.i, t)
        true, arm = self.rewards[-1], self.arms[-1]
        self.rewards[-1] = means.max() + means.min() - true
        g = self.features(self.theta, self.contexts[-1])
        self.B_new = self.B_new + (self.rewards[-1] - true) / self.unit * g
        assert arm == self.arms[-1]
        return fired


def run(config, environment, theta_0, observations, order, means):
    """As `oracle_exact.run`, and the agents that every round drops."""
    theta_0 = torch.from_numpy(np.asarray(theta_0))
    world = oracle.World(config, environment, theta_0)
    world_with_means = World(world, means)
    honest = config.agents - int(config.byzantine_share * config.agents) if config.attack != "none" else config.agents
    flips = config.attack == "reward-flip"
    agents = [(Flipper if flips and i >= honest else oracle_exact.Agent)(config, i, world_with_means, theta_0, True)
              for i in range(config.agents)]  # fmt: skip
    server = Server(config, agents, observations, order)
    rounds = []
    for t in range(1, config.horizon + 1):
        signals = [agent.iterate(t) for agent in agents]
        if any(signals):
            server.round(t, theta_0)
            rounds.append(t)
    return np.array([agent.arms for agent in agents[:honest]]).T, rounds, server.dropped, agents[0].theta.numpy()


class World:
    """The contexts and rewards of a world, and all arms' means."""

    def __init__(self, world, means):
        self.world, self.means = world, means

    def __call__(self, i, t):
        return self.world(i, t)
