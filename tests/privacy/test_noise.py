"""The links alone: sensitivity by brute force, the law of the noise of every running sum, and an audit."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest
import torch

from fnbandit import Config
from fnbandit.core import Triangle, Upload
from fnbandit.federation.channels import Chain
from fnbandit.privacy.audit import bound_epsilon
from fnbandit.privacy.releases import plan_releases

DIM = 3
ROUNDS = (1, 3, 7, 15, 31)


@functools.cache
def make_config(**settings: Any) -> Config:
    base = {"agents": 1, "horizon": 40, "dim": DIM, "width": 4, "trigger": "geometric", "privacy": "local",
            "algorithm": "dislinucb", "privacy_allow_noise": True}  # fmt: skip
    return Config.build("tuned", "cosine", base | settings)


def make_chain(config: Config, parameters: int = DIM) -> Chain:
    return Chain(config, parameters, lambda rows: rows, parameters)


def send_rows(chain: Chain, iteration: int, rows: torch.Tensor, targets: torch.Tensor) -> Upload:
    """Send W_new and B_new of rows [n, k, p], as `FederatedGroup.upload` does."""
    rows, targets = chain.clip_rows(rows, targets)
    upload = Upload(range(len(rows)), iteration, 0, rows.new_zeros(len(rows)), rows, (targets[:, None] @ rows)[:, 0])
    return chain.send(chain.send_statistics(upload), None)


def whole_matrix(upload: Upload, scale: float) -> np.ndarray:
    """The symmetric matrices with blocks W and scale times B, and a corner of 0, of all agents."""
    n, k = upload.moments.shape
    found = np.zeros((n, k + 1, k + 1))
    rows, columns = np.triu_indices(k)
    found[:, rows, columns] = found[:, columns, rows] = upload.covariance.numpy()
    found[:, k, :k] = found[:, :k, k] = scale * upload.moments.numpy()
    return found


def test_the_sensitivity_of_statistics_bounds_all_neighbours():
    """1,000 pairs of batches that differ in one row; some rows are far longer than the clips, some opposite."""
    clip, limit = 0.8, 0.3
    config = make_config(privacy="central", privacy_feature_clip=clip, privacy_reward_clip=limit)
    draw = torch.Generator().manual_seed(0)
    rows, targets = torch.randn(1000, 5, DIM, generator=draw).double(), torch.randn(1000, 5, generator=draw).double()
    others, values = rows.clone(), targets.clone()
    others[:, 2] = 10 * torch.randn(1000, DIM, generator=draw)
    values[:, 2] = 10 * torch.randn(1000, generator=draw)
    rows[::2, 2] *= 100
    sent = [
        whole_matrix(send_rows(make_chain(config), 1, *pair), clip / limit)
        for pair in ((rows, targets), (others, values))
    ]
    distances = np.linalg.norm(sent[0] - sent[1], axis=(1, 2))
    most = 2 * math.sqrt(2) * clip**2
    assert distances.max() <= most * (1 + 1e-12) and distances.max() > 0.8 * most


def test_the_sensitivity_of_networks_bounds_all_neighbours():
    config = make_config(privacy="central", algorithm="fedigw", privacy_clip=0.7)
    draw = torch.Generator().manual_seed(0)
    known = torch.randn(6, generator=draw)
    scales = 10 ** torch.linspace(-3, 3, 1000)[:, None]
    thetas = [known + scales * torch.randn(1000, 6, generator=draw) for _ in range(2)]
    thetas[0][0], thetas[1][0] = torch.nan, torch.inf
    sent = []
    for theta in thetas:
        upload = Upload(range(1000), 1, 0, theta.new_zeros(1000), theta=theta, trained=True)
        sent.append(make_chain(config, 6).send(upload, known).theta)
    assert torch.isfinite(sent[0]).all() and torch.equal(sent[0][0], known)
    distances = (sent[0] - sent[1]).norm(dim=1)
    assert distances.max() <= 1.4 * (1 + 1e-5) and distances.max() > 1.2
    near = (thetas[0] - known).norm(dim=1) < 0.69
    assert near.any() and torch.allclose(sent[0][near], thetas[0][near], atol=1e-6)


@pytest.mark.parametrize("factorization", ["toeplitz", "tree"])
def test_the_noise_of_running_sums_has_the_covariance_of_the_factorization(factorization):
    """4,000 agents are as many draws: covariances of all pairs of running sums, entry by entry of W and B."""
    agents, clip, limit = 4000, 0.5, 2.0
    config = make_config(agents=agents, privacy_factorization=factorization, privacy_feature_clip=clip,
                         privacy_reward_clip=limit)  # fmt: skip
    chain, releases = make_chain(config), plan_releases(config)
    rows, targets = torch.zeros(agents, 1, DIM).double(), torch.zeros(agents, 1).double()
    sent = [whole_matrix(send_rows(chain, t, rows, targets), clip / limit) for t in ROUNDS]
    sums = np.cumsum(sent, axis=0)
    steps = len(ROUNDS)
    if factorization == "toeplitz":
        c = np.array([math.comb(2 * j, j) / 4**j for j in range(steps)])
        root = np.array([[c[i - j] if i >= j else 0.0 for j in range(steps)] for i in range(steps)])
        expected, sensitivity = root @ root.T, np.linalg.norm(c)
    else:  # the nodes of 1 to 5 steps: {1}; {1, 2}; {1, 2}, {3}; {1..4}; {1..4}, {5}
        nodes = [{"a"}, {"ab"}, {"ab", "c"}, {"abcd"}, {"abcd", "e"}]
        expected, sensitivity = np.array([[float(len(i & j)) for j in nodes] for i in nodes]), math.sqrt(3)
    scale = releases.noise * sensitivity * 2 * math.sqrt(2) * clip**2
    assert releases.statistics_noise == pytest.approx(releases.noise * sensitivity)
    for place, variance in (((0, 0), 1.0), ((1, 1), 1.0), ((0, 1), 0.5), ((DIM, 0), 0.5), ((DIM, 2), 0.5)):
        values = sums[:, :, place[0], place[1]] / (scale * math.sqrt(variance))
        found = values @ values.T / agents
        assert np.abs(found - expected).max() < 5 * expected.max() / math.sqrt(agents)
        assert np.abs(values.mean(1)).max() < 5 * math.sqrt(expected.max() / agents)
    # Entries are independent of each other.
    one, other = sums[-1][:, 0, 0] / scale, sums[-1][:, 0, 1] / scale
    assert abs(np.mean(one * other)) < 5 * expected.max() / math.sqrt(agents)


def test_noise_is_a_function_of_seed_agent_and_message():
    """Whatever the batch, and after a restart: only the messages' own numbers count."""
    config = make_config(agents=6)
    rows, targets = torch.zeros(6, 1, DIM).double(), torch.zeros(6, 1).double()
    chain = make_chain(config)
    sent = [send_rows(chain, t, rows, targets).covariance for t in ROUNDS]
    restarted = make_chain(config)
    restarted.load(chain.state())
    assert torch.equal(send_rows(restarted, 31, rows, targets).covariance, sent[-1])
    part = make_chain(config)
    for t, whole in zip(ROUNDS, sent, strict=True):
        upload = Upload(range(2, 4), t, 0, rows.new_zeros(2), rows[:2], rows.new_zeros(2, DIM))
        assert torch.equal(part.send(part.send_statistics(upload), None).covariance, whole[2:4])
    other = make_chain(config.replace(seed=1))
    assert not torch.equal(send_rows(other, 1, rows, targets).covariance, sent[0])


def test_central_noise_is_drawn_once_and_no_agent_has_it():
    config = make_config(agents=5, privacy="central")
    chain = make_chain(config)
    rows, targets = torch.zeros(5, 1, DIM).double(), torch.zeros(5, 1).double()
    upload = send_rows(chain, 1, rows, targets)
    assert not upload.covariance.any() and not upload.moments.any()
    totals = {"covariance": Triangle(upload.covariance.sum(0)), "moments": upload.moments.sum(0)}
    noise = chain.receive(totals, upload)["covariance"].values
    alone = make_chain(make_config(agents=6, privacy="local"))
    own = send_rows(alone, 1, torch.zeros(6, 1, DIM).double(), torch.zeros(6, 1).double()).covariance
    assert noise.all() and not any(torch.allclose(noise, one) for one in own[:5])


def test_a_message_that_is_not_accounted_for_does_not_leave():
    config = make_config(algorithm="fedigw")
    theta = torch.zeros(1, 6)
    for changes in ({"iteration": 2}, {"exchange": 1}, {"content": "curvature", "theta": None, "moments": theta}):
        given: dict[str, Any] = {"iteration": 1, "theta": theta} | changes
        upload = Upload(range(1), since=0, measure=torch.zeros(1), **given)
        with pytest.raises(RuntimeError, match="is not accounted for"):
            make_chain(config, 6).send(upload, theta[0])


PAIRS = 2000


@pytest.mark.parametrize(("epsilon", "name"), [(3.0, "networks"), (6.0, "networks"), (6.0, "statistics")])
def test_an_audit_stays_below_the_stated_epsilon(epsilon, name):
    """The best attacker on the two worst histories, on 2,000 draws of each: all agents are one draw of the noise."""
    if name == "networks":
        config = make_config(agents=PAIRS, algorithm="fedigw", privacy_epsilon=epsilon, privacy_delta=1e-5)
        chain, known = make_chain(config, 4), torch.zeros(4)
        worst = torch.tensor([100.0, 0, 0, 0])
        scores = []
        for sign in (1, -1):
            sums = np.zeros(PAIRS)
            for t in ROUNDS:
                theta = (sign * worst).repeat(PAIRS, 1)
                # The other history has noise of its own: that of other rounds' keys, of another seed.
                own = chain if sign > 0 else make_chain(config.replace(seed=1), 4)
                upload = Upload(range(PAIRS), t, 0, theta.new_zeros(PAIRS), theta=theta, trained=True)
                sums += own.send(upload, known).theta[:, 0].numpy()
            scores.append(sums)
    else:
        config = make_config(agents=PAIRS, privacy_epsilon=epsilon)
        scores = []
        c = np.array([math.comb(2 * j, j) / 4**j for j in range(len(ROUNDS))])
        root = np.array([[c[i - j] if i >= j else 0.0 for j in range(5)] for i in range(5)])
        events = torch.eye(DIM).double()[:2], (1.0, -1.0)
        change = np.zeros((DIM + 1, DIM + 1))
        change[0, 0], change[1, 1] = 1, -1
        change[DIM, :2] = change[:2, DIM] = 1
        for place, (row, target) in enumerate(zip(*events, strict=True)):
            chain = make_chain(config.replace(seed=place))
            rows, targets = torch.zeros(PAIRS, 1, DIM).double(), torch.zeros(PAIRS, 1).double()
            event = row.expand(PAIRS, 1, DIM), torch.full((PAIRS, 1), target).double()
            sent = [whole_matrix(send_rows(chain, t, *(event if t == 1 else (rows, targets))), 1.0) for t in ROUNDS]
            # E x + z = D^-1 (D E x + D z): independent draws, with the event in the first column of E.
            sums = np.array([(one * change).sum((1, 2)) for one in sent]).cumsum(0)
            scores.append(c @ np.linalg.solve(root, sums))
    found = bound_epsilon(scores[0], scores[1], config.privacy_delta)
    assert 0 < found <= epsilon


def test_the_audit_finds_a_promise_that_is_not_kept():
    """Half of the noise that the promise needs."""
    draw = np.random.default_rng(0)
    noise = 0.5 * 3.73
    one, other = (draw.normal(mean, noise, PAIRS) for mean in (1.0, 0.0))
    assert bound_epsilon(one, other, 1e-5) < 3.0
    assert bound_epsilon(one + 100, other, 1e-5) > 5.0  # ln(0.996 / 0.0037), by Clopper and Pearson
    assert bound_epsilon(other, one, 1e-5) >= 0.0
